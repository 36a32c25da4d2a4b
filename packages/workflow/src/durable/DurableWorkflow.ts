/**
 * Workflows on `@effect/workflow`: an engine decides where a run is worked on, and gives it to another process when that one is lost.
 *
 * The engine keeps which runs there are and which of them have ended. What a run has done is in the ledger, as ever, and a process that
 * takes a run over goes on from there: that is why all of them must have the same ledger, one that several processes can share.
 *
 * @since 0.1.0
 */

import * as EffectWorkflow from "@effect/workflow/Workflow"
import type { WorkflowEngine } from "@effect/workflow/WorkflowEngine"
import { IdGenerator } from "@sandglass/core/IdGenerator"
import type { Ledger } from "@sandglass/core/Ledger"
import type { Sandboxes } from "@sandglass/core/Sandboxes"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { conduct } from "../internal/durable.js"
import type * as Workflow from "../Workflow.js"
import * as Workflows from "../Workflow.js"
import { WorkflowError } from "../WorkflowError.js"

/**
 * What the engine is told of a run.
 *
 * @since 0.1.0
 * @category schemas
 */
export class Payload extends Schema.Class<Payload>("@sandglass/workflow/DurableWorkflow/Payload")({
  runId: Schema.NonEmptyTrimmedString,
  resourceId: Schema.optional(Schema.String),
  teamId: Schema.optional(Schema.String)
}) {}

/**
 * A workflow together with what the engine knows it as.
 *
 * @since 0.1.0
 * @category models
 */
export interface DurableWorkflow<out Vars = object, out E = never, out R = never> {
  readonly workflow: Workflow.Workflow<Vars, E, R>
  /**
   * For what `@effect/workflow` offers besides: annotations, proxies, a run as part of another workflow. Its name is the workflow's, its
   * execution id is derived from name and run id, and it succeeds once the ledger tells how the run ended, whether well or not.
   */
  readonly definition: EffectWorkflow.Workflow<string, typeof Payload, typeof Schema.Void, typeof WorkflowError>
}

/**
 * The name of the workflow must be its own among all of the engine.
 *
 * @example
 * ```ts
 * import { DurableWorkflow } from "@sandglass/workflow/durable"
 * import { Workflow } from "@sandglass/workflow"
 * import { WorkflowEngine } from "@effect/workflow"
 * import { Effect, Layer } from "effect"
 *
 * const nightly = DurableWorkflow.make(
 *   Workflow.make("nightly").pipe(Workflow.sandbox({ image: "node:22" }, (sb) => sb.exec("npm ci").exec("npm test")))
 * )
 *
 * // One process: the engine in memory. Several: ClusterWorkflowEngine.layer of @effect/cluster.
 * const Engine = DurableWorkflow.layer(nightly).pipe(Layer.provideMerge(WorkflowEngine.layerMemory))
 *
 * const program = DurableWorkflow.run(nightly, { runId: "2026-11-30" }).pipe(
 *   Effect.flatMap(({ stdout }) => Effect.log(stdout)),
 *   Effect.provide(Engine)
 * )
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = <Vars, E, R>(workflow: Workflow.Workflow<Vars, E, R>): DurableWorkflow<Vars, E, R> => ({
  workflow,
  definition: EffectWorkflow.make({
    name: workflow.name,
    payload: Payload,
    success: Schema.Void,
    error: WorkflowError,
    idempotencyKey: ({ runId }) => runId
  })
})

/**
 * Lets this process work on runs of the workflow. Everything that they need is taken from the Layer's own context.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = <Vars, E, R>(
  self: DurableWorkflow<Vars, E, R>,
  options?: Workflow.ResumeOptions
): Layer.Layer<never, never, WorkflowEngine | Sandboxes | Ledger | R> =>
  // An engine runs it with what it was itself made with, which may hold other services of the same names.
  Layer.unwrapEffect(
    Effect.map(Effect.context<Sandboxes | Ledger | R>(), (context) =>
      self.definition.toLayer((payload) => conduct(self.workflow, payload, options, context))
    )
  )

/**
 * @since 0.1.0
 * @category models
 */
export interface RunOptions extends Omit<Workflow.RunOptions, "maxOutput"> {}

const payloadOf = ({ resourceId, runId, teamId }: RunOptions): Effect.Effect<Payload> =>
  Effect.gen(function* () {
    const ids = yield* IdGenerator
    return new Payload({ runId: runId ?? (yield* ids.next), resourceId, teamId })
  })

/**
 * Hands a run to the engine, and does not wait for it. Returns its id. A run that the engine knows already is not started again.
 *
 * @since 0.1.0
 * @category running
 */
export const start = <Vars, E, R>(
  self: DurableWorkflow<Vars, E, R>,
  options: RunOptions = {}
): Effect.Effect<string, WorkflowError, WorkflowEngine> =>
  checked(self, options).pipe(
    Effect.flatMap((payload) => Effect.as(self.definition.execute(payload, { discard: true }), payload.runId))
  )

/**
 * Hands a run to the engine and waits for its end, wherever it is worked on. The result, or the failure, is read from the ledger: what the
 * application's own effects failed with is known there by its message (`RunFailed`). Whoever waits may be interrupted or die; the run goes on,
 * and the same call with the same id waits for it again.
 *
 * @since 0.1.0
 * @category running
 */
export const run = <Vars, E, R>(
  self: DurableWorkflow<Vars, E, R>,
  options: RunOptions & Workflow.ResumeOptions = {}
): Effect.Effect<Workflow.Result<Vars>, WorkflowError | E, WorkflowEngine | Sandboxes | Ledger | R> =>
  checked(self, options).pipe(
    Effect.tap((payload) => self.definition.execute(payload)),
    Effect.flatMap(({ runId }) => Workflows.resume(self.workflow, runId, options))
  )

/** What the engine cannot take is an error here, not a defect there. */
const checked = <Vars, E, R>(
  { workflow }: DurableWorkflow<Vars, E, R>,
  options: RunOptions
): Effect.Effect<Payload, WorkflowError> => {
  const { runId } = options
  return runId !== undefined && (runId === "" || runId.trim() !== runId)
    ? Effect.fail(
        new WorkflowError({
          workflow: workflow.name,
          reason: "InvalidInput",
          description: `the id of a run is neither empty nor begins or ends with a blank: ${JSON.stringify(runId)}`
        })
      )
    : payloadOf(options)
}

const executionId = <Vars, E, R>({ definition }: DurableWorkflow<Vars, E, R>, runId: string): Effect.Effect<string> =>
  definition.executionId(new Payload({ runId }))

/**
 * Whether a run has ended, as far as the engine knows: `None` for one that it was never given.
 *
 * @since 0.1.0
 * @category inspection
 */
export const isEnded = <Vars, E, R>(
  self: DurableWorkflow<Vars, E, R>,
  runId: string
): Effect.Effect<Option.Option<boolean>, never, WorkflowEngine> =>
  Effect.map(Effect.flatMap(executionId(self, runId), self.definition.poll), (result) =>
    Option.map(Option.fromNullable(result), ({ _tag }) => _tag === "Complete")
  )
