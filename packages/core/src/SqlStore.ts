/**
 * For those who keep something of their own in the database of a `SqlClient`: reads, and writes that are atomic.
 *
 * Statements join a transaction that the application has opened with the same client, and only with the same, as long as
 * it is open: what a fiber writes that outlives the transaction it was forked in is committed on its own. To know when
 * transactions end, a store replaces the `withTransaction` of the client by one that does the same and says so.
 *
 * The tag that `@effect/sql` keeps the current transaction under is shared by all clients, and outlives the transaction
 * in the fibers that were forked inside: everything here first makes sure that the transaction at hand is one of its
 * own client, and open.
 *
 * @since 0.1.0
 */
import * as SqlClient from "@effect/sql/SqlClient"
import type { Connection } from "@effect/sql/SqlConnection"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import { abandonable } from "./internal/sql/abandon.js"
import { classify, codeOf, isInsideTransaction, messageOf } from "./internal/sql/errors.js"
import * as OpenTransactions from "./internal/sql/openTransactions.js"
import { reserve as reserveFrom } from "./internal/sql/reserve.js"

/**
 * What a statement may be given.
 *
 * @since 0.1.0
 * @category models
 */
export type Param = string | number | null | Uint8Array

/**
 * Why the database failed.
 *
 * - `Connection`: it cannot be reached or opened, or was closed
 * - `Contention`: a lock, a serialisation failure, a busy file; trying again may work
 * - `Constraint`: it refused the row
 * - `Unknown`: anything else; look at `cause`
 *
 * @since 0.1.0
 * @category models
 */
export const SqlFailureReason = Schema.Literal("Connection", "Contention", "Constraint", "Unknown")

/**
 * @since 0.1.0
 * @category models
 */
export type SqlFailureReason = typeof SqlFailureReason.Type

/**
 * A statement failed.
 *
 * @since 0.1.0
 * @category errors
 */
export class SqlFailure extends Schema.TaggedError<SqlFailure>("@sandglass/core/SqlFailure")("SqlFailure", {
  reason: SqlFailureReason,
  /** The driver's: SQLite's names, Postgres's five characters, or Node's names for a connection's failures. */
  code: Schema.optional(Schema.String),
  /** What the database says. */
  description: Schema.String,
  cause: Schema.Defect
}) {
  override get message(): string {
    return `${this.reason}: ${this.description}`
  }
}

/** Of an `SqlError` only its cause is worth keeping. */
const toFailure = (error: unknown): SqlFailure =>
  new SqlFailure({
    reason: classify(error),
    code: codeOf(error),
    description: messageOf(error),
    cause: Predicate.hasProperty(error, "cause") ? error.cause : error
  })

/**
 * Runs one statement on a connection. Postgres counts its parameters (`$1`), other databases have `?`.
 *
 * @since 0.1.0
 * @category combinators
 */
export const execute = (
  connection: Connection,
  text: string,
  params: ReadonlyArray<unknown> = []
): Effect.Effect<ReadonlyArray<Record<string, unknown>>, SqlFailure> =>
  Effect.mapError(connection.execute(text, params, undefined), toFailure)

/**
 * Takes a connection out of the client's pool until the scope ends. A fiber that is interrupted while it waits for one
 * leaves none behind, which drivers do not see to.
 *
 * @since 0.1.0
 * @category combinators
 */
export const reserveConnection = (client: SqlClient.SqlClient): Effect.Effect<Connection, SqlFailure, Scope.Scope> =>
  Effect.mapError(reserveFrom(client), toFailure)

/**
 * What a store reads and writes with. `E` is the store's own error.
 *
 * @since 0.1.0
 * @category models
 */
export interface SqlStore<E> {
  /** Whether the calling fiber is in a transaction of the application with the same client. */
  readonly joined: Effect.Effect<boolean>
  /** Runs one query. */
  readonly read: <A extends object>(text: string, params?: ReadonlyArray<Param>) => Effect.Effect<ReadonlyArray<A>, E>
  /**
   * Writes atomically: in the application's transaction where it is in one, else in one of its own. What the body did is
   * undone when it fails, with an error of its own too. It may run more than once: while others keep the database
   * locked, it is tried again.
   */
  readonly write: <A, E2>(
    body: (connection: Connection, joined: boolean) => Effect.Effect<A, E2>
  ) => Effect.Effect<A, E | Exclude<E2, SqlFailure>>
  /**
   * Writes with one statement, which is atomic by itself and takes one way to the database and back. Otherwise as `write`.
   */
  readonly writeOne: <A extends object>(
    text: string,
    params?: ReadonlyArray<Param>
  ) => Effect.Effect<ReadonlyArray<A>, E>
  /**
   * Runs an effect in a transaction that everything joins which writes with the same client inside, or in a savepoint of
   * the application's where the fiber is in one. What was written is undone when the effect fails or is interrupted. The
   * effect runs once; it must not wait for another fiber that uses the same database.
   */
  readonly transaction: <A, E2, R>(self: Effect.Effect<A, E2, R>) => Effect.Effect<A, E | E2, R>
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Options<E> {
  /** The store's error for the database's. */
  readonly fail: (failure: SqlFailure) => E
  /** How long a statement waits for a database that others keep locked. Default: 30 seconds. */
  readonly contentionTimeout?: Duration.DurationInput | undefined
  /** Fails where nothing may be written or read any more. Runs before every commit and after every query. */
  readonly verify?: Effect.Effect<void, E> | undefined
}

/** The application's transaction that the calling fiber is in. */
interface Joined {
  readonly connection: Connection
  readonly transaction: OpenTransactions.OpenTransaction
}

const rollback = (connection: Connection) => Effect.ignore(execute(connection, "ROLLBACK"))

const inSavepoint = <A, E>(connection: Connection, body: Effect.Effect<A, E>): Effect.Effect<A, E | SqlFailure> =>
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

/**
 * SQLite can be left inside a transaction by an application whose COMMIT failed. The connection is ours alone here,
 * so a transaction that is still open belongs to nobody.
 */
const open = (connection: Connection, begin: string): Effect.Effect<unknown, SqlFailure> =>
  Effect.catchIf(execute(connection, begin), isInsideTransaction, () =>
    Effect.zipRight(rollback(connection), execute(connection, begin))
  )

/**
 * Not `sql.withTransaction`: there a COMMIT that fails is a defect, and SQLite then stays inside the transaction.
 */
const inTransaction = <A, E>(
  connection: Connection,
  begin: string,
  body: Effect.Effect<A, E>
): Effect.Effect<A, E | SqlFailure> =>
  Effect.uninterruptibleMask((restore) =>
    Effect.zipRight(
      open(connection, begin),
      Effect.flatMap(Effect.exit(restore(body)), (exit) =>
        Effect.zipRight(
          Exit.isSuccess(exit)
            ? Effect.tapError(execute(connection, "COMMIT"), () => rollback(connection))
            : rollback(connection),
          exit
        )
      )
    )
  )

/** An error that is none of ours, so that it passes through what maps ours. */
class Theirs<E> {
  constructor(readonly error: E) {}
}

const isFailure = (error: unknown): error is SqlFailure => error instanceof SqlFailure

const isContention = (error: unknown): boolean => isFailure(error) && error.reason === "Contention"

/**
 * The way of a store into the database of the `SqlClient` at hand. Not to be called inside a transaction.
 *
 * @example
 * ```ts
 * import { SqlStore } from "@sandglass/core"
 * import { Data, Effect } from "effect"
 *
 * class CounterError extends Data.TaggedError("CounterError")<{ readonly cause: unknown }> {}
 *
 * // A table `counters (name, value)` in SQLite.
 * const makeCounter = Effect.gen(function* () {
 *   const store = yield* SqlStore.make({ fail: ({ cause }) => new CounterError({ cause }) })
 *   return {
 *     next: (name: string) =>
 *       store.write((connection) =>
 *         SqlStore.execute(connection, "UPDATE counters SET value = value + 1 WHERE name = ? RETURNING value", [name])
 *       )
 *   }
 * })
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = Effect.fnUntraced(function* <E>(
  options: Options<E>
): Effect.fn.Return<SqlStore<E>, E, SqlClient.SqlClient> {
  const client = yield* SqlClient.SqlClient
  const { contentionTimeout = "30 seconds", fail, verify = Effect.void } = options
  const openTransactions = OpenTransactions.watch(client)
  const sql = client.withoutTransforms()
  // On SQLite a transaction that reads first and then writes fails where it would have waited.
  const begin = sql.onDialectOrElse({ sqlite: () => "BEGIN IMMEDIATE", orElse: () => "BEGIN" })

  const failed = <E2>(error: E2): E | Exclude<E2, SqlFailure> =>
    // What is left is no failure: a type parameter is not narrowed.
    isFailure(error) ? fail(error) : (error as Exclude<E2, SqlFailure>)

  const patience = Schedule.exponential("2 millis", 1.5).pipe(
    Schedule.union(Schedule.spaced("50 millis")),
    Schedule.jittered,
    Schedule.upTo(Duration.decode(contentionTimeout))
  )

  /** The schedule costs nothing until it is needed. */
  const patiently = <A, E2>(self: Effect.Effect<A, E2>): Effect.Effect<A, E2> =>
    Effect.catchIf(self, isContention, () => Effect.retry(self, { schedule: patience, while: isContention }))

  const reserved = reserveConnection(sql)

  /** A database on the other end of a network may fall silent. */
  const isRemote = sql.onDialectOrElse({ sqlite: () => false, orElse: () => true })
  const leaving = <A, E2>(self: Effect.Effect<A, E2>): Effect.Effect<A, E2> => (isRemote ? abandonable(self) : self)

  const ours = yield* Effect.scoped(reserved).pipe(Effect.mapError(fail))

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
  ): Effect.Effect<ReadonlyArray<A>, E> => {
    const statement = Effect.mapError(sql.unsafe<A>(text, params), toFailure)
    return Effect.flatMap(
      current,
      Option.match({
        onNone: () => patiently(OpenTransactions.withoutTag(statement)),
        onSome: () => statement
      })
    ).pipe(Effect.mapError(fail), Effect.zipLeft(verify))
  }

  /** In the application's transaction where the fiber is in one, or alone. */
  const insideOrAlone = <A, E2>(
    insideOf: (connection: Connection) => Effect.Effect<A, E2>,
    aloneOn: (connection: Connection) => Effect.Effect<A, E2>
  ): Effect.Effect<A, E | Exclude<E2, SqlFailure>> => {
    const alone = leaving(patiently(Effect.scoped(Effect.flatMap(reserved, aloneOn))))
    // The transaction may have ended while others wrote in it.
    const inside = ({ connection, transaction }: Joined) =>
      transaction.lock.withPermits(1)(
        Effect.suspend(() =>
          transaction.isOpen ? Effect.asSome(inSavepoint(connection, insideOf(connection))) : Effect.succeedNone
        )
      )
    return Effect.mapError(
      Effect.flatMap(
        current,
        Option.match({
          onNone: () => alone,
          onSome: (joined) =>
            Effect.flatMap(
              inside(joined),
              Option.match({ onNone: () => alone, onSome: (done) => Effect.succeed(done) })
            )
        })
      ),
      failed
    )
  }

  const write = <A, E2>(
    body: (connection: Connection, joined: boolean) => Effect.Effect<A, E2>
  ): Effect.Effect<A, E | Exclude<E2, SqlFailure>> => {
    const verified = (connection: Connection, joined: boolean) => Effect.zipLeft(body(connection, joined), verify)
    return insideOrAlone<A, E | E2 | SqlFailure>(
      (connection) => verified(connection, true),
      (connection) => inTransaction(connection, begin, verified(connection, false))
    ) as Effect.Effect<A, E | Exclude<E2, SqlFailure>>
  }

  const writeOne = <A extends object>(
    text: string,
    params: ReadonlyArray<Param> = []
  ): Effect.Effect<ReadonlyArray<A>, E> => {
    const statement = (connection: Connection) =>
      // Rows have the columns that the statement names.
      Effect.zipRight(verify, execute(connection, text, params)) as Effect.Effect<ReadonlyArray<A>, E | SqlFailure>
    return insideOrAlone<ReadonlyArray<A>, E | SqlFailure>(statement, (connection) =>
      Effect.uninterruptible(statement(connection))
    ) as Effect.Effect<ReadonlyArray<A>, E>
  }

  /** Waits for a database that others keep locked before the effect begins, and not after. */
  const inTransactionOfOurs = <A, E2, R>(self: Effect.Effect<A, E2, R>) =>
    Effect.scoped(
      Effect.uninterruptibleMask((restore) =>
        Effect.gen(function* () {
          const connection = yield* restore(reserved)
          yield* Effect.onError(restore(patiently(open(connection, begin))), () => rollback(connection))
          const tag: OpenTransactions.Tag = [connection, 0]
          const transaction = OpenTransactions.open()
          openTransactions.set(tag, transaction)
          const exit = yield* Effect.exit(
            restore(Effect.provideService(Effect.zipLeft(self, verify), SqlClient.TransactionConnection, tag))
          )
          yield* transaction.lock.withPermits(1)(
            Effect.sync(() => {
              transaction.isOpen = false
            })
          )
          yield* Exit.isSuccess(exit)
            ? Effect.tapError(execute(connection, "COMMIT"), () => rollback(connection))
            : rollback(connection)
          return yield* exit
        })
      )
    )

  const transaction = <A, E2, R>(self: Effect.Effect<A, E2, R>): Effect.Effect<A, E | E2, R> => {
    const marked = Effect.mapError(self, (error) => new Theirs(error))
    return Effect.flatMap(
      current,
      Option.match({
        onNone: () => inTransactionOfOurs(marked),
        onSome: () =>
          Effect.mapError(client.withTransaction(marked), (error) =>
            error instanceof Theirs ? error : toFailure(error)
          )
      })
    ).pipe(Effect.mapError((error) => (error instanceof Theirs ? error.error : isFailure(error) ? fail(error) : error)))
  }

  return { joined: Effect.map(current, Option.isSome), read, write, writeOne, transaction }
})
