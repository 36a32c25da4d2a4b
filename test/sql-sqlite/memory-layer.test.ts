import { mkdtempSync, rmSync, statSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as SqlClient from "@effect/sql/SqlClient"
import { assert, describe, it } from "@effect/vitest"
import { Ledger } from "@sandglass/core"
import { EmbeddingModel, Memory, SemanticMemory, WorkingMemory } from "@sandglass/memory"
import { SqliteLedger, SqliteMemory, SqliteVectorIndex } from "@sandglass/sql-sqlite"
import * as Arr from "effect/Array"
import * as ConfigProvider from "effect/ConfigProvider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"

const folder = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "sandglass-memory-layer-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

const model = EmbeddingModel.layerLexical({ dimensions: 64 })
const ref = { resourceId: "user-7" }

const use = Effect.gen(function* () {
  const memory = yield* Memory.FullMemory
  const ledger = yield* Ledger.Ledger
  yield* memory.working.set(ref, "k", 1)
  yield* memory.remember(ref, { content: "Lives in Vienna" })
  yield* ledger.append({ sandboxId: "s", name: "n", event: "sandbox.created", payload: { resourceId: "user-7" } })
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

describe("SqliteMemory", () => {
  it.scopedLive("one file holds everything, and gives it back to the next process", () =>
    Effect.gen(function* () {
      const filename = join(yield* folder, "new", "folder", "agent.db")
      const layer = Layer.provide(SqliteMemory.layer({ filename }), model)
      yield* Effect.provide(use, layer)
      assert.isAbove(statSync(filename).size, 0)
      yield* Effect.gen(function* () {
        assert.deepStrictEqual(yield* found, everything)
        assert.isTrue((yield* SemanticMemory.SemanticMemory).hasVectorIndex)
      }).pipe(Effect.provide(layer))
    })
  )

  it.scopedLive("it shares a connection with the ledger, and their transactions", () =>
    Effect.gen(function* () {
      const filename = join(yield* folder, "agent.db")
      const shared = SqliteMemory.layerFromClient().pipe(
        Layer.provideMerge(SqliteLedger.layer({ filename })),
        Layer.provide(model)
      )
      for (const layer of [shared, Layer.provide(SqliteMemory.layer({ filename: ":memory:" }), model)]) {
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
        }).pipe(Effect.provide(layer))
      }
    })
  )

  it.scopedLive("without a vector index it finds the same", () =>
    Effect.gen(function* () {
      const filename = join(yield* folder, "agent.db")
      const logged: Array<string> = []
      const logger = Logger.replace(
        Logger.defaultLogger,
        Logger.make(({ logLevel, message }) => void logged.push(`${logLevel._tag}: ${String(message)}`))
      )
      const facts = Arr.makeBy(1_200, (index) => ({ content: `fact number ${index}` }))
      const query = Effect.gen(function* () {
        const semantic = yield* SemanticMemory.SemanticMemory
        const recalled = yield* semantic.recall(ref, "fact number 77", { topK: 20 })
        return { hasVectorIndex: semantic.hasVectorIndex, recalled }
      })
      const withOptions = (options: Partial<SqliteMemory.Options>) =>
        Effect.provide(query, Layer.provide(SqliteMemory.layer({ filename, ...options }), model))
      yield* Effect.flatMap(SemanticMemory.SemanticMemory, (semantic) => semantic.rememberAll(ref, facts)).pipe(
        Effect.provide(Layer.provide(SqliteMemory.layer({ filename }), model))
      )
      const indexed = yield* withOptions({})
      const without = yield* withOptions({ vectorIndex: false })
      assert.deepStrictEqual([indexed.hasVectorIndex, without.hasVectorIndex], [true, false])
      assert.deepStrictEqual(indexed.recalled, without.recalled)
      assert.deepStrictEqual(logged, [])
      // An extension that cannot be loaded is said, and done without.
      const broken = yield* Effect.provide(withOptions({ vectorIndex: { extension: "/nowhere/vec0.so" } }), logger)
      assert.isFalse(broken.hasVectorIndex)
      assert.deepStrictEqual(broken.recalled, without.recalled)
      assert.strictEqual(logged.length, 1)
      assert.match(logged[0] ?? "", /^Warning: sqlite-vec cannot be loaded/)
    })
  )

  it.scopedLive("vectors that the index cannot hold are compared one by one", () =>
    Effect.gen(function* () {
      const long = EmbeddingModel.layerLexical({ dimensions: 8_193 })
      yield* Effect.gen(function* () {
        yield* use
        assert.isFalse((yield* SemanticMemory.SemanticMemory).hasVectorIndex)
        assert.deepStrictEqual(yield* found, everything)
      }).pipe(Effect.provide(Layer.provide(SqliteMemory.layer({ filename: ":memory:" }), long)))
    })
  )

  it.scopedLive("a file that cannot be opened is an error that says so", () =>
    Effect.gen(function* () {
      const path = yield* folder
      for (const filename of [path, join("/proc", "nowhere", "agent.db")]) {
        const error = yield* Effect.flip(Layer.build(Layer.provide(SqliteMemory.layer({ filename }), model)))
        assert.strictEqual(error._tag, "MemoryStoreError")
        if (error._tag === "MemoryStoreError") {
          assert.strictEqual(error.reason, "Connection")
          assert.include(error.message, filename)
        }
      }
    })
  )

  it.scopedLive("a file that is deleted while it is open is an error from then on", () =>
    Effect.gen(function* () {
      const path = yield* folder
      yield* Effect.gen(function* () {
        yield* use
        rmSync(join(path, "agent.db"))
        const working = yield* WorkingMemory.WorkingMemory
        const semantic = yield* SemanticMemory.SemanticMemory
        for (const attempt of [
          working.get(ref, "k"),
          working.set(ref, "k", 2),
          semantic.remember(ref, { content: "new" }),
          semantic.recall(ref, "Vienna")
        ]) {
          const error = yield* Effect.flip<unknown, unknown, never>(attempt)
          assert.deepInclude(error, { _tag: "MemoryStoreError", reason: "Connection" })
        }
      }).pipe(Effect.provide(Layer.provide(SqliteMemory.layer({ filename: join(path, "agent.db") }), model)))
    })
  )

  it.scopedLive("a file that somebody else keeps locked is waited for, and then given up", () =>
    Effect.gen(function* () {
      const filename = join(yield* folder, "agent.db")
      const { Database } = yield* Effect.promise(() => import("bun:sqlite"))
      yield* Effect.gen(function* () {
        yield* use
        const other = yield* Effect.acquireRelease(
          Effect.sync(() => new Database(filename)),
          (db) => Effect.sync(() => db.close())
        )
        const working = yield* WorkingMemory.WorkingMemory
        other.run("BEGIN IMMEDIATE")
        const error = yield* Effect.flip(working.set(ref, "k", 2))
        assert.deepInclude(error, { _tag: "MemoryStoreError", reason: "Contention" })
        assert.deepStrictEqual(yield* working.get(ref, "k"), Option.some(1))
        const waiting = yield* Effect.fork(working.set(ref, "k", 3))
        yield* Effect.sleep("100 millis")
        other.run("COMMIT")
        yield* waiting.await
        assert.deepStrictEqual(yield* working.get(ref, "k"), Option.some(3))
      }).pipe(
        Effect.provide(
          Layer.provide(SqliteMemory.layer({ filename, busyTimeout: 10, contentionTimeout: "600 millis" }), model)
        )
      )
    })
  )

  it.scopedLive("from the configuration", () =>
    Effect.gen(function* () {
      const filename = join(yield* folder, "configured.db")
      const provider = ConfigProvider.fromMap(new Map([["SANDGLASS_MEMORY_FILE", filename]]))
      yield* use.pipe(
        Effect.provide(Layer.provide(SqliteMemory.layerConfig(), model)),
        Effect.withConfigProvider(provider)
      )
      assert.isAbove(statSync(filename).size, 0)
    })
  )

  it.scopedLive("options that make no sense are refused", () =>
    Effect.gen(function* () {
      const layer = SqliteMemory.layer({ filename: ":memory:", autoCompact: { maxFacts: -1 } })
      const error = yield* Effect.flip(Layer.build(Layer.provide(layer, model)))
      assert.strictEqual(error._tag, "InvalidInput")
    })
  )

  it.scopedLive("the index is one for those who have no SqliteMemory too", () =>
    Effect.gen(function* () {
      const context = yield* Layer.build(SqliteLedger.layer({ filename: ":memory:" }))
      assert.isTrue(Option.isSome(yield* Effect.provide(SqliteVectorIndex.make(), context)))
    })
  )
})
