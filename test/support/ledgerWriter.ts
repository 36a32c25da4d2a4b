/** A process that writes to a ledger: `bun ledgerWriter.ts <file or Postgres URL> <sandbox id> <events> <batch size>`. */
import { Ledger } from "@sandglass/core"
import { PgLedger } from "@sandglass/sql-pg"
import { SqliteLedger } from "@sandglass/sql-sqlite"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"

const [database = "", sandboxId = "", events = "0", batchSize = "1"] = process.argv.slice(2)

const program = Effect.gen(function* () {
  const ledger = yield* Ledger.Ledger
  const size = Number(batchSize)
  process.stdout.write("ready\n")
  for (let from = 0; from < Number(events); from += size) {
    yield* ledger.appendAll(
      Array.from({ length: size }, (_, index) => ({
        sandboxId,
        name: "writer",
        stepIdx: from / size,
        event: "exec.output",
        payload: { seq: from / size, type: "stdout", text: `${from + index}\n` }
      }))
    )
  }
})

const layer = database.startsWith("postgres:")
  ? PgLedger.layer({ url: Redacted.make(database) })
  : SqliteLedger.layer({ filename: database })

Effect.runPromise(Effect.provide(program, layer)).then(
  () => process.exit(0),
  (error) => {
    console.error(error)
    process.exit(1)
  }
)
