import { assert, describe, it } from "@effect/vitest"
import { Ledger, Sandboxes } from "@sandglass/core"
import * as Chunk from "effect/Chunk"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Stream from "effect/Stream"
import * as ScriptedSandboxes from "../support/ScriptedSandboxes.js"
import { complete, exited, init, stderr, stdout } from "../support/ScriptedSandboxes.js"
import * as ScriptedServer from "../support/ScriptedServer.js"

const setup = (script: ScriptedSandboxes.Script) =>
  Effect.gen(function* () {
    const server = yield* ScriptedSandboxes.make(script)
    const context = yield* Layer.build(
      Sandboxes.layer.pipe(Layer.provideMerge(Layer.merge(server.layer, Ledger.layerMemory)))
    )
    const sandbox = yield* Context.get(context, Sandboxes.Sandboxes).create({ image: "i" })
    return { server, sandbox }
  })

describe("what runs around a command", () => {
  it.scopedLive("an input that cannot be sent is an error of its own, and nothing was started", () =>
    Effect.gen(function* () {
      const removed: Array<string> = []
      const { sandbox, server } = yield* setup({
        command: () => ScriptedServer.stream([init("c"), complete]),
        override: (request) => {
          if (request.path.endsWith("/files/upload")) return ScriptedServer.resetConnection
          if (!request.path.includes("/files")) return undefined
          removed.push(request.method)
          return ScriptedServer.empty(200)
        }
      })
      const before = server.commands.length
      const error = yield* Effect.flip(sandbox.exec("cat", { stdin: "x" }))
      assert.deepInclude(error, { _tag: "OpenSandboxError", method: "upload", reason: "Transport" })
      const detached = yield* Effect.flip(sandbox.startDetached("cat", { stdin: "x" }))
      assert.deepInclude(detached, { _tag: "OpenSandboxError", method: "upload", reason: "Transport" })
      assert.strictEqual(server.commands.length, before)
      assert.deepStrictEqual(removed, ["DELETE", "DELETE"])
      const failed = yield* sandbox.history.pipe(
        Stream.filter(({ event }) => event === "exec.failed"),
        Stream.runCollect,
        Effect.map(Chunk.toReadonlyArray)
      )
      for (const { payload } of failed) assert.deepInclude(payload, { reason: "rejected" })
      assert.strictEqual(failed.length, 2)
    })
  )

  it.scopedLive("a script's own failure has no exit code, and nothing that a command prints makes it succeed", () =>
    Effect.gen(function* () {
      let end: string = complete
      const { sandbox } = yield* setup({
        command: ({ command }) => {
          const mark = /sandglass-[0-9a-z]+: /.exec(command)?.[0] ?? ""
          return ScriptedServer.stream([init("c"), stdout("out"), stderr(`${mark}it is full`), end])
        }
      })
      const exec = sandbox.exec("echo", { idempotencyKey: "k", strict: false })
      for (const told of [exited(-1), exited(125)]) {
        end = told
        const error = yield* Effect.flip(exec)
        assert.deepInclude(error, { _tag: "ExecError", reason: "Failed", description: "it is full", stderr: "" })
      }
      end = exited(3)
      assert.strictEqual((yield* exec).exitCode, 3)
      end = complete
      assert.strictEqual((yield* exec).exitCode, 0)
    })
  )
})
