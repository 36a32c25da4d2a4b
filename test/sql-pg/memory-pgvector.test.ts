import * as SqlClient from "@effect/sql/SqlClient"
import * as PgClient from "@effect/sql-pg/PgClient"
import { assert, describe, it } from "@effect/vitest"
import { EmbeddingModel, SemanticMemory, SqlSemanticMemory } from "@sandglass/memory"
import { PgMemory, PgVectorIndex } from "@sandglass/sql-pg"
import * as Arr from "effect/Array"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { pgliteDatabase } from "../support/pglite.js"

/** Texts are vectors: a list of numbers, the rest zeros. */
const numbers = (id: string, dimensions: number) =>
  Layer.succeed(EmbeddingModel.EmbeddingModel, {
    id,
    dimensions,
    embed: (texts) =>
      Effect.succeed(
        texts.map((text) => {
          const given: ReadonlyArray<number> = JSON.parse(text)
          return Arr.makeBy(dimensions, (index) => given[index] ?? 0)
        })
      )
  })

const quick = { connections: 8, buildWidth: 16 }

const withIndex = (options: PgVectorIndex.Options = {}) =>
  SqlSemanticMemory.layerWith({ vectorIndex: PgVectorIndex.make({ ...quick, ...options }) })

const recalled = (ref: { readonly resourceId: string }, query: string, topK: number) =>
  Effect.flatMap(SemanticMemory.SemanticMemory, (semantic) =>
    Effect.map(semantic.recall(ref, query, { topK }), (found) => found.map(({ content }) => content))
  )

const rememberAll = (ref: { readonly resourceId: string; readonly teamId?: string }, contents: ReadonlyArray<string>) =>
  Effect.flatMap(SemanticMemory.SemanticMemory, (semantic) =>
    semantic.rememberAll(
      ref,
      contents.map((content) => ({ content }))
    )
  )

const countOf = (condition: string, table = "sandglass_fact_vectors") =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.map(
      sql.unsafe<{ readonly count: string }>(`SELECT count(*) AS count FROM ${table} WHERE ${condition}`),
      ([row]) => Number(row?.count)
    )
  )

const client = Effect.flatMap(pgliteDatabase, (url) =>
  Effect.map(Layer.build(PgClient.layer({ url, maxConnections: 5 })), (context) => Layer.succeedContext(context))
)

describe("PgVectorIndex", () => {
  it.scopedLive(
    "what many others are closer than is found through the index too",
    () =>
      Effect.gen(function* () {
        const layer = Layer.provideMerge(
          Layer.provide(withIndex({ exactFacts: 0, searchWidth: 10 }), numbers("m", 8)),
          yield* client
        )
        yield* Effect.gen(function* () {
          yield* rememberAll(
            { resourceId: "theirs" },
            Arr.makeBy(3_000, (index) => `[1,0,${index / 1e6}]`)
          )
          const mine = Arr.makeBy(12, (index) => `[0.1,${index + 1}]`)
          yield* rememberAll({ resourceId: "mine" }, mine)
          assert.strictEqual(yield* countOf("large"), 3_012)
          assert.deepStrictEqual(yield* recalled({ resourceId: "mine" }, "[1,0]", 5), mine.slice(0, 5))
          assert.deepStrictEqual(yield* recalled({ resourceId: "mine" }, "[1,0]", 12), mine)
          assert.strictEqual((yield* recalled({ resourceId: "theirs" }, "[1,0]", 20)).length, 20)
          // More than an index looks at.
          assert.strictEqual((yield* recalled({ resourceId: "theirs" }, "[1,0]", 3_000)).length, 3_000)
        }).pipe(Effect.provide(layer))
      }),
    120_000
  )

  it.scopedLive(
    "only what is beyond the exact part of a resource goes into the index, which serves its queries",
    () =>
      Effect.gen(function* () {
        const layer = Layer.provideMerge(Layer.provide(withIndex({ exactFacts: 50 }), numbers("m", 8)), yield* client)
        yield* Effect.gen(function* () {
          const sql = yield* SqlClient.SqlClient
          const facts = Arr.makeBy(400, (index) => `[1,${index}]`)
          yield* rememberAll({ resourceId: "r" }, facts.slice(0, 30))
          assert.strictEqual(yield* countOf("large"), 0)
          yield* rememberAll({ resourceId: "r" }, facts.slice(30))
          assert.strictEqual(yield* countOf("NOT large"), 50)
          assert.strictEqual(yield* countOf("large"), 350)
          yield* sql`ANALYZE sandglass_fact_vectors`
          // The closest are some of the exact part and some of the index.
          assert.sameMembers(
            [...(yield* recalled({ resourceId: "r" }, "[1,50]", 10))],
            Arr.makeBy(10, (index) => `[1,${index + 46}]`)
          )
          // For so few the database would rather sort; that it may use the index is what counts.
          const [plan] = yield* sql.withTransaction(
            Effect.zipRight(
              sql`SELECT set_config('enable_sort', 'off', true)`,
              sql.unsafe<{ readonly "QUERY PLAN": ReadonlyArray<unknown> }>(
                "EXPLAIN (FORMAT JSON) SELECT seq FROM sandglass_fact_vectors WHERE model = 1 AND large AND " +
                  "resource_hash = (SELECT min(resource_hash) FROM sandglass_facts) ORDER BY CAST(embedding AS vector(8)) " +
                  "<=> CAST('[1,0,0,0,0,0,0,0]' AS vector(8)) LIMIT 18"
              )
            )
          )
          assert.include(JSON.stringify(plan), '"Index Name":"sandglass_fact_vectors_1"')
        }).pipe(Effect.provide(layer))
      }),
    120_000
  )

  it.scopedLive(
    "long vectors are indexed in 16 bits, and very long ones not at all",
    () =>
      Effect.gen(function* () {
        const there = yield* client
        for (const [dimensions, hasVectorIndex, type] of [
          [2_000, true, "vector(2000)"],
          [2_001, true, "halfvec(2001)"],
          [4_000, true, "halfvec(4000)"],
          [4_001, false, undefined]
        ] as const) {
          const ref = { resourceId: `r${dimensions}` }
          yield* Effect.gen(function* () {
            const semantic = yield* SemanticMemory.SemanticMemory
            assert.strictEqual(semantic.hasVectorIndex, hasVectorIndex)
            yield* rememberAll(ref, ["[1,0]", "[0,1]", "[1,1]"])
            assert.deepStrictEqual(yield* recalled(ref, "[1,0.1]", 3), ["[1,0]", "[1,1]", "[0,1]"])
          }).pipe(
            Effect.provide(
              Layer.provide(withIndex({ exactFacts: 0 }), Layer.merge(there, numbers(`m${dimensions}`, dimensions)))
            )
          )
          const definitions = yield* Effect.flatMap(
            SqlClient.SqlClient,
            (sql) => sql<{ readonly indexdef: string }>`SELECT indexdef FROM pg_indexes WHERE indexdef LIKE '%hnsw%'`
          ).pipe(Effect.provide(there))
          if (type !== undefined) {
            assert.isTrue(definitions.some(({ indexdef }) => indexdef.includes(`::${type}`)))
          }
        }
      }),
    120_000
  )

  it.scopedLive(
    "what was remembered without an index gets into it bit by bit, or all at once",
    () =>
      Effect.gen(function* () {
        const there = yield* client
        const model = numbers("m", 8)
        const without = Layer.provide(SqlSemanticMemory.layer, Layer.merge(there, model))
        const layer = Layer.provideMerge(Layer.provide(withIndex(), model), there)
        const old = Arr.makeBy(2_500, (index) => `[1,${index}]`)
        yield* Effect.provide(rememberAll({ resourceId: "r" }, old), without)
        yield* Effect.gen(function* () {
          assert.deepStrictEqual(yield* recalled({ resourceId: "r" }, "[1,0]", 2), ["[1,0]", "[1,1]"])
          assert.strictEqual(yield* countOf("true"), 0)
          yield* rememberAll({ resourceId: "r" }, ["[0,1]"])
          assert.strictEqual(yield* countOf("true"), 1_001)
          assert.strictEqual(yield* countOf("indexed = 1", "sandglass_facts"), 1_001)
          const semantic = yield* SemanticMemory.SemanticMemory
          assert.strictEqual(yield* semantic.reembed({ resourceId: "r" }), 0)
          assert.strictEqual(yield* countOf("true"), 2_501)
          assert.strictEqual(yield* countOf("indexed = 0", "sandglass_facts"), 0)
          assert.deepStrictEqual(yield* recalled({ resourceId: "r" }, "[1,0]", 2), ["[1,0]", "[1,1]"])
        }).pipe(Effect.provide(layer))
        // Whoever has no index takes what it forgets out of it all the same.
        yield* Effect.gen(function* () {
          const semantic = yield* SemanticMemory.SemanticMemory
          const { clear } = yield* semantic.prunable
          assert.strictEqual(yield* clear({ resourceId: "r" }), 2_501)
        }).pipe(Effect.provide(without))
        assert.strictEqual(yield* Effect.provide(countOf("true"), there), 0)
      }),
    120_000
  )

  it.scopedLive(
    "several start at once on an empty database",
    () =>
      Effect.gen(function* () {
        const url = yield* pgliteDatabase
        const contexts = yield* Effect.forEach(
          Arr.range(1, 4),
          () => Layer.build(Layer.fresh(Layer.provide(PgMemory.layer({ url, maxConnections: 2 }), numbers("m", 8)))),
          { concurrency: "unbounded" }
        )
        for (const context of contexts) {
          assert.isTrue(Context.get(context, SemanticMemory.SemanticMemory).hasVectorIndex)
        }
      }),
    120_000
  )

  it.scopedLive(
    "vectors of a team are there for who has named it, for a role that is no superuser",
    () =>
      Effect.gen(function* () {
        const layer = Layer.provideMerge(Layer.provide(withIndex({ exactFacts: 1 }), numbers("m", 8)), yield* client)
        yield* Effect.gen(function* () {
          const sql = yield* SqlClient.SqlClient
          yield* sql`CREATE ROLE app NOSUPERUSER NOBYPASSRLS`
          yield* sql`GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO app`
          yield* sql`GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO app`
          const flags = yield* sql<{ readonly both: boolean }>`
          SELECT relrowsecurity AND relforcerowsecurity AS both FROM pg_class WHERE relname = 'sandglass_fact_vectors'`
          assert.deepStrictEqual(flags, [{ both: true }])
          // All connections are one session here.
          yield* sql`SET ROLE app`
          const a = { resourceId: "r", teamId: "a" }
          const b = { resourceId: "r", teamId: "b" }
          for (const ref of [a, b, { resourceId: "r" }]) {
            yield* rememberAll(ref, ["[1,0]", "[0,1]", "[1,1]"])
            assert.deepStrictEqual(yield* recalled(ref, "[1,0.1]", 3), ["[1,0]", "[1,1]", "[0,1]"])
          }
          const teams = Effect.map(
            sql<{ readonly team_id: string }>`SELECT DISTINCT team_id FROM sandglass_fact_vectors ORDER BY team_id`,
            Arr.map(({ team_id }) => team_id)
          )
          assert.deepStrictEqual(yield* teams, [""])
          assert.deepStrictEqual(
            yield* sql.withTransaction(Effect.zipRight(sql`SELECT set_config('sandglass.team_id', 'a', true)`, teams)),
            ["", "a"]
          )
          const semantic = yield* SemanticMemory.SemanticMemory
          const { clear } = yield* semantic.prunable
          assert.strictEqual(yield* clear(a), 3)
          assert.deepStrictEqual(yield* recalled(b, "[1,0.1]", 3), ["[1,0]", "[1,1]", "[0,1]"])
          yield* sql`RESET ROLE`
          assert.deepStrictEqual(yield* teams, ["", "b"])
        }).pipe(Effect.provide(layer))
      }),
    120_000
  )
})
