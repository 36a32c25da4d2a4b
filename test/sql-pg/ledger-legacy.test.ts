import { copyFileSync, mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import * as SqlClient from "@effect/sql/SqlClient"
import { assert, describe, it } from "@effect/vitest"
import { Ledger } from "@sandglass/core"
import { PgLedger } from "@sandglass/sql-pg"
import { SqliteLedger } from "@sandglass/sql-sqlite"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import { legacyLedger } from "../support/legacyLedger.js"
import { legacyDatabase } from "../support/legacyPostgres.js"
import { database } from "../support/postgres.js"

/** A copy of a ledger that another program wrote. */
const legacy = Layer.unwrapScoped(Effect.map(legacyDatabase, (url) => PgLedger.layer({ url })))

const collect = <A, E, R>(stream: Stream.Stream<A, E, R>) => Effect.map(Stream.runCollect(stream), (_) => Array.from(_))

const entries = Effect.flatMap(Ledger.Ledger, (ledger) => collect(ledger.read()))

legacyLedger("PgLedger on a ledger of another program", legacy)

describe("PgLedger and the tables of another program", () => {
  it.scoped("says the same as SqliteLedger of the same history", () =>
    Effect.gen(function* () {
      const folder = yield* Effect.acquireRelease(
        Effect.sync(() => mkdtempSync(join(tmpdir(), "sandglass-legacy-"))),
        (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
      )
      const filename = join(folder, "legacy.db")
      copyFileSync(fileURLToPath(new URL("../fixtures/alineo-ledger/legacy.db", import.meta.url)), filename)
      assert.deepStrictEqual(
        yield* Effect.provide(entries, legacy),
        yield* Effect.provide(entries, SqliteLedger.layer({ filename }))
      )
    })
  )

  it.effect("the indexes of its time are replaced, its columns are not touched", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const indexes = yield* sql<{ readonly name: string }>`
        SELECT indexname AS name FROM pg_indexes WHERE tablename = 'alineo_events'`
      const names = indexes.map(({ name }) => name)
      assert.notInclude(names, "alineo_events_sandbox_id")
      assert.notInclude(names, "alineo_events_name")
      assert.include(names, "alineo_events_name_sandbox_ts")
      assert.isTrue(names.every((name) => /^alineo_events_(?:pkey|name_sandbox_ts)$|^sandglass_events_/.test(name)))
      const columns = yield* sql<{ readonly text: string }>`
        SELECT column_name || ' ' || data_type AS text FROM information_schema.columns
        WHERE table_name = 'alineo_events' ORDER BY ordinal_position`
      assert.deepStrictEqual(
        columns.map(({ text }) => text),
        [
          "id bigint",
          "sandbox_id text",
          "name text",
          "step_idx integer",
          "branch integer",
          "event text",
          "payload jsonb",
          "error text",
          "ts bigint"
        ]
      )
    }).pipe(Effect.provide(legacy))
  )

  it.effect("both programs write into one session, side by side", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const ledger = yield* Ledger.Ledger
      const session = { sandboxId: "sbx-both", name: "both" }
      /** As that program does: the payload is the text of a JSON string. */
      const theirs = (stepIdx: number, event: string, payload: object) =>
        Effect.flatMap(
          ledger.append({ ...session, event: "clock" }),
          ({ ts }) => sql`INSERT INTO alineo_events (sandbox_id, name, step_idx, event, payload, ts)
            VALUES ('sbx-both', 'both', ${stepIdx}, ${event}, ${JSON.stringify(JSON.stringify(payload))}::jsonb, ${ts})`
        )
      yield* theirs(-1, "sandbox_created", { sandboxId: "sbx-both", runId: "run-both", resourceId: "user/7 é" })
      yield* ledger.appendAll([
        { ...session, stepIdx: 1, event: "exec.started", payload: { seq: 1, cmd: "make" } },
        { ...session, stepIdx: 1, event: "exec.output", payload: { seq: 1, type: "stdout", text: "ours\n" } }
      ])
      yield* theirs(1, "exec_event", { seq: 1, type: "stdout", text: "theirs" })
      yield* theirs(1, "exec_complete", { seq: 1, exitCode: 0 })
      yield* ledger.append({ ...session, event: "sandbox.checkpoint_created", payload: { snapshotId: "snap-ours" } })
      yield* theirs(-1, "checkpoint_created", { snapshotId: "snap-theirs", name: "tag" })
      const kinds = yield* sql`SELECT DISTINCT jsonb_typeof(payload) AS kind FROM alineo_events
        WHERE sandbox_id = 'sbx-both' AND payload IS NOT NULL ORDER BY kind`
      assert.deepStrictEqual(kinds, [{ kind: "object" }, { kind: "string" }])
      const read = yield* collect(ledger.read(session))
      assert.deepStrictEqual(
        read.filter(({ event }) => event !== "clock").map(({ event, payload }) => [event, payload]),
        [
          ["sandbox.created", { sandboxId: "sbx-both", runId: "run-both", resourceId: "user/7 é" }],
          ["exec.started", { seq: 1, cmd: "make" }],
          ["exec.output", { seq: 1, type: "stdout", text: "ours\n" }],
          ["exec.output", { seq: 1, type: "stdout", text: "theirs\n" }],
          ["exec.completed", { seq: 1, exitCode: 0 }],
          ["sandbox.checkpoint_created", { snapshotId: "snap-ours" }],
          ["sandbox.checkpoint_created", { snapshotId: "snap-theirs", name: "tag" }]
        ]
      )
      const last = yield* ledger.lastCheckpoint("sbx-both")
      assert.strictEqual(Option.getOrThrow(last).snapshotId, "snap-theirs")
      const found = yield* collect(ledger.sandboxes({ runId: "run-both" }))
      assert.deepStrictEqual(
        found.map(({ sandboxId, status }) => [sandboxId, status]),
        [["sbx-both", "running"]]
      )
      assert.deepStrictEqual(yield* collect(ledger.sandboxes({ resourceId: "user/7 é" })), found)
    }).pipe(Effect.provide(legacy))
  )

  it.scoped("eight processes' worth of ledgers replace its indexes at once", () =>
    Effect.gen(function* () {
      const url = yield* legacyDatabase
      const counts = yield* Effect.all(
        Array.from({ length: 8 }, () =>
          Effect.flatMap(Ledger.Ledger, (ledger) => Stream.runCount(ledger.read())).pipe(
            Effect.provide(Layer.fresh(PgLedger.layer({ url })))
          )
        ),
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(
        counts,
        Array.from({ length: 8 }, () => 39)
      )
    })
  )
})

describe("PgLedger and rows that other programs wrote", () => {
  const end = 8_640_000_000_000_000

  const rows: ReadonlyArray<readonly [row: Readonly<Record<string, string>>, read: Readonly<Record<string, unknown>>]> =
    [
      [{ payload: `'"plain words"'` }, { payload: "plain words" }],
      [{ payload: `'"{\\"a\\":1}"'` }, { payload: { a: 1 } }],
      [{ payload: `'"{\\"a\\":"'` }, { payload: '{"a":' }],
      [{ payload: "'5.5'" }, { payload: 5.5 }],
      [{ payload: "'[1, null, true]'" }, { payload: [1, null, true] }],
      [{ payload: "'null'" }, { payload: null }],
      [{ payload: "'12345678901234567890.5'" }, { payload: 12345678901234567000 }],
      [{ branch: "3" }, { branch: 3 }],
      [{ step_idx: "-2147483648" }, { stepIdx: -2_147_483_648 }],
      [{ event: "''" }, { event: "" }],
      [{ sandbox_id: "''" }, { sandboxId: "" }],
      [{ error: "'boom'" }, { error: "boom" }],
      [{ ts: "0" }, { ts: 0 }],
      [{ ts: "-1" }, { ts: -1 }],
      [{ ts: "9223372036854775807" }, { ts: end }],
      [{ ts: "'-9223372036854775808'::bigint" }, { ts: -end }]
    ]

  it.effect("every value is read, as near to what it ought to be as can be, and found by every way of reading", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const ledger = yield* Ledger.Ledger
      for (const [index, [row]] of rows.entries()) {
        const values: Readonly<Record<string, string>> = {
          id: `${100 + index}`,
          sandbox_id: "'sbx-1'",
          name: "'ci'",
          step_idx: "1",
          event: "'note'",
          ts: "10",
          ...row
        }
        yield* sql.unsafe(
          `INSERT INTO alineo_events (${Object.keys(values).join(", ")}) VALUES (${Object.values(values).join(", ")})`
        )
      }
      const all = yield* collect(ledger.read())
      assert.strictEqual(all.length, rows.length)
      for (const [index, [, wanted]] of rows.entries()) {
        assert.deepInclude(all.find(({ id }) => id === 100 + index) ?? {}, wanted)
      }
      const tailed = yield* collect(ledger.tail().pipe(Stream.take(rows.length)))
      assert.deepStrictEqual(
        tailed.map(({ id }) => id),
        rows.map((_, index) => 100 + index)
      )
      // One entry at a time, as one does who keeps a cursor, over what a cursor cannot hold.
      for (const order of ["asc", "desc"] as const) {
        const ids: Array<number> = []
        let after: { readonly ts: number; readonly id: number } | undefined
        while (ids.length <= rows.length) {
          const [entry] = yield* collect(ledger.read({ order, after, limit: 1 }))
          if (entry === undefined) {
            break
          }
          after = { ts: entry.ts, id: entry.id }
          ids.push(entry.id)
        }
        const wanted = all.map(({ id }) => id)
        assert.deepStrictEqual(ids, order === "asc" ? wanted : wanted.toReversed())
      }
      // What counts something else than milliseconds is no time that later entries have to follow.
      const appended = yield* ledger.append({ sandboxId: "sbx-1", name: "ci", event: "after" })
      assert.strictEqual(appended.ts, 10)
    }).pipe(Effect.provide(Layer.unwrapScoped(Effect.map(database, (url) => PgLedger.layer({ url })))))
  )
})
