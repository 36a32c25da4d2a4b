import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as SqlClient from "@effect/sql/SqlClient"
import { afterAll, assert, describe, it } from "@effect/vitest"
import { Ledger } from "@sandglass/core"
import { EmbeddingModel, EpisodicMemory, Memory, SemanticMemory } from "@sandglass/memory"
import { SqliteMemory } from "@sandglass/sql-sqlite"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { recordStatements } from "../support/statements.js"

const folder = mkdtempSync(join(tmpdir(), "sandglass-verified-"))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

const open = (name: string) =>
  Layer.build(
    Layer.provide(SqliteMemory.layer({ filename: join(folder, `${name}.db`) }), EmbeddingModel.layerLexical())
  )

const ref = { resourceId: "user-7" }
const base = { sandboxId: "sbx", name: "ci" }

/** A session of so many entries, and a fact for some of them. */
const setUp = (name: string, entries: number, facts: ReadonlyArray<number>) =>
  Effect.gen(function* () {
    const context = yield* open(name)
    const ledger = Context.get(context, Ledger.Ledger)
    const memory = Context.get(context, Memory.FullMemory)
    yield* ledger.append({ ...base, event: "sandbox.created", payload: ref })
    yield* ledger.appendAll(
      Array.from({ length: entries - 1 }, (_, index) => ({ ...base, event: "note", payload: { text: `${index + 1}` } }))
    )
    yield* memory.rememberAll(
      ref,
      facts.map((entryIndex) => ({ content: `fact ${entryIndex}`, sourceRef: { sandboxId: "sbx", entryIndex } }))
    )
    const verdicts = (of: Memory.FullService = memory) =>
      Effect.map(of.recall(ref, "fact", { topK: 100 }), (found) =>
        Object.fromEntries(
          found
            .map(({ content, verified }) => [content, verified] as const)
            .sort(([a], [b]) => Number(a.slice(5)) - Number(b.slice(5)))
        )
      )
    return { context, ledger, memory, verdicts, sql: Context.get(context, SqlClient.SqlClient) }
  })

describe("verified facts against a ledger in a file", () => {
  it.scopedLive("an entry that somebody changes in the database proves nothing until it is what it was", () =>
    Effect.gen(function* () {
      const { sql, verdicts } = yield* setUp("changed", 5, [1, 2])
      assert.deepStrictEqual(yield* verdicts(), { "fact 1": true, "fact 2": true })
      const update = (text: string) =>
        sql`UPDATE alineo_events SET payload = ${JSON.stringify({ text })} WHERE payload LIKE '%"1"%' OR payload LIKE '%forged%'`
      yield* update("forged")
      assert.deepStrictEqual(yield* verdicts(), { "fact 1": false, "fact 2": true })
      yield* update("1")
      assert.deepStrictEqual(yield* verdicts(), { "fact 1": true, "fact 2": true })
    })
  )

  it.scopedLive("an entry that is gone takes its own proof along, and no other", () =>
    Effect.gen(function* () {
      const { ledger, sql, verdicts } = yield* setUp("gone", 5, [1, 2, 4])
      yield* sql`DELETE FROM alineo_events WHERE payload LIKE '%"2"%'`
      assert.deepStrictEqual(yield* verdicts(), { "fact 1": true, "fact 2": false, "fact 4": true })
      yield* ledger.append({ ...base, event: "sandbox.closed" })
      yield* Effect.sleep(2)
      yield* ledger.prune({ before: Date.now() })
      assert.deepStrictEqual(yield* verdicts(), { "fact 1": false, "fact 2": false, "fact 4": false })
    })
  )

  it.scopedLive("a history that moves to another ledger proves what it proved", () =>
    Effect.gen(function* () {
      const { context, ledger, verdicts } = yield* setUp("from", 300, [0, 7, 299])
      const other = yield* open("to")
      const moved = Context.get(other, Ledger.Ledger)
      yield* moved.appendAll(Array.from({ length: 50 }, () => ({ sandboxId: "before", name: "n", event: "note" })))
      yield* ledger.append({ ...base, event: "sandbox.closed" })
      yield* moved.importSandboxes(ledger.exportSandbox("sbx"))
      const memory = yield* Effect.provide(
        Memory.makeFull(),
        Context.add(Context.pick(SemanticMemory.SemanticMemory)(context), Ledger.Ledger, moved).pipe(
          Context.merge(Context.omit(Ledger.Ledger, SemanticMemory.SemanticMemory)(context))
        )
      )
      assert.deepStrictEqual(yield* verdicts(memory), { "fact 0": true, "fact 7": true, "fact 299": true })
      yield* ledger.deleteSandbox("sbx")
      assert.deepStrictEqual(yield* verdicts(), { "fact 0": false, "fact 7": false, "fact 299": false })
      assert.deepStrictEqual(yield* verdicts(memory), { "fact 0": true, "fact 7": true, "fact 299": true })
    })
  )

  it.scopedLive("to check facts of a long session takes a look at each entry, and no more", () =>
    Effect.gen(function* () {
      const places = Array.from({ length: 20 }, (_, index) => 10_000 + index * 450)
      const { memory, sql } = yield* setUp("long", 20_000, places)
      const { statements, tracer } = recordStatements()
      const found = yield* Effect.withTracer(memory.recall(ref, "fact", { topK: 20 }), tracer)
      assert.isTrue(found.every(({ verified }) => verified))
      const ledgerReads = statements.filter((text) => text.includes("alineo_events"))
      assert.strictEqual(ledgerReads.length, 1 + 20)
      for (const text of new Set(ledgerReads)) {
        const params = Array.from(text.matchAll(/\?/g), () => 1)
        const plan = yield* sql.unsafe<{ readonly detail: string }>(`EXPLAIN QUERY PLAN ${text}`, params)
        for (const { detail } of plan) assert.notMatch(detail, /SCAN alineo_events|TEMP B-TREE/)
      }
    })
  )

  it.scopedLive("episodes of one resource among many are found through indexes", () =>
    Effect.gen(function* () {
      const { context, ledger, sql } = yield* setUp("episodes", 10, [])
      yield* ledger.appendAll(
        Array.from({ length: 3_000 }, (_, index) => ({
          sandboxId: `other-${index}`,
          name: "ci",
          event: "sandbox.created",
          payload: { resourceId: `user-${index + 100}` }
        }))
      )
      const { statements, tracer } = recordStatements()
      const episodic = Context.get(context, EpisodicMemory.EpisodicMemory)
      const tree = yield* Effect.withTracer(episodic.episodicTree(ref), tracer)
      assert.strictEqual(tree.length, 1)
      assert.strictEqual(statements.length, 2, "by resource, and by name")
      for (const text of statements) {
        const params = Array.from(text.matchAll(/\?/g), () => 1)
        const plan = yield* sql.unsafe<{ readonly detail: string }>(`EXPLAIN QUERY PLAN ${text}`, params)
        const details = plan.map(({ detail }) => detail).join("\n")
        assert.match(details, /sandglass_events_created_(?:resource|name) /)
        assert.notMatch(details, /SCAN (?:alineo_events|life)/)
      }
    })
  )
})
