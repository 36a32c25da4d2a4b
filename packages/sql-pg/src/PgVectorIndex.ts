/**
 * A vector index in Postgres: the extension `pgvector`, with an HNSW index for each embedding model.
 *
 * Vectors stand in a table of their own. Of each resource so many are compared one by one, by the database and exactly;
 * those beyond are found through the index, which may miss a few. A small resource is therefore never lost among large
 * ones, and large ones are not slowed down by many small ones.
 *
 * @since 0.1.0
 */
import type { IndexedModel, ModelIndex, Owner, Run, SqlVectorIndex } from "@sandglass/memory/SqlVectorIndex"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"

/**
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** How many facts of each resource are compared one by one. A whole number of 0 or more, default 2000. */
  readonly exactFacts?: number | undefined
  /**
   * How many candidates the index looks at, at least: more find better and take longer. 1 to 1000, default 100. Of more
   * facts than half of it that are asked for, twice as many are looked at.
   */
  readonly searchWidth?: number | undefined
  /** To how many others each vector is connected in an index that is made anew. 2 to 100, default 16. */
  readonly connections?: number | undefined
  /** How many candidates are looked at when a vector is added. 4 to 1000, at least twice `connections`, default 64. */
  readonly buildWidth?: number | undefined
}

const table = "sandglass_fact_vectors"

/** Processes that prepare an index at once wait for each other. */
const lock = 7267263540

/** What HNSW indexes bear, in numbers of 32 bits and of 16. */
const maxSingle = 2_000
const maxHalf = 4_000

/** The widest search there is. */
const maxWidth = 1_000

const isVisible = "team_id = '' OR team_id = current_setting('sandglass.team_id', true)"

const tableStatements = [
  `CREATE TABLE ${table} (seq BIGINT PRIMARY KEY REFERENCES sandglass_facts (seq) ON DELETE CASCADE, ` +
    "resource_hash TEXT NOT NULL, team_id TEXT NOT NULL, model INTEGER NOT NULL, large BOOLEAN NOT NULL, " +
    "embedding vector NOT NULL)",
  `CREATE INDEX ${table}_resource ON ${table} (resource_hash, model, large)`,
  `ALTER TABLE ${table} ENABLE ROW LEVEL SECURITY`,
  `ALTER TABLE ${table} FORCE ROW LEVEL SECURITY`,
  `CREATE POLICY ${table}_team ON ${table} USING (${isVisible}) WITH CHECK (${isVisible})`
]

const exists = (run: Run, relation: string) =>
  Effect.map(run("SELECT to_regclass($1) IS NOT NULL AS found", [relation]), ([row]) => row?.["found"] === true)

/** A vector in the binary form of the extension: a count, two bytes that are not used, and the numbers. */
const bytesOf = (vector: Float32Array): Uint8Array => {
  const bytes = new Uint8Array(4 + 4 * vector.length)
  const view = new DataView(bytes.buffer)
  view.setUint16(0, vector.length)
  vector.forEach((value, index) => {
    view.setFloat32(4 + 4 * index, value)
  })
  return bytes
}

const seqsOf = (rows: ReadonlyArray<Readonly<Record<string, unknown>>>): ReadonlyArray<number> =>
  rows.map(({ seq }) => Number(seq))

/** Statements of few different sizes. */
const batchSizes = [256, 64, 16, 4, 1] as const

const makeModelIndex = (
  model: number,
  type: string,
  iterates: boolean,
  { exactFacts, searchWidth }: { readonly exactFacts: number; readonly searchWidth: number }
): ModelIndex => {
  const mine = `resource_hash = $1 AND model = ${model}`
  const beginning = `WITH mine AS MATERIALIZED (SELECT seq, embedding FROM ${table} WHERE ${mine}`
  const end = ") SELECT seq FROM mine ORDER BY embedding <=> CAST($2 AS vector) LIMIT $3"
  const countOf = (large: boolean) =>
    `SELECT count(*) AS count FROM (SELECT 1 FROM ${table} WHERE ${mine} AND ${large ? "" : "NOT "}large LIMIT $2) AS these`
  // The literal conditions are those of the index.
  const throughIndex =
    `SELECT seq FROM ${table} WHERE model = ${model} AND large AND resource_hash = $1 ` +
    `ORDER BY CAST(embedding AS ${type}) <=> CAST(CAST($2 AS vector) AS ${type}) LIMIT $3`

  const counted = (run: Run, owner: Owner, large: boolean, limit: number) =>
    Effect.map(run(countOf(large), [owner.hash, limit]), ([row]) => Number(row?.["count"]))

  const nearestLarge = Effect.fnUntraced(function* (run: Run, owner: Owner, vector: Uint8Array, count: number) {
    const present = yield* counted(run, owner, true, count)
    if (present === 0) {
      return []
    }
    const width = Math.max(searchWidth, 2 * count)
    if (width <= maxWidth) {
      yield* run("SELECT set_config('hnsw.ef_search', $1, true)", [String(width)])
      if (iterates) {
        yield* run("SELECT set_config('hnsw.iterative_scan', 'strict_order', true)")
      }
      const rows = yield* run(throughIndex, [owner.hash, vector, count])
      if (rows.length >= present) {
        return seqsOf(rows)
      }
    }
    // Too many of others are closer to the vector for the index to reach all of these.
    return seqsOf(yield* run(`${beginning} AND large${end}`, [owner.hash, vector, count]))
  })

  return {
    maxCount: 100_000,
    add: Effect.fnUntraced(function* (run, owner, vectors) {
      const room = exactFacts - (yield* counted(run, owner, false, exactFacts))
      let from = 0
      for (const size of batchSizes) {
        for (; vectors.length - from >= size; from += size) {
          const values: Array<string> = []
          const params: Array<string | number | Uint8Array> = [owner.hash, owner.teamId]
          for (const [index, { seq, vector }] of vectors.slice(from, from + size).entries()) {
            const at = 3 + 2 * index
            values.push(`($${at}, $1, $2, ${model}, ${from + index >= room}, CAST($${at + 1} AS vector))`)
            params.push(seq, bytesOf(vector))
          }
          yield* run(
            `INSERT INTO ${table} (seq, resource_hash, team_id, model, large, embedding) VALUES ${values.join(", ")} ` +
              "ON CONFLICT (seq) DO UPDATE SET model = excluded.model, large = excluded.large, embedding = excluded.embedding",
            params
          )
        }
      }
    }),
    nearest: Effect.fnUntraced(function* (run, owner, vector, count) {
      const bytes = bytesOf(vector)
      const small = yield* run(`${beginning} AND NOT large${end}`, [owner.hash, bytes, count])
      return [...seqsOf(small), ...(yield* nearestLarge(run, owner, bytes, count))]
    })
  }
}

const versionOf = (text: unknown): ReadonlyArray<number> => String(text).split(".").map(Number)

const installed = (run: Run) =>
  Effect.map(run("SELECT extversion AS version FROM pg_extension WHERE extname = 'vector'"), ([row]) =>
    row === undefined ? undefined : versionOf(row["version"])
  )

/** What an index holds of the vectors of a model, and how it compares them. */
const typeOf = (dimensions: number): string => `${dimensions > maxSingle ? "halfvec" : "vector"}(${dimensions})`
const operatorsOf = (dimensions: number): string =>
  dimensions > maxSingle ? "halfvec_cosine_ops" : "vector_cosine_ops"

const indexOf = (model: number): string => `${table}_${model}`

/**
 * Uses the extension where the database has it, and creates it where it is there to be created and the role may do so.
 * Vectors of more than 4000 numbers are not indexed.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (options: Options = {}): SqlVectorIndex => {
  const { buildWidth = 64, connections = 16, exactFacts = 2_000, searchWidth = 100 } = options
  // An index that goes on until it has found enough of a resource is there since 0.8.
  const opened = ({ dimensions, number }: IndexedModel, [major = 0, minor = 0]: ReadonlyArray<number>) =>
    Option.some(makeModelIndex(number, typeOf(dimensions), major > 0 || minor >= 8, { exactFacts, searchWidth }))
  return {
    minimum: 1,
    isTransactional: true,
    find: Effect.fnUntraced(function* (run, model) {
      const version = yield* installed(run)
      return version !== undefined && (yield* exists(run, table)) && (yield* exists(run, indexOf(model.number)))
        ? opened(model, version)
        : Option.none()
    }),
    create: Effect.fnUntraced(function* (run, model) {
      const { dimensions, number } = model
      if (dimensions > maxHalf) {
        return Option.none()
      }
      yield* run(`SELECT pg_advisory_xact_lock(${lock})`)
      if ((yield* installed(run)) === undefined) {
        const available = yield* run("SELECT 1 AS found FROM pg_available_extensions WHERE name = 'vector'")
        if (available.length === 0) {
          yield* Effect.logDebug("The database has no pgvector: facts are compared one by one")
          return Option.none()
        }
        yield* run("CREATE EXTENSION vector")
      }
      if (!(yield* exists(run, table))) {
        yield* Effect.forEach(tableStatements, (statement) => run(statement), { discard: true })
      }
      if (!(yield* exists(run, indexOf(number)))) {
        yield* run(
          `CREATE INDEX ${indexOf(number)} ON ${table} USING hnsw (CAST(embedding AS ${typeOf(dimensions)}) ` +
            `${operatorsOf(dimensions)}) WITH (m = ${Math.trunc(connections)}, ` +
            `ef_construction = ${Math.trunc(buildWidth)}) WHERE model = ${number} AND large`
        )
      }
      return opened(model, (yield* installed(run)) ?? [])
    }),
    remove: (run, _model, _owner, seqs) =>
      Effect.asVoid(
        run(`DELETE FROM ${table} WHERE seq = ANY (ARRAY(SELECT CAST(jsonb_array_elements_text($1) AS bigint)))`, [
          JSON.stringify(seqs)
        ])
      )
  }
}
