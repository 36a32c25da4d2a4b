/** Roles that are no superusers, on the run's Postgres server. */
import { randomBytes } from "node:crypto"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import { client } from "./postgres.js"

/**
 * A role that may log in and nothing else, and the URL of a database as that role; dropped with the scope, and with it
 * everything in that database that is its own.
 */
export const roleOn = (
  database: Redacted.Redacted<string>
): Effect.Effect<{ readonly name: string; readonly url: Redacted.Redacted<string> }, never, Scope.Scope> =>
  Effect.gen(function* () {
    const sql = yield* client(database)
    const name = `sandglass_role_${randomBytes(8).toString("hex")}`
    const password = randomBytes(16).toString("hex")
    yield* Effect.acquireRelease(
      Effect.orDie(
        sql.unsafe(`CREATE ROLE ${name} LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE PASSWORD '${password}'`)
      ),
      () => Effect.orDie(Effect.zipRight(sql.unsafe(`DROP OWNED BY ${name} CASCADE`), sql.unsafe(`DROP ROLE ${name}`)))
    )
    const url = new URL(Redacted.value(database))
    url.username = name
    url.password = password
    return { name, url: Redacted.make(url.href) }
  })
