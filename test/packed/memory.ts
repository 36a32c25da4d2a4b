// What a user writes first with @sandglass/memory: remember something and find it again, in memory. `npm run build` runs it against the
// packed packages, under Bun and under Node.
import { Ledger } from "@sandglass/core"
import { EmbeddingModel, Memory } from "@sandglass/memory"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"

const program = Effect.gen(function* () {
  const memory = yield* Memory.FullMemory
  const ledger = yield* Ledger.Ledger
  const user = { resourceId: "user-7" }
  yield* ledger.append({ sandboxId: "s1", name: "ci", event: "sandbox.created", payload: user })
  yield* memory.working.set(user, "timezone", "Europe/Vienna")
  yield* memory.remember(user, {
    content: "Prefers the window seat on night trains",
    sourceRef: { sandboxId: "s1", entryIndex: 0 }
  })
  yield* memory.remember(user, { content: "Speaks Portuguese" })
  const [best] = yield* memory.recall(user, "which seat on the train?", { topK: 1 })
  if (best?.content !== "Prefers the window seat on night trains" || !best.verified) {
    return yield* Effect.dieMessage(`recalled ${JSON.stringify(best)}`)
  }
  const snippet = yield* memory.buildContextSnippet(user, { query: "trains" })
  if (!snippet.includes(`- "timezone": "Europe/Vienna"`)) return yield* Effect.dieMessage(snippet)
})

await Effect.runPromise(
  program.pipe(
    Effect.provide(
      Memory.layerMemory.pipe(Layer.provideMerge(Layer.merge(Ledger.layerMemory, EmbeddingModel.layerLexical())))
    )
  )
)
