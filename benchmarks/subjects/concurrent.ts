/** Many sandboxes that append small chunks at once: commits that they share against a commit for each chunk. */
import { Ledger } from "@sandglass/core"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { Backend } from "../backends.js"
import { onBoth } from "../backends.js"
import type { Figure, Options, Subject } from "../harness.js"
import { interleaved, median, paired, timed } from "../harness.js"
import { rowOf } from "../raw.js"

const sandboxes = 64
const chunkSize = 4

const chunk = (sandbox: number, number: number): ReadonlyArray<Ledger.EventInput> =>
  Array.from({ length: chunkSize }, (_, index) => ({
    sandboxId: `0f8fad5b-d9cb-469f-a165-7086772895${String(sandbox).padStart(2, "0")}`,
    name: "bench",
    stepIdx: 1 + (number >> 5),
    event: "exec.output",
    payload: {
      seq: 1 + (number >> 5),
      type: "stdout",
      text: `line ${number * chunkSize + index} of the output of a job\n`,
      execId: "5d3f1f0a-7a5e-4a39-9a53-2f0a53f1c111"
    }
  }))

const against = (backend: Backend, { quick }: Options) =>
  Effect.gen(function* () {
    const insert = yield* backend.raw("concurrent_raw")
    const context = yield* Layer.build(backend.ledger("concurrent"))
    const perSandbox = quick ? 2 : 40
    // One commit for each chunk is slower: fewer of them are enough.
    const single = quick ? 64 : 640
    const rounds = quick ? { warmUp: 0, counted: 1 } : { warmUp: 3, counted: 11 }
    let next = 0
    const chunks = (count: number) => Array.from({ length: count }, () => chunk(next % sandboxes, next++ / sandboxes))
    const appendEach = (chunks: ReadonlyArray<ReadonlyArray<Ledger.EventInput>>) =>
      Effect.flatMap(Ledger.Ledger, (ledger) =>
        Effect.forEach(chunks, (events) => ledger.appendAll(events), { discard: true })
      ).pipe(Effect.provide(context))
    const times = yield* interleaved(rounds, {
      shared: Effect.suspend(() => {
        const all = chunks(perSandbox * sandboxes)
        const bySandbox = Array.from({ length: sandboxes }, (_, sandbox) =>
          all.filter((_, index) => index % sandboxes === sandbox)
        )
        return timed(Effect.forEach(bySandbox, appendEach, { concurrency: "unbounded", discard: true }))
      }),
      oneByOne: Effect.suspend(() => timed(appendEach(chunks(single)))),
      rawEach: Effect.suspend(() => {
        const rows = chunks(single).map((events) => events.flatMap(rowOf))
        return timed(insert(chunkSize, rows))
      }),
      rawShared: Effect.suspend(() => {
        const rows = Array.from({ length: perSandbox }, () =>
          chunks(sandboxes).flatMap((events) => events.flatMap(rowOf))
        )
        return timed(insert(chunkSize * sandboxes, rows))
      })
    })
    const rate = (chunks: number, millis: number) => ((chunks * chunkSize) / millis) * 1000
    const many = perSandbox * sandboxes
    const against = (slow: ReadonlyArray<number>, fast: ReadonlyArray<number>) =>
      paired(slow, fast, (a, b) => a / single / (b / many))
    return [
      {
        what: `${backend.name}: ${sandboxes} sandboxes at once, chunks of ${chunkSize}`,
        value: rate(many, median(times.shared)),
        unit: "events/s"
      },
      {
        what: `${backend.name}: raw driver, a commit for each chunk`,
        value: rate(single, median(times.rawEach)),
        unit: "events/s"
      },
      {
        what: `${backend.name}: at once / a commit for each chunk`,
        value: against(times.rawEach, times.shared),
        unit: "ratio",
        aim: { atLeast: 10 }
      },
      {
        what: `${backend.name}: raw driver, ${sandboxes} chunks a commit / a chunk`,
        value: against(times.rawEach, times.rawShared),
        unit: "ratio",
        note: "the most that sharing commits can give"
      },
      {
        what: `${backend.name}: at once / the same, one after the other`,
        value: against(times.oneByOne, times.shared),
        unit: "ratio"
      }
    ] satisfies ReadonlyArray<Figure>
  })

export const concurrent: Subject = {
  name: "concurrent",
  title: "concurrent: many sandboxes append small chunks at once",
  run: (options) => onBoth((backend) => against(backend, options))
}
