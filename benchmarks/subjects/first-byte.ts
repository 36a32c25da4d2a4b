/** How long the first output takes: through exec, persisted, and by a bare fetch of the same stream. */
import { Execd, OpenSandbox, Sandboxes } from "@sandglass/core"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Stream from "effect/Stream"
import type { Subject } from "../harness.js"
import { interleaved, live, median, paired, scratch, server } from "../harness.js"

const command = "first"

/** The time until `self` tells of its first output; it runs to its end all the same. */
const untilFirst = <E, R>(self: (first: () => void) => Effect.Effect<void, E, R>): Effect.Effect<number, E, R> =>
  Effect.suspend(() => {
    const start = performance.now()
    let millis: number | undefined
    return Effect.map(
      self(() => {
        millis ??= performance.now() - start
      }),
      () => millis ?? Number.NaN
    )
  })

export const firstByte: Subject = {
  name: "first-byte",
  title: "first byte: from the start of an exec to its first output",
  run: ({ quick }) =>
    Effect.gen(function* () {
      const directory = yield* scratch
      const context = yield* Layer.build(live(yield* server("scripted"), `${directory}/ledger.db`))
      return yield* Effect.gen(function* () {
        const sandbox = yield* (yield* Sandboxes.Sandboxes).create({ image: "scripted", name: "bench" })
        const client = yield* (yield* Execd.Execd).connect(sandbox.id)
        const endpoint = yield* (yield* OpenSandbox.OpenSandbox).endpoint(sandbox.id, 44772)
        const headers = Object.fromEntries(
          Object.entries(endpoint.headers).map(([name, value]) => [name, Redacted.value(value)])
        )

        const times = yield* interleaved(quick ? { warmUp: 0, counted: 2 } : { warmUp: 60, counted: 101 }, {
          fetched: untilFirst((first) =>
            Effect.promise(async () => {
              const response = await fetch(`${endpoint.url}/command`, {
                method: "POST",
                headers: { ...headers, "content-type": "application/json" },
                body: JSON.stringify({ command })
              })
              const reader = response.body?.getReader()
              for (let read = await reader?.read(); read?.done === false; read = await reader?.read()) first()
            })
          ),
          decoded: untilFirst((first) =>
            Stream.runForEach(client.command({ command }), (event) =>
              event._tag === "Output" ? Effect.sync(first) : Effect.void
            )
          ),
          persisted: untilFirst((first) => Stream.runForEach(sandbox.exec(command).output, () => Effect.sync(first)))
        })
        return [
          { what: "bare fetch", value: median(times.fetched), unit: "ms" },
          { what: "decoded only, no ledger", value: median(times.decoded), unit: "ms" },
          { what: "exec: started and output both persisted", value: median(times.persisted), unit: "ms" },
          {
            what: "exec - bare fetch",
            value: paired(times.persisted, times.fetched, (a, b) => a - b),
            unit: "ms",
            aim: { atMost: 2 }
          }
        ]
      }).pipe(Effect.provide(context))
    })
}
