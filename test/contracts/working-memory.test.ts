import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as PgClient from "@effect/sql-pg/PgClient"
import * as SqliteClient from "@effect/sql-sqlite-bun/SqliteClient"
import { afterAll } from "@effect/vitest"
import { SqlWorkingMemory, WorkingMemory } from "@sandglass/memory"
import { WorkingMemoryContract } from "@sandglass/memory/testing"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Redacted from "effect/Redacted"
import { database } from "../support/postgres.js"

const folder = mkdtempSync(join(tmpdir(), "sandglass-working-"))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

const file = Layer.provide(SqlWorkingMemory.layer, SqliteClient.layer({ filename: join(folder, "memory.db") }))

let url: Redacted.Redacted<string> | undefined
const postgres = Layer.suspend(() => Layer.provide(SqlWorkingMemory.layer, PgClient.layer({ url, maxConnections: 5 })))
const onServer = Layer.provideMerge(
  postgres,
  Layer.scopedDiscard(
    Effect.map(database, (fresh) => {
      url = fresh
    })
  )
)

WorkingMemoryContract.suite("memory", WorkingMemory.layerMemory)
WorkingMemoryContract.suite("SQLite file", file, { second: file })
WorkingMemoryContract.suite("Postgres", onServer, { second: postgres })
