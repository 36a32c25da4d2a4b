import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Conversations, SqlConversations } from "@sandglass/memory"
import { ConversationsContract } from "@sandglass/memory/testing"
import { PgConversations } from "@sandglass/sql-pg"
import { SqliteConversations, SqliteLedger } from "@sandglass/sql-sqlite"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { database } from "../support/postgres.js"

const folder = mkdtempSync(join(tmpdir(), "sandglass-conversations-"))
const cleanup = Layer.scopedDiscard(
  Effect.addFinalizer(() => Effect.sync(() => rmSync(folder, { recursive: true, force: true })))
)
const file = SqliteConversations.layer({ filename: join(folder, "conversations.db") })

ConversationsContract.suite("memory", Conversations.layerMemory)
ConversationsContract.suite("SQLite in memory", SqliteConversations.layer({ filename: ":memory:" }))
ConversationsContract.suite("SQLite file", Layer.provideMerge(file, cleanup), { second: file })
ConversationsContract.suite(
  "SQLite, the client of a ledger",
  Layer.provide(SqlConversations.layer, SqliteLedger.layer({ filename: ":memory:" }))
)

let opened: ReturnType<typeof PgConversations.layer> = Layer.die("no database yet")
const postgres = Layer.unwrapScoped(
  Effect.map(database, (url) => {
    opened = PgConversations.layer({ url })
    return opened
  })
)

ConversationsContract.suite("Postgres", postgres, { second: Layer.suspend(() => opened) })
