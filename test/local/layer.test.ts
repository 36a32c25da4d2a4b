import * as Fs from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import * as Execd from "@sandglass/core/Execd"
import * as OpenSandbox from "@sandglass/core/OpenSandbox"
import * as LocalOpenSandbox from "@sandglass/local/LocalOpenSandbox"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Stream from "effect/Stream"
import { modes } from "./support.js"

describe("LocalOpenSandbox.layer", () => {
  it("is a value, shared by reference", () => {
    assert.isTrue(Layer.isLayer(LocalOpenSandbox.layer))
  })

  it.live("starts a server with core's client on it, and ends it", () =>
    Effect.gen(function* () {
      const directory = yield* Effect.gen(function* () {
        const server = yield* LocalOpenSandbox.LocalServer
        assert.match(server.url, /^http:\/\/127\.0\.0\.1:\d+$/)
        assert.include(modes, server.mode)
        assert.strictEqual(String(server.apiKey), "<redacted>")
        const api = yield* OpenSandbox.OpenSandbox
        const { id } = yield* api.create({ image: "node:22", metadata: { a: "b" } })
        assert.strictEqual((yield* api.get(id)).status.state, "Running")
        return server.directory
      }).pipe(Effect.provide(LocalOpenSandbox.layer))
      assert.isFalse(Fs.existsSync(directory))
    })
  )

  for (const mode of modes) {
    it.live(`carries core's execd client (${mode})`, () =>
      Effect.gen(function* () {
        const api = yield* OpenSandbox.OpenSandbox
        const { id } = yield* api.create({ image: "node:22" })
        const client = yield* Effect.flatMap(Execd.Execd, (execd) => execd.connect(id))
        yield* client.ready()
        const events = yield* Stream.runCollect(client.command({ command: "echo hi; exit 3" }))
        assert.deepStrictEqual(
          [...events].map((event) => event._tag),
          ["Init", "Output", "Exit"]
        )
        yield* client.upload([{ path: "/workspace/报告 100%.csv", content: "x", mode: 0o640 }])
        const info = (yield* client.info(["/workspace/报告 100%.csv"])).get("/workspace/报告 100%.csv")
        assert.deepStrictEqual([info?.mode, info?.size, info?.type], ["640", 1, "file"])
        const slice = yield* Stream.runFold(
          client.download("/workspace/报告 100%.csv"),
          "",
          (text, bytes) => text + Buffer.from(bytes).toString()
        )
        assert.strictEqual(slice, "x")
        const listed = yield* Stream.runCollect(api.list({ states: ["Running"] }))
        assert.deepStrictEqual(
          [...listed].map((sandbox) => sandbox.id),
          [id]
        )
        yield* api.delete(id)
        yield* api.delete(id)
      }).pipe(Effect.provide(Execd.layer.pipe(Layer.provideMerge(LocalOpenSandbox.layerWith({ mode })))))
    )
  }
})
