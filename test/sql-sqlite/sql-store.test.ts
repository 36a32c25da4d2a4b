import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as SqlClient from "@effect/sql/SqlClient"
import { SqlError } from "@effect/sql/SqlError"
import * as SqliteClient from "@effect/sql-sqlite-bun/SqliteClient"
import { assert, describe, it } from "@effect/vitest"
import { SqlStore } from "@sandglass/core"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"

const file = Layer.unwrapScoped(
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => mkdtempSync(join(tmpdir(), "sandglass-store-"))),
      (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
    ),
    (folder) => SqliteClient.layer({ filename: join(folder, "store.db") })
  )
)

const setUp = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`CREATE TABLE notes (note TEXT)`
  const store = yield* SqlStore.make({ fail: (failure) => failure })
  return {
    sql,
    store,
    add: (note: string) =>
      store.write((connection) => SqlStore.execute(connection, "INSERT INTO notes VALUES (?)", [note])),
    notes: Effect.map(sql<{ readonly note: string }>`SELECT note FROM notes ORDER BY note`, (rows) =>
      rows.map(({ note }) => note)
    )
  }
})

describe("SqlStore.transaction", () => {
  it.scoped("what is written inside is there together, or not at all", () =>
    Effect.gen(function* () {
      const { add, notes, store } = yield* setUp
      assert.strictEqual(yield* store.transaction(Effect.as(Effect.zipRight(add("a"), add("b")), 7)), 7)
      assert.strictEqual(yield* Effect.flip(store.transaction(Effect.zipRight(add("c"), Effect.fail("no")))), "no")
      const begun = yield* Deferred.make<void>()
      const fiber = yield* Effect.fork(
        store.transaction(Effect.zipRight(add("d"), Effect.zipRight(Deferred.succeed(begun, undefined), Effect.never)))
      )
      yield* Deferred.await(begun)
      yield* Fiber.interrupt(fiber)
      assert.deepStrictEqual(yield* notes, ["a", "b"])
    }).pipe(Effect.provide(file))
  )

  it.scoped("inside another it is a part of it, which may fail alone", () =>
    Effect.gen(function* () {
      const { add, notes, sql, store } = yield* setUp
      const inner = store.transaction(Effect.zipRight(add("inner"), Effect.fail("inner")))
      yield* store.transaction(Effect.zipRight(add("a"), Effect.ignore(inner)))
      yield* sql.withTransaction(Effect.zipRight(store.transaction(add("b")), Effect.ignore(inner)))
      const undone = Effect.zipRight(store.transaction(add("c")), Effect.fail("outer"))
      assert.strictEqual(yield* Effect.flip(sql.withTransaction(undone)), "outer")
      assert.deepStrictEqual(yield* notes, ["a", "b"])
    }).pipe(Effect.provide(file))
  )

  it.scoped("errors of the effect pass as they are, even those of the database", () =>
    Effect.gen(function* () {
      const { sql, store } = yield* setUp
      const error = yield* Effect.flip(store.transaction(sql`SELECT * FROM nowhere`))
      assert.instanceOf(error, SqlError)
      const nested = yield* Effect.flip(store.transaction(store.transaction(sql`SELECT * FROM nowhere`)))
      assert.instanceOf(nested, SqlError)
    }).pipe(Effect.provide(file))
  )

  it.scoped("a commit that fails is an error, and leaves no transaction open", () =>
    Effect.gen(function* () {
      const { add, notes, sql, store } = yield* setUp
      yield* sql`PRAGMA foreign_keys = ON`
      yield* sql`CREATE TABLE parents (id INTEGER PRIMARY KEY)`
      yield* sql`CREATE TABLE children (parent INTEGER REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)`
      const error = yield* Effect.flip(store.transaction(sql`INSERT INTO children VALUES (1)`))
      assert.instanceOf(error, SqlStore.SqlFailure)
      assert.strictEqual(error.reason, "Constraint")
      yield* add("after")
      assert.deepStrictEqual(yield* notes, ["after"])
    }).pipe(Effect.provide(file))
  )

  it.scoped("what outlives it is written on its own", () =>
    Effect.gen(function* () {
      const { add, notes, store } = yield* setUp
      const latch = yield* Effect.makeLatch(false)
      let late: Fiber.Fiber<unknown, unknown> | undefined
      yield* Effect.flip(
        store.transaction(
          Effect.gen(function* () {
            late = yield* Effect.forkDaemon(latch.whenOpen(add("late")))
            yield* add("undone")
            return yield* Effect.fail("no")
          })
        )
      )
      yield* latch.open
      if (late !== undefined) yield* Fiber.join(late)
      assert.deepStrictEqual(yield* notes, ["late"])
    }).pipe(Effect.provide(file))
  )
})
