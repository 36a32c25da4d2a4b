import { spawn } from "node:child_process"
import * as Fs from "node:fs"
import * as Os from "node:os"
import * as Path from "node:path"
import { fileURLToPath } from "node:url"
import { assert, describe, it } from "@effect/vitest"
import { Ledger, OpenSandbox, Sandboxes } from "@sandglass/core"
import { LocalOpenSandbox } from "@sandglass/local"
import { SqliteLedger } from "@sandglass/sql-sqlite"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Stream from "effect/Stream"
import { create, withLocal } from "../support/localSandboxes.js"

const all = <A, E, R>(stream: Stream.Stream<A, E, R>) => Effect.map(Stream.runCollect(stream), Chunk.toReadonlyArray)

describe("detached commands", () => {
  it.live(
    "outlive their follower, and following goes on where the recorded output stopped",
    () =>
      Effect.gen(function* () {
        const ledger = yield* Ledger.Ledger
        const sandbox = yield* create()
        const detached = yield* sandbox.startDetached(
          "echo out 1; echo err 1 >&2; sleep 0.5; echo é漢; printf end; exit 3",
          { strict: false }
        )
        const first = yield* Effect.scoped(Effect.flatMap(detached.attach, (running) => Stream.runHead(running.output)))
        assert.isTrue(first._tag === "Some")
        assert.deepStrictEqual(
          (yield* all(sandbox.commands)).map((_) => _.seq),
          [1]
        )
        const result = yield* Effect.scoped(Effect.flatMap(detached.attach, (running) => running.result))
        assert.deepInclude(result, { exitCode: 3, stdout: "out 1\nerr 1\né漢\nend", seq: 1 })
        assert.deepStrictEqual(yield* all(sandbox.commands), [])
        const entries = yield* all(ledger.read({ sandboxId: sandbox.id, stepIdx: 1 }))
        const texts = entries.filter((_) => _.event === "exec.output").map((_) => (_.payload as { text: string }).text)
        assert.strictEqual(texts.join(""), "out 1\nerr 1\né漢\nend", "recorded once")
        const again = yield* Effect.scoped(Effect.flatMap(detached.attach, (running) => running.result))
        assert.deepInclude(again, { exitCode: 3, stdout: "out 1\nerr 1\né漢\nend" })
      }).pipe(withLocal()),
    60_000
  )

  it.live(
    "are replayed once they ended, and stopped when asked",
    () =>
      Effect.gen(function* () {
        const sandboxes = yield* Sandboxes.Sandboxes
        const sandbox = yield* create()
        const detached = yield* sandbox.startDetached("echo done")
        yield* Effect.scoped(Effect.flatMap(detached.attach, (running) => running.result))
        yield* sandbox.checkpoint()
        const resumed = yield* sandboxes.resume(sandbox.id)
        const replayed = yield* resumed.startDetached("echo done")
        const result = yield* Effect.scoped(Effect.flatMap(replayed.attach, (running) => running.result))
        assert.deepInclude(result, { stdout: "done\n", replayed: true })
        const endless = yield* resumed.startDetached("sleep 300")
        yield* endless.interrupt
        const error = yield* Effect.flip(Effect.scoped(Effect.flatMap(endless.attach, (running) => running.result)))
        assert.deepInclude(error, { _tag: "ExecError", reason: "Killed" })
      }).pipe(withLocal()),
    60_000
  )

  it.live(
    "survive the SIGKILL of their process: another one takes them up to the exit code",
    () =>
      Effect.gen(function* () {
        const server = yield* LocalOpenSandbox.make()
        const folder = yield* Effect.acquireRelease(
          Effect.sync(() => Fs.mkdtempSync(Path.join(Os.tmpdir(), "sandglass-detached-"))),
          (folder) => Effect.sync(() => Fs.rmSync(folder, { recursive: true, force: true }))
        )
        const filename = Path.join(folder, "ledger.db")
        const worker = fileURLToPath(new URL("../support/detachedWorker.ts", import.meta.url))
        const seen = yield* Effect.async<string>((resume) => {
          const child = spawn(process.execPath, [worker, server.url, Redacted.value(server.apiKey), filename], {
            stdio: ["ignore", "pipe", "inherit"]
          })
          let output = ""
          child.stdout.on("data", (data) => {
            output += String(data)
            if (output.includes("line 3")) child.kill("SIGKILL")
          })
          child.on("close", () => resume(Effect.succeed(output)))
        })
        const [, sandboxId = ""] = /^sandbox (.*)$/m.exec(seen) ?? []
        yield* Effect.gen(function* () {
          const sandboxes = yield* Sandboxes.Sandboxes
          const sandbox = yield* sandboxes.connect(sandboxId, { detached: false })
          const [command] = yield* all(sandbox.commands)
          const running = yield* command?.attach ?? Effect.dieMessage("the ledger knows no detached command")
          const lines = yield* all(running.lines.pipe(Stream.catchTag("CommandError", () => Stream.empty)))
          assert.deepStrictEqual(
            lines,
            Array.from({ length: 10 }, (_, n) => `line ${n + 1}`)
          )
          assert.deepInclude(yield* Effect.flip(running.result), { _tag: "CommandError", exitCode: 7 })
        }).pipe(
          Effect.scoped,
          Effect.provide(
            Sandboxes.layer.pipe(
              Layer.provide(OpenSandbox.layer({ url: server.url, apiKey: server.apiKey })),
              Layer.provide(SqliteLedger.layer({ filename }))
            )
          )
        )
      }).pipe(Effect.scoped),
    60_000
  )
})
