import * as SqlClient from "@effect/sql/SqlClient"
import { assert, describe, it } from "@effect/vitest"
import { Ledger } from "@sandglass/core"
import { EmbeddingModel, Memory, SemanticMemory, WorkingMemory } from "@sandglass/memory"
import { PgLedger, PgMemory } from "@sandglass/sql-pg"
import * as ConfigProvider from "effect/ConfigProvider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Stream from "effect/Stream"
import { client, database } from "../support/postgres.js"

const model = EmbeddingModel.layerLexical({ dimensions: 64 })
const ref = { resourceId: "user-7", teamId: "team-a" }

const use = Effect.gen(function* () {
  const memory = yield* Memory.FullMemory
  const ledger = yield* Ledger.Ledger
  yield* memory.working.set(ref, "k", 1)
  yield* memory.remember(ref, { content: "Lives in Vienna" })
  const payload = { resourceId: ref.resourceId, teamId: ref.teamId }
  yield* ledger.append({ sandboxId: "s", name: "n", event: "sandbox.created", payload })
})

const found = Effect.gen(function* () {
  const memory = yield* Memory.FullMemory
  return [
    yield* memory.working.get(ref, "k"),
    (yield* memory.recall(ref, "Vienna")).map(({ content }) => content),
    yield* Stream.runCount(memory.episodicRecall(ref))
  ] as const
})

const everything: Effect.Effect.Success<typeof found> = [Option.some(1), ["Lives in Vienna"], 1]

describe("PgMemory", () => {
  it.scopedLive("one database holds everything, and gives it back to the next process", () =>
    Effect.gen(function* () {
      const url = yield* database
      const layer = Layer.provide(PgMemory.layer({ url }), model)
      yield* Effect.provide(use, layer)
      yield* Effect.gen(function* () {
        assert.deepStrictEqual(yield* found, everything)
        // The server of the tests has no pgvector.
        assert.isFalse((yield* SemanticMemory.SemanticMemory).hasVectorIndex)
      }).pipe(Effect.provide(layer))
    })
  )

  it.scopedLive("it shares a pool with the ledger, and their transactions", () =>
    Effect.gen(function* () {
      const url = yield* database
      const shared = PgMemory.layerFromClient().pipe(
        Layer.provideMerge(PgLedger.layer({ url, maxConnections: 3 })),
        Layer.provide(model)
      )
      yield* Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const undone = sql.withTransaction(Effect.zipRight(use, Effect.fail("undo")))
        assert.strictEqual(yield* Effect.flip(undone), "undo")
        assert.deepStrictEqual(yield* found, [Option.none(), [], 0])
        yield* sql.withTransaction(use)
        assert.deepStrictEqual(yield* found, everything)
        const working = yield* WorkingMemory.WorkingMemory
        const semantic = yield* SemanticMemory.SemanticMemory
        assert.strictEqual(Option.getOrThrow(working.transaction), Option.getOrThrow(semantic.transaction))
      }).pipe(Effect.provide(shared))
    })
  )

  it.scopedLive("somebody else's transaction that is open keeps nobody from starting", () =>
    Effect.gen(function* () {
      const url = yield* database
      const layer = Layer.provide(PgMemory.layer({ url }), model)
      yield* Effect.provide(use, layer)
      const sql = yield* client(url)
      yield* sql.withTransaction(
        Effect.gen(function* () {
          yield* sql`UPDATE sandglass_facts SET updated_at = updated_at`
          yield* sql`SELECT pg_advisory_xact_lock(7267263539)`
          assert.deepStrictEqual(yield* Effect.provide(found, layer), everything)
        })
      )
    })
  )

  it.scopedLive("a database that cannot be reached is an error that says so, without the password", () =>
    Effect.gen(function* () {
      const url = Redacted.make("postgres://ada:s3cret@127.0.0.1:1/nowhere")
      const error = yield* Effect.flip(Layer.build(Layer.provide(PgMemory.layer({ url }), model)))
      assert.deepInclude(error, { _tag: "MemoryStoreError", reason: "Connection" })
      assert.include(error.message, "127.0.0.1:1/nowhere")
      assert.notInclude(Bun.inspect(error, { depth: 20 }), "s3cret")
    })
  )

  it.scopedLive("from the configuration", () =>
    Effect.gen(function* () {
      const url = yield* database
      const provider = ConfigProvider.fromMap(new Map([["DATABASE_URL", Redacted.value(url)]]))
      yield* Effect.zipRight(use, found).pipe(
        Effect.map((all) => assert.deepStrictEqual(all, everything)),
        Effect.provide(Layer.provide(PgMemory.layerConfig(), model)),
        Effect.withConfigProvider(provider)
      )
    })
  )
})
