import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll } from "@effect/vitest"
import { Ledger } from "@sandglass/core"
import { EmbeddingModel, Memory } from "@sandglass/memory"
import { MemoryContract } from "@sandglass/memory/testing"
import { PgMemory } from "@sandglass/sql-pg"
import { SqliteMemory } from "@sandglass/sql-sqlite"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { database } from "../support/postgres.js"

const folder = mkdtempSync(join(tmpdir(), "sandglass-memory-"))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

const model = EmbeddingModel.layerLexical()
const file = (options: Partial<SqliteMemory.Options>) =>
  Layer.provide(SqliteMemory.layer({ filename: join(folder, "memory.db"), ...options }), model)
const postgres = Layer.provide(Layer.unwrapScoped(Effect.map(database, (url) => PgMemory.layer({ url }))), model)

MemoryContract.suite("memory", Memory.layerMemory.pipe(Layer.provideMerge(Layer.merge(Ledger.layerMemory, model))))
MemoryContract.suite("SQLite file", file({}))
MemoryContract.suite("SQLite file, exact", file({ filename: join(folder, "exact.db"), vectorIndex: false }))
MemoryContract.suite("Postgres", postgres)
