import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import type { Sandbox } from "@sandglass/core"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Stream from "effect/Stream"
import { oneScripted, payloadsOf } from "../support/oneScripted.js"
import { complete, frame, init, ping, stderr, stdout } from "../support/ScriptedSandboxes.js"
import * as ScriptedServer from "../support/ScriptedServer.js"

const { wsBinary, wsClose, wsText } = ScriptedServer

const unhandled: Array<unknown> = []
const note = (error: unknown) => unhandled.push(error)
beforeAll(() => {
  process.on("unhandledRejection", note)
  process.on("uncaughtException", note)
})
afterAll(() => {
  process.off("unhandledRejection", note)
  process.off("uncaughtException", note)
})

interface Kind {
  /** Where the events come from. */
  readonly path: string
  readonly events: ReadonlyArray<ScriptedServer.Step>
  readonly run: (sandbox: Sandbox.Sandbox) => Effect.Effect<unknown, unknown>
  /** What asks the server to stop it. */
  readonly stop: string
  /** From how many events on the server can be asked to stop it. */
  readonly knownFrom: number
}

const lines = [init("c1"), stdout("1"), ping, stderr("2"), stdout("3"), complete]
const uploads = (request: ScriptedServer.RecordedRequest) =>
  request.path.includes("/files") ? ScriptedServer.json(200, {}) : undefined

const code = [
  init("x1"),
  frame({ type: "stdout", text: "1\n" }),
  frame({ type: "result", results: { text: "2" } }),
  frame({ type: "execution_count", execution_count: 1 }),
  complete
]

const connected = (mode: "pty" | "pipe") => wsText({ type: "connected", session_id: "t1", mode })
const socket = (mode: "pty" | "pipe") => [
  connected(mode),
  wsBinary(1, "1"),
  wsText({ type: "pong" }),
  wsBinary(mode === "pipe" ? 2 : 1, "é".slice(0, 1)),
  wsBinary(1, Buffer.from([0xc3])),
  wsText({ type: "exit", exit_code: 0 }),
  wsClose(1000, "process exited")
]

const kinds: { readonly [name: string]: Kind } = {
  "a command": {
    path: "/command",
    events: lines,
    run: (sandbox) => sandbox.exec("x"),
    stop: "DELETE /command",
    knownFrom: 1
  },
  "a command's stream": {
    path: "/command",
    events: lines,
    run: (sandbox) => Stream.runDrain(sandbox.exec("x").lines),
    stop: "DELETE /command",
    knownFrom: 1
  },
  "a started command": {
    path: "/command",
    events: lines,
    run: (sandbox) => Effect.scoped(Effect.flatMap(sandbox.start("x"), (running) => Stream.runDrain(running.output))),
    stop: "DELETE /command",
    knownFrom: 1
  },
  "a command with input and a key": {
    path: "/command",
    events: lines,
    run: (sandbox) => sandbox.exec("x", { stdin: "in", idempotencyKey: "k" }),
    stop: "DELETE /command",
    knownFrom: 1
  },
  code: {
    path: "/code",
    events: code,
    run: (sandbox) => sandbox.execCode("1 + 1", { language: "python" }),
    stop: "DELETE /code",
    knownFrom: 1
  },
  "raw bytes": {
    path: "/pty/t1/ws",
    events: socket("pipe"),
    run: (sandbox) => sandbox.exec("x", { raw: true }),
    stop: "DELETE /pty/t1",
    knownFrom: 0
  },
  "a terminal": {
    path: "/pty/t1/ws",
    events: socket("pty"),
    run: (sandbox) => Effect.scoped(Effect.flatMap(sandbox.openTerminal(), (terminal) => terminal.exitCode)),
    stop: "DELETE /pty/t1",
    knownFrom: 0
  }
}

for (const [name, { events, knownFrom, path, run, stop }] of Object.entries(kinds)) {
  describe.concurrent(`interrupting ${name}`, () => {
    for (let count = 0; count <= events.length; count++) {
      it.scopedLive(`after ${count} events leaves nothing behind`, () =>
        Effect.gen(function* () {
          const reached = yield* Deferred.make<void>()
          const asked: Array<string> = []
          let streamed: ScriptedServer.RecordedRequest | undefined
          const { entries, sandbox } = yield* oneScripted({
            override: (request) => {
              const own = request.path.replace(/^\/execd\/[^/]+/, "")
              if (own === request.path || (own === "/command" && request.text.includes('"true"'))) return undefined
              if (request.method === "DELETE") {
                asked.push(`DELETE ${own}`)
                return ScriptedServer.empty(200)
              }
              if (own === "/pty") return ScriptedServer.json(201, { session_id: "t1" })
              if (own !== path) return uploads(request)
              streamed = request
              const steps = [
                ...events.slice(0, count),
                ScriptedServer.wait(Deferred.succeed(reached, void 0)),
                ScriptedServer.hold
              ]
              return path.endsWith("/ws") ? ScriptedServer.webSocket(request, steps) : ScriptedServer.stream(steps)
            }
          })
          const fiber = yield* Effect.fork(run(sandbox))
          yield* Deferred.await(reached)
          yield* Effect.sleep("20 millis")
          const exit = yield* Fiber.interrupt(fiber).pipe(Effect.timeout("10 seconds"))
          const all = yield* entries
          const completed = payloadsOf(all, "exec.completed").length
          // Nothing but the interruption, or its end if that was faster.
          assert.isTrue(Exit.isSuccess(exit) ? completed === 1 : Exit.isInterrupted(exit), String(exit))
          if (completed === 1) assert.strictEqual(count, events.length)
          else {
            assert.strictEqual(payloadsOf(all, "exec.failed")[0]?.["reason"], "interrupted")
            assert.strictEqual(asked.includes(stop), count >= knownFrom, asked.join())
          }
          assert.strictEqual(completed + payloadsOf(all, "exec.failed").length, 1)
          yield* (streamed?.closed ?? Effect.dieMessage("nothing was asked for")).pipe(Effect.timeout("5 seconds"))
          assert.deepStrictEqual(unhandled, [])
        })
      )
    }
  })
}

describe("interrupting while the server makes something", () => {
  const creations: ReadonlyArray<
    readonly [
      name: string,
      path: string,
      run: (sandbox: Sandbox.Sandbox) => Effect.Effect<unknown, unknown>,
      made: object,
      removal: string
    ]
  > = [
    ["a terminal", "/pty", (sandbox) => Effect.scoped(sandbox.openTerminal()), { session_id: "t1" }, "DELETE /pty/t1"],
    [
      "a command over pipes",
      "/pty",
      (sandbox) => sandbox.exec("x", { raw: true }),
      { session_id: "t1" },
      "DELETE /pty/t1"
    ],
    [
      "an interpreter",
      "/code/context",
      (sandbox) => Effect.scoped(sandbox.createCodeContext("python")),
      { id: "c1", language: "python" },
      "DELETE /code/contexts/c1"
    ]
  ]
  for (const [name, path, run, made, removal] of creations) {
    it.scopedLive(`${name}: nobody waits, and what was made is removed`, () =>
      Effect.gen(function* () {
        const asked: Array<string> = []
        const arrived = yield* Deferred.make<void>()
        const answer = yield* Deferred.make<void>()
        const removed = yield* Deferred.make<void>()
        const { sandbox } = yield* oneScripted({
          override: (request) => {
            const own = request.path.replace(/^\/execd\/[^/]+/, "")
            if (own === request.path || own === "/command") return undefined
            asked.push(`${request.method} ${own}`)
            if (request.method === "DELETE")
              return Effect.as(Deferred.succeed(removed, void 0), ScriptedServer.empty(200))
            if (own !== path) return undefined
            return Deferred.succeed(arrived, void 0).pipe(
              Effect.zipRight(Deferred.await(answer)),
              Effect.as(ScriptedServer.json(201, made))
            )
          }
        })
        const fiber = yield* Effect.fork(run(sandbox))
        yield* Deferred.await(arrived)
        // The server has not answered.
        assert.isTrue(Exit.isInterrupted(yield* Fiber.interrupt(fiber)))
        assert.deepStrictEqual(asked, [`POST ${path}`])
        yield* Deferred.succeed(answer, void 0)
        yield* Deferred.await(removed)
        assert.deepStrictEqual(asked, [`POST ${path}`, removal])
      })
    )
  }

  it.scopedLive("a session: nobody waits, and what was made is forgotten", () =>
    Effect.gen(function* () {
      const arrived = yield* Deferred.make<void>()
      const answer = yield* Deferred.make<void>()
      const forgotten = yield* Deferred.make<string>()
      const { sandbox } = yield* oneScripted({
        command: ({ command }) =>
          command.startsWith("rm -rf")
            ? Effect.as(Deferred.succeed(forgotten, command), ScriptedServer.stream([init("c2"), complete]))
            : Deferred.succeed(arrived, void 0).pipe(
                Effect.zipRight(Deferred.await(answer)),
                Effect.as(
                  ScriptedServer.stream([init("c1"), stdout("made"), stdout("1"), stdout("/tmp/state/1"), complete])
                )
              )
      })
      const fiber = yield* Effect.fork(Effect.scoped(sandbox.createSession()))
      yield* Deferred.await(arrived)
      assert.isTrue(Exit.isInterrupted(yield* Fiber.interrupt(fiber)))
      yield* Deferred.succeed(answer, void 0)
      assert.strictEqual(yield* Deferred.await(forgotten), "rm -rf /tmp/state/1")
    })
  )
})
