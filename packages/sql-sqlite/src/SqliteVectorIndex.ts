/**
 * A vector index in SQLite: a `vec0` table of the extension `sqlite-vec` for each embedding model.
 *
 * It compares a query with every vector of a resource, and with no other, several times faster than the program itself
 * could; what it finds is exact.
 *
 * @since 0.1.0
 */
import * as SqliteClient from "@effect/sql-sqlite-bun/SqliteClient"
import type { ModelIndex, Run, SqlVectorIndex } from "@sandglass/memory/SqlVectorIndex"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { getLoadablePath } from "sqlite-vec"

/**
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /**
   * The extension's file. Default: that of the npm package `sqlite-vec` for this platform.
   */
  readonly extension?: string | undefined
}

/** What `vec0` allows. */
const maxDimensions = 8_192
const maxCount = 4_096

/**
 * A table reserves room for so many vectors of a resource at once: with fewer outside it is neither small nor fast.
 */
const chunk = 512

const tableOf = (model: number): string => `sandglass_fact_index_${model}`

const bytesOf = ({ buffer, byteLength, byteOffset }: Float32Array): Uint8Array =>
  new Uint8Array(buffer, byteOffset, byteLength)

/** Statement texts stay the same from call to call: the driver keeps prepared statements by their text. */
const batchSizes = [64, 16, 4, 1] as const

const inBatches = <A>(items: ReadonlyArray<A>): ReadonlyArray<ReadonlyArray<A>> => {
  const batches: Array<ReadonlyArray<A>> = []
  let from = 0
  for (const size of batchSizes) {
    for (; items.length - from >= size; from += size) {
      batches.push(items.slice(from, from + size))
    }
  }
  return batches
}

const makeModelIndex = (model: number): ModelIndex => {
  const table = tableOf(model)
  return {
    maxCount,
    add: (run, owner, vectors) =>
      Effect.zipRight(
        run(`DELETE FROM ${table} WHERE rowid IN (SELECT value FROM json_each(?))`, [
          JSON.stringify(vectors.map(({ seq }) => seq))
        ]),
        Effect.forEach(
          inBatches(vectors),
          (batch) =>
            run(
              `INSERT INTO ${table} (rowid, resource_hash, embedding) VALUES ${batch.map(() => "(?, ?, ?)").join(", ")}`,
              batch.flatMap(({ seq, vector }) => [seq, owner.hash, bytesOf(vector)])
            ),
          { discard: true }
        )
      ),
    nearest: (run, owner, vector, count) =>
      Effect.map(
        run(`SELECT rowid AS seq FROM ${table} WHERE embedding MATCH ? AND resource_hash = ? AND k = ?`, [
          bytesOf(vector),
          owner.hash,
          count
        ]),
        (rows) => rows.map(({ seq }) => Number(seq))
      )
  }
}

const exists = (run: Run, model: number) =>
  Effect.map(run("SELECT 1 AS found FROM sqlite_master WHERE name = ?", [tableOf(model)]), (rows) => rows.length > 0)

const index: SqlVectorIndex = {
  minimum: chunk,
  isTransactional: false,
  find: (run, { number }) =>
    Effect.map(exists(run, number), (found) => (found ? Option.some(makeModelIndex(number)) : Option.none())),
  create: (run, { dimensions, number }) =>
    dimensions > maxDimensions
      ? Effect.succeedNone
      : Effect.as(
          run(
            `CREATE VIRTUAL TABLE IF NOT EXISTS ${tableOf(number)} USING vec0(resource_hash TEXT PARTITION KEY, ` +
              `embedding FLOAT[${dimensions}] DISTANCE_METRIC=cosine, chunk_size=${chunk})`
          ),
          Option.some(makeModelIndex(number))
        ),
  remove: (run, model, _owner, seqs) =>
    Effect.flatMap(exists(run, model), (found) =>
      found
        ? run(`DELETE FROM ${tableOf(model)} WHERE rowid IN (SELECT value FROM json_each(?))`, [JSON.stringify(seqs)])
        : Effect.void
    )
}

/**
 * Loads the extension into the client's connection. `None` where it cannot be loaded, for example because this build of
 * SQLite takes no extensions; why, is logged.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (
  options: Options = {}
): Effect.Effect<Option.Option<SqlVectorIndex>, never, SqliteClient.SqliteClient> =>
  Effect.gen(function* () {
    const client = yield* SqliteClient.SqliteClient
    const path = options.extension ?? (yield* Effect.try(getLoadablePath))
    yield* client.loadExtension(path)
    return Option.some(index)
  }).pipe(
    Effect.catchAll((error) =>
      Effect.as(Effect.logWarning("sqlite-vec cannot be loaded: facts are compared one by one", error), Option.none())
    )
  )
