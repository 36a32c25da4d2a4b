import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as PgClient from "@effect/sql-pg/PgClient"
import * as SqliteClient from "@effect/sql-sqlite-bun/SqliteClient"
import { SemanticMemory, SqlSemanticMemory } from "@sandglass/memory"
import { SemanticMemoryContract } from "@sandglass/memory/testing"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Redacted from "effect/Redacted"
import { database } from "../support/postgres.js"

const folder = mkdtempSync(join(tmpdir(), "sandglass-semantic-"))
const cleanup = Layer.scopedDiscard(
  Effect.addFinalizer(() => Effect.sync(() => rmSync(folder, { recursive: true, force: true })))
)

const store = Effect.runSync(SemanticMemory.makeMemoryStore)
const memory = SemanticMemory.layerMemoryIn(store)

const file = Layer.provide(SqlSemanticMemory.layer, SqliteClient.layer({ filename: join(folder, "exact.db") }))

let url: Redacted.Redacted<string> | undefined
const postgres = Layer.suspend(() => Layer.provide(SqlSemanticMemory.layer, PgClient.layer({ url, maxConnections: 5 })))
const onServer = Layer.provideMerge(
  postgres,
  Layer.scopedDiscard(
    Effect.map(database, (fresh) => {
      url = fresh
    })
  )
)

SemanticMemoryContract.suite("memory", memory, { second: memory })
SemanticMemoryContract.suite("SQLite file, exact", Layer.provideMerge(file, cleanup), { second: file })
SemanticMemoryContract.suite("Postgres, exact", onServer, { second: postgres })
