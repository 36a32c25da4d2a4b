/**
 * A run from its beginning, or from where a dead process left it, to its end: stages one after another, branches beside each other, and
 * what has to be undone and closed.
 */
import { IdGenerator } from "@sandglass/core/IdGenerator"
import { Ledger } from "@sandglass/core/Ledger"
import type { Json } from "@sandglass/core/LedgerEvent"
import { Sandboxes } from "@sandglass/core/Sandboxes"
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import { WorkflowError } from "../WorkflowError.js"
import type { WorkflowEvent } from "../WorkflowEvent.js"
import type { Compiled } from "./compile.js"
import type { Branch, Data, Previous, Stage, StageKind } from "./data.js"
import { branchLabel, definitionOf, difference, problemsOf, stepLines } from "./data.js"
import { makeDriver, takeUndoable, undo } from "./driver.js"
import { EventName } from "./events.js"
import type { InterpreterError } from "./failure.js"
import { causeMessage, errorFromJson, Halted, isFailure, messageOf, toJson } from "./failure.js"
import * as Histories from "./history.js"
import type { Progress, StepResult } from "./interpret.js"
import { interpret, start } from "./interpret.js"
import { field, stringField } from "./json.js"
import type { Vars } from "./operation.js"
import * as Records from "./records.js"
import type { Place, Run } from "./run.js"
import { bounded, emit, fail, fence, keyOf, ledgerFailed, recordRun } from "./run.js"
import { acquire, close, closeAll, closeStrays } from "./sandbox.js"
import * as Texts from "./text.js"

export interface Options {
  readonly runId?: string | undefined
  readonly resourceId?: string | undefined
  readonly teamId?: string | undefined
  readonly maxOutput?: number | undefined
  readonly rerun?: boolean | undefined
  /** True: takes up the run of this id. */
  readonly resume?: boolean | undefined
  readonly emit?: ((event: WorkflowEvent) => Effect.Effect<void>) | undefined
}

export interface BranchResult {
  readonly label: string
  readonly exitCode: number | undefined
  readonly stdout: string
  readonly vars: Vars
  readonly steps: ReadonlyArray<StepResult>
}

export interface StageResult {
  readonly kind: StageKind
  readonly exitCode: number | undefined
  readonly stdout: string
  readonly vars: Vars
  readonly branches: ReadonlyArray<BranchResult>
}

export interface Result {
  readonly runId: string
  readonly stdout: string
  readonly truncated: boolean
  readonly vars: Vars
  readonly stages: ReadonlyArray<StageResult>
}

const defaultMaxOutput = 8_388_608

/** What a workflow fails with: its own error, or what an effect or a predicate of the application failed with, as it is. */
const reported = (run: Run, place: Place, error: InterpreterError): unknown => {
  if (error instanceof WorkflowError) return error
  if (error instanceof Halted)
    return fail(run, "LedgerFailed", "the ledger does not hold all steps of a finished stage", { place })
  const { instance: step } = error
  if (error.isOwn) return error.error
  const failure = isFailure(error.error) ? error.error : undefined
  return fail(run, failure?._tag === "LedgerError" ? "LedgerFailed" : "StepFailed", messageOf(error), {
    place,
    step,
    failure
  })
}

interface Done {
  readonly place: Place
  readonly branch: Branch
  readonly progress: Progress
}

const placeOf = ({ kind }: Stage, stage: number, index: number): Place => ({
  stage,
  branch: kind === "parallel" ? index : undefined
})

/** The steps of a branch. */
const stepsOf = (
  run: Run,
  { body }: Branch,
  place: Place,
  previous: Previous
): Effect.Effect<Compiled, WorkflowError> =>
  Effect.gen(function* () {
    if (typeof body !== "function") return body
    const compiled = yield* Effect.sync(() => body(previous))
    const [problem] = compiled.problems
    if (problem !== undefined) return yield* fail(run, "InvalidInput", problem, { place })
    const recorded = run.history?.branches.get(keyOf(place))?.definition
    const changes = recorded === undefined ? [] : difference(recorded, stepLines(compiled))
    if (changes.length > 0) {
      return yield* fail(run, "DefinitionChanged", "the steps of a stage that has begun are others now", {
        place,
        difference: changes
      })
    }
    return compiled
  })

type Walk = "live" | "walk"

const runBranch = (run: Run, branch: Branch, place: Place, previous: Previous, how: Walk) =>
  Effect.gen(function* () {
    const key = keyOf(place)
    const known = run.history?.branches.get(key)
    const compiled = yield* stepsOf(run, branch, place, previous)
    const { checkpoints = "manual", once = true } = branch.options
    const session = { place, checkpoints, once, undoing: false }
    const before = { ...start, vars: previous.vars }
    if (known?.completed === true || how === "walk") {
      if (known === undefined) return yield* Effect.fail(new Halted())
      const walk = how === "walk"
      const records = yield* Records.load(run.ledger, known.sandboxId, { all: walk }).pipe(ledgerFailed(run))
      const driver = makeDriver(run, { ...session, records, sandbox: undefined, walk })
      return yield* interpret(compiled.steps, driver, before)
    }
    const { records, sandbox } = yield* acquire(run, {
      place,
      options: branch.options,
      known: known?.sandboxId,
      generations: known?.generations ?? 0,
      steps: compiled.size,
      definition: typeof branch.body === "function" ? stepLines(compiled) : undefined,
      rollback: false
    })
    const driver = makeDriver(run, { ...session, records, sandbox, walk: false })
    const progress = yield* interpret(compiled.steps, driver, before)
    yield* fence(run)
    yield* recordRun(
      run,
      EventName.stageCompleted,
      { stage: place.stage, sandboxId: sandbox.id },
      { branch: place.branch }
    )
    yield* emit(run, { _tag: "StageCompleted", ...place })
    // One that has something to undo stays until the stage has ended well.
    if (!run.undoable.some((undoable) => keyOf(undoable.place) === key)) yield* close(run, key)
    return progress
  }).pipe(
    Effect.withSpan("Workflow.stage", {
      captureStackTrace: false,
      attributes: { "workflow.name": run.data.name, "workflow.run.id": run.runId, "workflow.stage": keyOf(place) }
    })
  )

const runStage = (run: Run, stage: Stage, index: number, previous: Previous, how: Walk) => {
  const branches = stage.branches.map((branch, position) => {
    const place = placeOf(stage, index, position)
    return Effect.map(
      runBranch(run, branch, place, previous, how),
      (progress): Done => ({ place, branch, progress })
    ).pipe(
      Effect.mapError((error) => (error instanceof Halted && how === "walk" ? error : reported(run, place, error)))
    )
  })
  return how === "walk"
    ? Effect.flatMap(Effect.forEach(branches, Effect.exit), (exits) =>
        Option.getOrElse(Exit.all(exits), () => Exit.succeed<Array<Done>>([]))
      )
    : Effect.all(branches, { concurrency: stage.concurrency })
}

const branchResult = ({ branch, progress }: Done, maxOutput: number): BranchResult => ({
  label: branchLabel(branch.options),
  exitCode: progress.exitCode,
  stdout: Texts.render(progress.stdout, maxOutput),
  vars: progress.vars,
  steps: progress.results
})

/** All stages, one after another. */
const runStages = (run: Run, how: Walk) =>
  Effect.gen(function* () {
    const { maxOutput } = run
    let previous: Previous = { stdout: "", exitCode: undefined, vars: {} }
    let stdout = Texts.empty
    let truncated = false
    const stages: Array<StageResult> = []
    for (const [index, stage] of run.data.stages.entries()) {
      const done = yield* runStage(run, stage, index, previous, how)
      let output = Texts.empty
      let exitCode: number | undefined
      let vars: Vars = {}
      for (const { progress } of done) {
        output = Texts.concat(output, progress.stdout, maxOutput)
        exitCode = progress.exitCode ?? exitCode
        vars = { ...vars, ...progress.vars }
        truncated ||= progress.truncated
      }
      if (how === "live") yield* Effect.forEach(done, ({ place }) => close(run, keyOf(place)), { discard: true })
      stdout = Texts.concat(stdout, output, maxOutput)
      const text = Texts.render(output, maxOutput)
      stages.push({
        kind: stage.kind,
        exitCode,
        stdout: text,
        vars,
        branches: done.map((each) => branchResult(each, maxOutput))
      })
      previous = { stdout: text, exitCode, vars: { ...previous.vars, ...vars } }
    }
    const result: Result = {
      runId: run.runId,
      stdout: Texts.render(stdout, maxOutput),
      truncated: truncated || Texts.isTruncated(stdout),
      vars: previous.vars,
      stages
    }
    return result
  })

/** What was undone before a process died, in whichever sandbox. */
const undoneBefore = (run: Run, known: Histories.BranchHistory | undefined) =>
  Effect.map(
    Effect.forEach(known === undefined ? [] : [known.sandboxId, ...known.rollbackIds], (sandboxId) =>
      Records.load(run.ledger, sandboxId, { all: true }).pipe(ledgerFailed(run))
    ),
    (all): ReadonlySet<string> => new Set(all.flatMap(({ rolledBack }) => [...rolledBack]))
  )

/**
 * Undoes what has completed, the last first. Stages that had ended get a sandbox of their own for it: from their last checkpoint, or else a
 * new one.
 */
const compensate = (run: Run): Effect.Effect<void, unknown, unknown> =>
  Effect.gen(function* () {
    const failures: Array<Cause.Cause<unknown>> = []
    const places = [...new Map(run.undoable.map(({ place }) => [keyOf(place), place])).values()].sort(
      (a, b) => b.stage - a.stage || (b.branch ?? 0) - (a.branch ?? 0)
    )
    // No more is open than has something to undo: the number of sandboxes may be limited.
    for (const key of [...run.open.keys()]) if (!places.some((place) => keyOf(place) === key)) yield* close(run, key)
    for (const place of places) {
      const branch = run.data.stages[place.stage]?.branches[place.branch ?? 0]
      if (branch === undefined) continue
      const key = keyOf(place)
      const known = run.history?.branches.get(key)
      const last = run.sandboxIds.get(key)
      const open = run.open.get(key)
      const undone = yield* undoneBefore(run, known)
      const left = takeUndoable(run, (undoable) => keyOf(undoable.place) === key).filter(
        ({ instance }) => !undone.has(instance)
      )
      if (left.length === 0) continue
      const acquired = yield* Effect.exit(
        open === undefined
          ? acquire(run, {
              place,
              options: branch.options,
              known: known?.rollbackIds.at(-1) ?? last?.sandboxId,
              generations: last?.generations ?? 0,
              steps: 0,
              definition: undefined,
              rollback: true
            })
          : Effect.map(
              known === undefined
                ? Effect.succeed(Records.none)
                : Records.load(run.ledger, open.id).pipe(ledgerFailed(run)),
              (records) => ({ sandbox: open, records })
            )
      )
      if (Exit.isFailure(acquired)) {
        if (Cause.isInterruptedOnly(acquired.cause)) return yield* Effect.failCause(acquired.cause)
        failures.push(acquired.cause)
        continue
      }
      const { records, sandbox } = acquired.value
      const session = {
        place,
        sandbox,
        records,
        checkpoints: "manual" as const,
        once: branch.options.once ?? true,
        undoing: true,
        walk: false
      }
      for (const undoable of left) {
        const exit = yield* Effect.exit(undo(run, session, undoable))
        if (Exit.isSuccess(exit)) continue
        if (run.superseded || Cause.isInterruptedOnly(exit.cause)) return yield* Effect.failCause(exit.cause)
        yield* Effect.logWarning(`${run.data.name}: step ${undoable.instance} could not be undone`, exit.cause)
        failures.push(Cause.map(exit.cause, (error) => reported(run, place, error)))
      }
      yield* close(run, key)
    }
    const [first, ...rest] = failures
    if (first !== undefined) return yield* Effect.failCause(rest.reduce(Cause.sequential, first))
  })

/** The failure of a run for its record. */
const failurePayload = (cause: Cause.Cause<unknown>): { readonly [name: string]: Json | undefined } => ({
  message: causeMessage(cause),
  error: toJson(Option.getOrUndefined(Cause.failureOption(cause)))
})

/** The failure that a run's record tells of. */
const recordedFailure = (run: Pick<Run, "data" | "runId">, failing: Json | undefined): WorkflowError =>
  errorFromJson(field(failing, "error")) ??
  fail(run, "RunFailed", stringField(failing, "message") ?? "it failed before")

/** Closes everything; the run can be resumed. What another process has taken up meanwhile is left to it. */
const interruptRun = (run: Run, cause: Cause.Cause<unknown>) =>
  Effect.gen(function* () {
    yield* bounded("looking for another process", "5 seconds", Effect.ignore(fence(run)))
    if (!run.superseded) {
      yield* closeAll(run)
      yield* bounded("recording run.interrupted", "5 seconds", recordRun(run, EventName.runInterrupted))
    }
    return yield* Effect.failCause(cause)
  })

type Restore = <A, E, R>(self: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>

/** Undoes, closes and records what is left to do after a failure, and tells it. */
const failRun = (run: Run, cause: Cause.Cause<unknown>, restore: Restore) =>
  Effect.gen(function* () {
    const undoing = yield* Effect.exit(
      restore(
        Effect.gen(function* () {
          yield* fence(run)
          if (run.history?.failing === undefined) {
            yield* recordRun(run, EventName.runFailing, failurePayload(cause), { error: causeMessage(cause) })
          }
          yield* compensate(run)
        })
      )
    )
    if (run.superseded) return yield* Effect.failCause(cause)
    if (Exit.isFailure(undoing) && Cause.isInterruptedOnly(undoing.cause))
      return yield* interruptRun(run, undoing.cause)
    yield* closeAll(run)
    const whole = Exit.isFailure(undoing) ? Cause.sequential(cause, undoing.cause) : cause
    yield* bounded(
      "recording run.failed",
      "5 seconds",
      recordRun(run, EventName.runFailed, failurePayload(cause), { error: causeMessage(cause) })
    )
    yield* restore(emit(run, { _tag: "RunFailed", runId: run.runId, message: causeMessage(cause) }))
    return yield* Effect.failCause(whole)
  })

/** A run that its ledger has failed cannot say how it ends, nor what it undoes: like one that was interrupted, it can be resumed. */
const isUnrecordable = (cause: Cause.Cause<unknown>): boolean =>
  [...Cause.failures(cause)].some((error) => error instanceof WorkflowError && error.reason === "LedgerFailed")

/** From the first stage, or the one where the last process stopped, to the end. */
const conduct = (run: Run): Effect.Effect<Result, unknown, unknown> =>
  Effect.uninterruptibleMask((restore) =>
    Effect.gen(function* () {
      const { history } = run
      const resumed = history !== undefined
      const exit = yield* Effect.exit(
        restore(
          Effect.gen(function* () {
            yield* emit(run, { _tag: "RunStarted", runId: run.runId, resumed })
            if (history?.failing !== undefined) {
              // How it will end is known; what has completed is gone through for what is to be undone.
              yield* Effect.exit(runStages(run, "walk"))
              return yield* recordedFailure(run, history.failing)
            }
            if (resumed) yield* closeStrays(run, sandboxesOf(history))
            const result = yield* runStages(run, "live")
            yield* fence(run)
            return result
          })
        )
      )
      if (run.superseded) return yield* exit
      if (Exit.isSuccess(exit)) {
        yield* closeAll(run)
        if (resumed) yield* bounded("closing what was left", "30 seconds", closeStrays(run, new Set()))
        yield* recordRun(run, EventName.runCompleted)
        yield* restore(emit(run, { _tag: "RunCompleted", runId: run.runId }))
        return exit.value
      }
      if (Cause.isInterruptedOnly(exit.cause) || isUnrecordable(exit.cause)) return yield* interruptRun(run, exit.cause)
      const failed = yield* Effect.exit(failRun(run, exit.cause, restore))
      if (resumed && !run.superseded) {
        yield* bounded("closing what was left", "30 seconds", closeStrays(run, new Set()))
      }
      return yield* failed
    })
  )

/** The sandboxes that a run goes on in. */
const sandboxesOf = ({ branches }: Histories.History): ReadonlySet<string> =>
  new Set(
    [...branches.values()].flatMap(({ completed, rollbackIds, sandboxId }) => [
      ...(completed ? [] : [sandboxId]),
      ...rollbackIds
    ])
  )

/** Starts a run, or takes one up; resumed and ended runs answer from the ledger. */
export const execute = (data: Data, options: Options): Effect.Effect<Result, unknown, unknown> =>
  Effect.gen(function* () {
    const ids = yield* IdGenerator
    const ledger = yield* Ledger
    const sandboxes = yield* Sandboxes
    const runId = options.runId ?? (yield* ids.next)
    const self = { data, runId, ledger }
    const { maxOutput = defaultMaxOutput } = options
    const problems = [
      ...problemsOf(data),
      ...(runId.trim() === "" ? ["the id of the run is blank"] : []),
      ...(maxOutput >= 0 ? [] : [`maxOutput is ${maxOutput}`])
    ]
    if (problems.length > 0) return yield* fail(self, "InvalidInput", problems.join("; "))

    const definition = definitionOf(data)
    const history = options.resume === true ? yield* Histories.load(ledger, runId).pipe(ledgerFailed(self)) : undefined
    if (options.resume === true) {
      if (history === undefined) {
        return yield* fail(self, "RunNotFound", `the ledger holds no run ${runId}`)
      }
      const changes = difference(history.definition, definition)
      if (changes.length > 0) {
        return yield* fail(self, "DefinitionChanged", "the workflow is not the one that the run was started with", {
          difference: changes
        })
      }
    } else {
      const taken = yield* Stream.runHead(ledger.read({ sandboxId: runId, limit: 1 })).pipe(ledgerFailed(self))
      if (Option.isSome(taken)) return yield* fail(self, "RunExists", `the ledger holds a run ${runId} already`)
    }
    if (history?.ended === "failed") return yield* recordedFailure(self, history.failing)

    const resourceId = history?.resourceId ?? options.resourceId
    const teamId = history?.teamId ?? options.teamId
    const claims = (history?.claims ?? 0) + 1
    const token = yield* ids.next
    const claim =
      history?.ended === "completed"
        ? { ts: 0, id: 0 }
        : yield* history === undefined
            ? recordRun(self, EventName.runStarted, { definition, resourceId, teamId, token })
            : recordRun(self, EventName.runResumed, { claims, token })
    if (history === undefined) {
      // Of two that start a run of the same id at the same time one is the first.
      const first = yield* Stream.runHead(
        ledger.read({ sandboxId: runId, events: [EventName.runStarted], limit: 1 })
      ).pipe(ledgerFailed(self))
      if (Option.isSome(first) && first.value.id !== claim.id) {
        return yield* fail(self, "RunExists", `another process has just started the run ${runId}`)
      }
    }
    const scope = yield* Effect.scope
    const run: Run = {
      ...self,
      resourceId,
      teamId,
      claims,
      claim: { ts: claim.ts, id: claim.id },
      history,
      sandboxes,
      open: new Map(),
      sandboxIds: new Map(
        [...(history?.branches ?? [])].map(([key, { generations, sandboxId }]) => [key, { sandboxId, generations }])
      ),
      undoable: [],
      scope,
      maxOutput,
      rerun: options.rerun ?? true,
      emit: options.emit,
      superseded: false
    }
    return yield* history?.ended === "completed" ? runStages(run, "live") : conduct(run)
  }).pipe(
    Effect.scoped,
    Effect.withSpan("Workflow.run", { captureStackTrace: false, attributes: { "workflow.name": data.name } })
  )
