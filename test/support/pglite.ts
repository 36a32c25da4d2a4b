/**
 * A Postgres with pgvector, from npm packages alone: PGlite behind a socket that speaks the protocol of a real server. It
 * has one session, which the connections of a pool take in turn.
 */
import { PGlite } from "@electric-sql/pglite"
import { vector } from "@electric-sql/pglite-pgvector"
import { PGLiteSocketServer } from "@electric-sql/pglite-socket"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"

/** The URL of a fresh, empty database in memory; gone with the scope. */
export const pgliteDatabase: Effect.Effect<Redacted.Redacted<string>, never, Scope.Scope> = Effect.gen(function* () {
  const db = yield* Effect.acquireRelease(
    Effect.promise(() => PGlite.create({ extensions: { vector } })),
    (db) => Effect.promise(() => db.close())
  )
  const server = yield* Effect.acquireRelease(
    Effect.promise(async () => {
      const server = new PGLiteSocketServer({ db, host: "127.0.0.1", port: 0, maxConnections: 20 })
      await server.start()
      return server
    }),
    (server) => Effect.promise(() => server.stop())
  )
  return Redacted.make(`postgres://postgres:postgres@${server.getServerConn()}/postgres`)
})
