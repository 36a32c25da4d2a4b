import { assert, describe, it } from "@effect/vitest"
import type { OpenSandboxError } from "@sandglass/core"
import { Execd, OpenSandbox } from "@sandglass/core"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/TestClock"
import * as ScriptedServer from "../support/ScriptedServer.js"
import * as Spans from "../support/Spans.js"

const { drop, empty, frame, hold, json, sleep, stream, text } = ScriptedServer

const withExecd = <A, E, R>(
  handler: ScriptedServer.Handler,
  use: (client: Execd.ExecdClient, server: ScriptedServer.ScriptedServer) => Effect.Effect<A, E, R>,
  options: Execd.Options = {}
) =>
  Effect.flatMap(
    ScriptedServer.make((request, index) =>
      request.path === "/v1/sandboxes/s1/endpoints/44772"
        ? json(200, { endpoint: `${request.headers.host}/execd`, headers: { "X-EXECD-ACCESS-TOKEN": "t0ken" } })
        : handler(request, index)
    ),
    (server) =>
      Effect.gen(function* () {
        const client = yield* Effect.flatMap(Execd.Execd, (execd) => execd.connect("s1"))
        return yield* use(client, server)
      }).pipe(
        Effect.provide(
          Layer.provide(
            Execd.layerWith({ retry: { baseDelay: 1 }, ...options }),
            OpenSandbox.layer({ url: server.url, retry: { baseDelay: 1 } })
          )
        )
      )
  )

const toExecd = (server: ScriptedServer.ScriptedServer) =>
  server.requests.filter(({ path }) => path.startsWith("/execd/"))

const collect = <A, E>(events: Stream.Stream<A, E>) => Effect.map(Stream.runCollect(events), Chunk.toReadonlyArray)

const observe = <A, E>(self: Stream.Stream<A, E>) =>
  Effect.suspend(() => {
    const seen: Array<A> = []
    return self.pipe(
      Stream.runForEach((a) => Effect.sync(() => seen.push(a))),
      Effect.either,
      Effect.map((result) => ({ seen, error: result._tag === "Left" ? result.left : undefined }))
    )
  })

type Failing = Effect.Effect<unknown, OpenSandboxError.OpenSandboxError>

// Bun's fetch drops what it receives together with an unclean end of the connection
const moment = sleep(500)

const init = (text: string) => frame({ type: "init", text, timestamp: 1 })
const complete = frame({ type: "execution_complete", execution_time: 5, timestamp: 1 })

describe("sessions", () => {
  it.scopedLive("are made, run commands, and are deleted", () =>
    withExecd(
      ScriptedServer.sequence(
        json(200, { session_id: "b1" }),
        json(200, { session_id: "b2" }),
        stream([init("b1") + frame({ type: "stdout", text: "a" }) + frame({ type: "stdout", text: "b" }) + complete]),
        stream([
          init("b1"),
          frame({ type: "error", error: { ename: "CommandExecError", evalue: "3", traceback: ["exit status 3"] } })
        ]),
        empty(200),
        json(404, { code: "CONTEXT_NOT_FOUND", message: "session b1 not found" })
      ),
      (client, server) =>
        Effect.gen(function* () {
          assert.strictEqual(yield* client.createSession({ cwd: "/w" }), "b1")
          assert.strictEqual(yield* client.createSession(), "b2")
          const events = yield* collect(
            client.runInSession("b1", { command: "echo a; echo b", cwd: "/x", timeout: "5 seconds" })
          )
          assert.deepStrictEqual(events, [
            { _tag: "Init", commandId: "b1" },
            { _tag: "Output", stream: "stdout", text: "a\nb\n" },
            { _tag: "Exit", exitCode: 0, durationMillis: 5 }
          ])
          const [, failed] = yield* collect(client.runInSession("b1", { command: "exit 3" }))
          assert.deepInclude(failed, { _tag: "Exit", exitCode: 3 })
          yield* client.deleteSession("b1")
          yield* client.deleteSession("b1")
          assert.deepStrictEqual(
            toExecd(server).map(({ method, target, text }) => [`${method} ${target.slice(6)}`, text]),
            [
              ["POST /session", '{"cwd":"/w"}'],
              ["POST /session", "{}"],
              ["POST /session/b1/run", '{"command":"echo a; echo b","cwd":"/x","timeout":5000}'],
              ["POST /session/b1/run", '{"command":"exit 3"}'],
              ["DELETE /session/b1", ""],
              ["DELETE /session/b1", ""]
            ]
          )
        })
    )
  )

  it.scopedLive("a lost stream, an error inside it, and one before it are failures", () =>
    withExecd(
      ScriptedServer.sequence(
        stream([init("b1"), frame({ type: "stdout", text: "a" }), moment, drop]),
        stream([init("b1"), JSON.stringify({ code: "RUNTIME_ERROR", message: "no such file or directory" })]),
        json(404, { code: "CONTEXT_NOT_FOUND", message: "session not found" }),
        stream([])
      ),
      (client, server) =>
        Effect.gen(function* () {
          const run = client.runInSession("b1", { command: "x" })
          const lost = yield* observe(run)
          assert.strictEqual(lost.error?.reason, "Transport")
          assert.lengthOf(lost.seen, 2)
          assert.deepInclude((yield* observe(run)).error, { reason: "ServerError", code: "RUNTIME_ERROR" })
          assert.deepInclude((yield* observe(run)).error, { reason: "NotFound", status: 404, method: "runInSession" })
          assert.strictEqual((yield* observe(run)).error?.reason, "Transport")
          // sent once each
          assert.lengthOf(toExecd(server), 4)
        })
    )
  )

  it.scopedLive("bad requests are refused before anything is sent", () =>
    withExecd(
      () => empty(200),
      (client, server) =>
        Effect.gen(function* () {
          const bad: ReadonlyArray<Failing> = [
            Stream.runDrain(client.runInSession("b", { command: "" })),
            Stream.runDrain(client.runInSession("", { command: "x" })),
            Stream.runDrain(client.runInSession("b", { command: "x", timeout: 0 })),
            client.deleteSession(".."),
            Stream.runDrain(client.runCode({ code: "" })),
            Stream.runDrain(client.runCode({ code: "x", context: { language: "" } })),
            Stream.runDrain(client.runCode({ code: "x", context: { language: "python", id: "" } })),
            client.createCodeContext(""),
            client.codeContexts(""),
            client.deleteCodeContexts(""),
            client.codeContext(""),
            client.interruptCode("")
          ]
          for (const one of bad) assert.strictEqual((yield* Effect.flip(one)).reason, "InvalidRequest")
          assert.lengthOf(server.requests, 0)
        })
    )
  )
})

describe("code", () => {
  it.scopedLive("contexts: made, listed, read, deleted", () =>
    withExecd(
      ScriptedServer.sequence(
        json(200, { id: "p1", language: "python" }),
        json(200, [{ id: "p1", language: "python", future: 1 }, { id: "p2" }]),
        json(200, null),
        json(200, { id: "p1", language: "python" }),
        empty(200),
        json(404, { code: "CONTEXT_NOT_FOUND", message: "gone" }),
        empty(200),
        json(404, { code: "CONTEXT_NOT_FOUND", message: "gone" })
      ),
      (client, server) =>
        Effect.gen(function* () {
          const context = { id: "p1", language: "python" }
          assert.deepStrictEqual(yield* client.createCodeContext("python"), context)
          assert.deepStrictEqual(yield* client.codeContexts("python"), [context, { id: "p2", language: "python" }])
          assert.deepStrictEqual(yield* client.codeContexts("c++"), [])
          assert.deepStrictEqual(yield* client.codeContext("p1"), context)
          yield* client.deleteCodeContext("p1")
          yield* client.deleteCodeContext("p1")
          yield* client.deleteCodeContexts("python")
          assert.strictEqual((yield* Effect.flip(client.codeContext("p1"))).reason, "NotFound")
          assert.deepStrictEqual(
            toExecd(server).map(({ method, target }) => `${method} ${target.slice(6)}`),
            [
              "POST /code/context",
              "GET /code/contexts?language=python",
              "GET /code/contexts?language=c%2B%2B",
              "GET /code/contexts/p1",
              "DELETE /code/contexts/p1",
              "DELETE /code/contexts/p1",
              "DELETE /code/contexts?language=python",
              "GET /code/contexts/p1"
            ]
          )
        })
    )
  )

  it.scopedLive("text as it was printed, results, the count", () =>
    withExecd(
      () =>
        stream([
          [
            init("p1"),
            frame({ type: "status", text: "busy" }),
            frame({ type: "stdout", text: "a" }),
            frame({ type: "stdout", text: "b\n\n" }),
            frame({ type: "stderr", text: "warn" }),
            frame({ type: "execution_count", execution_count: 7 }),
            frame({ type: "result", results: { text: "4", "text/html": "<b>4</b>", "application/json": { x: [1] } } }),
            frame({ type: "result", results: null }),
            frame({ type: "heartbeat2" }),
            complete
          ].join("")
        ]),
      (client, server) =>
        Effect.gen(function* () {
          const events = yield* collect(
            client.runCode({ code: "print(1)\n2+2", context: { id: "p1", language: "python" } })
          )
          assert.deepStrictEqual(events, [
            { _tag: "Init", commandId: "p1" },
            { _tag: "Output", stream: "stdout", text: "ab\n\n" },
            { _tag: "Output", stream: "stderr", text: "warn" },
            { _tag: "ExecutionCount", count: 7 },
            {
              _tag: "Result",
              data: { "text/plain": "4", "text/html": "<b>4</b>", "application/json": { x: [1] } }
            },
            { _tag: "Exit", exitCode: 0, durationMillis: 5 }
          ])
          assert.deepStrictEqual(toExecd(server)[0]?.json, {
            code: "print(1)\n2+2",
            context: { id: "p1", language: "python" }
          })
          yield* collect(client.runCode({ code: "ls" }))
          yield* collect(client.runCode({ code: "1", context: { language: "python" } }))
          assert.deepStrictEqual(
            toExecd(server)
              .slice(1)
              .map(({ json }) => json),
            [{ code: "ls" }, { code: "1", context: { language: "python" } }]
          )
        })
    )
  )

  it.scopedLive("an error of the language is the terminal event, and what follows it does not count", () =>
    withExecd(
      () =>
        stream([
          init("p1"),
          frame({
            type: "error",
            error: { ename: "NameError", evalue: "name 'x' is not defined", traceback: ["line 1", "NameError"] }
          }),
          complete,
          hold
        ]),
      (client) =>
        Effect.gen(function* () {
          const events = yield* collect(client.runCode({ code: "x", context: { language: "python" } }))
          assert.deepInclude(events[1], {
            _tag: "Exit",
            exitCode: undefined,
            name: "NameError",
            message: "name 'x' is not defined",
            traceback: ["line 1", "NameError"]
          })
          assert.lengthOf(events, 2)
        })
    )
  )

  it.scopedLive("a number as the value of a language error is no exit code", () =>
    withExecd(
      () => stream([frame({ type: "error", error: { ename: "SystemExit", evalue: "0" } })]),
      (client) =>
        Effect.gen(function* () {
          const [exit] = yield* collect(client.runCode({ code: "exit(0)", context: { language: "python" } }))
          assert.deepInclude(exit, { _tag: "Exit", exitCode: undefined, name: "SystemExit", message: "0" })
        })
    )
  )

  it.scopedLive("interruptCode: what is gone counts, another error is one", () =>
    withExecd(
      ScriptedServer.sequence(
        empty(200),
        json(404, { code: "NOT_FOUND", message: "gone" }),
        json(500, { code: "RUNTIME_ERROR", message: "cannot" })
      ),
      (client, server) =>
        Effect.gen(function* () {
          yield* client.interruptCode("p1")
          yield* client.interruptCode("p1")
          assert.strictEqual((yield* Effect.flip(client.interruptCode("p1"))).code, "RUNTIME_ERROR")
          assert.deepStrictEqual(
            toExecd(server).map(({ method, target }) => `${method} ${target}`),
            Array.from({ length: 3 }, () => "DELETE /execd/code?id=p1")
          )
        })
    )
  )

  it.scopedLive("the code shows in no span", () =>
    Effect.gen(function* () {
      const { text: shown } = yield* Spans.record(
        withExecd(
          () => stream([init("p1"), complete]),
          (client) => Stream.runDrain(client.runCode({ code: "s3cret()", context: { language: "python" } }))
        )
      )
      assert.include(shown, "Execd.runCode")
      for (const secret of ["s3cret", "t0ken"]) assert.notInclude(shown, secret)
    })
  )
})

const wire = (used: number) => ({
  cpu_count: 4,
  cpu_used_pct: used,
  mem_total_mib: 8192,
  mem_used_mib: 4096.5,
  timestamp: 1700000000000
})
const metrics = (used: number): Execd.Metrics => ({
  cpuCount: 4,
  cpuUsedPercent: used,
  memoryTotalMiB: 8192,
  memoryUsedMiB: 4096.5,
  timestamp: 1700000000000
})

describe("metrics", () => {
  it.scopedLive("one measurement", () =>
    withExecd(
      ScriptedServer.sequence(text(503, "busy"), json(200, { ...wire(1.5), future: 1 }), json(200, {})),
      (client) =>
        Effect.gen(function* () {
          assert.deepStrictEqual(yield* client.metrics, metrics(1.5))
          assert.strictEqual((yield* Effect.flip(client.metrics)).reason, "Decode")
        })
    )
  )

  it.scopedLive("watched: packets are not frames, bare or as events", () =>
    withExecd(
      () =>
        stream([
          `${JSON.stringify(wire(1))}\n\n${JSON.stringify(wire(2))}\r\n`,
          ":comment\nevent: m\ndata: ",
          JSON.stringify(wire(3)).slice(0, 10),
          `${JSON.stringify(wire(3)).slice(10)}\n\n{"type":"ping"}\n`,
          `data:${JSON.stringify(wire(4))}\n`,
          hold
        ]),
      (client, server) =>
        Effect.gen(function* () {
          const seen = yield* collect(Stream.take(client.watchMetrics, 4))
          assert.deepStrictEqual(seen, [1, 2, 3, 4].map(metrics))
          // ended early, it frees the socket
          yield* toExecd(server)[0]?.disconnected ?? Effect.void
        })
    )
  )

  it.scopedLive("watched: its start is repeated; an end, an error and a page are failures", () =>
    withExecd(
      ScriptedServer.sequence(
        text(503, "busy"),
        stream([`${JSON.stringify(wire(1))}\n`]),
        stream([`${JSON.stringify(wire(1))}\n{"error":"no cpu"}\n`, hold]),
        stream(["<html>\n", hold]),
        stream(["{".repeat(100_000), hold])
      ),
      (client) =>
        Effect.gen(function* () {
          const ended = yield* observe(client.watchMetrics)
          assert.deepStrictEqual(ended.seen, [metrics(1)])
          assert.strictEqual(ended.error?.reason, "Transport")
          const failed = yield* observe(client.watchMetrics)
          assert.deepStrictEqual(failed.seen, [metrics(1)])
          assert.deepInclude(failed.error, { reason: "ServerError", description: "no cpu" })
          assert.strictEqual((yield* observe(client.watchMetrics)).error?.reason, "Decode")
          assert.strictEqual((yield* observe(client.watchMetrics)).error?.reason, "Decode")
        })
    )
  )

  it.scoped("watched: silence is a Timeout", () =>
    withExecd(
      () => stream([`${JSON.stringify(wire(1))}\n`, hold]),
      (client, server) =>
        Effect.gen(function* () {
          const fiber = yield* Effect.fork(observe(client.watchMetrics))
          yield* server.waitForRequests(2)
          for (let turn = 0; turn < 10; turn++) {
            yield* Effect.async<void>((resume) => {
              setTimeout(() => resume(Effect.void), 20)
            })
            yield* TestClock.adjust("4 seconds")
          }
          const { error, seen } = yield* Fiber.join(fiber)
          assert.deepStrictEqual(seen, [metrics(1)])
          assert.strictEqual(error?.reason, "Timeout")
        })
    )
  )
})
