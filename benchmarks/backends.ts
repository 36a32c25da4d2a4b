/** The two databases that a ledger can be in, and what writes to the same tables without one. */
import { Database } from "bun:sqlite"
import { statSync } from "node:fs"
import { createRequire } from "node:module"
import type * as SqlClient from "@effect/sql/SqlClient"
import type { Ledger } from "@sandglass/core"
import type { LedgerError } from "@sandglass/core/LedgerError"
import { PgLedger } from "@sandglass/sql-pg"
import { SqliteLedger } from "@sandglass/sql-sqlite"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import { startServer } from "../test/support/postgresServer.js"
import type { Figure } from "./harness.js"
import { scratch } from "./harness.js"
import type { Value } from "./raw.js"
import { insertOf } from "./raw.js"

/** Inserts rows with nothing but the driver, in statements of so many, each a commit. */
export type RawInsert = (rows: number, statements: ReadonlyArray<ReadonlyArray<Value>>) => Effect.Effect<void>

export interface Backend {
  readonly name: "SQLite" | "Postgres"
  /** The ledger in a database of this name, which is empty at first. */
  readonly ledger: (database: string) => Layer.Layer<Ledger.Ledger | SqlClient.SqlClient, LedgerError>
  /** The driver on the tables and indexes of such a ledger. */
  readonly raw: (database: string) => Effect.Effect<RawInsert, LedgerError, Scope.Scope>
  /** Where another process finds the database. */
  readonly address: (database: string) => string
  /** SQL for the numbers from 0 up to below `count`, as `i` of a table `n`. */
  readonly numbers: (count: number) => string
  /** Casts JSON text to what a payload is stored as. */
  readonly json: (text: string) => string
  /** What a database keeps in order by itself after a while, done at once. */
  readonly settle: ReadonlyArray<string>
  /** How many bytes a database has on the disk. */
  readonly bytes: (database: string) => Effect.Effect<number>
}

const tables = (backend: Pick<Backend, "ledger">, database: string) =>
  Effect.scoped(Layer.build(Layer.fresh(backend.ledger(database))))

const sqlite = (directory: string): Backend => {
  const file = (database: string) => `${directory}/${database}.db`
  const ledger: Backend["ledger"] = (database) => SqliteLedger.layer({ filename: file(database) })
  return {
    name: "SQLite",
    ledger,
    raw: (database) =>
      Effect.gen(function* () {
        yield* tables({ ledger }, database)
        const db = yield* Effect.acquireRelease(
          Effect.sync(() => new Database(file(database))),
          (db) => Effect.sync(() => db.close())
        )
        return (rows, statements) =>
          Effect.sync(() => {
            const insert = db.query(insertOf(rows))
            for (const values of statements) insert.run(...values)
          })
      }),
    address: file,
    numbers: (count) =>
      `(WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ${count - 1}) SELECT i FROM n) AS n`,
    json: (text) => text,
    settle: ["ANALYZE", "PRAGMA wal_checkpoint(TRUNCATE)"],
    bytes: (database) => Effect.sync(() => statSync(file(database)).size)
  }
}

interface RawClient {
  readonly connect: () => Promise<void>
  readonly end: () => Promise<void>
  readonly query: <A>(text: string, values?: ReadonlyArray<Value>) => Promise<{ readonly rows: ReadonlyArray<A> }>
}

const rawClient = (url: string): Effect.Effect<RawClient, never, Scope.Scope> => {
  const { Client }: { readonly Client: new (options: object) => RawClient } = createRequire(import.meta.url)("pg")
  return Effect.acquireRelease(
    Effect.promise(async () => {
      const client = new Client({ connectionString: url })
      await client.connect()
      return client
    }),
    (client) => Effect.promise(() => client.end())
  )
}

/** Adds the databases that it creates to `created`. */
const postgres = (url: (database: string) => string, created: Set<string>): Backend => {
  const create = (database: string) =>
    Effect.suspend(() => {
      if (created.has(database)) return Effect.void
      created.add(database)
      return Effect.scoped(
        Effect.flatMap(rawClient(url("postgres")), (client) =>
          Effect.promise(() => client.query(`CREATE DATABASE ${database}`))
        )
      )
    })
  const ledger: Backend["ledger"] = (database) =>
    Layer.unwrapEffect(Effect.as(create(database), PgLedger.layer({ url: Redacted.make(url(database)) })))
  return {
    name: "Postgres",
    ledger,
    raw: (database) =>
      Effect.gen(function* () {
        yield* tables({ ledger }, database)
        const client = yield* rawClient(url(database))
        return (rows, statements) =>
          Effect.promise(async () => {
            const text = insertOf(rows, (place) => `$${place}`)
            for (const values of statements) await client.query(text, values)
          })
      }),
    address: url,
    numbers: (count) => `generate_series(0, ${count - 1}) AS n(i)`,
    json: (text) => `(${text})::jsonb`,
    settle: ["VACUUM ANALYZE"],
    bytes: (database) =>
      Effect.scoped(
        Effect.flatMap(rawClient(url(database)), (client) =>
          Effect.promise(async () => {
            const { rows } = await client.query<{ readonly bytes: string }>(
              "SELECT pg_total_relation_size('alineo_events') AS bytes"
            )
            return Number(rows[0]?.bytes)
          })
        )
      )
  }
}

/** Says where the server is that a whole run uses. */
export const serverVariable = "SANDGLASS_BENCH_POSTGRES"

/** The URLs of databases on the server of the run, or on one of its own. */
const urls: Effect.Effect<(database: string) => string, never, Scope.Scope> = Effect.suspend(() => {
  const running = process.env[serverVariable]
  return running === undefined
    ? Effect.map(
        Effect.acquireRelease(
          Effect.promise(() => startServer()),
          ({ close }) => Effect.promise(close)
        ),
        ({ url }) => url
      )
    : Effect.succeed((database: string) => {
        const url = new URL(running)
        url.pathname = `/${database}`
        return url.href
      })
})

/** SQLite in files of a directory of its own, and databases of a Postgres server; they go with the scope. */
export const backends: Effect.Effect<ReadonlyArray<Backend>, never, Scope.Scope> = Effect.gen(function* () {
  const directory = yield* scratch
  const url = yield* urls
  const created = yield* Effect.acquireRelease(
    Effect.sync(() => new Set<string>()),
    (names) =>
      Effect.scoped(
        Effect.flatMap(rawClient(url("postgres")), (client) =>
          Effect.forEach(names, (name) => Effect.promise(() => client.query(`DROP DATABASE ${name} WITH (FORCE)`)))
        )
      )
  )
  return [sqlite(directory), postgres(url, created)]
})

/** Measures the one, then the other. */
export const onBoth = <E>(
  measure: (backend: Backend) => Effect.Effect<ReadonlyArray<Figure>, E, Scope.Scope>
): Effect.Effect<ReadonlyArray<Figure>, E, Scope.Scope> =>
  Effect.gen(function* () {
    const figures: Array<Figure> = []
    for (const backend of yield* backends) {
      figures.push(...(yield* Effect.scoped(measure(backend))))
    }
    return figures
  })
