/**
 * Statements inside and outside of transactions, those of the application included.
 *
 * The tag that `@effect/sql` keeps the current transaction under is shared by all clients, and outlives the transaction
 * in the fibers that were forked inside: everything here first makes sure that the transaction at hand is one of its
 * own client, and open.
 */
import type * as SqlClient from "@effect/sql/SqlClient"
import type { Connection } from "@effect/sql/SqlConnection"
import type { SqlError } from "@effect/sql/SqlError"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import type { LedgerError } from "../../LedgerError.js"
import { isLedgerError } from "../../LedgerError.js"
import { isInsideTransaction, toLedgerError } from "./errors.js"
import * as OpenTransactions from "./openTransactions.js"

export type Param = string | number | null

export interface Transactions {
  /** Whether the calling fiber is in a transaction of the application with the same client. */
  readonly joined: Effect.Effect<boolean>
  readonly read: <A extends object>(
    text: string,
    params?: ReadonlyArray<Param>
  ) => Effect.Effect<ReadonlyArray<A>, LedgerError>
  /** Writes atomically: in the application's transaction where it is in one, else in one of its own. */
  readonly write: <A>(
    body: (connection: Connection, joined: boolean) => Effect.Effect<A, SqlError>
  ) => Effect.Effect<A, LedgerError>
}

const toFailure = toLedgerError("SqlLedger")

/** The application's transaction that the calling fiber is in. */
interface Joined {
  readonly connection: Connection
  readonly transaction: OpenTransactions.OpenTransaction
}

type Failure = SqlError | LedgerError

const failed = (error: Failure): LedgerError => (isLedgerError(error) ? error : toFailure(error))

const isContention = (error: LedgerError): boolean => error.reason === "Contention"

export const execute = (
  connection: Connection,
  text: string,
  params: ReadonlyArray<unknown> = []
): Effect.Effect<ReadonlyArray<Record<string, unknown>>, SqlError> => connection.execute(text, params, undefined)

const rollback = (connection: Connection) => Effect.ignore(execute(connection, "ROLLBACK"))

const inSavepoint = <A>(connection: Connection, body: Effect.Effect<A, Failure>): Effect.Effect<A, Failure> =>
  Effect.uninterruptibleMask((restore) =>
    Effect.zipRight(
      execute(connection, "SAVEPOINT sandglass"),
      Effect.flatMap(Effect.exit(restore(body)), (exit) =>
        Effect.zipRight(
          Exit.isSuccess(exit) ? Effect.void : Effect.ignore(execute(connection, "ROLLBACK TO SAVEPOINT sandglass")),
          Effect.zipRight(execute(connection, "RELEASE SAVEPOINT sandglass"), exit)
        )
      )
    )
  )

export interface Options {
  /** Opens a transaction. */
  readonly begin: string
  /** How long an append waits for a database that others keep locked. */
  readonly contentionTimeout: Duration.DurationInput
  /** Fails where nothing may be written or read any more. */
  readonly verify: Effect.Effect<void, LedgerError>
}

export const make = Effect.fnUntraced(function* (
  client: SqlClient.SqlClient,
  { begin, contentionTimeout, verify }: Options
): Effect.fn.Return<Transactions, LedgerError> {
  const openTransactions = OpenTransactions.watch(client)
  const sql = client.withoutTransforms()

  const patience = Schedule.exponential("2 millis", 1.5).pipe(
    Schedule.union(Schedule.spaced("50 millis")),
    Schedule.jittered,
    Schedule.upTo(Duration.decode(contentionTimeout))
  )

  /** The schedule costs nothing until it is needed. */
  const patiently = <A>(self: Effect.Effect<A, LedgerError>): Effect.Effect<A, LedgerError> =>
    Effect.catchIf(self, isContention, () => Effect.retry(self, { schedule: patience, while: isContention }))

  const ours = yield* Effect.scoped(sql.reserve).pipe(Effect.mapError(failed))

  /**
   * For transactions that were not opened by the client itself but by what was made of it earlier. A client has one
   * connection, or makes its connections of one class of its own; that tells whose transaction it is.
   */
  const isOurs = (connection: Connection): boolean =>
    connection === ours || (connection.constructor !== Object && connection.constructor === ours.constructor)

  const transactionOf = (tag: OpenTransactions.Tag): Option.Option<Joined> => {
    const [connection] = tag
    let transaction = openTransactions.get(tag)
    if (transaction === undefined && isOurs(connection)) {
      transaction = OpenTransactions.open()
      openTransactions.set(tag, transaction)
    }
    return transaction?.isOpen === true ? Option.some({ connection, transaction }) : Option.none()
  }

  const current = Effect.map(OpenTransactions.currentTag, Option.flatMap(transactionOf))

  const read = <A extends object>(
    text: string,
    params: ReadonlyArray<Param> = []
  ): Effect.Effect<ReadonlyArray<A>, LedgerError> => {
    const statement = Effect.zipLeft(Effect.mapError(sql.unsafe<A>(text, params), failed), verify)
    return Effect.flatMap(
      current,
      Option.match({
        onNone: () => patiently(OpenTransactions.withoutTag(statement)),
        onSome: () => statement
      })
    )
  }

  /**
   * SQLite can be left inside a transaction by an application whose COMMIT failed. The connection is ours alone here,
   * so a transaction that is still open belongs to nobody.
   */
  const open = (connection: Connection): Effect.Effect<unknown, SqlError> =>
    Effect.catchIf(execute(connection, begin), isInsideTransaction, () =>
      Effect.zipRight(rollback(connection), execute(connection, begin))
    )

  /**
   * Not `sql.withTransaction`: there a COMMIT that fails is a defect, and SQLite then stays inside the transaction.
   */
  const inTransaction = <A>(connection: Connection, body: Effect.Effect<A, Failure>): Effect.Effect<A, Failure> =>
    Effect.uninterruptibleMask((restore) =>
      Effect.zipRight(
        open(connection),
        Effect.flatMap(Effect.exit(restore(body)), (exit) =>
          Exit.isSuccess(exit)
            ? execute(connection, "COMMIT").pipe(
                Effect.tapError(() => rollback(connection)),
                Effect.as(exit.value)
              )
            : Effect.zipRight(rollback(connection), exit)
        )
      )
    )

  const write = <A>(
    body: (connection: Connection, joined: boolean) => Effect.Effect<A, SqlError>
  ): Effect.Effect<A, LedgerError> => {
    const verified = (connection: Connection, joined: boolean) => Effect.zipLeft(body(connection, joined), verify)
    const alone = patiently(
      Effect.mapError(
        Effect.scoped(
          Effect.flatMap(sql.reserve, (connection) => inTransaction(connection, verified(connection, false)))
        ),
        failed
      )
    )
    // The transaction may have ended while others wrote in it.
    const inside = ({ connection, transaction }: Joined): Effect.Effect<Option.Option<A>, LedgerError> =>
      transaction.lock.withPermits(1)(
        Effect.suspend(() =>
          transaction.isOpen
            ? Effect.asSome(Effect.mapError(inSavepoint(connection, verified(connection, true)), failed))
            : Effect.succeedNone
        )
      )
    return Effect.flatMap(
      current,
      Option.match({
        onNone: () => alone,
        onSome: (joined) =>
          Effect.flatMap(inside(joined), Option.match({ onNone: () => alone, onSome: (done) => Effect.succeed(done) }))
      })
    )
  }

  return { joined: Effect.map(current, Option.isSome), read, write }
})
