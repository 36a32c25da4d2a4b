/**
 * Another process that follows a ledger and tells how long each event took to arrive: `tailer.ts <backend> <address>`.
 * An event's payload says when its append began.
 */
import type { Ledger as Service } from "@sandglass/core"
import { Ledger } from "@sandglass/core"
import type { LedgerError } from "@sandglass/core/LedgerError"
import { PgLedger } from "@sandglass/sql-pg"
import { SqliteLedger } from "@sandglass/sql-sqlite"
import * as Effect from "effect/Effect"
import type * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Stream from "effect/Stream"

const [backend, address = ""] = process.argv.slice(2)

const layer: Layer.Layer<Service.Ledger, LedgerError> =
  backend === "Postgres" ? PgLedger.layer({ url: Redacted.make(address) }) : SqliteLedger.layer({ filename: address })

const now = (): number => performance.timeOrigin + performance.now()

const follow = Effect.gen(function* () {
  const ledger = yield* Ledger.Ledger
  yield* ledger.tail({ sandboxId: "sbx-tail" }).pipe(
    Stream.runForEach(({ payload }) =>
      Effect.sync(() => {
        const sent = typeof payload === "object" && payload !== null && "sent" in payload ? Number(payload["sent"]) : 0
        process.stdout.write(`${now() - sent}\n`)
      })
    )
  )
})

Effect.runFork(Effect.provide(follow, layer))
process.stdin.on("end", () => process.exit(0)).resume()
