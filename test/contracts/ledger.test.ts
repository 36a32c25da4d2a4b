import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Ledger } from "@sandglass/core"
import { LedgerContract } from "@sandglass/core/testing"
import { PgLedger } from "@sandglass/sql-pg"
import { SqliteLedger } from "@sandglass/sql-sqlite"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { database } from "../support/postgres.js"

const folder = mkdtempSync(join(tmpdir(), "sandglass-ledger-"))
const cleanup = Layer.scopedDiscard(
  Effect.addFinalizer(() => Effect.sync(() => rmSync(folder, { recursive: true, force: true })))
)
const file = SqliteLedger.layer({ filename: join(folder, "ledger.db") })

LedgerContract.suite("memory", Ledger.layerMemory)
LedgerContract.suite("SQLite in memory", SqliteLedger.layer({ filename: ":memory:" }))
LedgerContract.suite("SQLite file", Layer.provideMerge(file, cleanup), { second: file })

let opened: ReturnType<typeof PgLedger.layer> = Layer.die("no database yet")
const postgres = Layer.unwrapScoped(
  Effect.map(database, (url) => {
    opened = PgLedger.layer({ url })
    return opened
  })
)

LedgerContract.suite("Postgres", postgres, { second: Layer.suspend(() => opened) })
