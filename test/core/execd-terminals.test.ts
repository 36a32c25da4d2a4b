import * as ChildProcess from "node:child_process"
import { assert, describe, it } from "@effect/vitest"
import { Execd, OpenSandbox } from "@sandglass/core"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/TestClock"
import * as ScriptedServer from "../support/ScriptedServer.js"
import * as Spans from "../support/Spans.js"

const { hold, json, reset, wait, webSocket, wsBinary, wsClose, wsPing, wsText } = ScriptedServer

const connected = wsText({ type: "connected", session_id: "t1", mode: "pty" })
const exit = (code: number) => wsText({ type: "exit", exit_code: code })
const stdout = (text: string | Uint8Array) => wsBinary(1, text)
const stderr = (text: string) => wsBinary(2, text)
const replay = (offset: number, text: string | Uint8Array) => {
  const position = Buffer.alloc(8)
  position.writeBigUInt64BE(BigInt(offset))
  return wsBinary(3, position, text)
}
const goodbye = wsClose(1000, "process exited")

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

const sockets = (server: ScriptedServer.ScriptedServer) => server.requests.filter(({ path }) => path.endsWith("/ws"))

/** A handler for the socket; the terminal is running. */
const terminal =
  (...handlers: ReadonlyArray<(request: ScriptedServer.RecordedRequest) => ScriptedServer.Reply>) =>
  (request: ScriptedServer.RecordedRequest): ScriptedServer.Reply => {
    if (request.path === "/execd/pty/t1") return json(200, { session_id: "t1", running: true, output_offset: 9 })
    return handlers[Math.min(used++, handlers.length - 1)]?.(request) ?? json(500, {})
  }
let used = 0
const script = (...handlers: ReadonlyArray<(request: ScriptedServer.RecordedRequest) => ScriptedServer.Reply>) => {
  used = 0
  return terminal(...handlers)
}

const bytesOf = (events: Iterable<Execd.TerminalEvent>) =>
  Buffer.concat([...events].map((event) => (event._tag === "Output" ? event.bytes : new Uint8Array())))

const summary = (events: Iterable<Execd.TerminalEvent>) =>
  [...events].map((event) =>
    event._tag === "Exit"
      ? `exit ${event.exitCode}`
      : `${event.replayed ? "replayed " : ""}${event.channel} ${Buffer.from(event.bytes).toString()} @${event.offset}`
  )

const observe = <E>(self: Stream.Stream<Execd.TerminalEvent, E>) =>
  Effect.suspend(() => {
    const seen: Array<Execd.TerminalEvent> = []
    return self.pipe(
      Stream.runForEach((event) => Effect.sync(() => seen.push(event))),
      Effect.either,
      Effect.map((result) => ({ seen, error: result._tag === "Left" ? result.left : undefined }))
    )
  })

describe("terminals", () => {
  it.scopedLive("are made, described and deleted", () =>
    withExecd(
      ScriptedServer.sequence(
        json(201, { session_id: "t1" }),
        json(200, { session_id: "t1", running: false, output_offset: 0 }),
        ScriptedServer.empty(200),
        json(404, { code: "CONTEXT_NOT_FOUND", message: "gone" })
      ),
      (client, server) =>
        Effect.gen(function* () {
          assert.strictEqual(yield* client.createTerminal({ cwd: "/w", command: "top" }), "t1")
          assert.deepStrictEqual(yield* client.terminal("t1"), { id: "t1", running: false, outputOffset: 0 })
          yield* client.deleteTerminal("t1")
          yield* client.deleteTerminal("t1")
          assert.deepStrictEqual(
            server.requests.slice(1).map(({ method, target }) => `${method} ${target}`),
            ["POST /execd/pty", "GET /execd/pty/t1", "DELETE /execd/pty/t1", "DELETE /execd/pty/t1"]
          )
          assert.deepStrictEqual(server.requests[1]?.json, { cwd: "/w", command: "top" })
        })
    )
  )

  it.scopedLive("the token goes in a header, the options in the query, and the process's bytes come as they are", () =>
    withExecd(
      script((request) =>
        webSocket(request, [
          replay(7, "abc"),
          wsText({ type: "connected", session_id: "t1", mode: "pipe" }),
          stdout(Uint8Array.from({ length: 256 }, (_, byte) => byte)),
          wsPing,
          wsText({ type: "whatever" }),
          stderr("oops"),
          exit(3),
          // output that the exit overtook
          stdout("last"),
          goodbye
        ])
      ),
      (client, server) =>
        Effect.gen(function* () {
          const connection = yield* client.attachTerminal("t1", { pipe: true, since: 7, takeover: true })
          assert.strictEqual(connection.mode, "pipe")
          const events = Chunk.toReadonlyArray(yield* Stream.runCollect(connection.output))
          assert.deepStrictEqual(
            events.map((event) => (event._tag === "Output" ? [event.channel, event.offset] : event._tag)),
            [["stdout", 10], ["stdout", 266], ["stderr", 270], ["stdout", 274], "Exit"]
          )
          assert.deepStrictEqual(
            [...bytesOf(events)],
            [...Buffer.from("abc"), ...Array.from({ length: 256 }, (_, byte) => byte), ...Buffer.from("oopslast")]
          )
          assert.deepStrictEqual(events[events.length - 1], { _tag: "Exit", exitCode: 3 })
          const [request] = sockets(server)
          assert.strictEqual(request?.target, "/execd/pty/t1/ws?pty=0&since=7&takeover=1")
          assert.strictEqual(request?.headers["x-execd-access-token"], "t0ken")
          // the process is over
          const error = yield* Effect.flip(connection.write("x"))
          assert.strictEqual(error.reason, "NotFound")
        })
    )
  )

  it.scopedLive("killed by a signal: no exit code", () =>
    withExecd(
      script((request) => webSocket(request, [connected, exit(-1), goodbye])),
      (client) =>
        Effect.gen(function* () {
          const { output } = yield* client.attachTerminal("t1")
          assert.deepStrictEqual(Chunk.toReadonlyArray(yield* Stream.runCollect(output)), [
            { _tag: "Exit", exitCode: undefined }
          ])
        })
    )
  )

  it.scopedLive("input, in order and in pieces; window, signal, ping", () =>
    withExecd(
      script((request) =>
        webSocket(request, [
          connected,
          wait(request.waitForFrame(({ payload }) => payload.includes("ping"))),
          wsText({ type: "pong" }),
          hold
        ])
      ),
      (client, server) =>
        Effect.gen(function* () {
          const connection = yield* client.attachTerminal("t1")
          const large = Uint8Array.from({ length: 200_000 }, (_, index) => index % 251)
          yield* Effect.all([connection.write("é\n"), connection.write(large), connection.write("z")], {
            concurrency: "unbounded"
          })
          yield* connection.resize(120, 40)
          yield* connection.signal("SIGINT")
          yield* connection.ping
          const request = sockets(server)[0]
          const frames = request?.frames ?? []
          const stdin = frames.filter(({ opcode }) => opcode === 2)
          assert.isTrue(stdin.every(({ payload }) => payload[0] === 0))
          assert.isTrue(
            Buffer.concat(stdin.map(({ payload }) => payload.subarray(1))).equals(
              Buffer.concat([Buffer.from("é\n"), large, Buffer.from("z")])
            )
          )
          assert.deepStrictEqual(
            frames.filter(({ opcode }) => opcode === 1).map(({ payload }) => JSON.parse(payload.toString())),
            [{ type: "resize", cols: 120, rows: 40 }, { type: "signal", signal: "SIGINT" }, { type: "ping" }]
          )
          for (const bad of [connection.resize(0, 1), connection.resize(1.5, 1), connection.signal("")]) {
            assert.strictEqual((yield* Effect.flip(bad)).reason, "InvalidRequest")
          }
        })
    )
  )

  it.scopedLive("refused: held by another, unknown, bad options", () =>
    withExecd(
      script(
        () => json(409, { code: "ALREADY_CONNECTED", message: "held" }),
        () => json(404, { code: "CONTEXT_NOT_FOUND", message: "no such" }, { "x-request-id": "r1" }),
        () => ScriptedServer.empty(204),
        () => ScriptedServer.text(200, "<html>login</html>", { "content-type": "text/html" })
      ),
      (client, server) =>
        Effect.gen(function* () {
          const held = yield* Effect.flip(client.attachTerminal("t1"))
          assert.deepInclude(held, { reason: "Conflict", status: 409, code: "ALREADY_CONNECTED", description: "held" })
          const unknown = yield* Effect.flip(client.attachTerminal("t1"))
          assert.deepInclude(unknown, { reason: "NotFound", status: 404, requestId: "r1" })
          assert.strictEqual((yield* Effect.flip(client.attachTerminal("t1"))).reason, "Decode")
          const page = yield* Effect.flip(client.attachTerminal("t1"))
          assert.deepInclude(page, { reason: "Decode", description: "no WebSocket was opened: <html>login</html>" })
          const count = server.requests.length
          for (const bad of [
            client.attachTerminal(""),
            client.attachTerminal("t1", { since: -1 }),
            client.attachTerminal("t1", { since: 0.5 })
          ]) {
            assert.strictEqual((yield* Effect.flip(bad)).reason, "InvalidRequest")
          }
          assert.lengthOf(server.requests, count)
        })
    )
  )

  const endings: ReadonlyArray<
    readonly [string, ReadonlyArray<ScriptedServer.Step>, string, string | undefined, RegExp]
  > = [
    ["taken over", [wsClose(4001, "TAKEN_OVER")], "Conflict", "TAKEN_OVER", /another client/],
    ["a reset", [reset], "Transport", undefined, /without an exit code/],
    ["an end without a close frame", [], "Transport", undefined, /1006/],
    ["a close without an exit", [wsClose(1000, "bye")], "Transport", undefined, /1000 bye/],
    [
      "an error of the server",
      [wsText({ type: "error", code: "STDIN_WRITE_FAILED", error: "broken pipe" }), wsClose(1011)],
      "ServerError",
      "STDIN_WRITE_FAILED",
      /broken pipe/
    ]
  ]
  for (const [name, ending, reason, code, message] of endings) {
    it.scopedLive(`${name} is a ${reason}, after what it brought`, () =>
      withExecd(
        script((request) => webSocket(request, [connected, stdout("a"), ScriptedServer.sleep(50), ...ending])),
        (client) =>
          Effect.gen(function* () {
            const connection = yield* client.attachTerminal("t1")
            const { error, seen } = yield* observe(connection.output)
            assert.deepStrictEqual(summary(seen), ["stdout a @1"])
            assert.strictEqual(error?.reason, reason)
            assert.strictEqual(error?.code, code)
            assert.match(error?.message ?? "", message)
            assert.strictEqual((yield* Effect.flip(connection.write("x"))).reason, reason)
          })
      )
    )
  }

  it.scopedLive("a start that failed, and a takeover that did", () =>
    withExecd(
      script(
        (request) => webSocket(request, [wsText({ type: "error", code: "START_FAILED", error: "no bash" })]),
        (request) => webSocket(request, [wsText({ type: "error", code: "ALREADY_CONNECTED", error: "timed out" })])
      ),
      (client) =>
        Effect.gen(function* () {
          assert.deepInclude(yield* Effect.flip(client.attachTerminal("t1")), {
            reason: "ServerError",
            code: "START_FAILED"
          })
          assert.strictEqual((yield* Effect.flip(client.attachTerminal("t1", { takeover: true }))).reason, "Conflict")
        })
    )
  )

  it.scopedLive("closing the scope frees the socket and ends what waits", () =>
    withExecd(
      script((request) => webSocket(request, [connected, hold])),
      (client, server) =>
        Effect.gen(function* () {
          const waiting = yield* Effect.scoped(
            Effect.gen(function* () {
              const connection = yield* client.attachTerminal("t1")
              return yield* Effect.fork(observe(connection.output))
            })
          )
          const { error } = yield* Fiber.join(waiting)
          assert.strictEqual(error?.reason, "Transport")
          yield* sockets(server)[0]?.closed ?? Effect.void
        })
    )
  )

  it.scopedLive.skipIf(process.versions.bun === undefined)("a program that took one chunk can end", () =>
    Effect.gen(function* () {
      const server = yield* ScriptedServer.make((request) =>
        request.path.startsWith("/v1/")
          ? json(200, { endpoint: `${request.headers.host}/execd` })
          : webSocket(
              request,
              (function* () {
                yield connected
                for (;;) {
                  yield stdout("y".repeat(1000))
                  yield ScriptedServer.sleep(5)
                }
              })()
            )
      )
      const exit = yield* Effect.async<{ readonly code: number | null; readonly output: string }>((resume) => {
        const child = ChildProcess.spawn(process.execPath, [
          new URL("../support/attachAndLeave.ts", import.meta.url).pathname,
          server.url
        ])
        let output = ""
        child.stdout.on("data", (data) => {
          output += String(data)
        })
        child.stderr.on("data", (data) => {
          output += String(data)
        })
        child.on("exit", (code) => resume(Effect.succeed({ code, output })))
        return Effect.sync(() => child.kill("SIGKILL"))
      }).pipe(Effect.timeout("15 seconds"))
      assert.deepStrictEqual(exit, { code: 0, output: "done" })
    })
  )

  it.scopedLive("a slow consumer stops the sender, and loses nothing", () =>
    Effect.gen(function* () {
      const piece = Buffer.alloc(32_000, "x")
      let sent = 0
      yield* withExecd(
        script((request) =>
          webSocket(
            request,
            (function* () {
              yield connected
              for (; sent < 1000; sent++) yield stdout(piece)
              yield exit(0)
              yield goodbye
            })()
          )
        ),
        (client) =>
          Effect.gen(function* () {
            const connection = yield* client.attachTerminal("t1")
            yield* Effect.sleep("500 millis")
            const early = sent
            // a MiB here, and what the sockets hold
            assert.isBelow(early, 600)
            let size = 0
            yield* Stream.runForEach(connection.output, (event) =>
              Effect.sync(() => {
                if (event._tag === "Output") size += event.bytes.length
              })
            )
            assert.strictEqual(size, 32_000_000)
          })
      )
    })
  )

  it.scoped("silence is a Timeout, by the clock of the program; pongs are no silence", () =>
    withExecd(
      script((request) =>
        webSocket(request, [
          connected,
          wait(request.waitForFrame(({ payload }) => payload.includes("ping"))),
          wsText({ type: "pong" }),
          hold
        ])
      ),
      (client, server) =>
        Effect.gen(function* () {
          const connection = yield* client.attachTerminal("t1")
          const fiber = yield* Effect.fork(observe(connection.output))
          yield* TestClock.adjust("5 seconds")
          const request = sockets(server)[0]
          yield* request?.waitForFrame(({ payload }) => payload.includes("ping")) ?? Effect.void
          // the pong is on its way
          yield* Effect.async<void>((resume) => {
            setTimeout(() => resume(Effect.void), 100)
          })
          yield* TestClock.adjust("14 seconds")
          assert.isNull(fiber.unsafePoll())
          yield* TestClock.adjust("6 seconds")
          const { error } = yield* Fiber.join(fiber)
          assert.strictEqual(error?.reason, "Timeout")
          yield* request?.closed ?? Effect.void
        })
    )
  )

  it.scoped("the exit is the last word, though the server does not hang up", () =>
    withExecd(
      script((request) => webSocket(request, [connected, stdout("a"), exit(3), stdout("b"), hold])),
      (client, server) =>
        Effect.gen(function* () {
          const connection = yield* client.attachTerminal("t1")
          const fiber = yield* Effect.fork(observe(connection.output))
          // what was sent is on its way
          yield* Effect.async<void>((resume) => {
            setTimeout(() => resume(Effect.void), 100)
          })
          yield* TestClock.adjust("2 seconds")
          yield* TestClock.adjust("2 seconds")
          const { error, seen } = yield* Fiber.join(fiber)
          assert.isUndefined(error)
          assert.deepStrictEqual(summary(seen), ["stdout a @1", "stdout b @2", "exit 3"])
          yield* sockets(server)[0]?.closed ?? Effect.void
        })
    )
  )

  it.scoped("a handshake that does not come, and a terminal that does not, are Timeouts", () =>
    withExecd(
      script(
        () => ScriptedServer.silence,
        (request) => webSocket(request, [hold])
      ),
      (client, server) =>
        Effect.gen(function* () {
          for (const count of [1, 2]) {
            const fiber = yield* Effect.fork(Effect.flip(client.attachTerminal("t1")))
            yield* server.waitForRequests(2 * count)
            yield* Effect.async<void>((resume) => {
              setTimeout(() => resume(Effect.void), 50)
            })
            yield* TestClock.adjust("30 seconds")
            assert.strictEqual((yield* Fiber.join(fiber)).reason, "Timeout")
            yield* sockets(server)[count - 1]?.closed ?? Effect.void
          }
        })
    )
  )

  it.scopedLive("the token shows in no span", () =>
    Effect.gen(function* () {
      const { text } = yield* Spans.record(
        withExecd(
          script((request) => webSocket(request, [connected, exit(0), goodbye])),
          (client) => Effect.flatMap(client.attachTerminal("t1"), ({ output }) => Stream.runDrain(output))
        )
      )
      assert.include(text, "Execd.attachTerminal")
      assert.notInclude(text, "t0ken")
    })
  )
})

describe("reconnect", () => {
  it.scopedLive("goes on where it broke off, without losing or repeating a byte", () =>
    withExecd(
      script(
        (request) => webSocket(request, [connected, stdout("one"), ScriptedServer.sleep(20), reset]),
        // lost before anything came
        (request) => webSocket(request, [connected, ScriptedServer.sleep(20), reset]),
        () => json(502, {}),
        (request) =>
          webSocket(request, [
            // the offset of the end
            replay(6, "two"),
            connected,
            wait(request.waitForFrame(({ opcode }) => opcode === 2)),
            stdout("three"),
            ScriptedServer.sleep(20),
            reset
          ]),
        // a server that ignores `since`
        (request) => webSocket(request, [replay(0, "onetwothree"), connected, stdout("four"), exit(0), goodbye])
      ),
      (client, server) =>
        Effect.gen(function* () {
          const connection = yield* client.attachTerminal("t1", { pipe: false, reconnect: true })
          const fiber = yield* Effect.fork(observe(connection.output))
          yield* server.waitForRequests(8)
          yield* connection.write("go")
          const { error, seen } = yield* Fiber.join(fiber)
          assert.isUndefined(error)
          assert.strictEqual(bytesOf(seen).toString(), "onetwothreefour")
          assert.deepStrictEqual(summary(seen), [
            "stdout one @3",
            "replayed stdout two @6",
            "stdout three @11",
            "stdout four @15",
            "exit 0"
          ])
          assert.deepStrictEqual(
            sockets(server).map(({ target }) => target.replace(/^[^?]*/, "")),
            ["", "?since=3&takeover=1", "?since=3&takeover=1", "?since=3&takeover=1", "?since=11&takeover=1"]
          )
        })
    )
  )

  it.scopedLive("at every byte", () =>
    Effect.gen(function* () {
      const all = "Zeile 1\r\né漢👩‍👧\r\n$ "
      const bytes = Buffer.from(all)
      yield* withExecd(
        script((request) => {
          const since = Number(request.query.get("since") ?? 0)
          const next = since + 1
          return webSocket(request, [
            ...(since % 2 === 0 ? [replay(since, bytes.subarray(since, next)), connected] : [connected]),
            ...(since % 2 === 0 ? [] : [stdout(bytes.subarray(since, next))]),
            ScriptedServer.sleep(2),
            ...(next < bytes.length ? [reset] : [exit(0), goodbye])
          ])
        }),
        (client) =>
          Effect.gen(function* () {
            const connection = yield* client.attachTerminal("t1", { reconnect: true })
            const events = yield* Stream.runCollect(connection.output)
            assert.strictEqual(bytesOf(events).toString(), all)
          })
      )
    })
  )

  it.scopedLive("gives up where bytes are lost, the process is over, or another client took over", () =>
    Effect.gen(function* () {
      const first = (request: ScriptedServer.RecordedRequest) =>
        webSocket(request, [connected, stdout("one"), ScriptedServer.sleep(20), reset])
      const lost = yield* withExecd(
        script(first, (request) => webSocket(request, [replay(100, "two"), connected, hold])),
        (client) => Effect.flatMap(client.attachTerminal("t1", { reconnect: true }), ({ output }) => observe(output))
      )
      assert.deepStrictEqual(summary(lost.seen), ["stdout one @3"])
      assert.match(lost.error?.message ?? "", /97 bytes of output are lost/)

      used = 0
      const over = yield* withExecd(
        (request) =>
          request.path === "/execd/pty/t1"
            ? json(200, { session_id: "t1", running: false, output_offset: 3 })
            : first(request),
        (client, server) =>
          Effect.gen(function* () {
            const connection = yield* client.attachTerminal("t1", { reconnect: true })
            const result = yield* observe(connection.output)
            assert.lengthOf(sockets(server), 1)
            assert.strictEqual((yield* Effect.flip(connection.write("x"))).reason, "Transport")
            return result
          })
      )
      assert.match(over.error?.message ?? "", /the process ended/)

      const taken = yield* withExecd(
        script((request) => webSocket(request, [connected, wsClose(4001, "TAKEN_OVER")])),
        (client, server) =>
          Effect.gen(function* () {
            const { output } = yield* client.attachTerminal("t1", { reconnect: true })
            const result = yield* observe(output)
            assert.lengthOf(sockets(server), 1)
            return result
          })
      )
      assert.strictEqual(taken.error?.reason, "Conflict")
    })
  )

  it.scopedLive("what is written before anybody has noticed the loss waits for the new connection", () =>
    withExecd(
      script(
        (request) => webSocket(request, [connected, stdout("one"), ScriptedServer.sleep(20), reset]),
        (request) =>
          webSocket(request, [
            connected,
            wait(request.waitForFrame(({ opcode }) => opcode === 2)),
            stdout("two"),
            exit(0),
            goodbye
          ])
      ),
      (client, server) =>
        Effect.gen(function* () {
          const connection = yield* client.attachTerminal("t1", { reconnect: true })
          yield* sockets(server)[0]?.closed ?? Effect.void
          yield* Effect.sleep("50 millis")
          const writing = yield* Effect.fork(connection.write("x"))
          yield* Effect.sleep("50 millis")
          // only now anybody reads
          const { error, seen } = yield* observe(connection.output)
          assert.isUndefined(error)
          assert.strictEqual(bytesOf(seen).toString(), "onetwo")
          yield* Fiber.join(writing)
        })
    )
  )

  it.scopedLive("on pipes it goes on where nothing was printed meanwhile, and gives up where something was", () =>
    Effect.gen(function* () {
      const pipes = wsText({ type: "connected", session_id: "t1", mode: "pipe" })
      const first = (request: ScriptedServer.RecordedRequest) =>
        webSocket(request, [pipes, stdout("out"), stderr("err"), ScriptedServer.sleep(20), reset])
      const run = (offset: number, ...rest: ReadonlyArray<ScriptedServer.Step>) => {
        used = 0
        const handlers = terminal(first, (request) => webSocket(request, rest))
        return withExecd(
          (request) =>
            request.path === "/execd/pty/t1"
              ? json(200, { session_id: "t1", running: true, output_offset: offset })
              : handlers(request),
          (client) =>
            Effect.flatMap(client.attachTerminal("t1", { pipe: true, reconnect: true }), ({ output }) =>
              observe(output)
            )
        )
      }
      const quiet = yield* run(6, pipes, stderr("more"), exit(0), goodbye)
      assert.isUndefined(quiet.error)
      assert.deepStrictEqual(summary(quiet.seen), ["stdout out @3", "stderr err @6", "stderr more @10", "exit 0"])
      for (const [offset, steps] of [
        [9, [pipes, hold]],
        // it came between the question and the connection
        [6, [replay(6, "new"), pipes, hold]]
      ] as const) {
        const lost = yield* run(offset, ...steps)
        assert.deepStrictEqual(summary(lost.seen), ["stdout out @3", "stderr err @6"])
        assert.strictEqual(lost.error?.reason, "Transport")
        assert.match(lost.error?.message ?? "", /does not tell which of the pipes/)
      }
    })
  )

  it.scopedLive("not for ever", () =>
    withExecd(
      script((request) => webSocket(request, [connected, reset])),
      (client, server) =>
        Effect.gen(function* () {
          const { output } = yield* client.attachTerminal("t1", { reconnect: true })
          const { error } = yield* observe(output)
          assert.strictEqual(error?.reason, "Transport")
          assert.lengthOf(sockets(server), 4)
        })
    )
  )
})
