/**
 * Carries steps out in a sandbox, each recorded before and after; what is recorded as ended is answered from the ledger.
 */
import type { OutputChunk } from "@sandglass/core/Exec"
import type { Sandbox } from "@sandglass/core/Sandbox"
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import type { WorkflowError } from "../WorkflowError.js"
import type { StepSite } from "../WorkflowEvent.js"
import { decide } from "./build.js"
import { kindOf, labelOf, oneLine, shownCommand } from "./describe.js"
import { EventName } from "./events.js"
import type { Executed, Resolved } from "./execute.js"
import { describeResolved, execute, outputLimit, recordedVars, resolve, Unrecordable } from "./execute.js"
import type { InterpreterError } from "./failure.js"
import { causeMessage, failureFromJson, failuresOf, Halted, StepFailure, toJson } from "./failure.js"
import type { Driver, Outcome, Position, Snapshot, Verdict } from "./interpret.js"
import { after, contextOf, interpret, start } from "./interpret.js"
import { field, numberField, stringField } from "./json.js"
import type { LeafStep, WhenStep } from "./operation.js"
import * as Records from "./records.js"
import type { Place, Run, Undoable } from "./run.js"
import { bounded, emit, fail, fence, keyOf, ledgerFailed, recordStep } from "./run.js"
import * as Texts from "./text.js"

export interface Session {
  readonly place: Place
  /** Undefined where nothing is to be carried out any more. */
  readonly sandbox: Sandbox | undefined
  readonly records: Records.Records
  readonly checkpoints: "manual" | "each-step"
  readonly once: boolean
  /** True: the steps undo others, and are not undone themselves. */
  readonly undoing: boolean
  readonly walk: boolean
}

/** Everything that changes something, so that a checkpoint of it is worth its time. */
const changesSandbox = ({ _tag }: LeafStep): boolean => _tag !== "ReadFile" && _tag !== "Checkpoint"

/** What a step is called when it is known what it does. */
const liveLabel = (step: LeafStep, resolved: Resolved): string =>
  step.label === undefined && resolved._tag === "Exec" ? oneLine(shownCommand(resolved.command)) : labelOf(step)

/** What is known after a step. */
const snapshotAfter = (before: Snapshot, { exitCode, stdout = "", vars = start.vars }: Outcome, maxOutput: number) =>
  after(before, { stdout: Texts.append(Texts.empty, stdout, maxOutput), exitCode, vars }, maxOutput)

export const makeDriver = (run: Run, session: Session): Driver => {
  const { place, records, sandbox } = session
  const { maxOutput } = run

  const siteOf = (step: LeafStep | WhenStep, instance: string): StepSite => ({
    ...place,
    step: instance,
    idx: step.idx,
    kind: kindOf(step),
    label: labelOf(step)
  })

  const problem = (
    instance: string,
    reason: "LedgerFailed" | "StepFailed" | "DefinitionChanged",
    description: string
  ) => fail(run, reason, description, { place, step: instance })

  const completed = (step: LeafStep, instance: string, before: Snapshot, outcome: Outcome, order: number) => {
    if (step.rollback === undefined || session.undoing || records.rolledBack.has(instance)) return
    run.undoable.push({ place, instance, step, order, snapshot: snapshotAfter(before, outcome, maxOutput) })
  }

  /** What a recorded step came to. */
  const recall = (step: LeafStep, instance: string, resolved: Resolved, record: Records.StepRecord) =>
    Effect.gen(function* () {
      const { payload } = record
      const asked = describeResolved(resolved)
      for (const [name, value] of Object.entries(asked)) {
        const recorded = field(payload, name)
        if (recorded === undefined || JSON.stringify(recorded) === JSON.stringify(value)) continue
        return yield* fail(run, "DefinitionChanged", "a step that has run does something else now", {
          place,
          step: instance,
          difference: [`- ${name}: ${JSON.stringify(recorded)}`, `+ ${name}: ${JSON.stringify(value)}`]
        })
      }
      const vars = yield* Effect.mapError(recordedVars(step, field(payload, "vars")), ({ description }) =>
        problem(instance, "DefinitionChanged", description)
      )
      if (step._tag !== "Exec" && step._tag !== "Code") return vars === undefined ? {} : { vars }
      const output = yield* Records.outputOf(run.ledger, records, `step:${instance}`, outputLimit(step)).pipe(
        ledgerFailed(run)
      )
      if (output === undefined) {
        return yield* problem(instance, "LedgerFailed", "the output of a completed step is not in the ledger")
      }
      return { exitCode: numberField(payload, "exitCode"), ...output }
    })

  /** Records how a step failed, whatever it failed with. */
  const onFailure =
    (sandbox: Sandbox, step: LeafStep | WhenStep, instance: string) =>
    <A>(self: Effect.Effect<A, InterpreterError, unknown>): Effect.Effect<A, InterpreterError, unknown> =>
      self.pipe(
        Effect.onInterrupt(() =>
          run.superseded
            ? Effect.void
            : bounded(
                "recording step.failed",
                "5 seconds",
                recordStep(
                  run,
                  place,
                  sandbox,
                  { idx: step.idx, instance },
                  EventName.stepFailed,
                  { interrupted: true },
                  "interrupted"
                )
              )
        ),
        Effect.catchAllCause((cause) => {
          if (run.superseded || Cause.isInterruptedOnly(cause)) return Effect.failCause(cause)
          const message = causeMessage(cause)
          const [failure] = failuresOf(cause)
          const own = failure instanceof StepFailure ? failure.error : failure
          return recordStep(
            run,
            place,
            sandbox,
            { idx: step.idx, instance },
            EventName.stepFailed,
            { failure: toJson(own) },
            message
          ).pipe(
            Effect.catchAllCause((recording) => Effect.failCause(Cause.sequential(cause, recording))),
            Effect.zipRight(emit(run, { _tag: "StepFailed", ...siteOf(step, instance), message })),
            Effect.zipRight(Effect.failCause(cause))
          )
        })
      )

  const live = (
    step: LeafStep,
    { attempt, instance }: Position,
    before: Snapshot,
    resolved: Resolved,
    sandbox: Sandbox,
    verdict: Verdict
  ) =>
    Effect.gen(function* () {
      const site = { ...siteOf(step, instance), label: liveLabel(step, resolved) }
      const at = { idx: step.idx, instance }
      const what = describeResolved(resolved)
      yield* recordStep(run, place, sandbox, at, EventName.stepStarted, {
        kind: site.kind,
        label: site.label,
        ...(attempt > 1 ? { attempt } : {}),
        ...what
      })
      yield* fence(run)
      yield* emit(run, { _tag: "StepStarted", ...site })
      const failed = (error: unknown): InterpreterError =>
        error instanceof Unrecordable
          ? problem(instance, "StepFailed", error.description)
          : new StepFailure(step, instance, error)
      const executed: Executed = yield* execute(resolved, contextOf(before, maxOutput), {
        sandbox,
        key: `step:${instance}`,
        effectKey: `effect:${instance}#${run.claims}`,
        again: records.begun.has(instance),
        once: (step._tag === "Exec" ? step.once : undefined) ?? session.once,
        onOutput:
          run.emit === undefined
            ? undefined
            : (chunks: ReadonlyArray<OutputChunk>) =>
                Effect.forEach(chunks, ({ stream, text }) => emit(run, { _tag: "Output", ...site, stream, text }), {
                  discard: true
                })
      }).pipe(Effect.mapError(failed))
      if (executed.error !== undefined) {
        const failure = new StepFailure(step, instance, executed.error)
        if (yield* verdict(failure)) return yield* Effect.fail(failure)
      }
      const snapshotId =
        session.checkpoints === "each-step" && changesSandbox(step)
          ? yield* sandbox.checkpoint().pipe(
              Effect.map((checkpoint) => checkpoint.snapshotId),
              Effect.mapError(failed)
            )
          : executed.snapshotId
      const { outcome } = executed
      const { id } = yield* recordStep(run, place, sandbox, at, EventName.stepCompleted, {
        kind: site.kind,
        ...what,
        exitCode: outcome.exitCode,
        vars: executed.recorded,
        snapshotId
      })
      completed(step, instance, before, outcome, id)
      yield* emit(run, { _tag: "StepCompleted", ...site, exitCode: outcome.exitCode, recorded: false })
      return outcome
    }).pipe(
      onFailure(sandbox, step, instance),
      Effect.withSpan("Workflow.step", {
        captureStackTrace: false,
        attributes: {
          "workflow.name": run.data.name,
          "workflow.run.id": run.runId,
          "workflow.step.id": instance,
          "workflow.step.kind": kindOf(step),
          "sandbox.id": sandbox.id
        }
      })
    )

  const leaf: Driver["leaf"] = (step, at, before, verdict) =>
    Effect.gen(function* () {
      const { instance } = at
      const record = records.ended.get(instance)
      if (record?._tag === "Failed") {
        const failure = failureFromJson(field(record.payload, "failure"))
        if (failure !== undefined) return yield* Effect.fail(new StepFailure(step, instance, failure))
      }
      const isCompleted = record?._tag === "Completed"
      if (!isCompleted && (session.walk || sandbox === undefined)) return yield* Effect.fail(new Halted())
      const resolved = yield* resolve(step, contextOf(before, maxOutput))
      if (sandbox !== undefined && !isCompleted) return yield* live(step, at, before, resolved, sandbox, verdict)
      if (record === undefined) return yield* Effect.fail(new Halted())
      const outcome: Outcome = yield* recall(step, instance, resolved, record)
      completed(step, instance, before, outcome, record.id)
      const { exitCode } = outcome
      yield* emit(run, { _tag: "StepCompleted", ...siteOf(step, instance), exitCode, recorded: true })
      return outcome
    })

  const decideLive = (step: WhenStep, instance: string, before: Snapshot, sandbox: Sandbox) =>
    Effect.gen(function* () {
      const at = { idx: step.idx, instance }
      const site = siteOf(step, instance)
      yield* recordStep(run, place, sandbox, at, EventName.stepStarted, { kind: site.kind, label: site.label })
      yield* fence(run)
      yield* emit(run, { _tag: "StepStarted", ...site })
      const yes = yield* Effect.mapError(
        decide(step.predicate, contextOf(before, maxOutput)),
        (error) => new StepFailure(step, instance, error)
      )
      yield* recordStep(run, place, sandbox, at, EventName.stepCompleted, {
        kind: site.kind,
        taken: yes ? "then" : "else"
      })
      yield* emit(run, { _tag: "StepCompleted", ...site, exitCode: undefined, recorded: false })
      return yes
    }).pipe(onFailure(sandbox, step, instance))

  return {
    leaf,
    decide: (step, { instance }, before) => {
      const record = records.ended.get(instance)
      if (record?._tag === "Completed") return Effect.succeed(stringField(record.payload, "taken") === "then")
      return session.walk || sandbox === undefined
        ? Effect.fail(new Halted())
        : decideLive(step, instance, before, sandbox)
    },
    pause: (prefix, millis) =>
      session.walk || millis === 0 || [...records.begun].some((instance) => instance.startsWith(prefix))
        ? Effect.void
        : Effect.sleep(millis),
    undo: (prefix) =>
      session.walk || sandbox === undefined
        ? Effect.void
        : Effect.forEach(
            takeUndoable(
              run,
              (undoable) => keyOf(undoable.place) === keyOf(place) && undoable.instance.startsWith(prefix)
            ),
            (undoable) => undo(run, { ...session, sandbox }, undoable),
            { discard: true }
          ),
    walk: session.walk,
    maxOutput
  }
}

/** Those that are to be undone, the last first, taken out of the run's list. */
export const takeUndoable = (run: Run, wanted: (undoable: Undoable) => boolean): ReadonlyArray<Undoable> => {
  const taken = run.undoable.filter(wanted).sort((a, b) => b.order - a.order)
  for (const undoable of taken) run.undoable.splice(run.undoable.indexOf(undoable), 1)
  return taken
}

/** Undoes one step. */
export const undo = (
  run: Run,
  session: Session & { readonly sandbox: Sandbox },
  { instance, place, snapshot, step }: Undoable
): Effect.Effect<void, InterpreterError, unknown> =>
  Effect.gen(function* () {
    if (step.rollback === undefined || session.records.rolledBack.has(instance)) return
    const driver = makeDriver(run, { ...session, undoing: true, walk: false })
    yield* interpret(step.rollback, driver, snapshot, `${instance}!`)
    yield* recordStep(run, place, session.sandbox, { idx: step.idx, instance }, EventName.stepRolledBack)
    yield* emit(run, {
      _tag: "StepRolledBack",
      ...place,
      step: instance,
      idx: step.idx,
      kind: kindOf(step),
      label: labelOf(step)
    })
  })

export type { WorkflowError }
