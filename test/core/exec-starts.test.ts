import { assert, describe, it } from "@effect/vitest"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Stream from "effect/Stream"
import { oneScripted, payloadsOf, refusing } from "../support/oneScripted.js"
import { exited, init } from "../support/ScriptedSandboxes.js"
import * as ScriptedServer from "../support/ScriptedServer.js"

const endless = Stream.concat(Stream.make(new Uint8Array(1000)), Stream.never)

/** Uploads are taken whole, and anything else of the files API succeeds. */
const files = (request: ScriptedServer.RecordedRequest) =>
  request.path.includes("/files") || request.path.includes("/directories") ? ScriptedServer.json(200, {}) : undefined

describe("before a command is sent", () => {
  for (const [name, options] of [
    ["a plain command", {}],
    ["bytes", { raw: true }],
    ["a key", { idempotencyKey: "k" }]
  ] as const) {
    // With a clock that stands still: whoever waits for a time waits for ever.
    it.scoped(`an interruption while ${name} waits for its input is immediate: there is nothing to stop`, () =>
      Effect.gen(function* () {
        const { entries, sandbox, server } = yield* oneScripted({ override: files })
        const begun = yield* Deferred.make<void>()
        const stdin = Stream.tap(endless, () => Deferred.succeed(begun, void 0))
        const fiber = yield* Effect.fork(sandbox.exec("cat", { stdin, ...options }))
        yield* Deferred.await(begun)
        assert.isTrue(Exit.isInterrupted(yield* Fiber.interrupt(fiber)))
        assert.lengthOf(server.commands, 0)
        assert.lengthOf(server.interrupted, 0)
        const [failed] = payloadsOf(yield* entries, "exec.failed")
        assert.strictEqual(failed?.["reason"], "interrupted")
      })
    )
  }

  it.scopedLive("a detached command that waits for its input can be interrupted", () =>
    Effect.gen(function* () {
      const { entries, sandbox, server } = yield* oneScripted({ override: files })
      const begun = yield* Deferred.make<void>()
      const stdin = Stream.tap(endless, () => Deferred.succeed(begun, void 0))
      const fiber = yield* Effect.fork(sandbox.startDetached("cat", { stdin }))
      yield* Deferred.await(begun)
      const exit = yield* Fiber.interrupt(fiber).pipe(Effect.timeout("5 seconds"))
      assert.isTrue(Exit.isInterrupted(exit))
      assert.lengthOf(server.commands, 0)
      const [failed] = payloadsOf(yield* entries, "exec.failed")
      assert.strictEqual(failed?.["reason"], "interrupted")
    })
  )

  it.scopedLive("the time that the input takes is no part of the timeout", () =>
    Effect.gen(function* () {
      const { sandbox } = yield* oneScripted({
        override: files,
        command: () => ScriptedServer.stream([init("c1"), exited(-1)])
      })
      const stdin = Stream.fromEffect(Effect.as(Effect.sleep("300 millis"), new Uint8Array(1)))
      const error = yield* Effect.flip(sandbox.exec("cat", { stdin, timeout: "250 millis" }))
      assert.deepInclude(error, { _tag: "ExecError", reason: "Killed" })
    })
  )
})

describe("a detached command", () => {
  it.scopedLive("whose id cannot be recorded is stopped: nobody could find it again", () =>
    Effect.gen(function* () {
      const { entries, sandbox, server } = yield* oneScripted(
        { command: () => ScriptedServer.stream([init("c1"), ScriptedServer.hold]) },
        { ledger: refusing(({ event }) => event === "exec.detached") }
      )
      const error = yield* Effect.flip(sandbox.startDetached("serve"))
      assert.deepInclude(error, { _tag: "LedgerError", reason: "Connection" })
      assert.deepStrictEqual(server.interrupted, ["c1"])
      assert.deepInclude(payloadsOf(yield* entries, "exec.failed")[0], { reason: "ledger", commandId: "c1" })
    })
  )
})
