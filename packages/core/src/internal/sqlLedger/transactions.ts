/**
 * Statements inside and outside of transactions, those of the application included.
 *
 * The tag that `@effect/sql` keeps the current transaction under is shared by all clients, so everything here first
 * makes sure that the transaction at hand is one of its own client.
 */
import * as SqlClient from "@effect/sql/SqlClient"
import type { Connection } from "@effect/sql/SqlConnection"
import type { SqlError } from "@effect/sql/SqlError"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import type { LedgerError } from "../../LedgerError.js"
import { isInsideTransaction, toLedgerError } from "./errors.js"

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

const failed = toLedgerError("SqlLedger")

const isContention = (error: LedgerError): boolean => error.reason === "Contention"

export const execute = (
  connection: Connection,
  text: string,
  params: ReadonlyArray<unknown> = []
): Effect.Effect<ReadonlyArray<Record<string, unknown>>, SqlError> => connection.execute(text, params, undefined)

const rollback = (connection: Connection) => Effect.ignore(execute(connection, "ROLLBACK"))

const withoutTransaction = <A, E>(self: Effect.Effect<A, E>): Effect.Effect<A, E> =>
  Effect.mapInputContext(self, (context: Context.Context<never>) =>
    Context.omit(SqlClient.TransactionConnection)(context as Context.Context<SqlClient.TransactionConnection>)
  )

const inSavepoint = <A>(connection: Connection, body: Effect.Effect<A, SqlError>): Effect.Effect<A, SqlError> =>
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

/** `begin` opens a transaction; an append waits so long for a database that others keep locked. */
export const make = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  begin: string,
  contentionTimeout: Duration.DurationInput
): Effect.fn.Return<Transactions, LedgerError> {
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
   * A client has one connection, or makes its connections of one class of its own; that tells whose transaction it
   * is that the calling fiber is in.
   */
  const isOurs = (connection: Connection): boolean =>
    connection === ours || (connection.constructor !== Object && connection.constructor === ours.constructor)

  const transaction = Effect.map(Effect.context<never>(), (context) =>
    Option.filter(
      Option.map(Context.getOption(context, SqlClient.TransactionConnection), ([connection]) => connection),
      isOurs
    )
  )

  const read = <A extends object>(
    text: string,
    params: ReadonlyArray<Param> = []
  ): Effect.Effect<ReadonlyArray<A>, LedgerError> => {
    const statement = Effect.mapError(sql.unsafe<A>(text, params), failed)
    return Effect.flatMap(
      transaction,
      Option.match({
        onNone: () => patiently(withoutTransaction(statement)),
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
  const inTransaction = <A>(connection: Connection, body: Effect.Effect<A, SqlError>): Effect.Effect<A, SqlError> =>
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
  ): Effect.Effect<A, LedgerError> =>
    Effect.flatMap(
      transaction,
      Option.match({
        onSome: (connection) => Effect.mapError(inSavepoint(connection, body(connection, true)), failed),
        onNone: () =>
          patiently(
            Effect.mapError(
              Effect.scoped(
                Effect.flatMap(sql.reserve, (connection) => inTransaction(connection, body(connection, false)))
              ),
              failed
            )
          )
      })
    )

  return { joined: Effect.map(transaction, Option.isSome), read, write }
})
