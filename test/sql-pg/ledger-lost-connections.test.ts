import * as PgClient from "@effect/sql-pg/PgClient"
import { assert, describe, it } from "@effect/vitest"
import { Ledger, LedgerError } from "@sandglass/core"
import { PgLedger } from "@sandglass/sql-pg"
import * as Arr from "effect/Array"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as LogLevel from "effect/LogLevel"
import * as Redacted from "effect/Redacted"
import * as Schedule from "effect/Schedule"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/TestClock"
import * as TestServices from "effect/TestServices"
import { client, database, server } from "../support/postgres.js"
import { tcpProxy } from "../support/tcpProxy.js"

const base = { sandboxId: "sbx-1", name: "ci" }

const open = (options: PgLedger.Options) =>
  Effect.map(Layer.build(Layer.fresh(PgLedger.layer(options))), Context.get(Ledger.Ledger))

type Service = Context.Tag.Service<Ledger.Ledger>

/** What a tail has delivered so far. */
const follow = (ledger: Service, options: Ledger.TailOptions = {}) =>
  Effect.gen(function* () {
    const seen: Array<string> = []
    const fiber = yield* ledger.tail(options).pipe(
      Stream.runForEach(({ event }) => Effect.sync(() => void seen.push(event))),
      Effect.forkScoped
    )
    return { seen, fiber }
  })

const eventually = (condition: Effect.Effect<boolean, unknown> | (() => boolean)) =>
  (typeof condition === "function" ? Effect.sync(condition) : condition).pipe(
    Effect.zipLeft(Effect.sleep("10 millis")),
    Effect.repeat({ until: (holds) => holds }),
    Effect.timeout("20 seconds"),
    TestServices.provideLive
  )

const listeners = `FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
  AND (query LIKE 'LISTEN%' OR query = 'SELECT 1') AND application_name = 'reader'`

describe("PgLedger and a server that restarts", () => {
  for (const mode of ["fast", "immediate"] as const) {
    it.scopedLive(
      `in mid-run (${mode}): what was appended is there, whole and once, and the pool recovers`,
      () =>
        Effect.gen(function* () {
          const own = yield* server
          const url = Redacted.make(own.url("postgres"))
          const ledger = yield* open({ url, maxConnections: 4 })
          const outcomes: Array<{ readonly batch: string; readonly error: LedgerError.LedgerError | undefined }> = []
          let stop = false
          const appending = yield* Effect.forEach(
            Arr.range(1, 6),
            (writer) =>
              Effect.iterate(0, {
                while: () => !stop,
                body: (round) => {
                  const batch = `${writer}-${round}`
                  return Effect.either(
                    ledger.appendAll(Arr.makeBy(300, (index) => ({ ...base, event: batch, payload: { index } })))
                  ).pipe(
                    Effect.map((result) => {
                      const error = Either.isLeft(result) ? result.left : undefined
                      outcomes.push({ batch, error })
                      return round + 1
                    }),
                    Effect.zipLeft(Effect.sleep("5 millis"))
                  )
                }
              }),
            { concurrency: "unbounded" }
          ).pipe(Effect.fork)
          const successes = () => outcomes.filter(({ error }) => error === undefined).length
          yield* eventually(() => successes() >= 20)
          yield* Effect.promise(() => own.stop(mode))
          yield* eventually(() => outcomes.some(({ error }) => error !== undefined))
          yield* Effect.promise(own.start)
          const before = successes()
          yield* eventually(() => successes() >= before + 20)
          stop = true
          yield* Fiber.join(appending)

          const failures = outcomes.filter(({ error }) => error !== undefined)
          for (const { error } of failures) {
            assert.instanceOf(error, LedgerError.LedgerError)
            assert.deepStrictEqual([error.method, error.reason, error.isRetryable], ["appendAll", "Connection", true])
          }
          const stored = Arr.groupBy(
            Array.from(yield* Stream.runCollect(ledger.read({ sandboxId: base.sandboxId }))),
            ({ event }) => event
          )
          for (const { batch, error } of outcomes) {
            const indexes = (stored[batch] ?? []).map(({ payload }) => payload)
            // A connection that is lost during COMMIT does not say what became of it: all of it or nothing.
            if (error === undefined || indexes.length > 0) {
              assert.deepStrictEqual(
                indexes,
                Arr.makeBy(300, (index) => ({ index }))
              )
            }
          }
          assert.isTrue(Object.keys(stored).every((batch) => outcomes.some((outcome) => outcome.batch === batch)))
        }),
      60_000
    )
  }

  it.scopedLive("whoever follows fails as well, and goes on from where it was", () =>
    Effect.gen(function* () {
      const own = yield* server
      const ledger = yield* open({ url: Redacted.make(own.url("postgres")), pollInterval: "50 millis" })
      const seen: Array<string> = []
      let last = 0
      const following = Stream.suspend(() => ledger.tail({ afterId: last })).pipe(
        Stream.runForEach(({ event, id }) =>
          Effect.sync(() => {
            last = id
            seen.push(event)
          })
        ),
        Effect.tapError((error) => Effect.sync(() => assert.strictEqual(error.reason, "Connection"))),
        Effect.retry(Schedule.spaced("20 millis"))
      )
      yield* Effect.forkScoped(following)
      yield* ledger.append({ ...base, event: "before" })
      yield* eventually(() => seen.length === 1)
      yield* Effect.promise(() => own.stop("fast"))
      yield* Effect.sleep("300 millis")
      yield* Effect.promise(own.start)
      yield* Effect.retry(ledger.append({ ...base, event: "after" }), Schedule.spaced("20 millis"))
      yield* eventually(() => seen.length === 2)
      assert.deepStrictEqual(seen, ["before", "after"])
    })
  )
})

describe("PgLedger and the connection that listens", () => {
  it.scopedLive("there is one for all who follow, and none when nobody does", () =>
    Effect.gen(function* () {
      const url = yield* database
      const sql = yield* client(url)
      const ledger = yield* open({ url, applicationName: "reader", pollInterval: "1 hour" })
      const count = Effect.map(sql.unsafe(`SELECT pid ${listeners}`), (rows) => rows.length)
      yield* ledger.append({ ...base, event: "first" })
      const first = yield* follow(ledger)
      const second = yield* follow(ledger)
      yield* eventually(() => first.seen.length === 1 && second.seen.length === 1)
      yield* eventually(Effect.map(count, (_) => _ === 1))
      yield* Fiber.interrupt(first.fiber)
      yield* ledger.append({ ...base, event: "second" })
      yield* eventually(() => second.seen.length === 2)
      assert.strictEqual(yield* count, 1)
      yield* Fiber.interrupt(second.fiber)
      yield* eventually(Effect.map(count, (_) => _ === 0))
    })
  )

  it.scopedLive("is made anew when the server ends it; what was appended meanwhile is delivered", () =>
    Effect.gen(function* () {
      const url = yield* database
      const sql = yield* client(url)
      const writer = yield* open({ url })
      const reader = yield* open({ url, applicationName: "reader", pollInterval: "1 hour" })
      const { seen } = yield* follow(reader)
      yield* writer.append({ ...base, event: "0" })
      yield* eventually(() => seen.length === 1)
      for (let round = 1; round <= 3; round++) {
        yield* eventually(
          Effect.map(sql.unsafe(`SELECT pg_terminate_backend(pid) ${listeners}`), (rows) => rows.length === 1)
        )
        yield* writer.append({ ...base, event: `${round}` })
        yield* eventually(() => seen.length === round + 1)
      }
      assert.deepStrictEqual(seen, ["0", "1", "2", "3"])
    })
  )

  it.scoped("is made anew when it falls silent", () =>
    Effect.gen(function* () {
      const url = yield* database
      const proxy = yield* tcpProxy(Number(new URL(Redacted.value(url)).port))
      const proxied = new URL(Redacted.value(url))
      proxied.port = String(proxy.port)
      const writer = yield* open({ url })
      const reader = yield* open({ url: Redacted.make(proxied.href), pollInterval: "1 hour" })
      const { seen } = yield* follow(reader)
      const passTime = (count: number) =>
        TestClock.adjust("1 second").pipe(
          Effect.zipRight(TestServices.provideLive(Effect.sleep("20 millis"))),
          Effect.repeat({ until: () => seen.length === count }),
          Effect.raceFirst(TestServices.provideLive(Effect.sleep("25 seconds")))
        )
      yield* writer.append({ ...base, event: "before" })
      yield* passTime(1)
      yield* eventually(Effect.sync(() => proxy.freeze("LISTEN") === 1))
      const silent = yield* TestClock.currentTimeMillis
      yield* writer.append({ ...base, event: "unheard" })
      yield* TestServices.provideLive(Effect.sleep("200 millis"))
      assert.deepStrictEqual(seen, ["before"])
      // It is asked every ten seconds, and has five to answer.
      yield* passTime(2)
      assert.isAtLeast((yield* TestClock.currentTimeMillis) - silent, 5_000)
      yield* writer.append({ ...base, event: "heard" })
      yield* passTime(3)
      assert.deepStrictEqual(seen, ["before", "unheard", "heard"])
    })
  )

  it.scopedLive("is done without where the client gives no access to what arrives on it, and says so", () =>
    Effect.gen(function* () {
      const url = yield* database
      const opaque = new Proxy(yield* client(url), {
        get: (target, property) => {
          if (property === "reserve") {
            return Effect.map(target.reserve, (connection) => ({
              execute: connection.execute.bind(connection),
              executeRaw: connection.executeRaw.bind(connection),
              executeStream: connection.executeStream.bind(connection),
              executeUnprepared: connection.executeUnprepared.bind(connection),
              executeValues: connection.executeValues.bind(connection)
            }))
          }
          const value: unknown = Reflect.get(target, property)
          return property === "withoutTransforms" ? () => opaque : value
        }
      })
      const warnings: Array<string> = []
      const logger = Logger.make(({ logLevel, message }) => {
        if (logLevel === LogLevel.Warning) {
          warnings.push(String(message))
        }
      })
      yield* Effect.gen(function* () {
        const reader = yield* PgLedger.fromClient({ pollInterval: "20 millis" }).pipe(
          Effect.provideService(PgClient.PgClient, opaque)
        )
        const writer = yield* open({ url })
        const { seen } = yield* follow(reader)
        yield* writer.append({ ...base, event: "found" })
        yield* eventually(() => seen.length === 1 && warnings.length === 1)
      }).pipe(Effect.provide(Logger.replace(Logger.defaultLogger, logger)))
      assert.include(warnings[0], "polling")
    })
  )

  it.scopedLive("closing does not wait for a network that has fallen silent", () =>
    Effect.gen(function* () {
      const url = yield* database
      const proxy = yield* tcpProxy(Number(new URL(Redacted.value(url)).port))
      const proxied = new URL(Redacted.value(url))
      proxied.port = String(proxy.port)
      const scope = yield* Scope.make()
      const ledger = yield* Scope.extend(open({ url: Redacted.make(proxied.href), pollInterval: "1 hour" }), scope)
      const { seen } = yield* Scope.extend(follow(ledger), scope)
      yield* ledger.append({ ...base, event: "before" })
      yield* eventually(() => seen.length === 1)
      assert.isAbove(proxy.freeze(), 0)
      yield* Effect.fork(Effect.exit(ledger.append({ ...base, event: "lost" })))
      yield* Effect.sleep("100 millis")
      yield* Effect.timeout(Scope.close(scope, Exit.void), "10 seconds")
    })
  )
})
