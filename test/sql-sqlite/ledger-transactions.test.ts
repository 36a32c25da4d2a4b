import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as SqlClient from "@effect/sql/SqlClient"
import * as SqliteClient from "@effect/sql-sqlite-bun/SqliteClient"
import { assert, describe, it } from "@effect/vitest"
import { Ledger, SqlLedger } from "@sandglass/core"
import { SqliteLedger } from "@sandglass/sql-sqlite"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Stream from "effect/Stream"

const base = { sandboxId: "sbx-1", name: "ci" }

const folder = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "sandglass-transactions-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

const events = Effect.flatMap(Ledger.Ledger, (ledger) =>
  ledger.read().pipe(
    Stream.map(({ event }) => event),
    Stream.runCollect,
    Effect.map((_) => Array.from(_))
  )
)

const memory = SqliteLedger.layer({ filename: ":memory:" })

class Rollback {
  readonly _tag = "Rollback"
}

const rollback = Effect.fail(new Rollback())

describe("SqliteLedger and transactions", () => {
  it.effect("an append joins the transaction of the same client", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const ledger = yield* Ledger.Ledger
      yield* sql`CREATE TABLE orders (id INTEGER)`
      const order = (event: string) =>
        Effect.zipRight(sql`INSERT INTO orders VALUES (1)`, ledger.append({ ...base, event }))
      yield* Effect.flip(sql.withTransaction(Effect.zipRight(order("undone"), rollback)))
      assert.deepStrictEqual(yield* events, [])
      assert.deepStrictEqual(yield* sql`SELECT * FROM orders`, [])
      yield* sql.withTransaction(
        Effect.gen(function* () {
          yield* order("done")
          assert.deepStrictEqual(yield* events, ["done"])
          // A savepoint that is undone takes its own events with it, and no others.
          yield* Effect.ignore(sql.withTransaction(Effect.zipRight(order("undone"), rollback)))
          yield* ledger.appendAll(Array.from({ length: 700 }, () => ({ ...base, event: "many" })))
        })
      )
      const stored = yield* events
      assert.deepStrictEqual([stored.length, stored[0], new Set(stored.slice(1))], [701, "done", new Set(["many"])])
      assert.strictEqual((yield* sql`SELECT * FROM orders`).length, 1)
    }).pipe(Effect.provide(memory))
  )

  it.effect("an id of a transaction that was undone is not taken for one that was used", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const ledger = yield* Ledger.Ledger
      yield* ledger.appendAll(Array.from({ length: 3 }, () => ({ ...base, event: "first" })))
      yield* Effect.flip(
        sql.withTransaction(
          Effect.zipRight(ledger.appendAll(Array.from({ length: 9 }, () => ({ ...base, event: "undone" }))), rollback)
        )
      )
      yield* ledger.deleteSandbox(base.sandboxId)
      const { id } = yield* ledger.append({ ...base, event: "second" })
      assert.strictEqual(id, 4)
    }).pipe(Effect.provide(memory))
  )

  it.scoped("an append never joins the transaction of another client", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger.Ledger
      const other = Context.get(
        yield* Layer.build(Layer.fresh(SqliteClient.layer({ filename: ":memory:" }))),
        SqlClient.SqlClient
      )
      yield* other`CREATE TABLE orders (id INTEGER)`
      yield* Effect.flip(
        other.withTransaction(
          Effect.gen(function* () {
            yield* other`INSERT INTO orders VALUES (1)`
            yield* ledger.append({ ...base, event: "kept" })
            assert.deepStrictEqual(yield* events, ["kept"])
            yield* ledger.putEnvironment({ name: "env", snapshotId: "snap", image: "img", builtAt: 1 })
            yield* ledger.tail().pipe(Stream.take(1), Stream.runDrain)
            yield* rollback
          })
        )
      )
      assert.deepStrictEqual(yield* events, ["kept"])
      assert.strictEqual((yield* ledger.environments).length, 1)
      assert.deepStrictEqual(yield* other`SELECT * FROM orders`, [])
      assert.deepStrictEqual(yield* other`SELECT name FROM sqlite_master WHERE name LIKE 'alineo%'`, [])
    }).pipe(Effect.provide(memory))
  )

  it.effect("what outlives its transaction does not slip into that of somebody else", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const ledger = yield* Ledger.Ledger
      yield* sql`CREATE TABLE orders (id INTEGER)`
      const start = yield* Deferred.make<void>()
      const late = (event: string) =>
        Effect.forkDaemon(Effect.zipRight(Deferred.await(start), ledger.append({ ...base, event })))
      const fibers = yield* sql.withTransaction(
        Effect.gen(function* () {
          const plain = yield* late("plain")
          const nested = yield* sql.withTransaction(late("nested"))
          const own = yield* Effect.forkDaemon(
            Effect.zipRight(
              Deferred.await(start),
              sql.withTransaction(
                Effect.zipRight(sql`INSERT INTO orders VALUES (1)`, ledger.append({ ...base, event: "own" }))
              )
            )
          )
          return [plain, nested, own]
        })
      )
      yield* Effect.flip(
        sql.withTransaction(
          Effect.gen(function* () {
            yield* ledger.append({ ...base, event: "undone" })
            yield* Deferred.succeed(start, undefined)
            for (let turn = 0; turn < 100; turn++) {
              yield* Effect.yieldNow()
            }
            assert.deepStrictEqual(yield* events, ["undone"])
            yield* rollback
          })
        )
      )
      const stored = yield* Effect.forEach(fibers, Fiber.join)
      assert.deepStrictEqual(new Set(yield* events), new Set(["plain", "nested", "own"]))
      assert.strictEqual(new Set(stored.map(({ id }) => id)).size, 3)
      assert.strictEqual((yield* sql`SELECT * FROM orders`).length, 1)
    }).pipe(Effect.provide(memory))
  )

  it.effect("children join the transaction that they run in, savepoints included", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const ledger = yield* Ledger.Ledger
      const many = (event: string) => ledger.appendAll(Array.from({ length: 600 }, () => ({ ...base, event })))
      const work = Effect.gen(function* () {
        const start = yield* Deferred.make<void>()
        // Forked in a savepoint that is over when it appends: the transaction is not.
        const late = yield* sql.withTransaction(Effect.fork(Effect.zipRight(Deferred.await(start), many("late"))))
        yield* Effect.all([many("a"), many("b"), many("c")], { concurrency: "unbounded" }).pipe(
          // As many turns for the others as can be.
          Effect.withMaxOpsBeforeYield(20)
        )
        yield* Deferred.succeed(start, undefined)
        yield* Fiber.join(late)
      })
      yield* Effect.flip(sql.withTransaction(Effect.zipRight(work, rollback)))
      assert.deepStrictEqual(yield* events, [])
      yield* sql.withTransaction(work)
      const stored = yield* events
      for (const event of ["a", "b", "c", "late"]) {
        assert.strictEqual(stored.filter((_) => _ === event).length, 600)
      }
    }).pipe(Effect.provide(memory))
  )

  it.effect("a transaction does not end in the middle of what a child appends", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const ledger = yield* Ledger.Ledger
      for (let turns = 0; turns < 60; turns += 3) {
        const event = `child ${turns}`
        const child = yield* sql.withTransaction(
          Effect.gen(function* () {
            const fiber = yield* Effect.forkDaemon(
              Effect.withMaxOpsBeforeYield(
                ledger.appendAll(Array.from({ length: 400 }, () => ({ ...base, event }))),
                20
              )
            )
            for (let turn = 0; turn < turns; turn++) {
              yield* Effect.yieldNow()
            }
            return fiber
          })
        )
        yield* Effect.flip(sql.withTransaction(Effect.zipRight(Effect.yieldNow(), rollback)))
        yield* Fiber.join(child)
        assert.strictEqual((yield* events).filter((_) => _ === event).length, 400)
      }
    }).pipe(Effect.provide(memory))
  )

  it.scoped("two ledgers at once, each in its own place", () =>
    Effect.gen(function* () {
      const [one, two] = yield* Effect.all([Layer.build(Layer.fresh(memory)), Layer.build(Layer.fresh(memory))])
      const sql = Context.get(one, SqlClient.SqlClient)
      const append = (context: Context.Context<Ledger.Ledger>, event: string) =>
        Context.get(context, Ledger.Ledger).append({ ...base, event })
      yield* Effect.flip(
        sql.withTransaction(Effect.all([append(one, "undone"), append(two, "kept"), rollback], { discard: true }))
      )
      assert.deepStrictEqual(yield* Effect.provide(events, one), [])
      assert.deepStrictEqual(yield* Effect.provide(events, two), ["kept"])
    })
  )

  it.scoped("a client that a failed COMMIT left inside a transaction does not swallow what is appended", () =>
    Effect.gen(function* () {
      const filename = join(yield* folder, "ledger.db")
      const context = yield* Layer.build(SqliteLedger.layer({ filename }))
      const sql = Context.get(context, SqlClient.SqlClient)
      const ledger = Context.get(context, Ledger.Ledger)
      yield* sql`PRAGMA foreign_keys = ON`
      yield* sql`CREATE TABLE parents (id INTEGER PRIMARY KEY)`
      yield* sql`CREATE TABLE children (parent INTEGER REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)`
      const exit = yield* Effect.exit(sql.withTransaction(sql`INSERT INTO children VALUES (1)`))
      assert.isTrue(exit._tag === "Failure")
      yield* ledger.append({ ...base, event: "kept" })
      const elsewhere = yield* Layer.build(Layer.fresh(SqliteLedger.layer({ filename })))
      assert.deepStrictEqual(yield* Effect.provide(events, elsewhere), ["kept"])
    })
  )

  it.effect("any client serves, whatever it does to names", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger.Ledger
      const entry = yield* ledger.append({ ...base, stepIdx: 2, event: "note", payload: { snake_case: 1 } })
      const read = yield* Stream.runCollect(ledger.read(base))
      assert.deepStrictEqual(Array.from(read), [entry])
    }).pipe(
      Effect.provide(
        SqlLedger.layer.pipe(
          Layer.provide(
            SqliteClient.layer({
              filename: ":memory:",
              transformResultNames: (name) => name.toUpperCase(),
              transformQueryNames: (name) => name.toLowerCase()
            })
          )
        )
      )
    )
  )
})
