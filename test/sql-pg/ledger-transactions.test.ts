import * as SqlClient from "@effect/sql/SqlClient"
import { assert, describe, it } from "@effect/vitest"
import { Ledger } from "@sandglass/core"
import { PgLedger } from "@sandglass/sql-pg"
import { SqliteLedger } from "@sandglass/sql-sqlite"
import * as Arr from "effect/Array"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Random from "effect/Random"
import * as Redacted from "effect/Redacted"
import * as Schedule from "effect/Schedule"
import * as Stream from "effect/Stream"
import { client, database, serverWith } from "../support/postgres.js"

const base = { sandboxId: "sbx-1", name: "ci" }

const event = (name: string) => ({ ...base, event: name })

const open = (options: PgLedger.Options) =>
  Effect.map(Layer.build(Layer.fresh(PgLedger.layer(options))), (context) => ({
    ledger: Context.get(context, Ledger.Ledger),
    sql: Context.get(context, SqlClient.SqlClient)
  }))

type Service = Context.Tag.Service<Ledger.Ledger>

const eventsOf = (ledger: Service) =>
  Effect.map(Stream.runCollect(ledger.read()), (entries) => Array.from(entries, (entry) => entry.event))

const insert = (sql: SqlClient.SqlClient, name: string) =>
  sql`INSERT INTO alineo_events (sandbox_id, name, step_idx, event, ts) VALUES ('sbx-1', 'ci', -1, ${name}, 1)`

/** What a tail has delivered so far. */
const follow = (ledger: Service, options: Ledger.TailOptions = {}) =>
  Effect.gen(function* () {
    const seen: Array<{ readonly id: number; readonly event: string }> = []
    yield* ledger.tail(options).pipe(
      Stream.runForEach((entry) => Effect.sync(() => void seen.push({ id: entry.id, event: entry.event }))),
      Effect.forkScoped
    )
    return seen
  })

const eventually = (condition: () => boolean) =>
  Effect.sync(condition).pipe(
    Effect.repeat({ until: (holds) => holds, schedule: Schedule.spaced("10 millis") }),
    Effect.timeout("15 seconds")
  )

/** The processes of the database that wait for a lock, as soon as there are so many. */
const blocked = (sql: SqlClient.SqlClient, count: number) =>
  sql<{ readonly pid: number }>`SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'`.pipe(
    Effect.zipLeft(Effect.sleep("10 millis")),
    Effect.repeat({ until: (rows) => rows.length >= count }),
    Effect.timeout("15 seconds")
  )

class Rollback {
  readonly _tag = "Rollback"
}

const rollback = Effect.fail(new Rollback())

describe("PgLedger and transactions that overlap", () => {
  for (const outcome of ["commits", "is undone"] as const) {
    it.scopedLive(`nobody who follows misses an earlier id that ${outcome} last`, () =>
      Effect.gen(function* () {
        const url = yield* database
        const { ledger } = yield* open({ url })
        const reader = yield* open({ url })
        const sql = yield* client(url)
        yield* ledger.append(event("first"))
        const seen = yield* follow(reader.ledger)
        const behind = yield* follow(reader.ledger, { afterId: 1 })
        yield* eventually(() => seen.length === 1)
        const inserted = yield* Deferred.make<void>()
        const gate = yield* Deferred.make<void>()
        const slow = yield* sql
          .withTransaction(
            insert(sql, "slow").pipe(
              Effect.zipRight(Deferred.succeed(inserted, undefined)),
              Effect.zipRight(Deferred.await(gate)),
              Effect.zipRight(outcome === "commits" ? Effect.void : rollback)
            )
          )
          .pipe(Effect.exit, Effect.fork)
        yield* Deferred.await(inserted)
        const quick = yield* ledger.append(event("quick"))
        assert.strictEqual(quick.id, 3)
        assert.deepStrictEqual(yield* eventsOf(reader.ledger), ["first", "quick"])
        // It is there to be read, but a tail that had delivered it could not go back.
        yield* Effect.sleep("300 millis")
        assert.deepStrictEqual([seen.length, behind.length], [1, 0])
        yield* Deferred.succeed(gate, undefined)
        yield* Fiber.join(slow)
        const later = [...(outcome === "commits" ? [{ id: 2, event: "slow" }] : []), { id: 3, event: "quick" }]
        yield* eventually(() => behind.length >= later.length && seen.length > later.length)
        assert.deepStrictEqual(seen, [{ id: 1, event: "first" }, ...later])
        assert.deepStrictEqual(behind, later)
      })
    )
  }

  it.scopedLive("many at once, each of its own length: a reader gets every entry once, in order", () =>
    Effect.gen(function* () {
      const url = yield* database
      const reader = yield* open({ url })
      const seen = yield* follow(reader.ledger)
      const writers = 6
      const rounds = 25
      const kept = yield* Effect.forEach(
        Arr.range(1, writers),
        (writer) =>
          Effect.scoped(
            Effect.gen(function* () {
              const { ledger, sql } = yield* open({ url, maxConnections: 3 })
              let written = 0
              for (let round = 0; round < rounds; round++) {
                const size = yield* Random.nextIntBetween(1, 8)
                const pause = yield* Random.nextIntBetween(0, 15)
                const undone = yield* Random.nextIntBetween(0, 4)
                const many = Arr.makeBy(size, () => event(`of ${writer}`))
                if (round % 3 === 0) {
                  yield* ledger.appendAll(many)
                  written += size
                } else {
                  yield* sql
                    .withTransaction(
                      Effect.gen(function* () {
                        yield* ledger.appendAll(many)
                        yield* Effect.sleep(pause)
                        yield* ledger.append(event(`of ${writer}`))
                        yield* Effect.when(rollback, () => undone === 0)
                      })
                    )
                    .pipe(Effect.ignore)
                  written += undone === 0 ? 0 : size + 1
                }
              }
              return written
            })
          ),
        { concurrency: "unbounded" }
      )
      const total = kept.reduce((sum, count) => sum + count, 0)
      yield* eventually(() => seen.length >= total)
      yield* Effect.sleep("100 millis")
      const ids = seen.map(({ id }) => id)
      assert.strictEqual(ids.length, total)
      assert.deepStrictEqual(
        ids,
        Arr.dedupe(ids).toSorted((a, b) => a - b)
      )
      for (const [index, count] of kept.entries()) {
        assert.strictEqual(seen.filter((entry) => entry.event === `of ${index + 1}`).length, count)
      }
    })
  )

  it.scopedLive("a prepared transaction, which has no process, is waited for as well", () =>
    Effect.gen(function* () {
      const server = yield* serverWith({ settings: ["max_prepared_transactions = 2"] })
      const url = Redacted.make(server.url("postgres"))
      const { ledger } = yield* open({ url })
      const sql = yield* client(url)
      yield* Effect.scoped(
        Effect.gen(function* () {
          const connection = yield* sql.reserve
          for (const statement of [
            "BEGIN",
            "INSERT INTO alineo_events (sandbox_id, name, step_idx, event, ts) VALUES ('sbx-1', 'ci', -1, 'prepared', 1)",
            "PREPARE TRANSACTION 'later'"
          ]) {
            yield* connection.execute(statement, [], undefined)
          }
        })
      )
      yield* ledger.append(event("quick"))
      const seen = yield* follow(ledger)
      yield* Effect.sleep("300 millis")
      assert.deepStrictEqual(seen, [])
      yield* sql`COMMIT PREPARED 'later'`
      yield* eventually(() => seen.length === 2)
      assert.deepStrictEqual(seen, [
        { id: 1, event: "prepared" },
        { id: 2, event: "quick" }
      ])
    })
  )

  it.scopedLive("serialisable transactions that fail are run again", () =>
    Effect.gen(function* () {
      const plain = yield* database
      const url = Redacted.make(`${Redacted.value(plain)}?options=-c%20default_transaction_isolation%3Dserializable`)
      const { ledger, sql } = yield* open({ url })
      assert.deepStrictEqual(yield* sql`SHOW transaction_isolation`, [{ transaction_isolation: "serializable" }])
      yield* Effect.forEach(
        Arr.range(1, 4),
        (writer) =>
          Effect.scoped(
            Effect.flatMap(open({ url, maxConnections: 2 }), (own) =>
              Effect.forEach(Arr.range(1, 30), () => own.ledger.append(event(`of ${writer}`)))
            )
          ),
        { concurrency: "unbounded" }
      )
      assert.strictEqual((yield* eventsOf(ledger)).length, 120)
    })
  )
})

describe("PgLedger and the application's transactions", () => {
  it.scoped("an append joins the transaction of the same client, savepoints included", () =>
    Effect.gen(function* () {
      const { ledger, sql } = yield* open({ url: yield* database })
      yield* sql`CREATE TABLE orders (id INTEGER)`
      const order = (name: string) => Effect.zipRight(sql`INSERT INTO orders VALUES (1)`, ledger.append(event(name)))
      yield* Effect.flip(sql.withTransaction(Effect.zipRight(order("undone"), rollback)))
      assert.deepStrictEqual([yield* eventsOf(ledger), yield* sql`SELECT * FROM orders`], [[], []])
      yield* sql.withTransaction(
        Effect.gen(function* () {
          yield* order("done")
          assert.deepStrictEqual(yield* eventsOf(ledger), ["done"])
          yield* Effect.ignore(sql.withTransaction(Effect.zipRight(order("undone"), rollback)))
          yield* ledger.appendAll(Arr.makeBy(700, () => event("many")))
        })
      )
      const stored = yield* eventsOf(ledger)
      assert.deepStrictEqual([stored.length, stored[0], new Set(stored.slice(1))], [701, "done", new Set(["many"])])
    })
  )

  it.scoped("what the database refuses does not spoil the transaction", () =>
    Effect.gen(function* () {
      const { ledger, sql } = yield* open({ url: yield* database })
      yield* sql`ALTER TABLE alineo_events ADD CHECK (event <> 'bad')`
      yield* sql.withTransaction(
        Effect.gen(function* () {
          const error = yield* Effect.flip(ledger.appendAll([event("a"), event("bad"), event("b")]))
          assert.deepStrictEqual([error.reason, error.rejected?.map(({ index }) => index)], ["InvalidEvent", [1]])
          yield* ledger.append(event("c"))
        })
      )
      assert.deepStrictEqual(yield* eventsOf(ledger), ["a", "b", "c"])
    })
  )

  it.scoped("an append never joins the transaction of another client", () =>
    Effect.gen(function* () {
      const url = yield* database
      const { ledger } = yield* open({ url })
      const sqlite = Context.get(
        yield* Layer.build(Layer.fresh(SqliteLedger.layer({ filename: ":memory:" }))),
        SqlClient.SqlClient
      )
      const others = [
        // Of the same database, of another one, and of another kind.
        yield* client(url),
        yield* client(yield* database),
        sqlite
      ]
      for (const [index, other] of others.entries()) {
        yield* other`CREATE TABLE orders (id INTEGER)`
        yield* Effect.flip(
          other.withTransaction(
            Effect.gen(function* () {
              yield* other`INSERT INTO orders VALUES (1)`
              yield* ledger.append(event(`kept ${index}`))
              assert.strictEqual((yield* eventsOf(ledger)).length, index + 1)
              yield* ledger.tail({ afterId: index }).pipe(Stream.take(1), Stream.runDrain)
              yield* rollback
            })
          )
        )
        assert.deepStrictEqual(yield* other`SELECT * FROM orders`, [])
      }
      assert.deepStrictEqual(yield* eventsOf(ledger), ["kept 0", "kept 1", "kept 2"])
    })
  )

  it.scoped("what outlives its transaction is committed on its own", () =>
    Effect.gen(function* () {
      const { ledger, sql } = yield* open({ url: yield* database })
      const start = yield* Deferred.make<void>()
      const late = yield* sql.withTransaction(
        Effect.forkDaemon(Effect.zipRight(Deferred.await(start), ledger.append(event("late"))))
      )
      yield* Effect.flip(
        sql.withTransaction(
          Effect.gen(function* () {
            yield* ledger.append(event("undone"))
            yield* Deferred.succeed(start, undefined)
            yield* Fiber.join(late)
            yield* rollback
          })
        )
      )
      assert.deepStrictEqual(yield* eventsOf(ledger), ["late"])
    })
  )

  it.scopedLive("whoever follows is told when it commits", () =>
    Effect.gen(function* () {
      const url = yield* database
      const { ledger, sql } = yield* open({ url })
      const reader = yield* open({ url, pollInterval: "1 hour" })
      yield* ledger.append(event("before"))
      const seen = yield* follow(reader.ledger)
      yield* eventually(() => seen.length === 1)
      yield* sql.withTransaction(
        Effect.zipRight(ledger.append(event("joined")), Effect.delay(ledger.append(event("too")), "200 millis"))
      )
      yield* eventually(() => seen.length === 3)
      assert.deepStrictEqual(
        seen.map((entry) => entry.event),
        ["before", "joined", "too"]
      )
    })
  )

  it.scoped("a COMMIT that fails leaves nothing behind", () =>
    Effect.gen(function* () {
      const { ledger, sql } = yield* open({ url: yield* database, maxConnections: 1 })
      yield* sql`CREATE TABLE parents (id INTEGER PRIMARY KEY)`
      yield* sql`CREATE TABLE children (parent INTEGER REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)`
      const exit = yield* Effect.exit(
        sql.withTransaction(Effect.zipRight(ledger.append(event("undone")), sql`INSERT INTO children VALUES (1)`))
      )
      assert.strictEqual(exit._tag, "Failure")
      yield* ledger.append(event("kept"))
      assert.deepStrictEqual(yield* eventsOf(ledger), ["kept"])
    })
  )
})

describe("PgLedger and others in its way", () => {
  /** Keeps the table locked until it is told. */
  const lockTable = (sql: SqlClient.SqlClient, table = "alineo_events") =>
    Effect.gen(function* () {
      const locked = yield* Deferred.make<void>()
      const gate = yield* Deferred.make<void>()
      const fiber = yield* sql
        .withTransaction(
          sql`LOCK TABLE ${sql(table)} IN EXCLUSIVE MODE`.pipe(
            Effect.zipRight(Deferred.succeed(locked, undefined)),
            Effect.zipRight(Deferred.await(gate))
          )
        )
        .pipe(Effect.forkScoped)
      yield* Deferred.await(locked)
      return Effect.zipRight(Deferred.succeed(gate, undefined), Fiber.join(fiber))
    })

  it.scopedLive("gives up on a lock after its time, as Contention", () =>
    Effect.gen(function* () {
      const plain = yield* database
      const url = Redacted.make(`${Redacted.value(plain)}?options=-c%20lock_timeout%3D50`)
      const { ledger } = yield* open({ url, contentionTimeout: "300 millis" })
      const unlock = yield* lockTable(yield* client(plain))
      const error = yield* Effect.flip(ledger.append(event("refused")))
      assert.deepStrictEqual([error.reason, error.isRetryable], ["Contention", true])
      const patient = yield* Effect.fork(ledger.append(event("kept")))
      yield* unlock
      yield* Fiber.join(patient)
      assert.deepStrictEqual(yield* eventsOf(ledger), ["kept"])
    })
  )

  it.scopedLive("a statement that somebody cancelled is run again", () =>
    Effect.gen(function* () {
      const url = yield* database
      const { ledger } = yield* open({ url })
      const sql = yield* client(url)
      const unlock = yield* lockTable(sql)
      const appending = yield* Effect.fork(ledger.append(event("kept")))
      const [waiting] = yield* blocked(sql, 1)
      yield* sql`SELECT pg_cancel_backend(${waiting?.pid}::integer)`
      yield* unlock
      yield* Fiber.join(appending)
      assert.deepStrictEqual(yield* eventsOf(ledger), ["kept"])
    })
  )

  it.scopedLive("whoever is interrupted while it waits for a connection takes none away", () =>
    Effect.gen(function* () {
      const url = yield* database
      const { ledger, sql } = yield* open({ url, maxConnections: 2, connectTimeout: "5 seconds" })
      const admin = yield* client(url)
      const unlock = yield* lockTable(admin, "alineo_environments")
      // Two of them have the connections, and wait for the table.
      const putting = yield* Effect.forEach(Arr.range(1, 8), (index) =>
        Effect.fork(ledger.putEnvironment({ name: `env-${index}`, snapshotId: "snap", image: "img", builtAt: 1 }))
      )
      yield* blocked(admin, 2)
      const interrupting = yield* Effect.fork(Fiber.interruptAll(putting))
      yield* unlock
      yield* Fiber.join(interrupting)
      yield* Effect.all(
        Arr.makeBy(6, (index) => Effect.zipRight(ledger.append(event(`kept ${index}`)), sql`SELECT 1`)),
        { concurrency: "unbounded" }
      )
      assert.strictEqual((yield* eventsOf(ledger)).length, 6)
      assert.deepStrictEqual(yield* ledger.environments, [])
    })
  )

  it.scopedLive("whoever is interrupted does not wait for ever for a database that is stuck", () =>
    Effect.gen(function* () {
      const url = yield* database
      // The driver needs a second connection to cancel what runs on the first, and there is none.
      const { ledger } = yield* open({ url, maxConnections: 1, connectTimeout: "1 second" })
      const admin = yield* client(url)
      const unlock = yield* lockTable(admin, "alineo_environments")
      const record = { name: "env", snapshotId: "snap", image: "img", builtAt: 1 }
      const putting = yield* Effect.fork(ledger.putEnvironment(record))
      yield* blocked(admin, 1)
      yield* Effect.timeout(Fiber.interrupt(putting), "12 seconds")
      yield* unlock
      yield* ledger.append(event("after"))
      assert.deepStrictEqual(yield* ledger.environments, [])
    })
  )

  it.scopedLive("an append that is interrupted has written everything or nothing", () =>
    Effect.gen(function* () {
      const { ledger } = yield* open({ url: yield* database })
      yield* Effect.forEach(
        Arr.range(0, 40),
        (index) =>
          Effect.gen(function* () {
            const fiber = yield* Effect.fork(ledger.appendAll(Arr.makeBy(300, () => event(`batch ${index}`))))
            yield* Effect.sleep(index % 20)
            yield* Fiber.interrupt(fiber)
          }),
        { discard: true }
      )
      const counts = Arr.groupBy(yield* eventsOf(ledger), (name) => name)
      assert.isTrue(Object.values(counts).every((events) => events.length === 300))
      yield* ledger.append(event("after"))
    })
  )
})
