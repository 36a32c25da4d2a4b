/**
 * A process that writes to a memory: `bun memoryWriter.ts <name> <rounds> <batch size>`, in the SQLite file of `MEMORY_FILE`
 * or the Postgres database of `DATABASE_URL`. In each round it counts in working memory, sets a field of its own in a value
 * that all share, and remembers a batch of facts, one of which all others remember too.
 */
import type { Json } from "@sandglass/core/LedgerEvent"
import { EmbeddingModel, SemanticMemory, WorkingMemory } from "@sandglass/memory"
import { PgMemory } from "@sandglass/sql-pg"
import { SqliteMemory } from "@sandglass/sql-sqlite"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"

const [name = "", rounds = "0", batchSize = "1"] = process.argv.slice(2)
const filename = process.env["MEMORY_FILE"]

const model = EmbeddingModel.layerLexical({ dimensions: 32 })
const memory =
  filename === undefined
    ? PgMemory.layer({ url: Redacted.make(process.env["DATABASE_URL"] ?? ""), maxConnections: 3 })
    : SqliteMemory.layer({ filename })

const shared = { resourceId: "shared", teamId: "team" }

const program = Effect.gen(function* () {
  const working = yield* WorkingMemory.WorkingMemory
  const semantic = yield* SemanticMemory.SemanticMemory
  process.stdout.write("ready\n")
  for (let round = 0; round < Number(rounds); round++) {
    yield* working.modify(shared, "count", (current) =>
      Effect.succeed([
        undefined,
        Option.some<Json>((Option.isSome(current) && typeof current.value === "number" ? current.value : 0) + 1)
      ])
    )
    yield* working.modify(shared, "fields", (current) =>
      Effect.succeed([
        undefined,
        Option.some<Json>({ ...Object(Option.getOrNull(current)), [`${name}-${round}`]: round })
      ])
    )
    yield* semantic.rememberAll(shared, [
      { content: `fact ${round} of all` },
      ...Array.from({ length: Number(batchSize) }, (_, index) => ({ content: `fact ${round}.${index} of ${name}` }))
    ])
  }
})

Effect.runPromise(Effect.provide(program, Layer.provide(memory, model))).then(
  () => process.exit(0),
  (error) => {
    console.error(error)
    process.exit(1)
  }
)
