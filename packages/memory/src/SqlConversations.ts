/**
 * Conversations in a SQL database: SQLite and Postgres, through whatever `SqlClient` the application has. A ledger may
 * share it.
 *
 * What is written joins a transaction that the application has opened with the same client, and only with the same.
 *
 * The tables are `sandglass_conversations` and `sandglass_messages`; they are created where they are missing.
 *
 * @since 0.1.0
 */
import * as SqlClient from "@effect/sql/SqlClient"
import type { SqlFailure } from "@sandglass/core/SqlStore"
import * as SqlStore from "@sandglass/core/SqlStore"
import type * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { ConversationStoreError } from "./ConversationError.js"
import { makeConversations } from "./ConversationStore.js"
import { Conversations } from "./Conversations.js"
import * as Dialect from "./internal/sql/dialect.js"
import * as Store from "./internal/sqlConversations/make.js"
import { migrate } from "./internal/sqlConversations/migration.js"

/**
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** How long a statement waits for a database that others keep locked. Default: 30 seconds. */
  readonly contentionTimeout?: Duration.DurationInput | undefined
  /**
   * Fails where the database is not the right one any more, for example because its file was deleted. Runs before every
   * commit and after every query, so it had better be quick.
   */
  readonly verify?: Effect.Effect<void, ConversationStoreError> | undefined
}

/** The operation that failed is filled in where its span is opened. */
const fail = ({ cause, description, reason }: SqlFailure): ConversationStoreError =>
  new ConversationStoreError({ method: "layer", reason, description, cause })

/**
 * Conversations in the database of the `SqlClient` at hand. Not to be called inside a transaction.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = Effect.fnUntraced(function* (
  options: Options = {}
): Effect.fn.Return<Context.Tag.Service<Conversations>, ConversationStoreError, SqlClient.SqlClient> {
  const sql = yield* SqlClient.SqlClient
  const dialect = Dialect.of(sql)
  const store = yield* SqlStore.make({ ...options, fail })
  yield* migrate(dialect, store)
  return makeConversations(Store.make(dialect, store))
})

/**
 * @since 0.1.0
 * @category layers
 */
export const layerWith = (options: Options): Layer.Layer<Conversations, ConversationStoreError, SqlClient.SqlClient> =>
  Layer.effect(Conversations, make(options))

/**
 * Conversations in the database of the `SqlClient` at hand.
 *
 * @example
 * ```ts
 * import { SqlConversations } from "@sandglass/memory"
 * import { SqliteLedger } from "@sandglass/sql-sqlite"
 * import { Layer } from "effect"
 *
 * // The ledger and the conversations in one file, through one connection.
 * const Live = SqlConversations.layer.pipe(Layer.provideMerge(SqliteLedger.layer({ filename: "./agent.db" })))
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layer: Layer.Layer<Conversations, ConversationStoreError, SqlClient.SqlClient> = layerWith({})
