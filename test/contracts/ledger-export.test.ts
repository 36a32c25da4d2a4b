import { copyFileSync, mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { assert, describe, it } from "@effect/vitest"
import { Ledger } from "@sandglass/core"
import { PgLedger } from "@sandglass/sql-pg"
import { SqliteLedger } from "@sandglass/sql-sqlite"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Stream from "effect/Stream"
import { database } from "../support/postgres.js"

const fixture = fileURLToPath(new URL("../fixtures/alineo-ledger/legacy.db", import.meta.url))

const folder = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "sandglass-export-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

const open = <A, E>(layer: Layer.Layer<A | Ledger.Ledger, E>) =>
  Effect.map(Layer.build(Layer.fresh(layer)), Context.get(Ledger.Ledger))

type Service = Context.Tag.Service<Ledger.Ledger>

const collect = <A, E>(stream: Stream.Stream<A, E>) => Effect.map(Stream.runCollect(stream), (_) => Array.from(_))

/** What there is to read, without what is different in every ledger. */
const contents = (ledger: Service) =>
  Effect.map(collect(ledger.read()), (entries) =>
    entries
      .map(({ id: _id, ...entry }) => entry)
      .sort((a, b) => a.ts - b.ts || (a.sandboxId < b.sandboxId ? -1 : a.sandboxId > b.sandboxId ? 1 : 0))
  )

/** Through NDJSON files in one: the sessions in any order. */
const copy = (from: Service, to: Service) =>
  Effect.gen(function* () {
    const sessions = yield* collect(from.sandboxes())
    const ndjson = Stream.fromIterable(sessions).pipe(
      Stream.flatMap(({ sandboxId }) => from.exportSandbox(sandboxId)),
      Stream.encodeText
    )
    const imported = yield* to.importSandboxes(ndjson)
    assert.deepStrictEqual(
      imported.map(({ sandboxId }) => sandboxId),
      sessions.map(({ sandboxId }) => sandboxId)
    )
    return sessions
  })

describe("a ledger moves from database to database", () => {
  it.scoped("SQLite, Postgres, memory, SQLite: the sessions that another program wrote", () =>
    Effect.gen(function* () {
      const path = yield* folder
      copyFileSync(fixture, join(path, "legacy.db"))
      const legacy = yield* open(SqliteLedger.layer({ filename: join(path, "legacy.db") }))
      const postgres = yield* open(PgLedger.layer({ url: yield* database }))
      const memory = yield* open(Ledger.layerMemory)
      const sqlite = yield* open(SqliteLedger.layer({ filename: join(path, "new.db") }))
      const expected = yield* contents(legacy)
      assert.isAbove(expected.length, 30)
      // Newer than everything that comes in.
      yield* postgres.append({ sandboxId: "newest", name: "ci", event: "note" })
      const sessions = yield* copy(legacy, postgres)
      assert.isAbove(sessions.length, 1)
      yield* postgres.deleteSandbox("newest")
      yield* copy(postgres, memory)
      yield* copy(memory, sqlite)
      const own = (_: ReadonlyArray<{ readonly sandboxId: string }>) =>
        _.filter(({ sandboxId }) => sessions.some((session) => session.sandboxId === sandboxId))
      for (const ledger of [postgres, memory, sqlite]) {
        assert.deepStrictEqual(own(yield* contents(ledger)), own(expected))
        const read = yield* collect(ledger.read())
        assert.isTrue(
          read.every((entry, index) => {
            const before = read[index - 1]
            return before === undefined || before.ts < entry.ts || (before.ts === entry.ts && before.id < entry.id)
          })
        )
        const listed = yield* collect(ledger.sandboxes())
        assert.deepStrictEqual(
          listed.map(({ closedAt, createdAt, sandboxId, status }) => ({ closedAt, createdAt, sandboxId, status })),
          sessions.map(({ closedAt, createdAt, sandboxId, status }) => ({ closedAt, createdAt, sandboxId, status }))
        )
        for (const { sandboxId } of sessions) {
          assert.strictEqual(
            (yield* collect(ledger.exportSandbox(sandboxId))).join(""),
            (yield* collect(legacy.exportSandbox(sandboxId))).join("")
          )
        }
      }
    })
  )
})
