import { copyFileSync, mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import * as SqlClient from "@effect/sql/SqlClient"
import { assert, describe, it } from "@effect/vitest"
import { Ledger } from "@sandglass/core"
import { SqliteLedger } from "@sandglass/sql-sqlite"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Stream from "effect/Stream"
import { legacyLedger } from "../support/legacyLedger.js"

const fixture = fileURLToPath(new URL("../fixtures/alineo-ledger/legacy.db", import.meta.url))

/** A copy of a ledger that another program wrote. */
const legacy = Layer.unwrapScoped(
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => {
        const folder = mkdtempSync(join(tmpdir(), "sandglass-legacy-"))
        copyFileSync(fixture, join(folder, "legacy.db"))
        return folder
      }),
      (folder) => Effect.sync(() => rmSync(folder, { recursive: true, force: true }))
    ),
    (folder) => SqliteLedger.layer({ filename: join(folder, "legacy.db") })
  )
)

const collect = <A, E, R>(stream: Stream.Stream<A, E, R>) => Effect.map(Stream.runCollect(stream), (_) => Array.from(_))

legacyLedger("SqliteLedger on a ledger of another program", legacy)

describe("SqliteLedger and the tables of another program", () => {
  it.effect("the indexes of its time are replaced, its columns are not touched", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const indexes = yield* sql<{ readonly name: string }>`PRAGMA index_list(alineo_events)`
      const names = indexes.map(({ name }) => name)
      assert.notInclude(names, "alineo_events_sandbox_id")
      assert.notInclude(names, "alineo_events_name")
      assert.include(names, "alineo_events_name_sandbox_ts")
      assert.isTrue(
        names.every((name) => name === "alineo_events_name_sandbox_ts" || name.startsWith("sandglass_events_"))
      )
      const columns = yield* sql<{ readonly name: string; readonly type: string }>`PRAGMA table_info(alineo_events)`
      assert.deepStrictEqual(
        columns.map(({ name, type }) => `${name} ${type}`),
        [
          "id INTEGER",
          "sandbox_id TEXT",
          "name TEXT",
          "step_idx INTEGER",
          "branch INTEGER",
          "event TEXT",
          "payload TEXT",
          "error TEXT",
          "ts INTEGER"
        ]
      )
    }).pipe(Effect.provide(legacy))
  )

  it.effect("payloads that are JSON twice, or not at all, are read", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const ledger = yield* Ledger.Ledger
      const twice = JSON.stringify(JSON.stringify({ sandboxId: "sbx-x", runId: "run-x" }))
      yield* sql`INSERT INTO alineo_events (sandbox_id, name, step_idx, event, payload, ts) VALUES
        ('sbx-x', 'x', -1, 'sandbox_created', ${twice}, 1),
        ('sbx-x', 'x', 1, 'exec_event', ${JSON.stringify(JSON.stringify({ type: "stdout", text: "a" }))}, 2),
        ('sbx-x', 'x', 1, 'exec_event', '{"type":"stdout"', 3),
        ('sbx-x', 'x', -1, 'note', 'plain words', 4),
        ('sbx-x', 'x', -1, 'note', '{}', 5)`
      const entries = yield* collect(ledger.read({ sandboxId: "sbx-x" }))
      assert.deepStrictEqual(
        entries.map(({ event, payload }) => [event, payload]),
        [
          ["sandbox.created", { sandboxId: "sbx-x", runId: "run-x" }],
          ["exec.output", { type: "stdout", text: "a\n" }],
          ["exec_event", '{"type":"stdout"'],
          ["note", "plain words"],
          ["note", {}]
        ]
      )
      const found = yield* collect(ledger.sandboxes({ runId: "run-x" }))
      assert.deepStrictEqual(
        found.map(({ sandboxId }) => sandboxId),
        ["sbx-x"]
      )
    }).pipe(Effect.provide(legacy))
  )
})
