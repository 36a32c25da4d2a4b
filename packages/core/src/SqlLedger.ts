/**
 * The ledger in a SQL database: SQLite and Postgres, through whatever `SqlClient` the application has.
 *
 * An append joins a transaction that the application has opened with the same client, and only with the same, as long as
 * it is open: what a fiber appends that outlives the transaction it was forked in is committed on its own. To know when
 * transactions end, a ledger replaces the `withTransaction` of the client by one that does the same and says so.
 *
 * `ts` never goes backwards, whatever the clocks of the processes say that append: on SQLite no entry sorts before one
 * that was there. On Postgres none sorts before one that was committed when its own statement began; of entries that
 * are appended at the same moment in several transactions each has the time of its own process.
 *
 * @since 0.1.0
 */
import * as SqlClient from "@effect/sql/SqlClient"
import type * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Stream from "effect/Stream"
import * as Environments from "./internal/sqlLedger/environments.js"
import { toLedgerError } from "./internal/sqlLedger/errors.js"
import { migrate } from "./internal/sqlLedger/migration.js"
import { postgres, channel as postgresChannel } from "./internal/sqlLedger/postgres.js"
import * as Queries from "./internal/sqlLedger/queries.js"
import { sqlite } from "./internal/sqlLedger/sqlite.js"
import { Ledger } from "./Ledger.js"
import type { LedgerError } from "./LedgerError.js"
import { makeLedger } from "./LedgerStore.js"
import * as SqlStore from "./SqlStore.js"

/**
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** How often `tail` looks for what other processes appended. Default: half a second. */
  readonly pollInterval?: Duration.DurationInput | undefined
  /** How long an append waits for a database that others keep locked. Default: 30 seconds. */
  readonly contentionTimeout?: Duration.DurationInput | undefined
  /** Emits when another process may have appended something, so that `tail` need not wait for its next look. */
  readonly changes?: Stream.Stream<unknown, LedgerError> | undefined
  /**
   * Runs after each commit of rows, and must be quick: what tells other processes, so that their `changes` emit. In a
   * transaction of the application it runs before the commit; on Postgres the transaction then notifies the
   * {@link channel} itself.
   */
  readonly committed?: Effect.Effect<void> | undefined
  /**
   * Fails where the database is not the right one any more, for example because its file was deleted. Runs before every
   * commit and after every query, so it had better be quick.
   */
  readonly verify?: Effect.Effect<void, LedgerError> | undefined
}

/**
 * The Postgres channel for notifications that something was appended.
 *
 * @since 0.1.0
 * @category constants
 */
export const channel: string = postgresChannel

/**
 * A ledger in the database of the `SqlClient` at hand; creates the tables and indexes that are missing. Not to be
 * called inside a transaction.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = Effect.fnUntraced(function* (
  options: Options = {}
): Effect.fn.Return<Context.Tag.Service<Ledger>, LedgerError, SqlClient.SqlClient> {
  const sql = yield* SqlClient.SqlClient
  const dialect = sql.onDialectOrElse({ pg: () => postgres, orElse: () => sqlite })
  const transactions = yield* SqlStore.make<LedgerError>({
    fail: toLedgerError,
    contentionTimeout: options.contentionTimeout,
    verify: options.verify
  })
  yield* migrate(dialect, transactions)
  const { append, restore, ...writes } = dialect.writes(transactions)
  const { committed } = options
  const telling = (insert: typeof append): typeof append =>
    committed === undefined ? insert : (rows) => Effect.zipLeft(insert(rows), committed)
  return yield* makeLedger({
    restrictedJson: dialect.restrictedJson,
    joined: transactions.joined,
    append: telling(append),
    restore: telling(restore),
    ...writes,
    ...Queries.make(dialect, transactions),
    ...Environments.make(dialect, transactions),
    pollInterval: options.pollInterval ?? "500 millis",
    changes: options.changes
  })
})

/**
 * @since 0.1.0
 * @category layers
 */
export const layerWith = (options: Options): Layer.Layer<Ledger, LedgerError, SqlClient.SqlClient> =>
  Layer.effect(Ledger, make(options))

/**
 * The ledger in the database of the `SqlClient` at hand.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer: Layer.Layer<Ledger, LedgerError, SqlClient.SqlClient> = layerWith({})
