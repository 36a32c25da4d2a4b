/**
 * How steps fail: what a retry may repeat, and how a failure is recorded.
 */
import { isLedgerError } from "@sandglass/core/LedgerError"
import type { Json } from "@sandglass/core/LedgerEvent"
import { isOpenSandboxError } from "@sandglass/core/OpenSandboxError"
import { isSandboxError } from "@sandglass/core/SandboxError"
import * as Cause from "effect/Cause"
import * as Chunk from "effect/Chunk"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"
import type { Failure } from "../WorkflowError.js"
import { Failure as FailureSchema, WorkflowError } from "../WorkflowError.js"
import type { LeafStep, WhenStep } from "./operation.js"

/** A step failed, with whatever it failed with. */
export class StepFailure {
  readonly _tag = "StepFailure"
  constructor(
    readonly step: LeafStep | WhenStep,
    /** The step's id, with the attempts of the retries around it. */
    readonly instance: string,
    readonly error: unknown
  ) {}

  /** True where the error comes from an effect or a predicate of the application: it is reported as it is. */
  get isOwn(): boolean {
    return this.step._tag === "Effect" || this.step._tag === "When"
  }

  get message(): string {
    return messageOf(this.error)
  }

  /** For logs and spans. The step itself may hold secrets. */
  toString(): string {
    return `step ${this.instance}: ${this.message}`
  }

  toJSON(): unknown {
    return { _id: "StepFailure", step: this.instance, message: this.message }
  }
}

/** What a walk through recorded steps ends with where there are no more. */
export class Halted {
  readonly _tag = "Halted"
}

export type InterpreterError = StepFailure | Halted | WorkflowError

export const isFailure = (error: unknown): error is Failure =>
  isSandboxError(error) || isOpenSandboxError(error) || isLedgerError(error)

/** Whether it is unknown if what failed has been done. */
export const isOutcomeUnknown = (failure: Failure): boolean => {
  switch (failure._tag) {
    case "ExecError":
      return failure.reason === "Lost" || failure.reason === "Protocol" || failure.reason === "Failed"
    case "OpenSandboxError":
      return (
        failure.reason === "Transport" ||
        failure.reason === "Timeout" ||
        failure.reason === "Decode" ||
        (failure.reason === "ServerError" && (failure.status ?? 500) >= 500)
      )
    default:
      return false
  }
}

/** Operations that may be done twice without harm: of these no outcome matters that is unknown. */
const isIdempotent = (step: LeafStep | WhenStep): boolean =>
  step._tag === "WriteFile" || step._tag === "ReadFile" || step._tag === "Checkpoint"

/** Whether a retry may repeat the steps after this. */
export const isRepeatable = ({ error, step }: StepFailure, options: { readonly unknownOutcome: boolean }): boolean => {
  if (!isFailure(error)) return false
  switch (error._tag) {
    case "LedgerError":
    case "ReplayDivergence":
      return false
    case "SandboxError":
      return error.reason !== "Closed" && error.reason !== "InvalidOptions"
    case "ExecError":
      if (error.reason === "Interrupted" || error.reason === "Closed" || error.reason === "Pipe") return false
      break
    case "OpenSandboxError":
      if (error.reason === "InvalidRequest" || error.reason === "Unauthorized") return false
  }
  return options.unknownOutcome || isIdempotent(step) || !isOutcomeUnknown(error)
}

/** The failures of a cause that is nothing but failures, and what they interrupted. */
export const failuresOf = <E>(cause: Cause.Cause<E>): ReadonlyArray<E> =>
  Chunk.isEmpty(Cause.defects(cause)) ? Chunk.toReadonlyArray(Cause.failures(cause)) : []

/** JSON of it, without fields that are undefined; undefined where there is none. */
export const toPlainJson = (value: unknown): Json | undefined => {
  try {
    // What JSON.parse gives is Json.
    return JSON.parse(JSON.stringify(value)) as Json
  } catch {
    return undefined
  }
}

const encodeFailure = Schema.encodeUnknownOption(FailureSchema)
const decodeFailure = Schema.decodeUnknownOption(FailureSchema)
const encodeError = Schema.encodeUnknownOption(WorkflowError)
const decodeError = Schema.decodeUnknownOption(WorkflowError)

/** A failure for the ledger; undefined for what is not ours. */
export const toJson = (error: unknown): Json | undefined =>
  Option.getOrUndefined(Option.map(isFailure(error) ? encodeFailure(error) : encodeError(error), toPlainJson))

export const failureFromJson = (value: Json | undefined): Failure | undefined =>
  Option.getOrUndefined(decodeFailure(value))

export const errorFromJson = (value: Json | undefined): WorkflowError | undefined =>
  Option.getOrUndefined(decodeError(value))

/** In a few words, for the ledger and for people. */
export const messageOf = (error: unknown): string => {
  if (error instanceof StepFailure) return messageOf(error.error)
  if (Predicate.hasProperty(error, "message") && typeof error.message === "string") {
    const tag = Predicate.hasProperty(error, "_tag") && typeof error._tag === "string" ? error._tag : undefined
    return error.message !== "" ? error.message : (tag ?? "failed")
  }
  if (Predicate.hasProperty(error, "_tag") && typeof error._tag === "string") return error._tag
  return typeof error === "string" ? error : "failed"
}

export const causeMessage = (cause: Cause.Cause<unknown>): string =>
  Option.match(Cause.failureOption(cause), {
    onNone: () => (Cause.isInterruptedOnly(cause) ? "interrupted" : (Cause.pretty(cause).split("\n")[0] ?? "failed")),
    onSome: messageOf
  })
