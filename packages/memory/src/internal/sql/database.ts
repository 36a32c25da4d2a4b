/**
 * Reads and writes of the rows of one resource.
 *
 * On Postgres the rows of a team are there only for a transaction that has named the team; that is done here, and
 * nowhere else.
 */
import * as SqlClient from "@effect/sql/SqlClient"
import type { Connection } from "@effect/sql/SqlConnection"
import * as SqlStore from "@sandglass/core/SqlStore"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import { identity } from "effect/Function"
import { MemoryStoreError } from "../../MemoryError.js"
import type { MemoryTransaction } from "../../MemoryTransaction.js"
import type { Run } from "../../SqlVectorIndex.js"
import * as Dialect from "./dialect.js"
import type { Owner } from "./owner.js"

export interface Options {
  readonly contentionTimeout?: Duration.DurationInput | undefined
  readonly verify?: Effect.Effect<void, SqlStore.SqlFailure> | undefined
}

/** The memory's error for the database's. */
export const failed = (method: string) => (failure: SqlStore.SqlFailure) =>
  new MemoryStoreError({ method, reason: failure.reason, description: failure.description, cause: failure.cause })

const isFailure = (error: unknown): error is SqlStore.SqlFailure => error instanceof SqlStore.SqlFailure

export interface Database {
  readonly dialect: Dialect.Dialect
  readonly store: SqlStore.SqlStore<SqlStore.SqlFailure>
  readonly transaction: MemoryTransaction
  readonly runOn: (connection: Connection) => Run
  /** `together` wants one transaction on Postgres, where several statements depend on each other. */
  readonly reading: <A, E>(
    method: string,
    owner: Owner,
    body: (run: Run) => Effect.Effect<A, E>,
    options?: { readonly together?: boolean }
  ) => Effect.Effect<A, MemoryStoreError | Exclude<E, SqlStore.SqlFailure>>
  /** All or nothing. The body may run more than once. */
  readonly writing: <A, E>(
    method: string,
    owner: Owner,
    body: (run: Run) => Effect.Effect<A, E>
  ) => Effect.Effect<A, MemoryStoreError | Exclude<E, SqlStore.SqlFailure>>
}

const transactions = new WeakMap<SqlClient.SqlClient, MemoryTransaction>()

/** One for each client: whoever offers the same is in the same database. */
const transactionOf = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  options: Options
): Effect.fn.Return<MemoryTransaction, MemoryStoreError, SqlClient.SqlClient> {
  const known = transactions.get(sql)
  if (known !== undefined) {
    return known
  }
  const fail = failed("MemoryTransaction.run")
  const { transaction: run } = yield* SqlStore.make<MemoryStoreError>({
    ...options,
    verify: options.verify === undefined ? undefined : Effect.mapError(options.verify, fail),
    fail
  })
  const transaction = transactions.get(sql) ?? { run }
  transactions.set(sql, transaction)
  return transaction
})

export const make = Effect.fnUntraced(function* (
  options: Options
): Effect.fn.Return<Database, MemoryStoreError, SqlClient.SqlClient> {
  const sql = yield* SqlClient.SqlClient
  const dialect = Dialect.of(sql)
  const transaction = yield* transactionOf(sql, options)
  const store = yield* SqlStore.make<SqlStore.SqlFailure>({ ...options, fail: identity }).pipe(
    Effect.mapError(failed("layer"))
  )

  const runOn =
    (connection: Connection): Run =>
    (text, params) =>
      SqlStore.execute(connection, text, params)

  /** In a transaction of the application the team is the one of before when this is done. */
  const asTeam = <A, E>(run: Run, joined: boolean, teamId: string, body: Effect.Effect<A, E>) =>
    Effect.gen(function* () {
      const [before] = joined ? yield* run("SELECT current_setting('sandglass.team_id', true) AS team") : []
      yield* run("SELECT set_config('sandglass.team_id', $1, true)", [teamId])
      const result = yield* body
      if (joined) {
        yield* run("SELECT set_config('sandglass.team_id', $1, true)", [String(before?.["team"] ?? "")])
      }
      return result
    })

  const write = <A, E>(owner: Owner, body: (run: Run) => Effect.Effect<A, E>) =>
    store.write((connection, joined) => {
      const run = runOn(connection)
      return dialect.name === "postgres" && owner.teamId !== ""
        ? asTeam(run, joined, owner.teamId, body(run))
        : body(run)
    })

  const mapFailure =
    (method: string) =>
    <A, E>(self: Effect.Effect<A, E>): Effect.Effect<A, MemoryStoreError | Exclude<E, SqlStore.SqlFailure>> =>
      Effect.mapError(self, (error) =>
        // What is left is no failure: a type parameter is not narrowed.
        isFailure(error) ? failed(method)(error) : (error as Exclude<E, SqlStore.SqlFailure>)
      )

  return {
    dialect,
    store,
    transaction,
    runOn,
    reading: <A, E>(
      method: string,
      owner: Owner,
      body: (run: Run) => Effect.Effect<A, E>,
      { together = false }: { readonly together?: boolean } = {}
    ) => {
      const inTransaction = dialect.name === "postgres" && (together || owner.teamId !== "")
      const self: Effect.Effect<A, E | SqlStore.SqlFailure> = inTransaction ? write(owner, body) : body(store.read)
      return mapFailure(method)(self)
    },
    writing: (method, owner, body) => mapFailure(method)(write(owner, body))
  }
})
