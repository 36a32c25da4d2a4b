/**
 * The tree that a workflow consists of: plain data, types of variables, errors and requirements erased. An `Operation` is what a builder
 * queues; a `Step` is an operation with its place.
 */
import type { ExecOptions } from "@sandglass/core/Exec"
import type { Sandbox } from "@sandglass/core/Sandbox"
import type { Permission } from "@sandglass/core/SandboxFiles"
import type * as Effect from "effect/Effect"
import type * as Redacted from "effect/Redacted"
import type * as Schedule from "effect/Schedule"
import type * as Schema from "effect/Schema"
import type { Context as TypedContext } from "../Steps.js"

export type Vars = { readonly [name: string]: unknown }
export type Context = TypedContext<Vars>
export type Dynamic<A> = A | ((ctx: Context) => A)
export type Command = string | ReadonlyArray<string>
export type Content = string | Uint8Array | Redacted.Redacted

interface Leaf {
  readonly label: string | undefined
}

export interface Exec extends Leaf {
  readonly _tag: "Exec"
  readonly command: Dynamic<Command>
  readonly options: Omit<ExecOptions, "key" | "idempotencyKey">
  readonly once: boolean | undefined
}

export interface Code extends Leaf {
  readonly _tag: "Code"
  readonly code: Dynamic<string>
  readonly language: string
  readonly maxOutput: number | undefined
}

export interface WriteFile extends Leaf {
  readonly _tag: "WriteFile"
  readonly path: Dynamic<string>
  readonly content: Dynamic<Content>
  readonly permission: Permission
}

export interface ReadFile extends Leaf {
  readonly _tag: "ReadFile"
  readonly path: Dynamic<string>
  readonly as: string
  readonly maxBytes: number
}

export interface DeleteFile extends Leaf {
  readonly _tag: "DeleteFile"
  readonly path: Dynamic<string>
}

export interface MoveFile extends Leaf {
  readonly _tag: "MoveFile"
  readonly from: Dynamic<string>
  readonly to: Dynamic<string>
}

export interface Checkpoint extends Leaf {
  readonly _tag: "Checkpoint"
  readonly tag: string | undefined
}

export interface Run extends Leaf {
  readonly _tag: "Effect"
  readonly label: string
  readonly run: (sandbox: Sandbox, ctx: Context) => Effect.Effect<unknown, unknown, unknown>
  readonly as: string | undefined
  readonly schema: Schema.Schema<unknown, unknown> | undefined
}

/** What is carried out as one thing, in a sandbox. */
export type LeafOperation = Exec | Code | WriteFile | ReadFile | DeleteFile | MoveFile | Checkpoint | Run

export interface Retry<Body> {
  readonly _tag: "Retry"
  readonly times: number
  readonly schedule: Schedule.Schedule<unknown, unknown, unknown> | undefined
  readonly unknownOutcome: boolean
  readonly body: Body
}

export interface When<Body> {
  readonly _tag: "When"
  readonly predicate: (ctx: Context) => boolean | Effect.Effect<boolean, unknown, unknown>
  /** The way that is gone where the predicate holds. */
  readonly yes: Body
  readonly no: Body | undefined
}

export interface ForEach<Body> {
  readonly _tag: "ForEach"
  readonly concurrency: number | "unbounded"
  /** How each item is shown. */
  readonly items: ReadonlyArray<string>
  readonly iterations: ReadonlyArray<Body>
}

/** A mistake of the one who wrote the workflow: told when it is run. */
export interface Invalid {
  readonly _tag: "Invalid"
  readonly problem: string
}

export type Operation =
  | (LeafOperation & { readonly rollback: ReadonlyArray<Operation> | undefined })
  | Retry<ReadonlyArray<Operation>>
  | When<ReadonlyArray<Operation>>
  | ForEach<ReadonlyArray<Operation>>
  | Invalid

/** Where a step stands. */
export interface Place {
  /** Its number within its stage, in the order in which the steps are written. */
  readonly idx: number
  /** Within its stage: `2`, in a retry `2.0`, in a when `3.then.0`, of an item `4[1].0`, of a rollback `1!0`. */
  readonly id: string
  /** The last part of the id, to which a run adds attempts. */
  readonly segment: string
}

export type LeafStep = LeafOperation &
  Place & {
    readonly rollback: ReadonlyArray<Step> | undefined
    /**
     * Of commands and code: set where a `when` decides on the exit code, to the number of retries around the step that come before it: they
     * may still try again.
     */
    readonly decided: number | undefined
  }

export type RetryStep = Retry<ReadonlyArray<Step>> & Place
export type WhenStep = When<ReadonlyArray<Step>> & Place
export type ForEachStep = ForEach<ReadonlyArray<Step>> & Place

export type Step = LeafStep | RetryStep | WhenStep | ForEachStep

export const isLeaf = (step: Step): step is LeafStep =>
  step._tag !== "Retry" && step._tag !== "When" && step._tag !== "ForEach"
