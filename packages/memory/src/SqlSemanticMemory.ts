/**
 * Semantic memory in a SQL database: SQLite and Postgres, through whatever `SqlClient` the application has.
 *
 * Vectors are kept as bytes and compared one by one, exactly; a vector index of the database can be added. Writes join a
 * transaction that the application has opened with the same client. On Postgres, row-level security keeps the rows of a
 * team from whoever has not named it: `SET LOCAL sandglass.team_id`.
 *
 * @since 0.1.0
 */
import type * as SqlClient from "@effect/sql/SqlClient"
import type { SqlFailure } from "@sandglass/core/SqlStore"
import type * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { EmbeddingModel } from "./EmbeddingModel.js"
import { make as makeSemantic } from "./internal/semantic/make.js"
import * as Database from "./internal/sql/database.js"
import * as Facts from "./internal/sql/facts.js"
import { migrate } from "./internal/sql/migration.js"
import * as Semantic from "./internal/sql/semantic.js"
import type { MemoryStoreError } from "./MemoryError.js"
import { SemanticMemory } from "./SemanticMemory.js"
import type { SqlVectorIndex } from "./SqlVectorIndex.js"

/**
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** How long a write waits for a database that others keep locked. Default: 30 seconds. */
  readonly contentionTimeout?: Duration.DurationInput | undefined
  /** Fails where the database is not the right one any more. Runs before every commit and after every query. */
  readonly verify?: Effect.Effect<void, SqlFailure> | undefined
  /** Default: none; every fact of the resource is compared. */
  readonly vectorIndex?: SqlVectorIndex | undefined
}

/**
 * Semantic memory in the database of the `SqlClient` at hand; creates the tables that are missing. Not to be called
 * inside a transaction.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = Effect.fnUntraced(function* (
  options: Options = {}
): Effect.fn.Return<Context.Tag.Service<SemanticMemory>, MemoryStoreError, SqlClient.SqlClient | EmbeddingModel> {
  const { dimensions, id } = yield* EmbeddingModel
  const database = yield* Database.make(options)
  const { dialect, runOn, store } = database
  const number = yield* migrate(
    database,
    [Facts.modelTable(dialect), Facts.factTable(dialect)],
    (run) => Facts.findModel(dialect, run, { id, dimensions }),
    (run) => Facts.addModel(dialect, run, { id, dimensions })
  ).pipe(Effect.mapError(Database.failed("layer")))
  const provider = options.vectorIndex
  const indexing =
    provider === undefined
      ? Option.none<Semantic.Indexing>()
      : yield* provider.find(store.read, { number, dimensions }).pipe(
          Effect.flatMap((found) =>
            Option.isSome(found)
              ? Effect.succeed(found)
              : store.write((connection) => provider.create(runOn(connection), { number, dimensions }))
          ),
          Effect.map(Option.map((index): Semantic.Indexing => ({ provider, index }))),
          Effect.catchIf(
            ({ reason }) => reason === "Unknown" || reason === "Constraint",
            (failure) =>
              Effect.as(
                Effect.logWarning("There will be no vector index: facts are compared one by one", failure),
                Option.none()
              )
          ),
          Effect.mapError(Database.failed("layer"))
        )
  return yield* makeSemantic(Semantic.make(database, { id, dimensions, number }, indexing))
})

/**
 * @since 0.1.0
 * @category layers
 */
export const layerWith = (
  options: Options
): Layer.Layer<SemanticMemory, MemoryStoreError, SqlClient.SqlClient | EmbeddingModel> =>
  Layer.effect(SemanticMemory, make(options))

/**
 * Semantic memory in the database of the `SqlClient` at hand, without a vector index.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer: Layer.Layer<SemanticMemory, MemoryStoreError, SqlClient.SqlClient | EmbeddingModel> = layerWith({})
