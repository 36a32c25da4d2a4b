/** What is asked of a ledger of many sandboxes: listings, a last checkpoint, the output of one exec. */
import * as SqlClient from "@effect/sql/SqlClient"
import { Ledger } from "@sandglass/core"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import type { Backend } from "../backends.js"
import { onBoth } from "../backends.js"
import type { Figure, Options, Subject } from "../harness.js"
import { interleaved, median, paired, timed } from "../harness.js"

const perSandbox = 100

/** Events of sandboxes that run side by side, a hundred each: two commands, checkpoints, and the end of nine in ten. */
const fill = (backend: Backend, sandboxes: number) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    // `k` is the event's number in its sandbox.
    const k = `(i / ${sandboxes})`
    const s = `(i % ${sandboxes})`
    yield* sql.unsafe(`
      INSERT INTO alineo_events (sandbox_id, name, step_idx, event, payload, ts)
      SELECT 'sbx-' || ${s}, 'job-' || (${s} % 20),
        CASE WHEN ${k} IN (0, 50, 98, 99) THEN -1 WHEN ${k} < 50 THEN 1 ELSE 2 END,
        CASE ${k} WHEN 0 THEN 'sandbox.created' WHEN 1 THEN 'exec.started' WHEN 49 THEN 'exec.completed'
          WHEN 50 THEN 'sandbox.checkpoint_created' WHEN 51 THEN 'exec.started' WHEN 97 THEN 'exec.completed'
          WHEN 98 THEN 'sandbox.checkpoint_created'
          WHEN 99 THEN CASE WHEN ${s} % 10 = 0 THEN 'note' ELSE 'sandbox.closed' END ELSE 'exec.output' END,
        ${backend.json(`CASE ${k} WHEN 0 THEN '{"runId":"run-' || (${s} % 500) || '"}'
          WHEN 50 THEN '{"snapshotId":"snap-1","name":"one"}' WHEN 98 THEN '{"snapshotId":"snap-2"}'
          ELSE '{"seq":1,"type":"stdout","text":"a line of the output of a job, as long as they are\\n"}' END`)},
        1700000000000 + i / 10
      FROM ${backend.numbers(sandboxes * perSandbox)}`)
    for (const text of backend.settle) yield* sql.unsafe(text)
  })

/** What a listing is without an index of sessions. */
const aggregate = `
  SELECT sandbox_id, name, min(ts) AS created_at, max(CASE WHEN event = 'sandbox.closed' THEN ts END) AS closed_at
  FROM alineo_events GROUP BY sandbox_id, name ORDER BY min(ts) DESC LIMIT 50`

const against = (backend: Backend, { quick }: Options) =>
  Effect.gen(function* () {
    const ledger = yield* Ledger.Ledger
    const sql = yield* SqlClient.SqlClient
    const sandboxes = quick ? 200 : 10_000
    yield* fill(backend, sandboxes)
    const listed = (filter: Ledger.SandboxFilter, count: number) =>
      timed(
        Effect.filterOrDieMessage(
          Stream.runCount(ledger.sandboxes(filter)),
          (found) => found === count,
          `not ${count} sandboxes`
        )
      )
    const half = `sbx-${sandboxes / 2}`
    const times = yield* interleaved(quick ? { warmUp: 0, counted: 1 } : { warmUp: 10, counted: 51 }, {
      newest: listed({ limit: 50 }, 50),
      running: listed({ limit: 50, status: "running" }, quick ? 20 : 50),
      run: listed({ runId: "run-7" }, quick ? 1 : 20),
      name: listed({ name: "job-3", limit: 50 }, quick ? 10 : 50),
      one: timed(Effect.filterOrDieMessage(ledger.sandbox(half), Option.isSome, "no sandbox")),
      checkpoint: timed(Effect.filterOrDieMessage(ledger.lastCheckpoint(half), Option.isSome, "no checkpoint")),
      output: timed(
        Effect.filterOrDieMessage(
          Stream.runCount(ledger.read({ sandboxId: half, stepIdx: 1, events: ["exec.output"] })),
          (count) => count === 47,
          "not the whole output"
        )
      )
    })
    const slow = yield* interleaved(quick ? { warmUp: 0, counted: 1 } : { warmUp: 1, counted: 5 }, {
      newest: listed({ limit: 50 }, 50),
      aggregated: timed(Effect.orDie(sql.unsafe(aggregate)))
    })
    const name = backend.name
    return [
      { what: `${name}: newest 50 of ${sandboxes}`, value: median(times.newest), unit: "ms", aim: { atMost: 10 } },
      { what: `${name}: aggregating all events`, value: median(slow.aggregated), unit: "ms" },
      {
        what: `${name}: newest 50 / aggregating`,
        value: paired(slow.aggregated, slow.newest, (a, b) => a / b),
        unit: "ratio",
        aim: { atLeast: 50 }
      },
      { what: `${name}: newest 50 that run`, value: median(times.running), unit: "ms" },
      { what: `${name}: newest 50 of a name`, value: median(times.name), unit: "ms" },
      { what: `${name}: all of a run`, value: median(times.run), unit: "ms" },
      { what: `${name}: one by its id`, value: median(times.one), unit: "ms" },
      { what: `${name}: last checkpoint`, value: median(times.checkpoint), unit: "ms", aim: { atMost: 2 } },
      { what: `${name}: the output of one exec`, value: median(times.output), unit: "ms" }
    ] satisfies ReadonlyArray<Figure>
  }).pipe(Effect.provide(backend.ledger("listing")))

export const listing: Subject = {
  name: "listing",
  title: "listing: 10,000 sandboxes in 1,000,000 events",
  run: (options) => onBoth((backend) => against(backend, options))
}
