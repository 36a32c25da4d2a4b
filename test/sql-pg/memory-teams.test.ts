import * as SqlClient from "@effect/sql/SqlClient"
import type * as PgClient from "@effect/sql-pg/PgClient"
import { assert, describe, it } from "@effect/vitest"
import type { ResourceRef } from "@sandglass/memory"
import { EmbeddingModel, SemanticMemory, WorkingMemory } from "@sandglass/memory"
import { SemanticMemoryContract, WorkingMemoryContract } from "@sandglass/memory/testing"
import { PgMemory } from "@sandglass/sql-pg"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type * as Redacted from "effect/Redacted"
import * as Stream from "effect/Stream"
import { client, database } from "../support/postgres.js"
import { roleOn } from "../support/roles.js"

const tables = ["sandglass_working_memory", "sandglass_facts"]

/** A database, a role that owns what it creates there, and its memory. */
const setUp = Effect.gen(function* () {
  const admin = yield* database
  const sql = yield* client(admin)
  const owner = yield* roleOn(admin)
  yield* sql.unsafe(`GRANT CREATE ON SCHEMA public TO ${owner.name}`)
  return { admin, owner, sql }
})

const memoryOf = (url: Redacted.Redacted<string>) =>
  Layer.provide(PgMemory.layer({ url, maxConnections: 3 }), EmbeddingModel.layerLexical({ dimensions: 32 }))

const a: ResourceRef.ResourceRef = { resourceId: "user-7", teamId: "a" }
const b: ResourceRef.ResourceRef = { resourceId: "user-7", teamId: "b" }
const nobodys: ResourceRef.ResourceRef = { resourceId: "user-7" }

const fill = Effect.gen(function* () {
  const working = yield* WorkingMemory.WorkingMemory
  const semantic = yield* SemanticMemory.SemanticMemory
  for (const ref of [a, b, nobodys]) {
    yield* working.set(ref, "k", ref.teamId ?? "none")
    yield* semantic.remember(ref, { content: `fact of ${ref.teamId ?? "none"}` })
  }
})

/** Whose rows are there, table by table. */
const visible = (sql: SqlClient.SqlClient) =>
  Effect.forEach(tables, (table) =>
    Effect.map(sql.unsafe<{ readonly team_id: string }>(`SELECT team_id FROM ${table} ORDER BY team_id`), (rows) =>
      rows.map(({ team_id }) => team_id)
    )
  )

const asTeam = <A, E>(sql: PgClient.PgClient | SqlClient.SqlClient, team: string, self: Effect.Effect<A, E>) =>
  sql.withTransaction(Effect.zipRight(sql`SELECT set_config('sandglass.team_id', ${team}, true)`, self))

describe("teams on Postgres, for a role that is no superuser", () => {
  it.scopedLive("rows of a team are there for who has named it, and for nobody else", () =>
    Effect.gen(function* () {
      const { owner, sql: admin } = yield* setUp
      yield* Effect.gen(function* () {
        yield* fill
        const sql = yield* SqlClient.SqlClient
        const [who] = yield* sql<{ readonly name: string; readonly super: boolean }>`
          SELECT rolname AS name, rolsuper OR rolbypassrls AS super FROM pg_roles WHERE rolname = current_user`
        assert.deepStrictEqual(who, { name: owner.name, super: false })
        const flags = yield* sql<{ readonly owner: string; readonly on: boolean; readonly forced: boolean }>`
          SELECT pg_get_userbyid(relowner) AS owner, relrowsecurity AS on, relforcerowsecurity AS forced
          FROM pg_class WHERE relname IN ${sql.in(tables)}`
        assert.deepStrictEqual(
          flags,
          tables.map(() => ({ owner: owner.name, on: true, forced: true }))
        )
        // The owner of the tables is no exception, and no connection of the pool remembers a team.
        for (let turn = 0; turn < 6; turn++) {
          assert.deepStrictEqual(yield* visible(sql), [[""], [""]])
        }
        assert.deepStrictEqual(yield* asTeam(sql, "a", visible(sql)), [
          ["", "a"],
          ["", "a"]
        ])
        assert.deepStrictEqual(yield* asTeam(sql, "c", visible(sql)), [[""], [""]])
        // Nor can rows of another team be written, changed, taken over or removed.
        for (const table of tables) {
          const attempts = [
            `INSERT INTO ${table} SELECT * FROM ${table} WHERE false`,
            `UPDATE ${table} SET team_id = 'b'`,
            `UPDATE ${table} SET team_id = 'b' WHERE team_id = 'a'`
          ]
          const outcomes = yield* Effect.forEach(attempts, (attempt) =>
            Effect.either(asTeam(sql, "a", sql.unsafe(attempt)))
          )
          assert.deepStrictEqual(
            outcomes.map(({ _tag }) => _tag),
            ["Right", "Left", "Left"]
          )
          yield* asTeam(sql, "a", sql.unsafe(`DELETE FROM ${table} WHERE team_id = 'b'`))
        }
        const insert = sql`INSERT INTO sandglass_working_memory
          (resource_hash, key_hash, team_id, resource_id, key, value, updated_at) VALUES ('x', 'x', 'b', 'r', 'k', '1', 0)`
        assert.match(String((yield* Effect.flip(asTeam(sql, "a", insert))).cause), /row-level security/)
      }).pipe(Effect.provide(memoryOf(owner.url)))
      assert.deepStrictEqual(yield* visible(admin), [
        ["", "a", "b"],
        ["", "a", "b"]
      ])
    })
  )

  it.scopedLive("in a transaction of the application the team is the one of before", () =>
    Effect.gen(function* () {
      const { owner } = yield* setUp
      yield* Effect.gen(function* () {
        yield* fill
        const working = yield* WorkingMemory.WorkingMemory
        const semantic = yield* SemanticMemory.SemanticMemory
        const sql = yield* SqlClient.SqlClient
        const team = Effect.map(
          sql<{ readonly team: string | null }>`SELECT current_setting('sandglass.team_id', true) AS team`,
          ([row]) => row?.team ?? ""
        )
        yield* sql.withTransaction(
          Effect.gen(function* () {
            assert.strictEqual(yield* team, "")
            yield* working.set(a, "k", "changed")
            assert.strictEqual(yield* team, "")
            assert.deepStrictEqual(yield* working.get(b, "k"), Option.some("b"))
            assert.strictEqual((yield* semantic.recall(b, "fact")).length, 1)
            assert.deepStrictEqual(yield* visible(sql), [[""], [""]])
          })
        )
        yield* asTeam(
          sql,
          "a",
          Effect.gen(function* () {
            yield* working.set(b, "k", "changed")
            assert.strictEqual(yield* team, "a")
            // What fails is no exception.
            yield* Effect.flip(working.copy(b, { ...b, resourceId: " " }))
            yield* Effect.flip(working.copy(b, b))
            yield* working.set({ ...b, resourceId: "full" }, "k", 1)
            yield* Effect.flip(working.copy(b, { ...b, resourceId: "full" }))
            assert.strictEqual(yield* team, "a")
          })
        )
        assert.deepStrictEqual(yield* working.get(a, "k"), Option.some("changed"))
        assert.deepStrictEqual(yield* working.get(b, "k"), Option.some("changed"))
      }).pipe(Effect.provide(memoryOf(owner.url)))
    })
  )

  it.scopedLive("a role that may only read and write rows uses what another has created", () =>
    Effect.gen(function* () {
      const { admin, owner, sql } = yield* setUp
      yield* Layer.build(memoryOf(owner.url))
      const app = yield* roleOn(admin)
      yield* sql.unsafe(`GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO ${app.name}`)
      yield* sql.unsafe(`GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO ${app.name}`)
      yield* Effect.gen(function* () {
        yield* fill
        const semantic = yield* SemanticMemory.SemanticMemory
        const { clear, listAll } = yield* semantic.prunable
        assert.strictEqual((yield* semantic.recall(a, "fact")).length, 1)
        assert.strictEqual(Chunk.size(yield* Stream.runCollect(listAll(b))), 1)
        assert.strictEqual(yield* clear(b), 1)
        assert.deepStrictEqual(yield* visible(yield* SqlClient.SqlClient), [[""], [""]])
      }).pipe(Effect.provide(memoryOf(app.url)))
    })
  )
})

/** As that role; the suites use teams too. */
const asRole = <A, E, R>(layer: (url: Redacted.Redacted<string>) => Layer.Layer<A, E, R>) =>
  Layer.unwrapScoped(Effect.map(setUp, ({ owner }) => layer(owner.url)))

WorkingMemoryContract.suite("Postgres, a role that is no superuser", asRole(memoryOf))
SemanticMemoryContract.suite(
  "Postgres, a role that is no superuser",
  asRole((url) => PgMemory.layer({ url, maxConnections: 5 }))
)
