/**
 * The sandbox of a branch: a new one, the one that a dead process left, or one restored from a checkpoint of that.
 */
import type { Checkpoint } from "@sandglass/core/Ledger"
import * as Replay from "@sandglass/core/Replay"
import type { Sandbox } from "@sandglass/core/Sandbox"
import type { SandboxFailure } from "@sandglass/core/SandboxError"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import type { WorkflowError } from "../WorkflowError.js"
import type { SandboxOptions } from "./data.js"
import { branchLabel } from "./data.js"
import { EventName } from "./events.js"
import * as Records from "./records.js"
import type { Place, Run } from "./run.js"
import { emit, fail, keyOf, ledgerFailed, recordRun } from "./run.js"

export interface Acquired {
  readonly sandbox: Sandbox
  readonly records: Records.Records
}

const sandboxFailed =
  (run: Run, place: Place) =>
  <A, R>(self: Effect.Effect<A, SandboxFailure, R>): Effect.Effect<A, WorkflowError, R> =>
    Effect.mapError(self, (failure) =>
      fail(run, failure._tag === "LedgerError" ? "LedgerFailed" : "SandboxFailed", failure.message, { place, failure })
    )

/** What `Sandboxes` takes of a branch's options. */
const requestOf = (run: Run, options: SandboxOptions) => {
  const { checkpoints: _checkpoints, once: _once, ...request } = options
  return {
    ...request,
    name: options.name ?? run.data.name,
    runId: run.runId,
    resourceId: run.resourceId,
    teamId: run.teamId,
    // Whether it is closed is the run's to say, which may have been taken over by another process.
    detached: true
  }
}

/** Keeps a handle, so that it is closed with the run: nothing comes between it and its maker. */
const kept = (
  run: Run,
  place: Place,
  make: Effect.Effect<Sandbox, WorkflowError, Scope.Scope>
): Effect.Effect<Sandbox, WorkflowError> =>
  Effect.uninterruptibleMask((restore) =>
    Effect.tap(restore(Scope.extend(make, run.scope)), (sandbox) =>
      Effect.sync(() => run.open.set(keyOf(place), sandbox))
    )
  )

/** The sandbox of this id, if it is still there. */
const living = (run: Run, place: Place, sandboxId: string, options: SandboxOptions) =>
  Effect.gen(function* () {
    const details = Option.getOrUndefined(yield* run.ledger.sandbox(sandboxId).pipe(ledgerFailed(run)))
    if (details?.status === "closed") return undefined
    const connect = run.sandboxes.connect(sandboxId, { detached: true, hooks: options.hooks }).pipe(
      Effect.map(Option.some),
      Effect.catchTag("SandboxError", (error) =>
        error.reason === "NotFound" || error.reason === "StartFailed" || error.reason === "Closed"
          ? Effect.succeed(Option.none<Sandbox>())
          : Effect.fail(error)
      ),
      sandboxFailed(run, place)
    )
    const found = yield* Effect.uninterruptibleMask((restore) =>
      Effect.tap(restore(Scope.extend(connect, run.scope)), (found) =>
        Effect.sync(() => {
          if (Option.isSome(found)) run.open.set(keyOf(place), found.value)
        })
      )
    )
    return Option.getOrUndefined(found)
  })

/** Says which finished steps would run again, where that is not wanted. */
const checkLost = (
  run: Run,
  place: Place,
  sandboxId: string,
  still: Records.Records
): Effect.Effect<void, WorkflowError> =>
  run.rerun
    ? Effect.void
    : Effect.flatMap(Records.load(run.ledger, sandboxId, { all: true }).pipe(ledgerFailed(run)), (all) => {
        const lost = [...all.ended]
          .filter(([instance, { _tag }]) => _tag === "Completed" && still.ended.get(instance)?._tag !== "Completed")
          .map(([instance]) => instance)
        return lost.length === 0
          ? Effect.void
          : Effect.fail(
              fail(
                run,
                "StepsLost",
                `the sandbox ${sandboxId} is gone, and no checkpoint covers the finished steps ${lost.join(", ")}`,
                { place }
              )
            )
      })

/** A new container from a checkpoint. */
const restored = (run: Run, place: Place, options: SandboxOptions, sandboxId: string) => {
  const { image: _image, ...request } = requestOf(run, options)
  return kept(run, place, run.sandboxes.resume(sandboxId, request).pipe(sandboxFailed(run, place)))
}

export interface AcquireOptions {
  readonly place: Place
  readonly options: SandboxOptions
  /** The branch's last sandbox. */
  readonly known: string | undefined
  readonly generations: number
  /** How many steps there are to do. */
  readonly steps: number
  /** The steps themselves, where they are to be recorded. */
  readonly definition: ReadonlyArray<string> | undefined
  /** True: it is for undoing steps of a stage whose sandbox is closed. */
  readonly rollback: boolean
}

/** A sandbox to go on in, recorded; and what is known of the steps that have run in it. */
export const acquire = (run: Run, request: AcquireOptions): Effect.Effect<Acquired, WorkflowError> =>
  Effect.gen(function* () {
    const { known, options, place } = request
    const begun = (sandbox: Sandbox, how: string) =>
      Effect.gen(function* () {
        if (!request.rollback) {
          run.sandboxIds.set(keyOf(place), { sandboxId: sandbox.id, generations: request.generations + 1 })
        }
        if (how !== "connected") {
          yield* recordRun(
            run,
            EventName.stageStarted,
            {
              stage: place.stage,
              sandboxId: sandbox.id,
              label: branchLabel(options),
              how,
              ...(request.rollback ? { rollback: true } : {}),
              definition: request.definition
            },
            { branch: place.branch }
          )
        }
        yield* emit(run, {
          _tag: "StageStarted",
          ...place,
          label: branchLabel(options),
          sandboxId: sandbox.id,
          steps: request.steps
        })
      })

    if (known !== undefined) {
      const sandbox = yield* living(run, place, known, options)
      if (sandbox !== undefined) {
        const records = yield* Records.load(run.ledger, known).pipe(ledgerFailed(run))
        yield* begun(sandbox, "connected")
        return { sandbox, records }
      }
      const checkpoint: Checkpoint | undefined = Option.getOrUndefined(
        yield* Replay.findCheckpoint(run.ledger, known).pipe(sandboxFailed(run, place))
      )
      const records =
        checkpoint === undefined
          ? Records.none
          : yield* Records.load(run.ledger, checkpoint.sandboxId, { until: checkpoint }).pipe(ledgerFailed(run))
      if (!request.rollback) yield* checkLost(run, place, known, records)
      if (checkpoint !== undefined) {
        const sandbox = yield* restored(run, place, options, known)
        yield* begun(sandbox, "restored")
        return { sandbox, records }
      }
    }
    const idempotencyKey = `${run.runId}/${keyOf(place)}/${request.generations}`
    const sandbox = yield* kept(
      run,
      place,
      run.sandboxes.create({ ...requestOf(run, options), idempotencyKey }).pipe(sandboxFailed(run, place))
    )
    yield* begun(sandbox, "created")
    return { sandbox, records: Records.none }
  })

/** Closes a branch's sandbox. */
export const close = (run: Run, key: string): Effect.Effect<void> =>
  Effect.suspend(() => {
    const sandbox = run.open.get(key)
    if (sandbox === undefined) return Effect.void
    return Effect.zipRight(
      sandbox.close,
      Effect.sync(() => run.open.delete(key))
    )
  })

/** Closes all that are open. */
export const closeAll = (run: Run): Effect.Effect<void> =>
  Effect.suspend(() =>
    Effect.forEach([...run.open.keys()], (key) => close(run, key), { concurrency: 16, discard: true })
  )

/** Closes what a dead process left behind, but for these. Forks are their makers' business. */
export const closeStrays = (run: Run, keep: ReadonlySet<string>): Effect.Effect<void, WorkflowError> =>
  run.ledger.sandboxes({ runId: run.runId }).pipe(
    Stream.filter(
      ({ parentSandboxId, sandboxId, status }) =>
        status !== "closed" && parentSandboxId === undefined && !keep.has(sandboxId)
    ),
    Stream.runCollect,
    ledgerFailed(run),
    Effect.flatMap((strays) =>
      Effect.forEach(
        strays,
        ({ sandboxId }) =>
          Effect.catchAll(run.sandboxes.close(sandboxId), (error) =>
            Effect.logWarning(`the sandbox ${sandboxId} of a process that died could not be closed`, error)
          ),
        { concurrency: 16, discard: true }
      )
    )
  )
