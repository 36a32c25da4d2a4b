/**
 * The job: install, test and report on a project inside a sandbox, with a ledger. It knows nothing of crashes: given the id of a
 * session that did not finish, the same program resumes it, and the commands that had finished come back from the ledger.
 *
 *     npx bun examples/main-job/job.ts LEDGER.db OUTPUTS.json [SANDBOX_ID]
 */

import { fileURLToPath } from "node:url"
import { FileSystem, Path } from "@effect/platform"
import { BunContext, BunRuntime } from "@effect/platform-bun"
import type { Sandbox } from "@sandglass/core"
import { OpenSandbox, Sandboxes } from "@sandglass/core"
import { SqliteLedger } from "@sandglass/sql-sqlite"
import { Duration, Effect, Layer } from "effect"

const [ledgerFile = "ledger.db", outputsFile = "outputs.json", crashed] = process.argv.slice(2)

/** Copies the project's files into the sandbox with one request. */
const upload = (sandbox: Sandbox.Sandbox) =>
  Effect.gen(function* () {
    const fs = yield* FileSystem.FileSystem
    const path = yield* Path.Path
    const root = fileURLToPath(new URL("project", import.meta.url))
    const files: Array<{ path: string; content: Uint8Array }> = []
    for (const name of yield* fs.readDirectory(root, { recursive: true })) {
      const file = path.join(root, name)
      if (name.startsWith("node_modules") || (yield* fs.stat(file)).type !== "File") continue
      files.push({ path: `/workspace/${name}`, content: yield* fs.readFile(file) })
    }
    yield* sandbox.files.writeAll(files)
    console.log(`uploaded ${files.length} files`)
  })

const job = Effect.gen(function* () {
  const fs = yield* FileSystem.FileSystem
  const sandboxes = yield* Sandboxes.Sandboxes
  const outputs: Record<string, string> = {}

  const sandbox =
    crashed === undefined
      ? yield* sandboxes.create({ image: "node:22", name: "main-job", timeout: "1 hour" })
      : yield* sandboxes.resume(crashed)

  /** Runs a command with its output live on this terminal, and keeps what it printed. */
  const step = (command: string) =>
    Effect.gen(function* () {
      console.log(`\n$ ${command}`)
      const [duration, result] = yield* Effect.timed(
        sandbox.exec(command, { cwd: "/workspace" }).pipeTo(process.stdout)
      )
      outputs[command] = result.stdout + result.stderr
      yield* fs.writeFileString(outputsFile, JSON.stringify(outputs))
      console.log(
        `  [${result.replayed ? "replayed from the ledger" : "ran live"} in ${Math.round(Duration.toMillis(duration))} ms]`
      )
    })

  if (crashed === undefined) yield* upload(sandbox)
  yield* step("npm install --no-audit --no-fund")
  yield* step("npm test")
  if (crashed === undefined) yield* sandbox.checkpoint("tested")
  yield* step("npm run report")
}).pipe(Effect.scoped)

job.pipe(
  Effect.provide(
    Layer.mergeAll(
      BunContext.layer,
      Sandboxes.layer.pipe(
        Layer.provide(OpenSandbox.layerConfig()),
        Layer.provide(SqliteLedger.layer({ filename: ledgerFile }))
      )
    )
  ),
  BunRuntime.runMain
)
