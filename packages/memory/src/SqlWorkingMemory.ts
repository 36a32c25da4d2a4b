/**
 * Working memory in a SQL database: SQLite and Postgres, through whatever `SqlClient` the application has.
 *
 * Writes join a transaction that the application has opened with the same client. On Postgres, row-level security keeps
 * the rows of a team from whoever has not named it: `SET LOCAL sandglass.team_id`.
 *
 * @since 0.1.0
 */
import type * as SqlClient from "@effect/sql/SqlClient"
import type { SqlFailure } from "@sandglass/core/SqlStore"
import type * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Database from "./internal/sql/database.js"
import { migrate } from "./internal/sql/migration.js"
import * as Working from "./internal/sql/working.js"
import type { MemoryStoreError } from "./MemoryError.js"
import { WorkingMemory } from "./WorkingMemory.js"

/**
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** How long a write waits for a database that others keep locked, or for a value that others keep changing. Default: 30 seconds. */
  readonly contentionTimeout?: Duration.DurationInput | undefined
  /** Fails where the database is not the right one any more. Runs before every commit and after every query. */
  readonly verify?: Effect.Effect<void, SqlFailure> | undefined
}

/**
 * Working memory in the database of the `SqlClient` at hand; creates the table if it is missing. Not to be called inside
 * a transaction.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = Effect.fnUntraced(function* (
  options: Options = {}
): Effect.fn.Return<Context.Tag.Service<WorkingMemory>, MemoryStoreError, SqlClient.SqlClient> {
  const database = yield* Database.make(options)
  yield* Effect.mapError(
    migrate(
      database,
      [Working.table],
      () => Effect.succeedSome(undefined),
      () => Effect.void
    ),
    Database.failed("layer")
  )
  return Working.make(database, options.contentionTimeout ?? "30 seconds")
})

/**
 * @since 0.1.0
 * @category layers
 */
export const layerWith = (options: Options): Layer.Layer<WorkingMemory, MemoryStoreError, SqlClient.SqlClient> =>
  Layer.effect(WorkingMemory, make(options))

/**
 * Working memory in the database of the `SqlClient` at hand.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer: Layer.Layer<WorkingMemory, MemoryStoreError, SqlClient.SqlClient> = layerWith({})
