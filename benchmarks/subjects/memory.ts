/** Semantic memory: recall with a vector index and without, of a resource with many facts and of one among many; remembering. */
import { Database } from "bun:sqlite"
import * as SqlClient from "@effect/sql/SqlClient"
import * as PgClient from "@effect/sql-pg/PgClient"
import type { SemanticMemory, SqlVectorIndex } from "@sandglass/memory"
import { SqlSemanticMemory } from "@sandglass/memory"
import { PgVectorIndex } from "@sandglass/sql-pg"
import { SqliteLedger, SqliteVectorIndex } from "@sandglass/sql-sqlite"
import * as Arr from "effect/Array"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import type { Figure, Subject } from "../harness.js"
import { BenchmarkError, interleaved, median, paired, scratch, server, timed } from "../harness.js"
import { dimensions, model } from "../vectors.js"

type Service = Context.Tag.Service<SemanticMemory.SemanticMemory>

const batchSize = 500
const topK = 10
const large = { resourceId: "large" }
const small = { resourceId: "small" }
const smallFacts = 50

const contentsOf = (kind: "fact" | "note", from: number, count: number) =>
  Arr.makeBy(count, (index) => ({ content: `${kind} ${from + index}: ${"what there is to know of it. ".repeat(3)}` }))

const memory = (
  vectorIndex: SqlVectorIndex.SqlVectorIndex | undefined
): Effect.Effect<Service, unknown, SqlClient.SqlClient> =>
  Effect.provide(SqlSemanticMemory.make({ vectorIndex }), model)

const fill = (
  semantic: Service,
  ref: { readonly resourceId: string },
  kind: "fact" | "note",
  from: number,
  facts: number
) =>
  Effect.forEach(
    Arr.range(0, Math.ceil(facts / batchSize) - 1),
    (batch) =>
      semantic.rememberAll(
        ref,
        contentsOf(kind, from + batch * batchSize, Math.min(batchSize, facts - batch * batchSize))
      ),
    { discard: true }
  )

interface Sizes {
  readonly facts: number
  readonly queries: number
  readonly rounds: { readonly warmUp: number; readonly counted: number }
}

/** What the index and the exact comparison find, and how long they take. */
const recall = (indexed: Service, exact: Service, { facts, queries, rounds }: Sizes) =>
  Effect.gen(function* () {
    // Vectors of the same kind as those of the facts, and none of them.
    const texts = Arr.makeBy(queries, (index) => `query ${5_000_000 + index}`)
    const found = (semantic: Service, query: string) =>
      Effect.map(semantic.recall(large, query, { topK }), (all) => all.map(({ id }) => id))
    let hits = 0
    for (const query of texts) {
      const expected = yield* found(exact, query)
      hits += (yield* found(indexed, query)).filter((id) => expected.includes(id)).length
    }
    const one = (semantic: Service, ref: { readonly resourceId: string }) => {
      let turn = 0
      return timed(Effect.suspend(() => semantic.recall(ref, texts[turn++ % queries] ?? "", { topK })))
    }
    const times = yield* interleaved(rounds, {
      indexed: one(indexed, large),
      exact: one(exact, large),
      small: one(indexed, small)
    })
    const all = yield* indexed.recall(small, texts[0] ?? "", { topK: smallFacts })
    if (all.length !== smallFacts) {
      return yield* new BenchmarkError({ message: `${all.length} of ${smallFacts} facts found` })
    }
    const many = facts.toLocaleString("en")
    const figures: ReadonlyArray<Figure> = [
      { what: `recall of ${many} facts, with the index`, value: median(times.indexed), unit: "ms" },
      { what: `recall of ${many} facts, exact`, value: median(times.exact), unit: "ms" },
      {
        what: "with the index / exact",
        value: paired(times.exact, times.indexed, (a, b) => a / b),
        unit: "ratio"
      },
      {
        what: "of the ten closest the index finds",
        value: hits / (queries * topK),
        unit: "recall@10",
        aim: { atLeast: 0.95 }
      },
      { what: `recall of ${smallFacts} facts beside them`, value: median(times.small), unit: "ms" },
      {
        what: "beside them / exact",
        value: paired(times.exact, times.small, (a, b) => a / b),
        unit: "ratio",
        note: "all 50 found"
      }
    ]
    return figures
  })

/** `remember`, batch after batch, with and without an index. */
const remembering = (sides: { readonly [name: string]: Service }, batches: number, rounds: Sizes["rounds"]) => {
  let next = 10_000_000
  const one = (semantic: Service, ref: { readonly resourceId: string }) =>
    timed(
      Effect.suspend(() => {
        const from = next
        next += batches * batchSize
        return fill(semantic, ref, "note", from, batches * batchSize)
      })
    )
  return interleaved(
    rounds,
    Object.fromEntries(
      Object.entries(sides).map(([name, semantic]) => [name, one(semantic, { resourceId: `remembered ${name}` })])
    )
  )
}

const perSecond = (batches: number) => (millis: number) => ((batches * batchSize) / millis) * 1_000

export const memorySqlite: Subject = {
  name: "memory",
  title: `memory: facts of ${dimensions} dimensions in a SQLite file`,
  run: ({ quick }) =>
    Effect.gen(function* () {
      const directory = yield* scratch
      const sizes: Sizes = quick
        ? { facts: 1_200, queries: 3, rounds: { warmUp: 0, counted: 1 } }
        : { facts: 100_000, queries: 100, rounds: { warmUp: 2, counted: 15 } }
      const client = yield* Layer.build(SqliteLedger.layer({ filename: `${directory}/memory.db` }))
      const provider = yield* Effect.provide(SqliteVectorIndex.make(), client)
      const indexed = yield* Effect.provide(memory(Option.getOrThrow(provider)), client)
      const exact = yield* Effect.provide(memory(undefined), client)
      yield* fill(indexed, large, "fact", 0, sizes.facts)
      yield* fill(indexed, small, "fact", 1_000_000, smallFacts)
      const figures = yield* recall(indexed, exact, sizes)

      // The same rows with nothing but the driver, in a table of the same columns and indexes.
      const raw = yield* Effect.acquireRelease(
        Effect.sync(() => new Database(`${directory}/raw.db`)),
        (db) => Effect.sync(() => db.close())
      )
      const sql = Context.get(client, SqlClient.SqlClient)
      const definitions = yield* sql<{ readonly sql: string }>`
        SELECT sql FROM sqlite_master WHERE tbl_name = 'sandglass_facts' AND sql IS NOT NULL`
      raw.run("PRAGMA journal_mode = WAL")
      for (const { sql } of definitions) raw.run(sql)
      const [row = {}] = yield* sql<{ readonly [column: string]: string | number | Uint8Array | null }>`
        SELECT * FROM sandglass_facts LIMIT 1`
      const columns = Object.keys(row).filter((column) => column !== "seq")
      const values = `(${columns.map(() => "?").join(", ")})`
      const insert = raw.query(
        `INSERT INTO sandglass_facts (${columns.join(", ")}) VALUES ${Array(batchSize).fill(values).join(", ")}`
      )
      let id = 0
      const batches = quick ? 1 : 4
      const rawBatches = timed(
        Effect.sync(() => {
          for (let batch = 0; batch < batches; batch++) {
            const rows = Arr.makeBy(batchSize, () => {
              id++
              return columns.map((column) =>
                column === "id" || column === "digest" ? `${id}`.padStart(43, "0") : (row[column] ?? null)
              )
            })
            insert.run(...rows.flat())
          }
        })
      )
      const times = yield* remembering({ indexed, exact }, batches, sizes.rounds)
      const rawTimes = yield* interleaved(sizes.rounds, { raw: rawBatches })
      const rate = perSecond(batches)
      return [
        ...figures,
        {
          what: `remember, ${batchSize} a batch, with the index`,
          value: rate(median(times["indexed"] ?? [])),
          unit: "facts/s"
        },
        { what: `remember, ${batchSize} a batch, without`, value: rate(median(times["exact"] ?? [])), unit: "facts/s" },
        { what: "raw driver, the same rows", value: rate(median(rawTimes.raw)), unit: "facts/s" },
        {
          what: "remember without the index / raw driver",
          value: paired(rawTimes.raw, times["exact"] ?? [], (a, b) => a / b),
          unit: "ratio"
        }
      ]
    })
}

/** A server with the extension, or a slow one that npm can install. */
const pgvector: Effect.Effect<{ readonly url: string; readonly isSlow: boolean }, BenchmarkError, Scope.Scope> =
  Effect.gen(function* () {
    const given = process.env["BENCH_PGVECTOR_URL"]
    return given === undefined ? { url: (yield* server("pgvector")).url, isSlow: true } : { url: given, isSlow: false }
  })

export const memoryPostgres: Subject = {
  name: "memory-postgres",
  title: `memory: facts of ${dimensions} dimensions in Postgres with pgvector (BENCH_PGVECTOR_URL for 100,000 of them)`,
  run: ({ quick }) =>
    Effect.gen(function* () {
      const { isSlow, url } = yield* pgvector
      const sizes: Sizes = quick
        ? { facts: 150, queries: 3, rounds: { warmUp: 0, counted: 1 } }
        : { facts: isSlow ? 4_000 : 100_000, queries: isSlow ? 30 : 100, rounds: { warmUp: 2, counted: 15 } }
      const client = yield* Layer.build(PgClient.layer({ url: Redacted.make(url), maxConnections: 4 }))
      const exactFacts = quick ? 50 : isSlow ? 200 : 2_000
      const indexed = yield* Effect.provide(memory(PgVectorIndex.make({ exactFacts })), client)
      const exact = yield* Effect.provide(memory(undefined), client)
      if (!indexed.hasVectorIndex) {
        return yield* new BenchmarkError({ message: "the database has no pgvector" })
      }
      const sql = Context.get(client, SqlClient.SqlClient)
      const start = performance.now()
      yield* fill(indexed, large, "fact", 0, sizes.facts)
      const filled = performance.now() - start
      yield* fill(indexed, small, "fact", 1_000_000, smallFacts)
      yield* sql`ANALYZE`
      const figures = yield* recall(indexed, exact, sizes)
      const batches = 1
      const times = yield* remembering({ exact }, batches, sizes.rounds)
      return [
        ...figures,
        {
          what: `remember, ${batchSize} a batch, with the index`,
          value: (sizes.facts / filled) * 1_000,
          unit: "facts/s"
        },
        {
          what: `remember, ${batchSize} a batch, without`,
          value: perSecond(batches)(median(times["exact"] ?? [])),
          unit: "facts/s"
        }
      ]
    })
}
