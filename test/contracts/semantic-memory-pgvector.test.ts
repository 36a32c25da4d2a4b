import { SemanticMemoryContract } from "@sandglass/memory/testing"
import { PgVectorIndex } from "@sandglass/sql-pg"
import { onPostgres } from "../support/memories.js"
import { pgliteDatabase } from "../support/pglite.js"

// An index that is quickly made, for a Postgres that is slow.
const indexed = onPostgres(pgliteDatabase, {
  vectorIndex: PgVectorIndex.make({ exactFacts: 100, connections: 8, buildWidth: 16 })
})

SemanticMemoryContract.suite("Postgres with pgvector", indexed.first, {
  second: indexed.second,
  vectorIndex: true,
  exact: false
})
