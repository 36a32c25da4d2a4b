/**
 * A whole run as one activity of an engine. It is not cut into an activity for each step: the ledger holds every step already, before and
 * after, and a second record of the same could only differ.
 */
import * as Activity from "@effect/workflow/Activity"
import type { WorkflowEngine, WorkflowInstance } from "@effect/workflow/WorkflowEngine"
import { Ledger } from "@sandglass/core/Ledger"
import type { Sandboxes } from "@sandglass/core/Sandboxes"
import * as Cause from "effect/Cause"
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import type { Payload } from "../durable/DurableWorkflow.js"
import type { ResumeOptions, Workflow } from "../Workflow.js"
import * as Workflows from "../Workflow.js"
import { isWorkflowError, WorkflowError } from "../WorkflowError.js"
import { EventName } from "./events.js"
import { causeMessage } from "./failure.js"

const ends = [EventName.runCompleted, EventName.runFailed]

/** A ledger that is away for a while is no reason to give a run up: nothing has ended yet. */
const patience = Schedule.exponential("500 millis").pipe(
  Schedule.union(Schedule.spaced("30 seconds")),
  Schedule.jittered,
  Schedule.upTo("10 minutes")
)

/** Starts the run or takes it up; done once the ledger tells how it ended. */
const untilEnded = <Vars, E, R>(
  workflow: Workflow<Vars, E, R>,
  { resourceId, runId, teamId }: Payload,
  options: ResumeOptions | undefined
): Effect.Effect<void, WorkflowError, Sandboxes | Ledger | R> =>
  Effect.gen(function* () {
    const ledger = yield* Ledger
    const failed = (reason: WorkflowError["reason"], description: string) =>
      new WorkflowError({ workflow: workflow.name, runId, reason, description })

    const hasEnded = Stream.runHead(ledger.read({ sandboxId: runId, events: ends, limit: 1 })).pipe(
      Effect.mapBoth({
        onSuccess: Option.isSome,
        onFailure: (failure) =>
          new WorkflowError({
            workflow: workflow.name,
            runId,
            reason: "LedgerFailed",
            description: failure.message,
            failure
          })
      })
    )

    const attempt = Workflows.run(workflow, { ...options, runId, resourceId, teamId }).pipe(
      Effect.catchIf(
        (error) => isWorkflowError(error) && error.reason === "RunExists",
        () => Workflows.resume(workflow, runId, options)
      ),
      Effect.asVoid,
      Effect.catchAllCause((cause) => {
        // It holds interruptions only.
        if (Cause.isInterruptedOnly(cause)) return Effect.failCause(cause as Cause.Cause<never>)
        const error = Option.getOrUndefined(Cause.failureOption(cause))
        // Another process works on it: answering for it would end it too early.
        if (isWorkflowError(error) && error.reason === "Superseded") {
          return ledger.tail({ sandboxId: runId, events: ends }).pipe(
            Stream.take(1),
            Stream.runDrain,
            Effect.mapError((failure) => failed("LedgerFailed", failure.message))
          )
        }
        return Effect.flatMap(hasEnded, (ended) =>
          ended ? Effect.void : Effect.fail(isWorkflowError(error) ? error : failed("RunFailed", causeMessage(cause)))
        )
      })
    )
    yield* Effect.retry(attempt, {
      schedule: patience,
      while: ({ reason }) => reason === "LedgerFailed"
    })
  })

export const conduct = <Vars, E, R>(
  workflow: Workflow<Vars, E, R>,
  payload: Payload,
  options: ResumeOptions | undefined,
  context: Context.Context<Sandboxes | Ledger | R>
): Effect.Effect<void, WorkflowError, WorkflowEngine | WorkflowInstance> =>
  Activity.make({
    name: "run",
    success: Schema.Void,
    error: WorkflowError,
    execute: Effect.provide(untilEnded(workflow, payload, options), context)
  })
