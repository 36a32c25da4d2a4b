// What a user writes first with @sandglass/core: append to a ledger in memory and read it back. `npm run build` runs it against the
// packed packages, under Bun and under Node.
import { Ledger } from "@sandglass/core"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"

const program = Effect.gen(function* () {
  const ledger = yield* Ledger.Ledger
  yield* ledger.append({ sandboxId: "s1", name: "ci", event: "permission.asked", payload: { tool: "shell" } })
  yield* ledger.append({ sandboxId: "s2", name: "ci", event: "permission.asked" })
  const entries = yield* Stream.runCollect(ledger.read({ sandboxId: "s1" }))
  const events = Chunk.toReadonlyArray(entries).map((entry) => entry.event)
  if (events.join() !== "permission.asked") return yield* Effect.dieMessage(`read ${events.join()}`)
})

await Effect.runPromise(program.pipe(Effect.provide(Ledger.layerMemory)))
