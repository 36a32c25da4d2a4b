/** A database with a copy of the ledger that another program wrote into a Postgres database. */
import { readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import * as Effect from "effect/Effect"
import { client, database } from "./postgres.js"

const dump = fileURLToPath(new URL("../fixtures/alineo-ledger/legacy.postgres.sql", import.meta.url))

export const legacyDatabase = Effect.tap(database, (url) =>
  // A connection of its own: the dump changes the settings of its session.
  Effect.scoped(Effect.flatMap(client(url), (sql) => Effect.orDie(sql.unsafe(readFileSync(dump, "utf8")))))
)
