import { spawn } from "node:child_process"
import { once } from "node:events"
import { existsSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Redacted from "effect/Redacted"
import * as Schedule from "effect/Schedule"
import * as Scope from "effect/Scope"
import { client, database, server, serverUrl } from "../support/postgres.js"

const bun = fileURLToPath(new URL("../../node_modules/.bin/bun", import.meta.url))
const module = fileURLToPath(new URL("../support/postgresServer.ts", import.meta.url))

describe("Postgres of the tests", () => {
  it.scoped("gives fresh databases, which are dropped with their scopes", () =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const url = yield* Scope.extend(database, scope)
      const other = yield* database
      assert.notStrictEqual(Redacted.value(url), Redacted.value(other))
      const name = new URL(Redacted.value(url)).pathname.slice(1)
      const admin = yield* client(yield* serverUrl)
      const find = admin`SELECT datname FROM pg_database WHERE datname = ${name}`
      assert.strictEqual((yield* find).length, 1)
      // A client that is still connected does not keep it.
      const sql = yield* client(url)
      const tables = yield* sql`SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace`
      assert.deepStrictEqual(tables, [])
      yield* Scope.close(scope, Exit.void)
      assert.strictEqual((yield* find).length, 0)
    })
  )

  it.scopedLive("gives servers that can be stopped and started again", () =>
    Effect.gen(function* () {
      const own = yield* server
      const sql = yield* client(Redacted.make(own.url("postgres")))
      yield* sql`CREATE TABLE kept (id INTEGER)`
      for (const mode of ["fast", "immediate"] as const) {
        yield* Effect.promise(() => own.stop(mode))
        assert.isTrue(Exit.isFailure(yield* Effect.exit(sql`SELECT 1`)))
        yield* Effect.promise(own.start)
        assert.deepStrictEqual(yield* sql`SELECT * FROM kept`, [])
      }
    })
  )

  it.scopedLive("a server ends with the process that started it, and leaves nothing", () =>
    Effect.gen(function* () {
      const script =
        `const { startServer } = await import(${JSON.stringify(module)});` +
        `console.log((await startServer()).folder); setInterval(() => {}, 1000)`
      const child = yield* Effect.acquireRelease(
        Effect.sync(() => spawn(bun, ["-e", script], { stdio: ["ignore", "pipe", "inherit"] })),
        (process) => Effect.sync(() => void process.kill("SIGKILL"))
      )
      const [folder] = yield* Effect.promise(() => once(child.stdout, "data"))
      const path = String(folder).trim()
      assert.isTrue(existsSync(`${path}/data/postmaster.pid`))
      child.kill("SIGKILL")
      yield* Effect.sync(() => existsSync(path)).pipe(
        Effect.repeat({ while: (exists) => exists, schedule: Schedule.spaced("20 millis") }),
        Effect.timeout("20 seconds")
      )
    })
  )
})
