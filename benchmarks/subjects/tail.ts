/** How long it takes from an append to its delivery by a tail in another process. */
import { spawn } from "node:child_process"
import { fileURLToPath } from "node:url"
import { Ledger } from "@sandglass/core"
import * as Effect from "effect/Effect"
import type { Backend } from "../backends.js"
import { onBoth } from "../backends.js"
import type { Figure, Options, Subject } from "../harness.js"
import { median } from "../harness.js"

const now = (): number => performance.timeOrigin + performance.now()

/** A process that follows: each of its lines is how many milliseconds an event took. */
const tailer = (backend: Backend, address: string) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => {
        const file = fileURLToPath(new URL("../servers/tailer.ts", import.meta.url))
        return spawn(process.execPath, [file, backend.name, address], { stdio: ["pipe", "pipe", "inherit"] })
      }),
      (child) => Effect.sync(() => void child.stdin.end())
    ),
    (child) => {
      const latencies: Array<number> = []
      let rest = ""
      child.stdout.setEncoding("utf8").on("data", (text: string) => {
        const lines = (rest + text).split("\n")
        rest = lines.pop() ?? ""
        latencies.push(...lines.map(Number))
      })
      return latencies
    }
  )

const against = (backend: Backend, { quick }: Options) =>
  Effect.gen(function* () {
    const ledger = yield* Ledger.Ledger
    const latencies = yield* tailer(backend, backend.address("tail"))
    const arrived = (count: number) =>
      Effect.sleep("1 millis").pipe(
        Effect.repeat({ until: () => latencies.length >= count }),
        Effect.timeout("30 seconds")
      )
    const send = Effect.suspend(() =>
      ledger.append({ sandboxId: "sbx-tail", name: "bench", event: "note", payload: { sent: now() } })
    )
    // The process is there when the first event has arrived.
    yield* send
    yield* arrived(1)
    const warmUp = quick ? 1 : 20
    const counted = quick ? 2 : backend.name === "Postgres" ? 300 : 60
    for (let index = 1; index <= warmUp + counted; index++) {
      yield* send
      yield* arrived(index + 1)
      // Not in step with anything that looks at intervals.
      yield* Effect.sleep(`${3 + ((index * 7) % 11)} millis`)
    }
    const sorted = latencies.slice(1 + warmUp).sort((a, b) => a - b)
    return [
      {
        what: `${backend.name}: append to delivery, median`,
        value: median(sorted),
        unit: "ms",
        ...(backend.name === "Postgres" ? { aim: { atMost: 10 } } : { note: "it looks every half a second" })
      },
      {
        what: `${backend.name}: append to delivery, 99 of 100`,
        value: sorted[Math.floor(sorted.length * 0.99)] ?? Number.NaN,
        unit: "ms"
      }
    ] satisfies ReadonlyArray<Figure>
  }).pipe(Effect.provide(backend.ledger("tail")))

export const tail: Subject = {
  name: "tail",
  title: "tail: from an append to its delivery in another process",
  run: (options) => onBoth((backend) => against(backend, options))
}
