import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as SqliteClient from "@effect/sql-sqlite-bun/SqliteClient"
import { afterAll } from "@effect/vitest"
import { SemanticMemory, SqlSemanticMemory } from "@sandglass/memory"
import { SemanticMemoryContract } from "@sandglass/memory/testing"
import { PgVectorIndex } from "@sandglass/sql-pg"
import { SqliteVectorIndex } from "@sandglass/sql-sqlite"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { onPostgres } from "../support/memories.js"
import { database } from "../support/postgres.js"

const folder = mkdtempSync(join(tmpdir(), "sandglass-semantic-"))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

const store = Effect.runSync(SemanticMemory.makeMemoryStore)
const memory = SemanticMemory.layerMemoryIn(store)

const file = Layer.provide(SqlSemanticMemory.layer, SqliteClient.layer({ filename: join(folder, "exact.db") }))
const withVec0 = (filename: string) =>
  Layer.unwrapEffect(
    Effect.map(SqliteVectorIndex.make(), (index) =>
      SqlSemanticMemory.layerWith({ vectorIndex: Option.getOrThrow(index) })
    )
  ).pipe(Layer.provide(SqliteClient.layer({ filename })))
const indexedFile = withVec0(join(folder, "indexed.db"))
const mixedFile = join(folder, "mixed.db")

const exact = onPostgres(database, {})
const withoutExtension = onPostgres(database, { vectorIndex: PgVectorIndex.make() })
SemanticMemoryContract.suite("memory", memory, { second: memory })
SemanticMemoryContract.suite("SQLite file, exact", file, { second: file })
SemanticMemoryContract.suite("SQLite file, vec0", indexedFile, {
  second: indexedFile,
  vectorIndex: true
})
SemanticMemoryContract.suite("SQLite file, vec0, and a process without it", withVec0(mixedFile), {
  second: Layer.provide(SqlSemanticMemory.layer, SqliteClient.layer({ filename: mixedFile })),
  vectorIndex: true
})
SemanticMemoryContract.suite("Postgres, exact", exact.first, { second: exact.second })
SemanticMemoryContract.suite("Postgres without pgvector", withoutExtension.first, { second: withoutExtension.second })
