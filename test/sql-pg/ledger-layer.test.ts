import { readFileSync } from "node:fs"
import { createServer } from "node:net"
import { fileURLToPath } from "node:url"
import { inspect } from "node:util"
import * as SqlClient from "@effect/sql/SqlClient"
import * as PgClient from "@effect/sql-pg/PgClient"
import { assert, describe, it } from "@effect/vitest"
import { Ledger, LedgerError, SqlLedger } from "@sandglass/core"
import { PgConnection, PgLedger } from "@sandglass/sql-pg"
import * as Cause from "effect/Cause"
import * as Config from "effect/Config"
import * as ConfigProvider from "effect/ConfigProvider"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as LogLevel from "effect/LogLevel"
import * as Redacted from "effect/Redacted"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import { client, database, serverUrl, serverWith } from "../support/postgres.js"
import * as Spans from "../support/Spans.js"

const note = { sandboxId: "sbx-1", name: "ci", event: "note" }

const open = (options: PgLedger.Options) => Layer.build(Layer.fresh(PgLedger.layer(options)))

const ledgerAt = (options: PgLedger.Options) => Effect.map(open(options), Context.get(Ledger.Ledger))

const partsOf = (url: Redacted.Redacted<string>) => {
  const { hostname, password, pathname, port, username } = new URL(Redacted.value(url))
  return { host: hostname, port: Number(port), database: pathname.slice(1), username, password }
}

const withUrl = (url: Redacted.Redacted<string>, change: (url: URL) => void) => {
  const changed = new URL(Redacted.value(url))
  change(changed)
  return Redacted.make(changed.href)
}

/** Everything that a person or a program may come to see of an error. */
const shown = (error: unknown) =>
  [
    inspect(error, { depth: 10, showHidden: true }),
    String(error),
    Cause.pretty(Cause.fail(error)),
    JSON.stringify(error)
  ].join("\n")

const failsToOpen = (options: PgLedger.Options) =>
  Effect.map(Effect.flip(Effect.scoped(open(options))), (error) => {
    assert.instanceOf(error, LedgerError.LedgerError)
    assert.deepStrictEqual([error.method, error.reason], ["layer", "Connection"])
    assert.isTrue(error.isRetryable)
    return error
  })

/** A port of loopback that accepts connections, and what it answers to the first message. */
const listener = (answer?: Uint8Array) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.async<ReturnType<typeof createServer>>((resume) => {
        const server = createServer((socket) => {
          socket.on("error", () => undefined)
          socket.once("data", () => answer !== undefined && socket.write(answer))
        })
        server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
      }),
      (server) => Effect.sync(() => server.close())
    ),
    (server) => {
      const address = server.address()
      return typeof address === "object" && address !== null ? address.port : 0
    }
  )

/** AuthenticationOk, BackendKeyData, ReadyForQuery. */
const loggedIn = Uint8Array.of(
  ...[0x52, 0, 0, 0, 8, 0, 0, 0, 0],
  ...[0x4b, 0, 0, 0, 12, 0, 0, 0, 1, 0, 0, 0, 1],
  ...[0x5a, 0, 0, 0, 5, 0x49]
)

describe("PgLedger.layer", () => {
  it.scoped("creates its tables, keeps what is in them, and closes its connections with the scope", () =>
    Effect.gen(function* () {
      const url = yield* database
      const admin = yield* client(url)
      const scope = yield* Scope.make()
      const ledger = yield* Scope.extend(ledgerAt({ url, applicationName: "its-connections" }), scope)
      const entry = yield* ledger.append({ ...note, payload: { by: "ada" } })
      const connections = admin`SELECT 1 FROM pg_stat_activity WHERE application_name = 'its-connections'`
      assert.isAbove((yield* connections).length, 0)
      yield* Scope.close(scope, Exit.void)
      const error = yield* Effect.flip(ledger.append(note))
      assert.strictEqual(error.reason, "Connection")
      yield* Effect.repeat(connections, { until: (rows) => rows.length === 0 })
      const again = yield* ledgerAt({ url })
      assert.deepStrictEqual(Array.from(yield* Stream.runCollect(again.read())), [entry])
    })
  )

  it.scoped("has the columns of an alineo ledger, and payloads that are JSON objects", () =>
    Effect.gen(function* () {
      const url = yield* database
      const sql = yield* client(url)
      const ledger = yield* ledgerAt({ url })
      yield* ledger.append({ ...note, payload: { by: "ada", at: { line: 3 } } })
      yield* ledger.append({ ...note, payload: ["a", 1] })
      yield* ledger.append(note)
      const columns = yield* sql<{ readonly text: string }>`
        SELECT column_name || ' ' || data_type || ' ' || is_nullable AS text FROM information_schema.columns
        WHERE table_name = 'alineo_events' ORDER BY ordinal_position`
      assert.deepStrictEqual(
        columns.map(({ text }) => text),
        [
          "id bigint NO",
          "sandbox_id text NO",
          "name text NO",
          "step_idx integer NO",
          "branch integer YES",
          "event text NO",
          "payload jsonb YES",
          "error text YES",
          "ts bigint NO"
        ]
      )
      assert.deepStrictEqual(
        yield* sql`SELECT payload->>'by' AS by, payload->'at'->>'line' AS line, jsonb_typeof(payload) AS type
          FROM alineo_events ORDER BY id`,
        [
          { by: "ada", line: "3", type: "object" },
          { by: null, line: null, type: "array" },
          { by: null, line: null, type: null }
        ]
      )
    })
  )

  it.scoped("publishes the client: what is written through it commits together with events", () =>
    Effect.gen(function* () {
      const context = yield* open({ url: yield* database })
      const ledger = Context.get(context, Ledger.Ledger)
      const sql = Context.get(context, SqlClient.SqlClient)
      assert.strictEqual(sql, Context.get(context, PgClient.PgClient))
      yield* sql`CREATE TABLE orders (id INTEGER)`
      const order = Effect.zipRight(sql`INSERT INTO orders VALUES (1)`, ledger.append(note))
      yield* Effect.exit(sql.withTransaction(Effect.zipRight(order, Effect.fail("undo"))))
      assert.deepStrictEqual([yield* sql`SELECT * FROM orders`, yield* Stream.runCount(ledger.read())], [[], 0])
      yield* sql.withTransaction(order)
      assert.deepStrictEqual(
        [yield* sql`SELECT * FROM orders`, yield* Stream.runCount(ledger.read())],
        [[{ id: 1 }], 1]
      )
    })
  )

  it.scoped("takes the parts of an address instead of a URL", () =>
    Effect.gen(function* () {
      const { password, ...parts } = partsOf(yield* database)
      const ledger = yield* ledgerAt({ ...parts, password: Redacted.make(password) })
      assert.strictEqual((yield* ledger.append(note)).id, 1)
    })
  )

  it.scoped("uses a client that the application has", () =>
    Effect.gen(function* () {
      const url = yield* database
      const own = PgClient.layer({ url })
      const context = yield* Layer.build(Layer.provideMerge(PgLedger.layerFromClient(), own))
      const ledger = Context.get(context, Ledger.Ledger)
      const sql = Context.get(context, PgClient.PgClient)
      yield* Effect.exit(sql.withTransaction(Effect.zipRight(ledger.append(note), Effect.fail("undo"))))
      yield* ledger.append({ ...note, event: "kept" })
      // Any other client of a Postgres database will do for the ledger without notifications.
      const plain = Context.get(yield* Layer.build(Layer.provide(SqlLedger.layer, own)), Ledger.Ledger)
      const entries = yield* Stream.runCollect(plain.read())
      assert.deepStrictEqual(
        Array.from(entries, ({ event }) => event),
        ["kept"]
      )
    })
  )

  it.scoped("is not confused by a client that renames columns", () =>
    Effect.gen(function* () {
      const upper = (text: string) => text.toUpperCase()
      const context = yield* Layer.build(
        Layer.provideMerge(
          PgLedger.layerFromClient(),
          PgClient.layer({ url: yield* database, transformResultNames: upper, transformQueryNames: upper })
        )
      )
      const ledger = Context.get(context, Ledger.Ledger)
      const entry = yield* ledger.append({ ...note, payload: { someKey: 1 } })
      assert.deepStrictEqual(Array.from(yield* Stream.runCollect(ledger.read())), [entry])
    })
  )

  it.scoped("works with one single connection", () =>
    Effect.gen(function* () {
      const ledger = yield* ledgerAt({ url: yield* database, maxConnections: 1 })
      yield* ledger.appendAll(Array.from({ length: 600 }, () => note))
      assert.strictEqual(yield* ledger.tail().pipe(Stream.take(600), Stream.runCount), 600)
    })
  )

  it.scoped("does not need the right to create tables that are there", () =>
    Effect.gen(function* () {
      const url = yield* database
      yield* Effect.scoped(open({ url }))
      const admin = yield* client(url)
      const name = `u_${partsOf(url).database}`
      yield* Effect.acquireRelease(
        admin.unsafe(
          `CREATE ROLE ${name} LOGIN PASSWORD 'for-now'; GRANT SELECT, INSERT, DELETE ON alineo_events TO ${name};
           GRANT USAGE ON SEQUENCE alineo_events_id_seq TO ${name}`
        ),
        () => Effect.orDie(admin.unsafe(`DROP OWNED BY ${name}; DROP ROLE ${name}`))
      )
      const asUser = withUrl(url, (changed) => {
        changed.username = name
        changed.password = "for-now"
      })
      yield* Effect.scoped(
        Effect.gen(function* () {
          const ledger = yield* ledgerAt({ url: asUser })
          yield* ledger.append(note)
          assert.strictEqual(yield* ledger.tail().pipe(Stream.take(1), Stream.runCount), 1)
          assert.strictEqual(yield* ledger.deleteSandbox(note.sandboxId), 1)
          const refused = yield* Effect.flip(
            ledger.putEnvironment({ name: "e", snapshotId: "s", image: "i", builtAt: 1 })
          )
          assert.include(refused.message, "permission denied")
        })
      )
      yield* admin`DROP TABLE alineo_events`
      const error = yield* Effect.flip(Effect.scoped(open({ url: asUser })))
      assert.deepStrictEqual([error.method, error.reason], ["layer", "Unknown"])
      assert.include(error.message, "permission denied for schema public")
    })
  )
})

describe("PgLedger.layerConfig", () => {
  const build = <E>(layer: Layer.Layer<Ledger.Ledger, E>, entries: ReadonlyArray<readonly [string, string]>) =>
    Effect.map(
      Layer.build(Layer.provide(Layer.fresh(layer), Layer.setConfigProvider(ConfigProvider.fromMap(new Map(entries))))),
      Context.get(Ledger.Ledger)
    )

  it.scoped("reads DATABASE_URL, or PGHOST and the others, or what it is given", () =>
    Effect.gen(function* () {
      const url = yield* database
      const { database: name, host, password, port, username } = partsOf(url)
      const parts = [
        ["PGHOST", host],
        ["PGPORT", String(port)],
        ["PGUSER", username],
        ["PGPASSWORD", password],
        ["PGDATABASE", name]
      ] as const
      yield* Effect.flatMap(build(PgLedger.layerConfig(), [["DATABASE_URL", Redacted.value(url)]]), (_) =>
        _.append(note)
      )
      yield* Effect.flatMap(build(PgLedger.layerConfig(), parts), (_) => _.append(note))
      // The URL wins.
      const both = [...parts.slice(0, 4), ["PGDATABASE", "nowhere"], ["DATABASE_URL", Redacted.value(url)]] as const
      yield* Effect.flatMap(build(PgLedger.layerConfig(), both), (_) => _.append(note))
      const given = PgLedger.layerConfig({ url: Config.redacted("LEDGER"), maxConnections: Config.succeed(2) })
      const ledger = yield* build(given, [["LEDGER", Redacted.value(url)]])
      yield* ledger.append(note)
      assert.strictEqual(yield* Stream.runCount(ledger.read()), 4)
    })
  )

  it.scoped("says what is missing or wrong", () =>
    Effect.gen(function* () {
      const nothing = yield* Effect.flip(build(PgLedger.layerConfig(), []))
      assert.include(String(nothing), "DATABASE_URL")
      assert.include(String(nothing), "PGHOST")
      const port = yield* Effect.flip(
        build(PgLedger.layerConfig(), [
          ["PGHOST", "localhost"],
          ["PGPORT", "no number"]
        ])
      )
      assert.include(String(port), "PGPORT")
    })
  )

  it.effect("is a value of its own", () =>
    Effect.gen(function* () {
      const options = yield* Effect.withConfigProvider(
        PgConnection.config,
        ConfigProvider.fromMap(new Map([["PGHOST", "db.example"]]))
      )
      assert.deepStrictEqual(options, {
        host: "db.example",
        port: undefined,
        username: undefined,
        password: undefined,
        database: undefined
      })
    })
  )
})

describe("PgLedger, where it cannot connect", () => {
  it.scoped("nobody listens", () =>
    Effect.gen(function* () {
      const port = yield* Effect.scoped(listener())
      const error = yield* failsToOpen({ host: "127.0.0.1", port, username: "u", database: "d" })
      assert.include(error.message, `cannot connect to 127.0.0.1:${port}/d`)
      assert.match(error.message, /ECONNREFUSED|refused|Failed to connect/i)
    })
  )

  it.scoped("the host has no address", () =>
    Effect.gen(function* () {
      const error = yield* failsToOpen({ url: Redacted.make("postgres://u:hush@no-such-host.invalid/d") })
      assert.include(error.message, "no-such-host.invalid/d")
      assert.notInclude(shown(error), "hush")
    })
  )

  for (const [what, answer] of [
    ["says nothing", undefined],
    ["logs the client in, and then says nothing", loggedIn]
  ] as const) {
    it.scopedLive(`the server accepts a connection and ${what}`, () =>
      Effect.gen(function* () {
        const port = yield* listener(answer)
        const error = yield* failsToOpen({ host: "127.0.0.1", port, username: "u", connectTimeout: "300 millis" })
        assert.include(error.message, "no answer within 300ms")
      }).pipe(Effect.timeout("5 seconds"))
    )
  }

  it.scoped("the password, the user or the database is wrong", () =>
    Effect.gen(function* () {
      const url = yield* serverUrl
      const { password } = partsOf(url)
      for (const [change, words] of [
        [{ password: "wrong-secret" }, /password authentication failed/],
        [{ username: "nobody-such" }, /password authentication failed/],
        [{ pathname: "/no_such_database" }, /database "no_such_database" does not exist/]
      ] as const) {
        const error = yield* failsToOpen({ url: withUrl(url, (_) => Object.assign(_, change)) })
        assert.match(error.message, words)
        assert.notInclude(shown(error), "wrong-secret")
        assert.notInclude(shown(error), password)
      }
    })
  )

  it.scoped("the URL is none, and is not shown", () =>
    Effect.gen(function* () {
      for (const url of [
        "postgres://u:top-secret@host:port/d",
        "postgres://u:top-secret@a:1,b:2/d",
        "mysql://u:top-secret@host/d",
        "u:top-secret@host",
        "postgres://u:top-secret@[::1/d",
        "postgres://u:top-secret%ff@127.0.0.1/d",
        ""
      ]) {
        const error = yield* failsToOpen({ url: Redacted.make(url) })
        assert.include(error.message, "postgres://user:password@host")
        assert.notInclude(shown(error), "top-secret")
      }
    })
  )

  it.scoped("the certificate is one that nobody vouches for", () =>
    Effect.gen(function* () {
      const certificate = readFileSync(fileURLToPath(new URL("../fixtures/tls/server.crt", import.meta.url)), "utf8")
      const key = readFileSync(fileURLToPath(new URL("../fixtures/tls/server.key", import.meta.url)), "utf8")
      const server = yield* serverWith({ tls: { certificate, key } })
      const url = Redacted.make(server.url("postgres"))
      const error = yield* failsToOpen({ url, ssl: true })
      assert.match(error.message, /self.signed|certificate/i)
      const context = yield* open({ url, ssl: { ca: certificate } })
      const sql = Context.get(context, SqlClient.SqlClient)
      assert.deepStrictEqual(yield* sql`SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()`, [{ ssl: true }])
      yield* Context.get(context, Ledger.Ledger).append(note)
      const unchecked = yield* open({ url: withUrl(url, (_) => _.searchParams.set("sslmode", "no-verify")) })
      yield* Context.get(unchecked, Ledger.Ledger).append(note)
    })
  )

  it.scoped("the server speaks no TLS", () =>
    Effect.gen(function* () {
      const error = yield* failsToOpen({ url: yield* serverUrl, ssl: true })
      assert.match(error.message, /does not support SSL/)
    })
  )
})

describe("PgLedger and secrets", () => {
  it.scopedLive("the password is in no error, log or span", () =>
    Effect.gen(function* () {
      const url = yield* database
      const { password } = partsOf(url)
      assert.isAtLeast(password.length, 6)
      const logged: Array<string> = []
      const logger = Logger.make(({ annotations, cause, message }) => {
        logged.push(inspect([message, [...annotations], Cause.pretty(cause)], { depth: 10 }))
      })
      const { text, value } = yield* Effect.gen(function* () {
        const context = yield* open({ url, pollInterval: "20 millis" })
        const ledger = Context.get(context, Ledger.Ledger)
        const sql = Context.get(context, SqlClient.SqlClient)
        yield* ledger.append(note)
        yield* ledger.tail().pipe(Stream.take(1), Stream.runDrain)
        const statement = yield* Effect.flip(sql`SELECT nothing FROM nowhere`)
        const admin = yield* client(yield* serverUrl)
        yield* admin`DROP DATABASE ${admin(partsOf(url).database)} WITH (FORCE)`
        const append = yield* Effect.flip(ledger.append(note))
        assert.strictEqual(append.reason, "Connection")
        yield* Effect.sleep("50 millis")
        const opened = yield* Effect.flip(Effect.scoped(open({ url })))
        return [statement, append, opened]
      }).pipe(
        Effect.provide(Logger.replace(Logger.defaultLogger, logger)),
        Logger.withMinimumLogLevel(LogLevel.All),
        Spans.record
      )
      for (const error of value) {
        assert.notInclude(shown(error), password)
      }
      assert.include(text, "sql.execute")
      assert.notInclude(text, password)
      assert.notInclude(logged.join("\n"), password)
      // So that the scope can drop it once more.
      const admin = yield* client(yield* serverUrl)
      yield* admin`CREATE DATABASE ${admin(partsOf(url).database)}`
    })
  )
})
