import { Database } from "bun:sqlite"
import type { ChildProcess } from "node:child_process"
import { spawn } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { assert, describe, it } from "@effect/vitest"
import { Ledger } from "@sandglass/core"
import { SqliteLedger } from "@sandglass/sql-sqlite"
import * as Arr from "effect/Array"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"

const bun = fileURLToPath(new URL("../../node_modules/.bin/bun", import.meta.url))
const script = fileURLToPath(new URL("../support/ledgerWriter.ts", import.meta.url))

const temporaryFile = Effect.map(
  Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "sandglass-processes-"))),
    (folder) => Effect.sync(() => rmSync(folder, { recursive: true, force: true }))
  ),
  (folder) => join(folder, "ledger.db")
)

const start = (...args: ReadonlyArray<string | number>) =>
  Effect.acquireRelease(
    Effect.sync(() => spawn(bun, [script, ...args.map(String)], { stdio: ["ignore", "pipe", "pipe"] })),
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

const integrity = (filename: string) =>
  Effect.sync(() => {
    const database = new Database(filename)
    const result = database.query("PRAGMA integrity_check").all()
    database.close()
    return result
  })

describe("SqliteLedger and other processes", () => {
  it.scopedLive(
    "two processes append 10,000 events each at once",
    () =>
      Effect.gen(function* () {
        const filename = yield* temporaryFile
        const children = yield* Effect.forEach(["sbx-a", "sbx-b"], (sandboxId) =>
          start(filename, sandboxId, 10_000, 10)
        )
        const results = yield* Effect.forEach(children, ended, { concurrency: "unbounded" })
        assert.deepStrictEqual(results, [
          [0, ""],
          [0, ""]
        ])
        yield* Effect.gen(function* () {
          const ledger = yield* Ledger.Ledger
          assert.strictEqual(yield* Stream.runCount(ledger.read()), 20_000)
          for (const sandboxId of ["sbx-a", "sbx-b"]) {
            const texts = yield* ledger.read({ sandboxId }).pipe(
              Stream.map(({ payload }) => JSON.stringify(payload)),
              Stream.runCollect
            )
            assert.deepStrictEqual(
              Array.from(texts),
              Arr.makeBy(10_000, (index) =>
                JSON.stringify({ seq: Math.floor(index / 10), type: "stdout", text: `${index}\n` })
              )
            )
          }
        }).pipe(Effect.provide(SqliteLedger.layer({ filename })))
      }),
    60_000
  )

  it.scopedLive(
    "of a writer that is killed only whole batches remain, and the file opens",
    () =>
      Effect.gen(function* () {
        const filename = yield* temporaryFile
        // Batches of 300 take several statements each.
        for (const pause of ["40 millis", "90 millis", "170 millis"] as const) {
          const child = yield* start(filename, "sbx-killed", 3_000_000, 300)
          const end = yield* Effect.fork(ended(child))
          yield* ready(child)
          yield* Effect.sleep(pause)
          child.kill("SIGKILL")
          yield* end
        }
        yield* Effect.gen(function* () {
          const ledger = yield* Ledger.Ledger
          const entries = Array.from(yield* Stream.runCollect(ledger.read({ sandboxId: "sbx-killed" })))
          assert.isAbove(entries.length, 0)
          assert.strictEqual(entries.length % 300, 0)
          yield* ledger.append({ sandboxId: "sbx-after", name: "ci", event: "note" })
        }).pipe(Effect.provide(SqliteLedger.layer({ filename })))
        assert.deepStrictEqual(yield* integrity(filename), [{ integrity_check: "ok" }])
      }),
    60_000
  )

  it.scopedLive(
    "eight processes create the tables of an empty file at once",
    () =>
      Effect.gen(function* () {
        const filename = yield* temporaryFile
        const children = yield* Effect.forEach(Arr.range(1, 8), (index) => start(filename, `sbx-${index}`, 5, 1))
        const results = yield* Effect.forEach(children, ended, { concurrency: "unbounded" })
        assert.deepStrictEqual(
          results,
          Arr.makeBy(8, () => [0, ""] as const)
        )
        const count = yield* Effect.flatMap(Ledger.Ledger, (ledger) => Stream.runCount(ledger.read())).pipe(
          Effect.provide(SqliteLedger.layer({ filename }))
        )
        assert.strictEqual(count, 40)
      }),
    60_000
  )

  it.scopedLive(
    "a tail sees what another process appends",
    () =>
      Effect.gen(function* () {
        const filename = yield* temporaryFile
        const count = yield* Effect.gen(function* () {
          const ledger = yield* Ledger.Ledger
          yield* start(filename, "sbx-other", 100, 1)
          return yield* ledger.tail({ sandboxId: "sbx-other" }).pipe(Stream.take(100), Stream.runCount)
        }).pipe(Effect.provide(SqliteLedger.layer({ filename, pollInterval: "20 millis" })))
        assert.strictEqual(count, 100)
      }),
    60_000
  )
})
