import { assert, describe, it } from "@effect/vitest"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import { create, withLocal } from "../support/localSandboxes.js"

const serverSource = `
import { createServer } from "node:http"
const server = createServer((request, response) => response.end(request.url))
server.listen(0, "127.0.0.1", () => console.log(server.address().port))
`

describe("a sandbox on the local server", () => {
  it.live(
    "is measured every second, not while it is paused, until it is closed",
    () =>
      Effect.gen(function* () {
        const sandbox = yield* create()
        const { cpuCount, memoryTotalMiB } = yield* sandbox.metrics
        assert.isAtLeast(cpuCount, 1)
        assert.isAbove(memoryTotalMiB, 0)
        const first = yield* sandbox.watchMetrics.pipe(Stream.take(2), Stream.runCollect)
        const [one, two] = Chunk.toReadonlyArray(first)
        assert.isAtLeast((two?.timestamp ?? 0) - (one?.timestamp ?? 0), 900)
        let seen = 0
        const watching = yield* Effect.fork(Stream.runForEach(sandbox.watchMetrics, () => Effect.sync(() => seen++)))
        const more = (than: number) => Effect.repeat(Effect.sleep("20 millis"), { until: () => seen > than })
        yield* more(0)
        yield* sandbox.pause
        yield* Effect.sleep("1 second")
        const before = seen
        yield* Effect.sleep("2 seconds")
        assert.strictEqual(seen, before)
        yield* sandbox.resume
        yield* more(before)
        yield* sandbox.close
        yield* Fiber.join(watching)
        assert.isTrue(Chunk.isEmpty(yield* Stream.runCollect(sandbox.watchMetrics)))
      }).pipe(withLocal()),
    60_000
  )

  it.live(
    "has ports that are reached with and without secure access",
    () =>
      Effect.gen(function* () {
        for (const secureAccess of [false, true]) {
          const sandbox = yield* create({ secureAccess })
          yield* sandbox.files.write("/workspace/server.mjs", serverSource)
          const server = yield* sandbox.start("node server.mjs")
          const port = Number(Option.getOrNull(yield* Stream.runHead(server.lines)))
          const { client, headers } = yield* sandbox.proxy(port)
          assert.strictEqual(Object.keys(headers).length, secureAccess ? 1 : 0)
          const answer = yield* client.get("/a b?c=d")
          assert.strictEqual(yield* answer.text, "/a%20b?c=d")
        }
      }).pipe(Effect.scoped, withLocal()),
    60_000
  )

  it.live(
    "lives as long as it is told to, by the server's clock",
    () =>
      Effect.gen(function* () {
        const sandbox = yield* create({ timeout: "2 minutes" })
        const before = (yield* sandbox.info).expiresAt ?? 0
        const hour = yield* sandbox.renew("1 hour")
        assert.approximately(hour - before, 58 * 60_000, 10_000)
        assert.strictEqual((yield* sandbox.info).expiresAt, hour)
        assert.strictEqual(yield* sandbox.renew("1 minute"), hour, "a later expiry stays")
        const refused = yield* Effect.flip(sandbox.renew(0))
        assert.deepInclude(refused, { _tag: "OpenSandboxError", reason: "InvalidRequest" })
      }).pipe(withLocal()),
    60_000
  )

  it.live(
    "tells what happened to it, and what it cannot do",
    () =>
      Effect.gen(function* () {
        const sandbox = yield* create()
        yield* sandbox.exec("exit 3", { strict: false })
        const events = yield* sandbox.diagnosticEvents()
        assert.deepInclude(events, { kind: "events", scope: "all", delivery: "inline", truncated: false })
        assert.match(yield* events.text, /process command \w+ \(exit 3\) ended: .*3/)
        assert.strictEqual(yield* Effect.flatMap(sandbox.diagnosticLogs("container"), (_) => _.text), "")
        const unknown = yield* Effect.flip(sandbox.diagnosticLogs("nonsense"))
        assert.deepInclude(unknown, { reason: "InvalidRequest", code: "SANDBOX::INVALID_PARAMETER" })
        const refused = yield* Effect.flip(create({ volumes: [{ name: "v", mountPath: "/v", host: { path: "/" } }] }))
        assert.deepInclude(refused, { _tag: "OpenSandboxError", status: 501, code: "NOT_IMPLEMENTED" })
      }).pipe(withLocal()),
    60_000
  )
})
