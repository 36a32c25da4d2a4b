import type { ChildProcess } from "node:child_process"
import { spawn } from "node:child_process"
import { fileURLToPath } from "node:url"
import { assert, describe, it } from "@effect/vitest"
import { Ledger } from "@sandglass/core"
import { PgLedger } from "@sandglass/sql-pg"
import * as Arr from "effect/Array"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import * as Stream from "effect/Stream"
import { client, database } from "../support/postgres.js"

const bun = fileURLToPath(new URL("../../node_modules/.bin/bun", import.meta.url))
const script = fileURLToPath(new URL("../support/ledgerWriter.ts", import.meta.url))

const start = (url: Redacted.Redacted<string>, ...args: ReadonlyArray<string | number>) =>
  Effect.acquireRelease(
    Effect.sync(() =>
      spawn(bun, [script, Redacted.value(url), ...args.map(String)], { stdio: ["ignore", "pipe", "pipe"] })
    ),
    (child) => Effect.sync(() => void child.kill("SIGKILL"))
  )

const ready = (child: ChildProcess) =>
  Effect.async<void>((resume) => void child.stdout?.once("data", () => resume(Effect.void)))

/** How it ended, and what it complained of. */
const ended = (child: ChildProcess) =>
  Effect.async<readonly [code: number | null, stderr: string]>((resume) => {
    let stderr = ""
    child.stderr?.on("data", (chunk) => {
      stderr += String(chunk)
    })
    child.stdout?.resume()
    child.once("close", (code) => resume(Effect.succeed([code, stderr])))
  })

const seqAndText = (count: number, size: number) =>
  Arr.makeBy(count, (index) => ({ seq: Math.floor(index / size), type: "stdout", text: `${index}\n` }))

describe("PgLedger and other processes", () => {
  it.scopedLive(
    "two processes append 10,000 events each at once, and a third follows them",
    () =>
      Effect.gen(function* () {
        const url = yield* database
        yield* Effect.gen(function* () {
          const ledger = yield* Ledger.Ledger
          const followed = yield* ledger.tail().pipe(Stream.take(20_000), Stream.runCollect, Effect.fork)
          const children = yield* Effect.forEach(["sbx-a", "sbx-b"], (sandboxId) => start(url, sandboxId, 10_000, 25))
          const results = yield* Effect.forEach(children, ended, { concurrency: "unbounded" })
          assert.deepStrictEqual(results, [
            [0, ""],
            [0, ""]
          ])
          const seen = Array.from(yield* followed)
          assert.deepStrictEqual(
            seen.map(({ id }) => id),
            Arr.dedupe(seen.map(({ id }) => id)).toSorted((a, b) => a - b)
          )
          for (const sandboxId of ["sbx-a", "sbx-b"]) {
            const stored = Array.from(yield* Stream.runCollect(ledger.read({ sandboxId })))
            const wanted = seqAndText(10_000, 25)
            assert.deepStrictEqual(
              stored.map(({ payload }) => payload),
              wanted
            )
            assert.deepStrictEqual(
              seen.filter((entry) => entry.sandboxId === sandboxId).map(({ payload }) => payload),
              wanted
            )
          }
        }).pipe(Effect.provide(PgLedger.layer({ url })))
      }),
    120_000
  )

  it.scopedLive(
    "of a writer that is killed only whole batches remain, and nobody who follows waits for it",
    () =>
      Effect.gen(function* () {
        const url = yield* database
        const sql = yield* client(url)
        // Batches of 300 take several statements each.
        for (const pause of ["40 millis", "90 millis", "170 millis"] as const) {
          const child = yield* start(url, "sbx-killed", 3_000_000, 300)
          const end = yield* Effect.fork(ended(child))
          yield* ready(child)
          yield* Effect.sleep(pause)
          child.kill("SIGKILL")
          yield* end
        }
        yield* Effect.gen(function* () {
          const ledger = yield* Ledger.Ledger
          // The server notices that its client is gone when it next has something to say to it.
          yield* Effect.repeat(
            sql`SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND state <> 'idle'
              AND pid <> pg_backend_pid()`,
            { until: (rows) => rows.length === 0 }
          )
          const entries = Array.from(yield* Stream.runCollect(ledger.read({ sandboxId: "sbx-killed" })))
          assert.isAbove(entries.length, 0)
          assert.strictEqual(entries.length % 300, 0)
          for (const [, batch] of Object.entries(Arr.groupBy(entries, ({ stepIdx }) => String(stepIdx)))) {
            assert.strictEqual(batch.length % 300, 0)
          }
          yield* ledger.append({ sandboxId: "sbx-after", name: "ci", event: "note" })
          const followed = yield* ledger.tail().pipe(Stream.take(entries.length + 1), Stream.runCount)
          assert.strictEqual(followed, entries.length + 1)
        }).pipe(Effect.provide(PgLedger.layer({ url })))
      }),
    60_000
  )

  it.scopedLive(
    "eight processes create the tables of an empty database at once",
    () =>
      Effect.gen(function* () {
        const url = yield* database
        const children = yield* Effect.forEach(Arr.range(1, 8), (index) => start(url, `sbx-${index}`, 5, 1))
        const results = yield* Effect.forEach(children, ended, { concurrency: "unbounded" })
        assert.deepStrictEqual(
          results,
          Arr.makeBy(8, () => [0, ""] as const)
        )
        const count = yield* Effect.flatMap(Ledger.Ledger, (ledger) => Stream.runCount(ledger.read())).pipe(
          Effect.provide(PgLedger.layer({ url }))
        )
        assert.strictEqual(count, 40)
      }),
    60_000
  )

  it.scopedLive("eight ledgers of one process, and another program, create the tables at once", () =>
    Effect.gen(function* () {
      const url = yield* database
      const sql = yield* client(url)
      const others = sql`CREATE TABLE IF NOT EXISTS alineo_environments (name TEXT PRIMARY KEY, snapshot_id TEXT NOT NULL,
        image TEXT NOT NULL, built_at BIGINT NOT NULL)`
      const counts = yield* Effect.all(
        [
          ...Arr.makeBy(8, (index) =>
            Effect.flatMap(Ledger.Ledger, (ledger) =>
              ledger.append({ sandboxId: `sbx-${index}`, name: "ci", event: "note" })
            ).pipe(Effect.provide(PgLedger.layer({ url })))
          ),
          // It may fail, as it does without us: it takes no lock.
          Effect.ignore(others)
        ],
        { concurrency: "unbounded" }
      )
      assert.strictEqual(counts.length, 9)
      assert.deepStrictEqual(yield* sql`SELECT count(*)::integer AS count FROM alineo_events`, [{ count: 8 }])
    })
  )

  it.scopedLive("a tail is told of what another process appends, without waiting for its next look", () =>
    Effect.gen(function* () {
      const url = yield* database
      const count = yield* Effect.gen(function* () {
        const ledger = yield* Ledger.Ledger
        yield* start(url, "sbx-other", 100, 1)
        return yield* ledger.tail({ sandboxId: "sbx-other" }).pipe(Stream.take(100), Stream.runCount)
      }).pipe(Effect.provide(PgLedger.layer({ url, pollInterval: "1 hour" })))
      assert.strictEqual(count, 100)
    })
  )
})
