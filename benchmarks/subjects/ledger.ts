/** Separate events in batches: the ledger against the raw driver with the same rows, table and indexes. */
import { Ledger } from "@sandglass/core"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { Backend } from "../backends.js"
import { onBoth } from "../backends.js"
import type { Figure, Options, Subject } from "../harness.js"
import { interleaved, median, paired, timed } from "../harness.js"
import { rowOf } from "../raw.js"

const event = (index: number): Ledger.EventInput => ({
  sandboxId: "0f8fad5b-d9cb-469f-a165-70867728950e",
  name: "bench",
  stepIdx: Math.floor(index / 20),
  event: "agent.tool_called",
  payload: { seq: index, tool: "read_file", arguments: { path: `/workspace/src/module-${index}.ts` }, approved: true }
})

const against = (backend: Backend, { quick }: Options) =>
  Effect.gen(function* () {
    const insert = yield* backend.raw("batches_raw")
    const context = yield* Layer.build(backend.ledger("batches"))
    const figures: Array<Figure> = []
    for (const size of [64, 500]) {
      const count = quick ? 1 : Math.round(16_000 / size)
      const batches = Array.from({ length: count }, (_, batch) =>
        Array.from({ length: size }, (_, index) => event(batch * size + index))
      )
      const encoded = batches.map((batch) => batch.flatMap(rowOf))
      const times = yield* interleaved(quick ? { warmUp: 0, counted: 1 } : { warmUp: 3, counted: 15 }, {
        ledger: timed(
          Effect.flatMap(Ledger.Ledger, (ledger) =>
            Effect.forEach(batches, (batch) => ledger.appendAll(batch), { discard: true })
          ).pipe(Effect.provide(context))
        ),
        raw: timed(insert(size, encoded))
      })
      const rate = (millis: number) => ((count * size) / millis) * 1000
      figures.push(
        {
          what: `${backend.name}: appendAll, ${size} events a batch`,
          value: rate(median(times.ledger)),
          unit: "events/s"
        },
        {
          what: `${backend.name}: raw driver, ${size} rows a statement`,
          value: rate(median(times.raw)),
          unit: "events/s"
        },
        {
          what: `${backend.name}: appendAll / raw driver, ${size} a batch`,
          value: paired(times.raw, times.ledger, (a, b) => a / b),
          unit: "ratio",
          aim: { atLeast: 0.6 }
        }
      )
    }
    return figures
  })

export const ledger: Subject = {
  name: "ledger",
  title: "ledger: appendAll of separate events",
  run: (options) => onBoth((backend) => against(backend, options))
}
