/** Separate events in batches: the ledger against the raw driver with the same rows, table, indexes and pragmas. */
import { Database } from "bun:sqlite"
import { Ledger } from "@sandglass/core"
import { SqliteLedger } from "@sandglass/sql-sqlite"
import * as Effect from "effect/Effect"
import type { Figure, Subject } from "../harness.js"
import { interleaved, median, paired, scratch, timed } from "../harness.js"
import { emptyLedger, insertOf, rowOf } from "../raw.js"

const event = (index: number): Ledger.EventInput => ({
  sandboxId: "0f8fad5b-d9cb-469f-a165-70867728950e",
  name: "bench",
  stepIdx: Math.floor(index / 20),
  event: "agent.tool_called",
  payload: { seq: index, tool: "read_file", arguments: { path: `/workspace/src/module-${index}.ts` }, approved: true }
})

export const ledger: Subject = {
  name: "ledger",
  title: "ledger: appendAll of separate events, SQLite file",
  run: ({ quick }) =>
    Effect.gen(function* () {
      const directory = yield* scratch
      yield* emptyLedger(`${directory}/raw.db`)
      const db = yield* Effect.acquireRelease(
        Effect.sync(() => new Database(`${directory}/raw.db`)),
        (db) => Effect.sync(() => db.close())
      )
      const figures: Array<Figure> = []
      const ours = yield* SqliteLedger.make({ filename: `${directory}/ledger.db` })
      for (const size of [64, 500]) {
        const count = quick ? 1 : Math.round(16_000 / size)
        const batches = Array.from({ length: count }, (_, batch) =>
          Array.from({ length: size }, (_, index) => event(batch * size + index))
        )
        const encoded = batches.map((batch) => batch.flatMap(rowOf))
        const insert = db.query(insertOf(size))
        const times = yield* interleaved(quick ? { warmUp: 0, counted: 1 } : { warmUp: 3, counted: 15 }, {
          ledger: timed(
            Effect.flatMap(Ledger.Ledger, (ledger) =>
              Effect.forEach(batches, (batch) => ledger.appendAll(batch), { discard: true })
            ).pipe(Effect.provide(ours))
          ),
          raw: timed(
            Effect.sync(() => {
              for (const values of encoded) insert.run(...values)
            })
          )
        })
        const rate = (millis: number) => ((count * size) / millis) * 1000
        figures.push(
          { what: `appendAll, ${size} events a batch`, value: rate(median(times.ledger)), unit: "events/s" },
          { what: `raw driver, ${size} rows a statement`, value: rate(median(times.raw)), unit: "events/s" },
          {
            what: `appendAll / raw driver, ${size} a batch`,
            value: paired(times.raw, times.ledger, (a, b) => a / b),
            unit: "ratio",
            aim: { atLeast: 0.6 }
          }
        )
      }
      return figures
    })
}
