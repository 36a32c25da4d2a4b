import { assert, describe, it } from "@effect/vitest"
import { Ledger, Sandboxes, SandboxMetrics } from "@sandglass/core"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as LogLevel from "effect/LogLevel"
import * as Metric from "effect/Metric"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Sink from "effect/Sink"
import * as Stream from "effect/Stream"
import type * as Tracer from "effect/Tracer"
import * as ScriptedSandboxes from "../support/ScriptedSandboxes.js"
import { complete, exited, init, stdout } from "../support/ScriptedSandboxes.js"
import * as ScriptedServer from "../support/ScriptedServer.js"
import * as Spans from "../support/Spans.js"

const secrets = ["lifecycle-secret", "execd-secret", "env-secret", "stdin-secret"]

describe("observability", () => {
  it.scopedLive("spans along create, exec and ledger, metrics, and secrets in none of them", () =>
    Effect.gen(function* () {
      const logged: Array<string> = []
      const logger = Logger.make(({ cause, message }) => logged.push(`${String(message)} ${JSON.stringify(cause)}`))
      const server = yield* ScriptedSandboxes.make({
        command: ({ command }) =>
          command === "fail"
            ? ScriptedServer.json(500, { code: "BROKEN", message: "no" })
            : ScriptedServer.stream([init("c1"), stdout("é漢🐳"), complete])
      })
      const live = Metric.value(SandboxMetrics.sandboxesLive)
      const completed = Metric.value(Metric.tagged(SandboxMetrics.execs, "outcome", "completed"))
      const before = {
        live: (yield* live).count,
        completed: (yield* completed).count,
        bytes: (yield* Metric.value(SandboxMetrics.outputBytes)).count,
        durations: (yield* Metric.value(SandboxMetrics.execDuration)).count,
        appends: (yield* Metric.value(SandboxMetrics.appendDuration)).count
      }
      const errors: Array<unknown> = []
      const { spans, text } = yield* Effect.gen(function* () {
        const sandboxes = yield* Sandboxes.Sandboxes
        const sandbox = yield* sandboxes.create({ image: "i", env: { A: Redacted.make("env-secret") } })
        assert.strictEqual((yield* live).count, before.live + 1)
        yield* sandbox.exec("make", { env: { TOKEN: Redacted.make("env-secret") } })
        errors.push(yield* Effect.flip(sandbox.exec("fail", { env: { TOKEN: "env-secret" } })))
      }).pipe(
        Effect.scoped,
        Effect.provide(Sandboxes.layer.pipe(Layer.provide(Layer.merge(server.layer, Ledger.layerMemory)))),
        Effect.provide(Layer.merge(Logger.replace(Logger.defaultLogger, logger), Logger.minimumLogLevel(LogLevel.All))),
        Spans.record
      )
      assert.strictEqual((yield* live).count, before.live)
      assert.strictEqual((yield* completed).count, before.completed + 1)
      assert.strictEqual((yield* Metric.value(SandboxMetrics.outputBytes)).count, before.bytes + 2 + 3 + 4 + 1)
      assert.strictEqual((yield* Metric.value(SandboxMetrics.execDuration)).count, before.durations + 2)
      assert.isAbove((yield* Metric.value(SandboxMetrics.appendDuration)).count, before.appends)

      const names = spans.map((span) => span.name)
      for (const name of [
        "Sandboxes.create",
        "OpenSandbox.create",
        "Execd.ready",
        "Sandbox.exec",
        "Execd.command",
        "Ledger.appendAll",
        "Sandbox.close",
        "OpenSandbox.delete"
      ]) {
        assert.include(names, name)
      }
      const everything = JSON.stringify([text, logged, errors])
      for (const secret of secrets) assert.notInclude(everything, secret)
    })
  )

  it.scopedLive("each way to run a command has its span, with everything below it, and counts", () =>
    Effect.gen(function* () {
      const server = yield* ScriptedSandboxes.make({
        command: ({ command }) =>
          ScriptedServer.stream([init("c1"), stdout("héllo"), command === "fail" ? exited(3) : complete]),
        override: ({ path, query }) =>
          path.includes("/command/status/")
            ? ScriptedServer.json(200, { id: "c1", running: false, exit_code: 0 })
            : path.endsWith("/logs")
              ? ScriptedServer.text(200, query.get("cursor") === "9" ? "" : "détaché", {
                  "EXECD-COMMANDS-TAIL-CURSOR": "9"
                })
              : undefined
      })
      const bytes = Effect.map(Metric.value(SandboxMetrics.outputBytes), (_) => _.count)
      const appends = Effect.map(Metric.value(SandboxMetrics.appendDuration), (_) => _.count)
      const { spans } = yield* Effect.gen(function* () {
        const sandboxes = yield* Sandboxes.Sandboxes
        const sandbox = yield* sandboxes.create({ image: "i" })
        const bytesBefore = yield* bytes
        yield* sandbox.exec("a")
        yield* Stream.runDrain(sandbox.exec("b").lines)
        yield* Effect.flip(sandbox.exec("fail").pipeTo(Sink.drain))
        yield* Effect.flatMap(sandbox.start("c"), ({ result }) => result)
        assert.strictEqual((yield* bytes) - bytesBefore, 4 * 7)
        const detached = yield* sandbox.startDetached("d")
        const appendsBefore = yield* appends
        yield* Effect.flatMap(detached.attach, ({ result }) => result)
        assert.strictEqual((yield* bytes) - bytesBefore, 4 * 7 + 9)
        assert.isAbove(yield* appends, appendsBefore)
      }).pipe(
        Effect.scoped,
        Effect.provide(Sandboxes.layer.pipe(Layer.provide(Layer.merge(server.layer, Ledger.layerMemory)))),
        Spans.record
      )
      const parentOf = (span: Tracer.Span) =>
        spans.find(({ spanId }) => spanId === Option.getOrUndefined(span.parent)?.spanId)
      const execs = spans.filter(({ name }) => name === "Sandbox.exec")
      assert.deepStrictEqual(
        execs.map((span) => [
          span.attributes.get("sandbox.exec.seq"),
          span.attributes.get("process.exit.code"),
          parentOf(span)?.name
        ]),
        [
          [1, 0, undefined],
          [2, 0, undefined],
          [3, 3, undefined],
          [4, 0, "Sandbox.start"],
          [5, 0, undefined]
        ]
      )
      const creation = spans.find(({ name }) => name === "OpenSandbox.create")
      assert.strictEqual(creation?.attributes.get("container.image.name"), "i")
      for (const span of spans) {
        if (/^(Sandbox|Ledger|Execd)/.test(span.name))
          assert.strictEqual(span.attributes.get("sandbox.id"), "sbx1", span.name)
        if (span.name.startsWith("Ledger.append")) {
          const above = parentOf(span)?.name
          assert.include(["Sandboxes.create", "Sandbox.exec", "Sandbox.startDetached", "Sandbox.close"], above)
        }
      }
    })
  )
})
