import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as SqlClient from "@effect/sql/SqlClient"
import { assert, describe, it } from "@effect/vitest"
import { Ledger } from "@sandglass/core"
import { SqliteLedger } from "@sandglass/sql-sqlite"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Stream from "effect/Stream"

const folder = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "sandglass-backup-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

const base = { sandboxId: "sbx-1", name: "ci" }

const read = Effect.flatMap(Ledger.Ledger, (ledger) =>
  Effect.map(Stream.runCollect(ledger.read()), (entries) => Array.from(entries))
)

describe("a backup of a ledger that is in use", () => {
  it.scoped("is whole, and goes on where it was taken", () =>
    Effect.gen(function* () {
      const path = yield* folder
      const backup = join(path, "backup.db")
      const before = yield* Effect.gen(function* () {
        const ledger = yield* Ledger.Ledger
        const sql = yield* SqlClient.SqlClient
        yield* ledger.appendAll(Array.from({ length: 1_000 }, (_, payload) => ({ ...base, event: "note", payload })))
        const entries = yield* read
        const writer = yield* Effect.fork(
          Effect.forEach(Array.from({ length: 200 }), () => ledger.append({ ...base, event: "later" }), {
            discard: true
          })
        )
        yield* sql`VACUUM INTO ${backup}`
        yield* Fiber.join(writer)
        return entries
      }).pipe(Effect.provide(SqliteLedger.layer({ filename: join(path, "ledger.db") })))
      yield* Effect.gen(function* () {
        const entries = yield* read
        assert.deepStrictEqual(entries.slice(0, 1_000), before)
        const ledger = yield* Ledger.Ledger
        const next = yield* ledger.append({ ...base, event: "next" })
        assert.strictEqual(next.id, (entries[entries.length - 1]?.id ?? 0) + 1)
      }).pipe(Effect.provide(Layer.fresh(SqliteLedger.layer({ filename: backup }))))
    })
  )
})
