/**
 * Databases for tests, on the one real Postgres server of the run, or on the one that `DATABASE_URL` names.
 */
import { randomBytes } from "node:crypto"
import { connect } from "node:net"
import { Reactivity } from "@effect/experimental"
import { PgClient } from "@effect/sql-pg"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import { inject } from "vitest"
import type { Options, Server } from "./postgresServer.js"
import { startServer } from "./postgresServer.js"

const ask = ({ port, word }: { readonly port: number; readonly word: string }) =>
  new Promise<string>((resolve, reject) => {
    let reply = ""
    const socket = connect(port, "127.0.0.1", () => socket.write(word))
    socket.on("error", reject)
    socket.on("data", (bytes) => {
      reply += String(bytes)
    })
    socket.on("close", () => {
      const { error, url } = JSON.parse(reply === "" ? `{"error":"the run has ended"}` : reply)
      if (typeof url === "string") {
        resolve(url)
      } else {
        reject(new Error(`no Postgres server: ${error}`))
      }
    })
  })

/** The URL of the `postgres` database of the run's server, as a user who may create databases. */
export const serverUrl: Effect.Effect<Redacted.Redacted<string>> = Effect.promise(async () =>
  Redacted.make(process.env["DATABASE_URL"] ?? (await ask(inject("postgres"))))
)

/** A client of a database with a few connections, and SQL errors as defects: for what a test does beside its subject. */
export const client = (url: Redacted.Redacted<string>): Effect.Effect<PgClient.PgClient, never, Scope.Scope> =>
  PgClient.make({ url, maxConnections: 3, connectTimeout: "20 seconds" }).pipe(
    Effect.provide(Reactivity.layer),
    Effect.orDie
  )

const execute = (url: Redacted.Redacted<string>, statement: string) =>
  Effect.scoped(Effect.flatMap(client(url), (sql) => Effect.orDie(sql.unsafe(statement))))

/** A fresh, empty database on a server; dropped with the scope, whoever may still be connected. */
export const databaseOn = (
  server: Redacted.Redacted<string>
): Effect.Effect<Redacted.Redacted<string>, never, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(
      Effect.suspend(() => {
        const name = `sandglass_${randomBytes(8).toString("hex")}`
        return Effect.as(execute(server, `CREATE DATABASE ${name} TEMPLATE template0`), name)
      }),
      (name) => execute(server, `DROP DATABASE ${name} WITH (FORCE)`)
    ),
    (name) => {
      const url = new URL(Redacted.value(server))
      url.pathname = `/${name}`
      return Redacted.make(url.href)
    }
  )

/** The URL of a fresh, empty database on the run's server, dropped with the scope. */
export const database: Effect.Effect<Redacted.Redacted<string>, never, Scope.Scope> = Effect.flatMap(
  serverUrl,
  databaseOn
)

/** A server of one's own, to be configured, stopped and started; it is gone with the scope. */
export const serverWith = (options: Options): Effect.Effect<Server, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.promise(() => startServer(options)),
    (started) => Effect.promise(started.close)
  )

export const server: Effect.Effect<Server, never, Scope.Scope> = serverWith({})
