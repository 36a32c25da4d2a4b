/** The heap while a command prints gigabytes, with a ledger file, and a consumer that throws everything away. */

import * as fs from "node:fs/promises"
import { Sandboxes } from "@sandglass/core"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Stream from "effect/Stream"
import type { Subject } from "../harness.js"
import { BenchmarkError, live, memory, scratch, server } from "../harness.js"

const mega = 1_000_000
const parts = 10

export const heap: Subject = {
  name: "heap",
  title: "heap: flat while a command prints (BENCH_GB=2 for 2 GB)",
  run: ({ quick }) =>
    Effect.gen(function* () {
      const megabytes = quick ? 10 : Number(process.env["BENCH_GB"] ?? "0.5") * 1000
      const directory = yield* scratch
      const { bavail, bsize } = yield* Effect.promise(() => fs.statfs(directory))
      const needed = megabytes * 1.3 * mega + 500 * mega
      if (bavail * bsize < needed) {
        return yield* new BenchmarkError({ message: `${directory} has no room for ${Math.round(needed / mega)} MB` })
      }
      const context = yield* Layer.build(live(yield* server("scripted"), `${directory}/ledger.db`))
      const sandbox = yield* Effect.flatMap(Sandboxes.Sandboxes, (_) =>
        _.create({ image: "scripted", name: "bench" })
      ).pipe(Effect.provide(context))

      const samples: Array<{ readonly heap: number; readonly rss: number }> = []
      const start = performance.now()
      let characters = 0
      yield* sandbox.exec(`megabytes ${megabytes}`).output.pipe(
        Stream.runForEachChunk((chunks) =>
          Effect.sync(() => {
            for (const chunk of chunks) characters += chunk.text.length
            if (characters >= ((samples.length + 1) * megabytes * mega) / parts) samples.push(memory())
          })
        )
      )
      const seconds = (performance.now() - start) / 1000
      if (characters < megabytes * mega) {
        return yield* new BenchmarkError({ message: `only ${characters} characters came` })
      }

      const growth = (of: "heap" | "rss") => {
        const [first, ...rest] = samples.map((sample) => sample[of])
        return Math.max(...rest) - (first ?? Number.NaN)
      }
      const course = (of: "heap" | "rss") => samples.map((sample) => Math.round(sample[of])).join(" ")
      return [
        { what: "output", value: characters / mega, unit: "MB", note: `in ${seconds.toFixed(1)} s` },
        {
          what: "heap growth after the first 10 %",
          value: growth("heap"),
          unit: "MB",
          aim: { atMost: 64 },
          note: `heap at every 10 %: ${course("heap")}`
        },
        { what: "RSS growth after the first 10 %", value: growth("rss"), unit: "MB", note: `RSS: ${course("rss")}` },
        { what: "speed", value: characters / mega / seconds, unit: "MB/s" }
      ]
    })
}
