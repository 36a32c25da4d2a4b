// What a user writes first with @sandglass/sql-pg: append to a ledger in a Postgres database and read it back. `npm run build` runs it
// against the packed packages, under Bun and under Node: with the database that DATABASE_URL names, or else with one that is not there.
import { Ledger, LedgerError } from "@sandglass/core"
import { PgLedger } from "@sandglass/sql-pg"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import * as Stream from "effect/Stream"

const program = Effect.gen(function* () {
  const ledger = yield* Ledger.Ledger
  const { id, sandboxId } = yield* ledger.append({ sandboxId: "packed-sql-pg", name: "ci", event: "note" })
  const read = yield* Stream.runCollect(ledger.tail({ sandboxId, afterId: id - 1 }).pipe(Stream.take(1)))
  if (read.length !== 1) return yield* Effect.dieMessage(`read ${read.length} entries`)
})

const nowhere = Effect.gen(function* () {
  const url = Redacted.make("postgres://ada:secret@127.0.0.1:1/sandglass")
  const error = yield* Effect.flip(Effect.provide(program, PgLedger.layer({ url })))
  if (!LedgerError.isLedgerError(error) || error.reason !== "Connection" || error.message.includes("secret")) {
    return yield* Effect.dieMessage(`failed with ${error}`)
  }
})

await Effect.runPromise(
  process.env["DATABASE_URL"] === undefined ? nowhere : Effect.provide(program, PgLedger.layerConfig())
)
