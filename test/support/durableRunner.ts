/**
 * One of several processes that work on runs of a workflow: told what to do by a line of input, and says `create <run>` for each sandbox. Or,
 * with a `runId` instead of a port, one that hands in a run and says its `result`: it has the same build, so that the workflow is the same.
 */
import { createInterface } from "node:readline"
import * as ClusterWorkflowEngine from "@effect/cluster/ClusterWorkflowEngine"
import * as RunnerAddress from "@effect/cluster/RunnerAddress"
import * as BunClusterSocket from "@effect/platform-bun/BunClusterSocket"
import { PgClient } from "@effect/sql-pg"
import { Sandboxes } from "@sandglass/core"
import { DurableWorkflow } from "@sandglass/workflow/durable"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import type { Options } from "./tenSteps.js"
import { live, tenSteps } from "./tenSteps.js"

export interface Order extends Options {
  readonly effects: string
  readonly port?: number
  readonly runId?: string
}

/** Of runners and of those who give them work. */
export const sharding = {
  shardsPerGroup: 12,
  entityMessagePollInterval: "200 millis",
  entityReplyPollInterval: "100 millis",
  refreshAssignmentsInterval: "300 millis",
  runnerHealthCheckInterval: "1 second",
  shardLockRefreshInterval: "2 seconds",
  shardLockExpiration: "10 seconds"
} as const

/** The engine on a database that all of them have. */
export const engine = (ledger: string, port?: number) =>
  ClusterWorkflowEngine.layer.pipe(
    Layer.provideMerge(
      port === undefined
        ? BunClusterSocket.layer({
            clientOnly: true,
            storage: "sql",
            shardingConfig: { ...sharding, runnerAddress: Option.none() }
          })
        : BunClusterSocket.layer({
            storage: "sql",
            shardingConfig: { ...sharding, runnerAddress: Option.some(RunnerAddress.make("127.0.0.1", port)) }
          })
    ),
    Layer.provide(PgClient.layer({ url: Redacted.make(ledger), maxConnections: 4 }))
  )

const tellsOfCreates = Layer.effect(
  Sandboxes.Sandboxes,
  Effect.map(Sandboxes.Sandboxes, (sandboxes) => ({
    ...sandboxes,
    create: (options: Sandboxes.CreateOptions) =>
      Effect.zipRight(
        Effect.sync(() => console.log(`create ${options.runId}`)),
        sandboxes.create(options)
      )
  }))
)

if (import.meta.main) {
  for await (const line of createInterface({ input: process.stdin })) {
    const order = JSON.parse(line) as Order
    const durable = DurableWorkflow.make(tenSteps(order.effects))
    const work =
      order.runId === undefined
        ? Layer.launch(DurableWorkflow.layer(durable)).pipe(Effect.provide(tellsOfCreates))
        : Effect.flatMap(DurableWorkflow.run(durable, { runId: order.runId }), (result) =>
            Effect.sync(() => console.log(`result ${JSON.stringify(result)}`))
          )
    await Effect.runPromise(work.pipe(Effect.provide(engine(order.ledger, order.port)), Effect.provide(live(order))))
    process.exit(0)
  }
}
