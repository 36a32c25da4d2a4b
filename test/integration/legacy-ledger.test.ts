import * as Fs from "node:fs"
import * as Os from "node:os"
import * as Path from "node:path"
import { fileURLToPath } from "node:url"
import { assert, describe, it } from "@effect/vitest"
import type { LedgerError } from "@sandglass/core"
import { Ledger, Sandboxes } from "@sandglass/core"
import { PgLedger } from "@sandglass/sql-pg"
import { SqliteLedger } from "@sandglass/sql-sqlite"
import * as Chunk from "effect/Chunk"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Stream from "effect/Stream"
import { legacyDatabase } from "../support/legacyPostgres.js"
import * as ScriptedSandboxes from "../support/ScriptedSandboxes.js"
import { complete, init, stdout } from "../support/ScriptedSandboxes.js"
import * as ScriptedServer from "../support/ScriptedServer.js"

const fixture = fileURLToPath(new URL("../fixtures/alineo-ledger/legacy.db", import.meta.url))

const sqlite = Effect.gen(function* () {
  const folder = yield* Effect.acquireRelease(
    Effect.sync(() => Fs.mkdtempSync(Path.join(Os.tmpdir(), "sandglass-legacy-"))),
    (folder) => Effect.sync(() => Fs.rmSync(folder, { recursive: true, force: true }))
  )
  const filename = Path.join(folder, "ledger.db")
  Fs.copyFileSync(fixture, filename)
  return SqliteLedger.layer({ filename })
})

const postgres = Effect.map(legacyDatabase, (url) => PgLedger.layer({ url }))

/** Sandboxes over a copy of a ledger that alineo 0.2 wrote. */
const setupOver = (copy: typeof sqlite | typeof postgres) =>
  Effect.gen(function* () {
    const ledger: Layer.Layer<Ledger.Ledger, LedgerError.LedgerError> = yield* copy
    const server = yield* ScriptedSandboxes.make({
      command: ({ command }) => ScriptedServer.stream([init("c"), stdout(`live: ${command}`), complete])
    })
    const context = yield* Layer.build(Sandboxes.layer.pipe(Layer.provideMerge(Layer.merge(server.layer, ledger))))
    return { server, ledger: Context.get(context, Ledger.Ledger), sandboxes: Context.get(context, Sandboxes.Sandboxes) }
  })

const npmCi = {
  stdout: "added 312 packages in 4s\n\nfound 0 vulnerabilities\n",
  stderr: "npm warn deprecated glob@7.2.3: old\n",
  exitCode: 0,
  replayed: true
}
const npmTest = { stdout: "ok 1 - ünïcødé ✓ 測試\n", stderr: "", exitCode: 3, replayed: true }

for (const [database, copy] of [
  ["SQLite", sqlite],
  ["Postgres", postgres]
] as const)
  describe(`a ledger written by alineo in ${database}`, () => {
    const setup = setupOver(copy)

    it.scopedLive("is resumed from its first checkpoint", () =>
      Effect.gen(function* () {
        const { sandboxes, server } = yield* setup
        const sandbox = yield* sandboxes.resume("sbx-11111111-aaaa", { tag: "after-install" })
        assert.deepStrictEqual([sandbox.name, sandbox.runId], ["ci", "run-1"])
        assert.deepInclude(server.created[0], { snapshotId: "snap-after-install" })
        assert.deepInclude(server.created[0]?.["resourceLimits"], { cpu: "500m", memory: "256Mi" })
        assert.deepInclude(yield* sandbox.exec("npm ci"), npmCi)
        assert.deepInclude(yield* sandbox.exec("npm test", { strict: false }), { stdout: "live: npm test\n", seq: 2 })
      })
    )

    it.scopedLive("is resumed from its last checkpoint, with a recorded failure and a live third exec", () =>
      Effect.gen(function* () {
        const { sandboxes, server } = yield* setup
        const sandbox = yield* sandboxes.resume("sbx-11111111-aaaa")
        assert.deepInclude(server.created[0], { snapshotId: "snap-after-test" })
        assert.deepInclude(yield* sandbox.exec("npm ci"), npmCi)
        assert.deepInclude(yield* Effect.flip(sandbox.exec("npm test")), { _tag: "CommandError", exitCode: 3 })
        assert.deepInclude(yield* sandbox.exec("npm run deploy"), {
          stdout: "live: npm run deploy\n",
          seq: 3,
          replayed: false
        })
      })
    )

    it.scopedLive("is resumed from its continuation, through the lineage, and appended to", () =>
      Effect.gen(function* () {
        const { ledger, sandboxes } = yield* setup
        const sandbox = yield* sandboxes.resume("sbx-22222222-bbbb")
        assert.deepInclude(yield* sandbox.exec("npm ci"), npmCi)
        assert.deepInclude(yield* sandbox.exec("npm test", { strict: false }), npmTest)
        assert.deepInclude(yield* sandbox.exec("npm run deploy"), { stdout: "deployed\n", exitCode: 0, replayed: true })
        assert.deepInclude(yield* sandbox.exec("npm run notify"), { seq: 4, replayed: false })
        const divergence = yield* Effect.flatMap(sandboxes.resume("sbx-22222222-bbbb"), (again) =>
          Effect.flip(again.exec("npm install"))
        )
        assert.deepInclude(divergence, { _tag: "ReplayDivergence", seq: 1 })
        const all = Chunk.toReadonlyArray(yield* Stream.runCollect(ledger.read()))
        assert.strictEqual(all.filter((entry) => entry.sandboxId.startsWith("sbx-")).length, 39)
        assert.deepStrictEqual(
          Chunk.toReadonlyArray(yield* Stream.runCollect(sandbox.history)).map((entry) => entry.event),
          ["sandbox.created", "exec.started", "exec.output", "exec.completed"]
        )
      })
    )

    it.scopedLive("has a session that was left open: an interactive exec is not replayed", () =>
      Effect.gen(function* () {
        const { sandboxes } = yield* setup
        const sandbox = yield* sandboxes.resume("sbx-44444444-dddd")
        assert.isNotEmpty(sandbox.runId, "older than run ids: it gets one")
        assert.deepInclude(yield* sandbox.exec("bash"), { replayed: false, seq: 1 })
      })
    )

    it.scopedLive("is listed, newest first", () =>
      Effect.gen(function* () {
        const { sandboxes } = yield* setup
        const listed = Chunk.toReadonlyArray(yield* Stream.runCollect(sandboxes.list()))
        assert.deepStrictEqual(
          listed.map((_) => [_.sandboxId, _.name, _.status]),
          [
            ["sbx-55555555-eeee", "wf", "closed"],
            ["sbx-44444444-dddd", "shell", "running"],
            ["sbx-33333333-cccc", "fork-ci-33333333", "closed"],
            ["sbx-22222222-bbbb", "ci", "closed"],
            ["sbx-11111111-aaaa", "ci", "running"]
          ]
        )
      })
    )
  })
