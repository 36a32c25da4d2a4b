/**
 * Taking a connection.
 */
import type * as SqlClient from "@effect/sql/SqlClient"
import type { Connection } from "@effect/sql/SqlConnection"
import type { SqlError } from "@effect/sql/SqlError"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Scope from "effect/Scope"

/**
 * The Postgres driver forgets a connection that its pool hands out after the fiber that waited for it was interrupted:
 * the pool is one connection poorer for ever. Here a fiber that nobody interrupts waits, and gives back what is not
 * wanted any more.
 */
const unforgotten = (reserve: SqlClient.SqlClient["reserve"]): Effect.Effect<Connection, SqlError, Scope.Scope> =>
  Effect.uninterruptibleMask((restore) =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const waiting = yield* Effect.forkDaemon(Scope.extend(reserve, scope))
      const connection = yield* Effect.onExit(restore(Fiber.join(waiting)), (exit) =>
        Exit.isSuccess(exit)
          ? Effect.void
          : Effect.forkDaemon(Effect.zipRight(Fiber.await(waiting), Scope.close(scope, exit)))
      )
      yield* Effect.addFinalizer((exit) => Scope.close(scope, exit))
      return connection
    })
  )

/** A connection of the client's pool, until the scope ends. */
export const reserve = (sql: SqlClient.SqlClient): Effect.Effect<Connection, SqlError, Scope.Scope> =>
  sql.onDialectOrElse({ pg: () => unforgotten(sql.reserve), orElse: () => sql.reserve })
