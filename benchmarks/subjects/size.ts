/** How much room events take, indexes included. */
import { Ledger } from "@sandglass/core"
import * as Effect from "effect/Effect"
import type { Backend } from "../backends.js"
import { onBoth } from "../backends.js"
import type { Figure, Options, Subject } from "../harness.js"

const sandboxes = 100

const id = (sandbox: number) => `0f8fad5b-d9cb-469f-a165-7086772${String(sandbox).padStart(5, "0")}`

/** Lines as a build prints them, so many characters. */
const log = (seed: number, length: number): string => {
  let text = ""
  for (let line = seed * 7; text.length < length; line += 13) {
    text += `[12:${line % 60}:07] compiled src/module-${(line * 31) % 997}.ts in ${(line * 17) % 173} ms\n`
  }
  return text.slice(0, length)
}

/** What a kind of event has beside its sandbox, by its number. */
const kinds: ReadonlyArray<
  readonly [what: string, event: (seq: number) => Omit<Ledger.EventInput, "sandboxId" | "name">]
> = [
  [
    "a line of output, 80 characters",
    (seq) => ({
      stepIdx: seq,
      event: "exec.output",
      payload: { seq, type: "stdout", text: `${"x".repeat(79)}\n`, execId: id(seq) }
    })
  ],
  [
    "a chunk of output, 4,000 characters",
    (seq) => ({
      stepIdx: seq,
      event: "exec.output",
      payload: { seq, type: "stdout", text: log(seq, 4_000), execId: id(seq) }
    })
  ],
  [
    "an event without output",
    (seq) => ({ stepIdx: seq, event: "exec.started", payload: { seq, cmd: "npm run build", execId: id(seq) } })
  ]
]

const against = (backend: Backend, { quick }: Options) =>
  Effect.gen(function* () {
    const count = quick ? 1_000 : 40_000
    const figures: Array<Figure> = []
    for (const [number, [what, eventOf]] of kinds.entries()) {
      const database = `size_${number}`
      yield* Effect.gen(function* () {
        const ledger = yield* Ledger.Ledger
        // Side by side, as they are when sandboxes run.
        for (let from = 0; from < count; from += 200) {
          yield* ledger.appendAll(
            Array.from({ length: 200 }, (_, index) => ({
              sandboxId: id((from + index) % sandboxes),
              name: "bench",
              ...eventOf(1 + Math.floor((from + index) / sandboxes / 20))
            }))
          )
        }
      }).pipe(Effect.provide(backend.ledger(database)))
      figures.push({
        what: `${backend.name}: ${what}`,
        value: (yield* backend.bytes(database)) / count,
        unit: "bytes"
      })
    }
    return figures
  })

export const size: Subject = {
  name: "size",
  title: "size: bytes for an event, indexes included",
  run: (options) => onBoth((backend) => against(backend, options))
}
