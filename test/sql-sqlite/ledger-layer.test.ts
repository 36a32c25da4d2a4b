import { Database } from "bun:sqlite"
import { chmodSync, copyFileSync, existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import * as SqlClient from "@effect/sql/SqlClient"
import type { SqlError } from "@effect/sql/SqlError"
import { assert, describe, it } from "@effect/vitest"
import { Ledger, LedgerError } from "@sandglass/core"
import { SqliteLedger } from "@sandglass/sql-sqlite"
import * as Config from "effect/Config"
import * as ConfigProvider from "effect/ConfigProvider"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"

const note = { sandboxId: "sbx-1", name: "ci", event: "note" }

const folder = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "sandglass-layer-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

const open = (filename: string) => Layer.build(Layer.fresh(SqliteLedger.layer({ filename })))

const failsToOpen = (filename: string) =>
  Effect.map(Effect.flip(Effect.scoped(open(filename))), (error) => {
    assert.instanceOf(error, LedgerError.LedgerError)
    assert.strictEqual(error.reason, "Connection")
    assert.include(error.message, filename)
    return error
  })

describe("SqliteLedger.layer", () => {
  it.scoped("creates the folders, keeps the file, and closes it with the scope", () =>
    Effect.gen(function* () {
      const filename = join(yield* folder, "new", "dir", "ledger.db")
      const scope = yield* Scope.make()
      const ledger = Context.get(yield* Scope.extend(open(filename), scope), Ledger.Ledger)
      const entry = yield* ledger.append(note)
      yield* Scope.close(scope, Exit.void)
      const error = yield* Effect.flip(ledger.append(note))
      assert.strictEqual(error.reason, "Connection")
      // The last one out leaves no journal.
      assert.isFalse(existsSync(`${filename}-wal`))
      const again = Context.get(yield* open(filename), Ledger.Ledger)
      assert.deepStrictEqual(Array.from(yield* Stream.runCollect(again.read())), [entry])
    })
  )

  it.scoped("is durable: WAL, and synchronous as the database has it", () =>
    Effect.gen(function* () {
      const sql = Context.get(yield* open(join(yield* folder, "ledger.db")), SqlClient.SqlClient)
      const [mode] = yield* sql<{ readonly journal_mode: string }>`PRAGMA journal_mode`
      const [synchronous] = yield* sql<{ readonly synchronous: number }>`PRAGMA synchronous`
      assert.deepStrictEqual([mode?.journal_mode, synchronous?.synchronous], ["wal", 2])
    })
  )

  it.scoped("a ledger in memory is gone with its layer", () =>
    Effect.gen(function* () {
      const first = Context.get(yield* open(":memory:"), Ledger.Ledger)
      yield* first.append(note)
      const second = Context.get(yield* open(":memory:"), Ledger.Ledger)
      assert.strictEqual(yield* Stream.runCount(second.read()), 0)
    })
  )

  it.scoped("a file that is no database is an error, and stays as it is", () =>
    Effect.gen(function* () {
      const filename = join(yield* folder, "notes.txt")
      writeFileSync(filename, "no database at all\n".repeat(100))
      yield* failsToOpen(filename)
      assert.strictEqual(yield* Effect.promise(() => Bun.file(filename).text()), "no database at all\n".repeat(100))
    })
  )

  it.scoped("a path that cannot be is an error", () =>
    Effect.gen(function* () {
      const path = yield* folder
      writeFileSync(join(path, "file"), "")
      yield* failsToOpen(join(path, "file", "ledger.db"))
      yield* failsToOpen(path)
    })
  )

  // Permissions do not bind root.
  it.scoped.skipIf(process.getuid?.() === 0)("a read-only directory is an error", () =>
    Effect.gen(function* () {
      const path = join(yield* folder, "locked")
      mkdirSync(path)
      chmodSync(path, 0o555)
      yield* failsToOpen(join(path, "ledger.db"))
      yield* failsToOpen(join(path, "below", "ledger.db"))
    })
  )

  it.scoped("a read-only file system is an error", () =>
    Effect.gen(function* () {
      yield* failsToOpen("/proc/sandglass/ledger.db")
    })
  )

  for (const [what, lose] of [
    ["deleted", (filename: string) => rmSync(dirname(filename), { recursive: true })],
    [
      "replaced",
      (filename: string) => {
        copyFileSync(filename, `${filename}.copy`)
        renameSync(`${filename}.copy`, filename)
      }
    ],
    ["moved away with its folder", (filename: string) => renameSync(dirname(filename), `${dirname(filename)}-moved`)]
  ] satisfies ReadonlyArray<readonly [string, (filename: string) => void]>) {
    it.scoped(`a file that is ${what} while it is open is an error, and no silent loss`, () =>
      Effect.gen(function* () {
        const filename = join(yield* folder, "data", "ledger.db")
        const context = yield* open(filename)
        const ledger = Context.get(context, Ledger.Ledger)
        const sql = Context.get(context, SqlClient.SqlClient)
        yield* ledger.append(note)
        lose(filename)
        for (const operation of [
          ledger.append(note),
          ledger.appendAll([note, note]),
          sql.withTransaction(ledger.append(note)),
          ledger.deleteSandbox(note.sandboxId),
          ledger.putEnvironment({ name: "env", snapshotId: "snap", image: "img", builtAt: 1 }),
          Stream.runDrain(ledger.read()),
          Stream.runDrain(ledger.tail({ afterId: 1 }))
        ]) {
          const error = yield* Effect.flip(Effect.asVoid<unknown, LedgerError.LedgerError | SqlError, never>(operation))
          assert.instanceOf(error, LedgerError.LedgerError)
          assert.strictEqual(error.reason, "Connection")
          assert.include(error.message, filename)
        }
      })
    )
  }

  it.scopedLive("waits for a database that another connection keeps locked", () =>
    Effect.gen(function* () {
      const filename = join(yield* folder, "ledger.db")
      const ledger = Context.get(
        yield* Layer.build(SqliteLedger.layer({ filename, busyTimeout: 5, contentionTimeout: "10 seconds" })),
        Ledger.Ledger
      )
      const other = yield* Effect.acquireRelease(
        Effect.sync(() => new Database(filename)),
        (database) => Effect.sync(() => database.close())
      )
      other.run("BEGIN IMMEDIATE")
      const appending = yield* Effect.fork(ledger.append(note))
      yield* Effect.sleep("100 millis")
      // Reading goes on meanwhile, and so does everything else in this process.
      assert.strictEqual(yield* Stream.runCount(ledger.read()), 0)
      other.run("COMMIT")
      assert.strictEqual((yield* Fiber.join(appending)).id, 1)
    })
  )

  it.scopedLive("gives up on a lock after its time, as Contention", () =>
    Effect.gen(function* () {
      const filename = join(yield* folder, "ledger.db")
      const ledger = Context.get(
        yield* Layer.build(SqliteLedger.layer({ filename, busyTimeout: 0, contentionTimeout: "100 millis" })),
        Ledger.Ledger
      )
      const other = yield* Effect.acquireRelease(
        Effect.sync(() => new Database(filename)),
        (database) => Effect.sync(() => database.close())
      )
      other.run("BEGIN IMMEDIATE")
      const error = yield* Effect.flip(ledger.append(note))
      assert.strictEqual(error.reason, "Contention")
      assert.isTrue(error.isRetryable)
    })
  )

  it.scoped("reads its file from the configuration", () =>
    Effect.gen(function* () {
      const path = yield* folder
      const provider = ConfigProvider.fromMap(
        new Map([
          ["SANDGLASS_LEDGER_FILE", join(path, "plain.db")],
          ["OTHER", join(path, "other.db")]
        ])
      )
      const build = <E>(layer: Layer.Layer<Ledger.Ledger, E>) =>
        Effect.asVoid(Layer.build(Layer.provide(layer, Layer.setConfigProvider(provider))))
      yield* build(SqliteLedger.layerConfig())
      yield* build(SqliteLedger.layerConfig({ filename: Config.string("OTHER") }))
      assert.isTrue(existsSync(join(path, "plain.db")))
      assert.isTrue(existsSync(join(path, "other.db")))
    })
  )
})
