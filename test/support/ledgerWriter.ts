/** A process that writes to a ledger file: `bun ledgerWriter.ts <file> <sandbox id> <events> <batch size>`. */
import { Ledger } from "@sandglass/core"
import { SqliteLedger } from "@sandglass/sql-sqlite"
import * as Effect from "effect/Effect"

const [filename = "", sandboxId = "", events = "0", batchSize = "1"] = process.argv.slice(2)

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

Effect.runPromise(Effect.provide(program, SqliteLedger.layer({ filename }))).then(
  () => process.exit(0),
  (error) => {
    console.error(error)
    process.exit(1)
  }
)
