import * as SqlClient from "@effect/sql/SqlClient"
import { assert, layer } from "@effect/vitest"
import { Ledger } from "@sandglass/core"
import { SqliteLedger } from "@sandglass/sql-sqlite"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import { sqlite } from "../../packages/core/src/internal/sqlLedger/sqlite.js"
import { Statement, selectRemovable } from "../../packages/core/src/internal/sqlLedger/statement.js"
import { recordStatements } from "../support/statements.js"

const events = 200_000
const sessions = 2_000

/** One session of very many events, and very many small ones around it. */
const filled = Layer.effectDiscard(
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql.unsafe(`
    INSERT INTO alineo_events (sandbox_id, name, step_idx, event, payload, ts)
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ${sessions - 1})
    SELECT 'sbx-' || i, 'name-' || (i % 7), -1, 'sandbox.created', '{"runId":"run-' || (i % 100) || '","resourceId":"user-' || (i % 400) || '"}', 1000 + i FROM n`)
    yield* sql.unsafe(`
    INSERT INTO alineo_events (sandbox_id, name, step_idx, event, payload, ts)
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ${events - 1})
    SELECT 'sbx-big', 'big', i / 200,
      CASE i % 200 WHEN 0 THEN 'exec.started' WHEN 199 THEN 'exec.completed' ELSE 'exec.output' END,
      '{"seq":' || (i / 200) || ',"type":"stdout","text":"line"}', 2000 + i / 50 FROM n`)
    yield* sql.unsafe(`
    INSERT INTO alineo_events (sandbox_id, name, step_idx, event, payload, ts) VALUES
      ('sbx-big', 'big', -1, 'sandbox.created', '{"runId":"run-big"}', 1999),
      ('sbx-big', 'big', -1, 'sandbox.checkpoint_created', '{"snapshotId":"snap-1","name":"one"}', 3000),
      ('sbx-0', 'name-0', -1, 'sandbox.closed', NULL, 9000)`)
  })
)

const database = Layer.provideMerge(filled, SqliteLedger.layer({ filename: ":memory:" }))

layer(database, { timeout: "60 seconds" })("SqliteLedger on a large ledger", (it) => {
  /** What the statements of an operation are, and how the database runs each. */
  const plans = <A, E>(operation: Effect.Effect<A, E, Ledger.Ledger>) =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const { statements, tracer } = recordStatements()
      const result = yield* Effect.withTracer(operation, tracer)
      const details = yield* Effect.forEach(new Set(statements), (text) =>
        sql
          .unsafe<{ readonly detail: string }>(
            `EXPLAIN QUERY PLAN ${text}`,
            Array.from(text.matchAll(/\?/g), () => 1)
          )
          .pipe(Effect.map((rows) => rows.map(({ detail }) => detail)))
      )
      return { result, statements, details: details.flat() }
    })

  const noScan = (details: ReadonlyArray<string>) => {
    assert.isAbove(details.length, 0)
    for (const detail of details) {
      assert.notMatch(detail, /SCAN (?:alineo_events|life)/)
      assert.notMatch(detail, /TEMP B-TREE/)
    }
  }

  const read = (options: Ledger.ReadOptions) =>
    Effect.flatMap(Ledger.Ledger, (ledger) => Stream.runCount(ledger.read(options)))

  const after = { ts: 2500, id: 5000 }

  const queries: ReadonlyArray<readonly [index: RegExp, options: Ledger.ReadOptions]> = [
    [/sandglass_events_sandbox/, { sandboxId: "sbx-big", limit: 2500 }],
    [/sandglass_events_sandbox/, { sandboxId: "sbx-big", order: "desc", limit: 2500 }],
    [/sandglass_events_sandbox/, { sandboxId: "sbx-big", after, until: { ts: 2600, id: 0 } }],
    [/sandglass_events_sandbox/, { sandboxId: "sbx-big", name: "big", limit: 10 }],
    [/sandglass_events_sandbox/, { sandboxId: "sbx-big", events: ["exec.output"], after, limit: 10 }],
    [/sandglass_events_step/, { sandboxId: "sbx-big", stepIdx: 7 }],
    [/sandglass_events_step/, { sandboxId: "sbx-big", stepIdx: 7, after: { ts: 2030, id: 0 } }],
    [/sandglass_events_step/, { sandboxId: "sbx-big", stepIdx: 7, events: ["exec.output"], order: "desc" }],
    [/sandglass_events_no_output/, { sandboxId: "sbx-big", withoutOutput: true, limit: 10 }],
    [/sandglass_events_no_output/, { sandboxId: "sbx-big", withoutOutput: true, after, limit: 10 }],
    [/sandglass_events_no_output/, { sandboxId: "sbx-big", events: ["exec.started"], limit: 10 }],
    [/sandglass_events_milestones/, { sandboxId: "sbx-big", events: ["sandbox.closed", "sandbox.checkpoint_created"] }],
    [/sandglass_events_created/, { events: ["sandbox.created"], limit: 10 }],
    [/sandglass_events_ts/, { limit: 2500 }],
    [/sandglass_events_ts/, { order: "desc", limit: 10 }],
    [/sandglass_events_ts/, { name: "big", limit: 10 }],
    [/sandglass_events_ts/, { name: "name-0", events: ["sandbox.closed"] }],
    [/sandglass_events_ts/, { withoutOutput: true, after, limit: 10 }],
    [/sandglass_events_ts/, { stepIdx: 3, order: "desc", limit: 10 }]
  ]
  for (const [index, options] of queries) {
    it.effect(`read ${JSON.stringify(options)}`, () =>
      Effect.gen(function* () {
        const { details, result } = yield* plans(read(options))
        noScan(details)
        assert.match(details.join("\n"), index)
        assert.isAbove(result, 0)
      })
    )
  }

  it.effect("a page that begins inside a millisecond does not walk through all of it", () =>
    Effect.gen(function* () {
      const { details } = yield* plans(read({ sandboxId: "sbx-big", after, limit: 10 }))
      assert.match(details.join("\n"), /sandbox_id=\? AND ts=\? AND (?:rowid|id)>\?/)
    })
  )

  it.effect("listing reads the sessions, and of each only its lifecycle", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger.Ledger
      for (const [filter, count] of [
        [{}, sessions + 1],
        [{ limit: 50 }, 50],
        [{ name: "big" }, 1],
        [{ name: "name-1", before: 2500 }, 215],
        [{ status: "closed" }, 1],
        [{ status: "running", limit: 10 }, 10],
        [{ runId: "run-big" }, 1],
        [{ runId: "run-3", status: "running" }, 20],
        [{ resourceId: "user-7" }, 5],
        [{ resourceId: "user-7", limit: 2 }, 2],
        [{ resourceId: "user-7", name: "name-0", status: "running", runId: "run-7" }, 1],
        [{ resourceId: "user-77/none" }, 0]
      ] satisfies ReadonlyArray<readonly [Ledger.SandboxFilter, number]>) {
        const { details, result } = yield* plans(Stream.runCount(ledger.sandboxes(filter)))
        noScan(details)
        assert.strictEqual(result, count)
        assert.isTrue(
          details.every((detail) => !/USING (?:COVERING )?INDEX alineo_|_sandbox |_step |_ts /.test(detail))
        )
        assert.match(details.join("\n"), /sandglass_events_created/)
        assert.match(details.join("\n"), /sandglass_events_milestones/)
      }
      const details = yield* plans(ledger.sandbox("sbx-big"))
      noScan(details.details)
      assert.isTrue(Option.isSome(details.result))
      assert.strictEqual(details.statements.length, 1)
    })
  )

  it.effect("the sessions of a resource are found without those of others", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger.Ledger
      const { details, statements } = yield* plans(Stream.runCount(ledger.sandboxes({ resourceId: "user-7" })))
      assert.strictEqual(statements.length, 1)
      assert.match(details.join("\n"), /sandglass_events_created_resource \(<expr>=\?/)
    })
  )

  it.effect("the last checkpoint is found without its session", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger.Ledger
      const { details, result, statements } = yield* plans(ledger.lastCheckpoint("sbx-big", { tag: "one" }))
      assert.strictEqual(Option.getOrThrow(result).snapshotId, "snap-1")
      assert.strictEqual(statements.length, 1)
      noScan(details)
      assert.match(details.join("\n"), /sandglass_events_milestones/)
    })
  )

  it.effect("a page is all that is read at a time", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger.Ledger
      const { result, statements } = yield* plans(
        ledger.read({ sandboxId: "sbx-big" }).pipe(Stream.chunks, Stream.take(2), Stream.runCollect)
      )
      assert.isAtMost(statements.length, 3)
      assert.isTrue(Array.from(result).every((chunk) => Chunk.size(chunk) <= 1000))
    })
  )

  it.effect("a place in a session's order, and the entry there, are found in its index", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger.Ledger
      const at = yield* plans(ledger.entryAt("sbx-big", 100_000))
      noScan(at.details)
      assert.match(at.details.join("\n"), /COVERING INDEX sandglass_events_sandbox/)
      const entry = Option.getOrThrow(at.result)
      const index = yield* plans(ledger.indexOf("sbx-big", { ts: entry.ts, id: entry.id }))
      noScan(index.details)
      assert.match(index.details.join("\n"), /COVERING INDEX sandglass_events_sandbox/)
      assert.strictEqual(index.result, 100_000)
    })
  )

  it.effect("a session is deleted, and sessions are pruned, through their indexes", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger.Ledger
      const name = "short-lived"
      const fill = (sandboxId: string) =>
        ledger.appendAll([
          { sandboxId, name, event: "sandbox.created" },
          ...Array.from({ length: 5_000 }, (_, index) => ({ sandboxId, name, event: "exec.output", payload: index })),
          { sandboxId, name, event: "sandbox.closed" }
        ])
      yield* fill("sbx-deleted")
      const deleted = yield* plans(ledger.deleteSandbox("sbx-deleted"))
      assert.strictEqual(deleted.result, 5_002)
      yield* fill("sbx-pruned")
      const pruned = yield* plans(ledger.prune({ before: Number.MAX_SAFE_INTEGER, keepCheckpoints: true, name }))
      assert.deepStrictEqual(pruned.result, { sandboxes: 1, entries: 5_002 })
      for (const { details } of [deleted, pruned]) {
        noScan(details)
        assert.match(details.join("\n"), /sandglass_events_milestones/)
      }
      // What writes is not traced.
      const sql = yield* SqlClient.SqlClient
      const statement = new Statement(sqlite)
      const removable = selectRemovable(statement, "sbx-big", 10)
      const removal = yield* sql.unsafe<{ readonly detail: string }>(
        `EXPLAIN QUERY PLAN DELETE FROM alineo_events WHERE id IN (${removable})`,
        statement.params
      )
      const steps = removal.map(({ detail }) => detail)
      noScan(steps)
      assert.match(steps.join("\n"), /sandglass_events_milestones/)
      // Any index that begins with the sandbox.
      assert.match(steps.join("\n"), /INDEX sandglass_events_(?:sandbox|step) \(sandbox_id=\?\)/)
      // Some pages of sessions, the one session's batches, and a look for new sessions.
      assert.isAtMost(pruned.statements.length, 60)
    })
  )

  it.effect("tail finds its place by id, however far away that is", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger.Ledger
      for (const options of [
        {},
        { sandboxId: "sbx-big" },
        { sandboxId: "sbx-0", stepIdx: -1 },
        { name: "name-0", events: ["sandbox.closed"] },
        { afterId: events }
      ] satisfies ReadonlyArray<Ledger.TailOptions>) {
        const { details, result } = yield* plans(ledger.tail(options).pipe(Stream.take(1), Stream.runCount))
        noScan(details)
        assert.strictEqual(result, 1)
      }
      // From its first event to its last lie all others: two windows, one jump.
      const { details, result, statements } = yield* plans(
        ledger.tail({ sandboxId: "sbx-0" }).pipe(
          Stream.take(2),
          Stream.map(({ event }) => event),
          Stream.runCollect
        )
      )
      assert.deepStrictEqual(Array.from(result), ["sandbox.created", "sandbox.closed"])
      assert.isAtMost(statements.length, 6)
      noScan(details)
    })
  )
})
