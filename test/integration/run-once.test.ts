import { spawn } from "node:child_process"
import * as Fs from "node:fs"
import * as Os from "node:os"
import * as Path from "node:path"
import { fileURLToPath } from "node:url"
import { assert, describe, it } from "@effect/vitest"
import { OpenSandbox, Sandboxes } from "@sandglass/core"
import { LocalOpenSandbox } from "@sandglass/local"
import { SqliteLedger } from "@sandglass/sql-sqlite"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Stream from "effect/Stream"

describe("run once", () => {
  it.live(
    "the same keys after the SIGKILL of the process find its sandbox and the outcome of its command",
    () =>
      Effect.gen(function* () {
        const server = yield* LocalOpenSandbox.make()
        const folder = yield* Effect.acquireRelease(
          Effect.sync(() => Fs.mkdtempSync(Path.join(Os.tmpdir(), "sandglass-once-"))),
          (folder) => Effect.sync(() => Fs.rmSync(folder, { recursive: true, force: true }))
        )
        const filename = Path.join(folder, "ledger.db")
        const worker = fileURLToPath(new URL("../support/onceWorker.ts", import.meta.url))
        const command = "echo ran >>ran; for n in 1 2 3 4 5 6; do echo line $n; sleep 0.2; done; exit 7"
        yield* Effect.async<void>((resume) => {
          const args = [worker, server.url, Redacted.value(server.apiKey), filename, command]
          const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] })
          let output = ""
          child.stdout.on("data", (data) => {
            output += String(data)
            if (output.includes("line 2")) child.kill("SIGKILL")
          })
          child.on("close", () => resume(Effect.void))
        })
        yield* Effect.gen(function* () {
          const sandboxes = yield* Sandboxes.Sandboxes
          const again = { image: "node:22", idempotencyKey: "worker" }
          const sandbox = yield* sandboxes.create(again)
          const options = { idempotencyKey: "once", strict: false }
          const expected = { exitCode: 7, stdout: "line 1\nline 2\nline 3\nline 4\nline 5\nline 6\n" }
          const [first, second] = yield* Effect.all([sandbox.exec(command, options), sandbox.exec(command, options)], {
            concurrency: 2
          })
          assert.deepInclude(first, expected)
          assert.deepInclude(second, expected)
          assert.strictEqual((yield* sandbox.exec("cat ran")).stdout, "ran\n")
          assert.strictEqual(yield* Stream.runCount(sandboxes.list()), 1, "no second sandbox")
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
