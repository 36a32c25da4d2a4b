/**
 * What the parts of a run share.
 */
import type { EventInput, Ledger } from "@sandglass/core/Ledger"
import type { LedgerError } from "@sandglass/core/LedgerError"
import type { Cursor, Json, LedgerEntry } from "@sandglass/core/LedgerEvent"
import type { Sandbox } from "@sandglass/core/Sandbox"
import type { Sandboxes } from "@sandglass/core/Sandboxes"
import type * as ServiceContext from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import type { Failure, WorkflowErrorReason } from "../WorkflowError.js"
import { WorkflowError } from "../WorkflowError.js"
import type { WorkflowEvent } from "../WorkflowEvent.js"
import type { Data } from "./data.js"
import type { History } from "./history.js"
import { branchKey, isSuperseded } from "./history.js"
import type { Snapshot } from "./interpret.js"
import { jsonObject } from "./json.js"
import type { LeafStep } from "./operation.js"

/** A branch of a stage in a run. */
export interface Place {
  readonly stage: number
  readonly branch: number | undefined
}

export const keyOf = ({ branch, stage }: Place): string => branchKey(stage, branch)

/** A completed step that can be undone. */
export interface Undoable {
  readonly place: Place
  readonly instance: string
  readonly step: LeafStep
  /** What was known when it had completed. */
  readonly snapshot: Snapshot
  /** Its place among the others: the id of its record. */
  readonly order: number
}

export interface Run {
  readonly data: Data
  readonly runId: string
  readonly resourceId: string | undefined
  readonly teamId: string | undefined
  /** How often the run has been started and resumed, this time included. */
  readonly claims: number
  /** Where this process took it up. */
  readonly claim: Cursor
  readonly history: History | undefined
  readonly ledger: ServiceContext.Tag.Service<Ledger>
  readonly sandboxes: ServiceContext.Tag.Service<Sandboxes>
  /** The handles that are open, by branch. */
  readonly open: Map<string, Sandbox>
  /** The sandboxes that the branches' steps ran in, and how many each branch has had. */
  readonly sandboxIds: Map<string, { readonly sandboxId: string; readonly generations: number }>
  readonly undoable: Array<Undoable>
  readonly scope: Scope.Scope
  readonly maxOutput: number
  readonly rerun: boolean
  readonly emit: ((event: WorkflowEvent) => Effect.Effect<void>) | undefined
  /** Another process has taken up the run: it is no longer ours to touch. */
  superseded: boolean
}

export const fail = (
  run: Pick<Run, "data" | "runId">,
  reason: WorkflowErrorReason,
  description: string,
  more: {
    readonly place?: Place | undefined
    readonly step?: string | undefined
    readonly failure?: Failure | undefined
    readonly difference?: ReadonlyArray<string> | undefined
  } = {}
): WorkflowError =>
  new WorkflowError({
    workflow: run.data.name,
    runId: run.runId,
    reason,
    description,
    ...(more.place === undefined ? {} : { stage: more.place.stage }),
    ...(more.place?.branch === undefined ? {} : { branch: more.place.branch }),
    ...(more.step === undefined ? {} : { step: more.step }),
    ...(more.failure === undefined ? {} : { failure: more.failure }),
    ...(more.difference === undefined ? {} : { difference: more.difference })
  })

export const ledgerFailed =
  (run: Pick<Run, "data" | "runId">) =>
  <A, R>(self: Effect.Effect<A, LedgerError, R>): Effect.Effect<A, WorkflowError, R> =>
    Effect.mapError(self, (failure) => fail(run, "LedgerFailed", failure.message, { failure }))

/** Records an event of the run as a whole. */
export const recordRun = (
  run: Pick<Run, "data" | "runId" | "ledger">,
  event: string,
  payload: { readonly [name: string]: Json | undefined } = {},
  more: Pick<EventInput, "branch" | "error"> = {}
): Effect.Effect<LedgerEntry, WorkflowError> =>
  run.ledger
    .append({
      sandboxId: run.runId,
      name: run.data.name,
      event,
      payload: jsonObject({ runId: run.runId, ...payload }),
      ...more
    })
    .pipe(ledgerFailed(run))

/** Records an event of a step. */
export const recordStep = (
  run: Run,
  place: Place,
  sandbox: Sandbox,
  step: { readonly idx: number; readonly instance: string },
  event: string,
  payload: { readonly [name: string]: Json | undefined } = {},
  error?: string
): Effect.Effect<LedgerEntry, WorkflowError> =>
  run.ledger
    .append({
      sandboxId: sandbox.id,
      name: sandbox.name,
      stepIdx: step.idx,
      branch: place.branch,
      event,
      payload: jsonObject({ runId: run.runId, stage: place.stage, step: step.instance, ...payload }),
      error
    })
    .pipe(ledgerFailed(run))

/** Stops where another process has taken up the run. */
export const fence = (run: Run): Effect.Effect<void, WorkflowError> =>
  Effect.flatMap(isSuperseded(run.ledger, run.runId, run.claim).pipe(ledgerFailed(run)), (superseded) => {
    if (!superseded) return Effect.void
    run.superseded = true
    return Effect.fail(fail(run, "Superseded", "another process has resumed the run"))
  })

export const emit = (run: Run, event: WorkflowEvent): Effect.Effect<void> =>
  run.emit === undefined ? Effect.void : run.emit(event)

/** For what has to be done at the end, come what may: within a time, and logged instead of failing. */
export const bounded = <A, E, R>(
  what: string,
  timeout: Duration.DurationInput,
  self: Effect.Effect<A, E, R>
): Effect.Effect<void, never, R> =>
  self.pipe(
    Effect.interruptible,
    Effect.disconnect,
    Effect.interruptible,
    Effect.timeout(timeout),
    Effect.catchAllCause((cause) => Effect.logWarning(`${what} failed`, cause)),
    Effect.asVoid
  )
