/**
 * Which of the application's transactions are still open.
 *
 * A fiber inherits the tag of the transaction that it was forked in, and keeps it when that transaction is long over:
 * the tag alone says nothing. So a client that a ledger uses tells when its transactions end.
 */
import * as SqlClient from "@effect/sql/SqlClient"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"

/** What `@effect/sql` keeps in the context: of its own for each transaction, and for each savepoint in it. */
export type Tag = Context.Tag.Service<typeof SqlClient.TransactionConnection>

export interface OpenTransaction {
  /** Held while a ledger writes in the transaction, so that it does not end, and nobody else writes, meanwhile. */
  readonly lock: Effect.Semaphore
  isOpen: boolean
}

export type OpenTransactions = WeakMap<Tag, OpenTransaction>

export const open = (): OpenTransaction => ({ lock: Effect.unsafeMakeSemaphore(1), isOpen: true })

export const currentTag: Effect.Effect<Option.Option<Tag>> = Effect.map(Effect.context<never>(), (context) =>
  Context.getOption(context, SqlClient.TransactionConnection)
)

/** Without the transaction that the calling fiber is in, or was. */
export const withoutTag = <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.mapInputContext(
    self,
    (context: Context.Context<R>) =>
      // What `R` names is all still there: nobody asks for the tag in a type.
      Context.omit(SqlClient.TransactionConnection)(
        context as Context.Context<R | SqlClient.TransactionConnection>
      ) as Context.Context<R>
  )

const watched = new WeakMap<SqlClient.SqlClient, OpenTransactions>()

/**
 * The transactions of a client that were opened by its `withTransaction` from now on. There is no other place to learn
 * of their end than that method, which is therefore replaced, once.
 */
export const watch = (client: SqlClient.SqlClient): OpenTransactions => {
  const known = watched.get(client)
  if (known !== undefined) {
    return known
  }
  const transactions: OpenTransactions = new WeakMap()
  watched.set(client, transactions)
  const { withTransaction } = client
  const watching: SqlClient.SqlClient["withTransaction"] = (self) =>
    Effect.flatMap(currentTag, (outer) => {
      const enclosing = Option.flatMapNullable(outer, (tag) => transactions.get(tag))
      const inside = Effect.flatMap(currentTag, (inner) => {
        // A savepoint is part of its transaction.
        const transaction = Option.getOrElse(
          Option.filter(enclosing, ({ isOpen }) => isOpen),
          open
        )
        if (Option.isSome(inner)) {
          transactions.set(inner.value, transaction)
        }
        return Option.contains(enclosing, transaction)
          ? self
          : Effect.ensuring(
              self,
              transaction.lock.withPermits(1)(
                Effect.sync(() => {
                  transaction.isOpen = false
                })
              )
            )
      })
      // Otherwise it would be a savepoint of a transaction that is over.
      const isOver = Option.exists(enclosing, ({ isOpen }) => !isOpen)
      return isOver ? withoutTag(withTransaction(inside)) : withTransaction(inside)
    })
  Reflect.set(client, "withTransaction", watching)
  return transactions
}
