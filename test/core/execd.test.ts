import * as ChildProcess from "node:child_process"
import { assert, describe, it } from "@effect/vitest"
import { Execd, OpenSandbox } from "@sandglass/core"
import * as Cause from "effect/Cause"
import * as Chunk from "effect/Chunk"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/TestClock"
import * as Tracer from "effect/Tracer"
import * as MockHttp from "../support/MockHttp.js"
import * as ScriptedServer from "../support/ScriptedServer.js"

const { frame, json, stream, text } = ScriptedServer

const init = frame({ type: "init", text: "c1", timestamp: 1 })
const out = (line: string) => frame({ type: "stdout", text: line, timestamp: 1 })
const complete = frame({ type: "execution_complete", execution_time: 5, timestamp: 1 })

/** execd below `/execd` of a server that also answers for the endpoint. Requests for the endpoint are not the handler's. */
const withExecd = <A, E, R>(
  handler: ScriptedServer.Handler,
  use: (client: Execd.ExecdClient, server: ScriptedServer.ScriptedServer) => Effect.Effect<A, E, R>,
  options: Execd.Options = {},
  token: () => string = () => "t0ken"
) =>
  Effect.flatMap(
    ScriptedServer.make((request, index) =>
      request.path === "/v1/sandboxes/s1/endpoints/44772"
        ? json(200, { endpoint: `${request.headers.host}/execd/`, headers: { "X-EXECD-ACCESS-TOKEN": token() } })
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
const toControlPlane = (server: ScriptedServer.ScriptedServer) =>
  server.requests.filter(({ path }) => path.startsWith("/v1/"))

const collect = <E>(events: Stream.Stream<Execd.ExecdEvent, E>) =>
  Effect.map(Stream.runCollect(events), Chunk.toReadonlyArray)

/** What was delivered, and how it ended. */
const observe = <A, E>(self: Stream.Stream<A, E>) =>
  Effect.suspend(() => {
    const seen: Array<A> = []
    return self.pipe(
      Stream.runForEach((a) => Effect.sync(() => seen.push(a))),
      Effect.either,
      Effect.map((result) => ({ seen, error: result._tag === "Left" ? result.left : undefined }))
    )
  })

const textOf = (events: ReadonlyArray<Execd.ExecdEvent>) =>
  events.map((event) => (event._tag === "Output" ? event.text : "")).join("")

// Bun's fetch, on a thread of its own, drops what it receives together with an unclean end of the connection; execd leaves about a second between
const moment = ScriptedServer.sleep(500)

const realTurn = Effect.async<void>((resume) => {
  setImmediate(() => resume(Effect.void))
})

describe("command", () => {
  it.scopedLive("sends the request once, in the server's units, and delivers the events", () =>
    withExecd(
      () => stream([init, out("a") + out("b"), frame({ type: "stderr", text: "c" }), complete]),
      (client, server) =>
        Effect.gen(function* () {
          assert.lengthOf(server.requests, 0)
          const events = yield* collect(
            client.command({
              command: "make 'x'",
              cwd: "/work",
              env: { A: "1", TOKEN: Redacted.make("s3cret") },
              timeout: "5 seconds",
              uid: 1000,
              gid: 1000
            })
          )
          assert.deepStrictEqual(events[0], { _tag: "Init", commandId: "c1" })
          assert.strictEqual(textOf(events), "a\nb\nc\n")
          assert.deepStrictEqual(events[events.length - 1], { _tag: "Exit", exitCode: 0, durationMillis: 5 })
          const [request] = toExecd(server)
          assert.strictEqual(request?.target, "/execd/command")
          assert.strictEqual(request?.headers["x-execd-access-token"], "t0ken")
          assert.deepStrictEqual(request?.json, {
            command: "make 'x'",
            cwd: "/work",
            timeout: 5000,
            uid: 1000,
            gid: 1000,
            envs: { A: "1", TOKEN: "s3cret" }
          })
          yield* collect(client.command({ command: "true", timeout: Infinity }))
          assert.deepStrictEqual(toExecd(server)[1]?.json, { command: "true" })
          assert.lengthOf(toControlPlane(server), 1)
        })
    )
  )

  it.scopedLive("refuses bad requests before anything is sent", () =>
    withExecd(
      () => stream([complete]),
      (client, server) =>
        Effect.gen(function* () {
          for (const request of [
            { command: "" },
            { command: "x", timeout: 0 },
            { command: "x", gid: 1 },
            { command: "x", uid: -1 },
            { command: "x", uid: 1.5 }
          ]) {
            const error = yield* Effect.flip(Stream.runDrain(client.command(request)))
            assert.strictEqual(error.reason, "InvalidRequest")
          }
          assert.lengthOf(server.requests, 0)
        })
    )
  )

  it.scopedLive("one chunk is what one read brought", () =>
    Effect.gen(function* () {
      const go = yield* Deferred.make<void>()
      yield* withExecd(
        () => stream([init + out("a") + out("b"), ScriptedServer.wait(Deferred.await(go)), out("c") + complete]),
        (client) =>
          Effect.gen(function* () {
            const chunks = yield* client.command({ command: "x" }).pipe(
              Stream.chunks,
              Stream.tap(() => Deferred.succeed(go, undefined)),
              Stream.runCollect
            )
            assert.deepStrictEqual(
              Array.from(chunks, (chunk) => Array.from(chunk, ({ _tag }) => _tag)),
              [
                ["Init", "Output"],
                ["Output", "Exit"]
              ]
            )
          })
      )
    })
  )

  for (const status of [500, 502, 503, 429]) {
    it.scopedLive(`answered ${status}, it is sent exactly once`, () =>
      withExecd(
        () => text(status, "Bad Gateway"),
        (client, server) =>
          Effect.gen(function* () {
            const error = yield* Effect.flip(Stream.runDrain(client.command({ command: "x" })))
            assert.strictEqual(error.status, status)
            assert.strictEqual(error.method, "command")
            assert.lengthOf(toExecd(server), 1)
          })
      )
    )
  }

  it.scopedLive("reset on a connection that was used before, it is sent exactly once", () =>
    withExecd(
      ({ method }) => (method === "GET" ? ScriptedServer.empty(200) : ScriptedServer.resetConnection),
      (client, server) =>
        Effect.gen(function* () {
          yield* client.ping
          const error = yield* Effect.flip(Stream.runDrain(client.command({ command: "x" })))
          assert.strictEqual(error.reason, "Transport")
          assert.deepStrictEqual(
            toExecd(server).map(({ method }) => method),
            ["GET", "POST"]
          )
        })
    )
  )

  it.scopedLive("a refusal before the stream is a typed error", () =>
    withExecd(
      () => json(400, { code: "INVALID_REQUEST_BODY", message: "bad cwd" }, { "x-request-id": "r1" }),
      (client) =>
        Effect.gen(function* () {
          const error = yield* Effect.flip(Stream.runDrain(client.command({ command: "x" })))
          assert.deepInclude(error, {
            module: "Execd",
            reason: "InvalidRequest",
            status: 400,
            code: "INVALID_REQUEST_BODY",
            description: "bad cwd",
            requestId: "r1"
          })
        })
    )
  )

  for (const [name, ending] of [
    ["ends", []],
    ["is cut", [ScriptedServer.drop]],
    ["is reset", [ScriptedServer.reset]],
    ["ends in mid-frame", [`{"type":"stdo`]]
  ] as const) {
    it.scopedLive(`a stream that ${name} without a terminal event fails after what it brought`, () =>
      Effect.gen(function* () {
        const arrived = yield* Deferred.make<void>()
        yield* withExecd(
          () => stream([init, out("1"), out("2"), out("3"), ScriptedServer.wait(Deferred.await(arrived)), ...ending]),
          (client) =>
            Effect.gen(function* () {
              const { error, seen } = yield* client.command({ command: "x" }).pipe(
                Stream.tap((event) =>
                  event._tag === "Output" && event.text.endsWith("3\n")
                    ? Deferred.succeed(arrived, undefined)
                    : Effect.void
                ),
                observe
              )
              assert.strictEqual(error?.reason, "Transport")
              assert.strictEqual(textOf(seen), "1\n2\n3\n")
              assert.isFalse(seen.some(({ _tag }) => _tag === "Exit"))
            })
        )
      })
    )
  }

  it.scopedLive("nothing at all is a failure", () =>
    withExecd(
      ScriptedServer.sequence(stream([]), stream([], { framing: "close" }), ScriptedServer.empty(204), text(200, "")),
      (client) =>
        Effect.gen(function* () {
          for (let i = 0; i < 4; i++) {
            const error = yield* Effect.flip(Stream.runDrain(client.command({ command: "x" })))
            assert.strictEqual(error.reason, "Transport")
            assert.include(error.description, "empty")
          }
        })
    )
  )

  it.scopedLive("a page is a Decode error with its start, and an error inside the stream keeps its words", () =>
    withExecd(
      ScriptedServer.sequence(
        text(200, "<html>\n<body>Welcome to nginx</body>\n</html>", { "content-type": "text/html" }),
        stream([init, out("a"), out("b"), frame({ code: "RUNTIME_ERROR", message: "x" })]),
        json(200, { code: "SESSION_NOT_FOUND", message: "y" })
      ),
      (client) =>
        Effect.gen(function* () {
          const page = yield* observe(client.command({ command: "x" }))
          assert.strictEqual(page.error?.reason, "Decode")
          assert.include(page.error?.description, "<html> <body>Welcome to nginx")
          const inside = yield* observe(client.command({ command: "x" }))
          assert.strictEqual(textOf(inside.seen), "a\nb\n")
          assert.deepInclude(inside.error, { reason: "ServerError", code: "RUNTIME_ERROR", description: "x" })
          const instead = yield* observe(client.command({ command: "x" }))
          assert.deepInclude(instead.error, { reason: "NotFound", code: "SESSION_NOT_FOUND" })
        })
    )
  )

  for (const [name, ending] of [
    ["is held open", [ScriptedServer.hold]],
    ["is reset", [moment, ScriptedServer.reset]],
    ["is cut", [moment, ScriptedServer.drop]],
    ["says more", [out("late"), "<html>", ScriptedServer.hold]]
  ] as const) {
    it.scopedLive(`the terminal event is the end, though the connection ${name}`, () =>
      withExecd(
        () => stream([init, out("a"), complete, ...ending]),
        (client, server) =>
          Effect.gen(function* () {
            const { error, seen } = yield* observe(client.command({ command: "x" }))
            assert.isUndefined(error)
            assert.strictEqual(textOf(seen), "a\n")
            assert.strictEqual(seen[seen.length - 1]?._tag, "Exit")
            const [request] = toExecd(server)
            if (request !== undefined) yield* request.closed
          })
      )
    )
  }

  it.scopedLive("a consumer that is late loses nothing to an unclean end", () =>
    withExecd(
      () => stream([init, out("a"), out("b"), complete, moment, ScriptedServer.reset]),
      (client, server) =>
        Effect.gen(function* () {
          const events: Array<Execd.ExecdEvent> = []
          yield* client.command({ command: "x" }).pipe(
            Stream.rechunk(1),
            Stream.runForEach((event) => {
              events.push(event)
              const [request] = toExecd(server)
              return event._tag === "Init" && request !== undefined
                ? Effect.zipRight(request.closed, realTurn)
                : Effect.void
            })
          )
          assert.strictEqual(textOf(events), "a\nb\n")
          assert.strictEqual(events[events.length - 1]?._tag, "Exit")
        })
    )
  )

  it.scopedLive("a last frame that nothing terminates counts, a reset behind it or not", () =>
    withExecd(
      ScriptedServer.sequence(
        stream([init, complete.trimEnd()]),
        stream([init, complete.trimEnd(), moment, ScriptedServer.reset])
      ),
      (client) =>
        Effect.gen(function* () {
          for (let i = 0; i < 2; i++) {
            const events = yield* collect(client.command({ command: "x" }))
            assert.deepStrictEqual(
              events.map(({ _tag }) => _tag),
              ["Init", "Exit"]
            )
          }
        })
    )
  )

  it.scopedLive("frees the socket while the consumer still holds the last event", () =>
    withExecd(
      () => stream([complete, ScriptedServer.hold]),
      (client, server) =>
        client.command({ command: "x" }).pipe(
          Stream.runForEach(() => {
            const [request] = toExecd(server)
            return request === undefined ? Effect.die("no request") : request.disconnected
          })
        )
    )
  )

  it.scopedLive("characters cut at every byte arrive whole", () => {
    const bytes = Buffer.from(out("é漢👩‍👩‍👧"))
    return withExecd(
      (request) => {
        const cut = Number((request.json as { command: string }).command)
        return stream([bytes.subarray(0, cut), bytes.subarray(cut), complete])
      },
      (client) =>
        Effect.forEach(Array.from(bytes.keys()), (cut) =>
          Effect.map(collect(client.command({ command: String(cut) })), (events) =>
            assert.strictEqual(textOf(events), "é漢👩‍👩‍👧\n")
          )
        )
    )
  })

  it.scopedLive("one byte a packet", () =>
    withExecd(
      () => stream(Array.from(Buffer.from(init + out("é漢") + complete), (byte) => Buffer.of(byte))),
      (client) =>
        Effect.map(collect(client.command({ command: "x" })), (events) => {
          assert.deepStrictEqual(
            events.map(({ _tag }) => _tag),
            ["Init", "Output", "Exit"]
          )
          assert.strictEqual(textOf(events), "é漢\n")
        })
    )
  )

  it.scopedLive("a background start", () =>
    withExecd(
      () => stream([init, complete]),
      (client, server) =>
        Effect.gen(function* () {
          const events = yield* collect(client.command({ command: "x", background: true }))
          assert.deepStrictEqual(events[1], { _tag: "Exit", background: true, durationMillis: 5 })
          assert.deepStrictEqual(toExecd(server)[0]?.json, { command: "x", background: true })
        })
    )
  )

  it.scoped("silence is a Timeout, by the clock of the program", () =>
    Effect.gen(function* () {
      const started = yield* Deferred.make<void>()
      const more = yield* Deferred.make<void>()
      const second = yield* Deferred.make<void>()
      yield* withExecd(
        () =>
          stream([
            init,
            ScriptedServer.wait(Deferred.await(more)),
            frame({ type: "ping" }) + out("a"),
            ScriptedServer.hold
          ]),
        (client, server) =>
          Effect.gen(function* () {
            const fiber = yield* client.command({ command: "x" }).pipe(
              Stream.tap((event) => Deferred.succeed(event._tag === "Init" ? started : second, undefined)),
              observe,
              Effect.fork
            )
            yield* Deferred.await(started)
            yield* realTurn
            yield* TestClock.adjust("14 seconds")
            yield* Deferred.succeed(more, undefined)
            yield* Deferred.await(second)
            yield* realTurn
            yield* TestClock.adjust("14 seconds")
            assert.isTrue(Option.isNone(yield* Fiber.poll(fiber)))
            yield* TestClock.adjust("1 seconds")
            const { error, seen } = yield* Fiber.join(fiber)
            assert.strictEqual(error?.reason, "Timeout")
            assert.strictEqual(textOf(seen), "a\n")
            const [request] = toExecd(server)
            if (request !== undefined) yield* request.disconnected
          })
      )
    })
  )

  it.scoped("a slow consumer is no silence", () =>
    withExecd(
      () => stream([init, out("a"), ScriptedServer.sleep(20), complete]),
      (client) =>
        Effect.gen(function* () {
          const waiting = yield* Deferred.make<void>()
          const fiber = yield* client.command({ command: "x" }).pipe(
            Stream.tap((event) =>
              event._tag === "Output"
                ? Effect.zipRight(Deferred.succeed(waiting, undefined), Effect.sleep("1 hour"))
                : Effect.void
            ),
            observe,
            Effect.fork
          )
          yield* Deferred.await(waiting)
          yield* TestClock.adjust("1 hour")
          const { error } = yield* Fiber.join(fiber)
          assert.isUndefined(error)
        })
    )
  )

  it.scoped("an answer that does not begin is a Timeout", () =>
    withExecd(
      () => ScriptedServer.silence,
      (client, server) =>
        Effect.gen(function* () {
          const fiber = yield* Effect.fork(observe(client.command({ command: "x" })))
          yield* server.waitForRequests(2)
          yield* TestClock.adjust("30 seconds")
          assert.strictEqual((yield* Fiber.join(fiber)).error?.reason, "Timeout")
          const [request] = toExecd(server)
          if (request !== undefined) yield* request.disconnected
        })
    )
  )

  it.scopedLive("ending early frees the socket and sends nothing else", () =>
    withExecd(
      () => stream([init, out("a"), ScriptedServer.hold]),
      (client, server) =>
        Effect.gen(function* () {
          yield* Stream.runDrain(Stream.take(client.command({ command: "x" }), 2))
          const [request] = toExecd(server)
          if (request !== undefined) yield* request.disconnected
          assert.lengthOf(toExecd(server), 1)
        })
    )
  )

  it.scopedLive("interrupted at any event, only the interruption surfaces", () =>
    withExecd(
      () => stream([init, out("a"), out("b") + out("c"), `{"type":"stdout","te`, ScriptedServer.hold]),
      (client, server) =>
        Effect.forEach([1, 2, 3], (count) =>
          Effect.gen(function* () {
            const reached = yield* Deferred.make<void>()
            let seen = 0
            const fiber = yield* client.command({ command: "x" }).pipe(
              Stream.runForEach((event) => {
                seen += event._tag === "Output" ? event.text.length / 2 : 1
                return seen >= count ? Deferred.succeed(reached, undefined) : Effect.void
              }),
              Effect.fork
            )
            yield* Deferred.await(reached)
            const exit = yield* Fiber.interrupt(fiber)
            assert.isTrue(Exit.isFailure(exit) && Cause.isInterruptedOnly(exit.cause))
            const request = toExecd(server)[count - 1]
            if (request !== undefined) yield* request.disconnected
          })
        )
    )
  )

  // the child is a TypeScript program, which only Bun runs as it is
  it.scopedLive.skipIf(process.versions.bun === undefined)("a program that took one chunk can end", () =>
    Effect.gen(function* () {
      const server = yield* ScriptedServer.make((request) =>
        request.path.startsWith("/v1/")
          ? json(200, { endpoint: `${request.headers.host}/execd` })
          : stream(
              (function* () {
                yield init
                for (;;) {
                  yield out("y".repeat(1000))
                  yield ScriptedServer.sleep(5)
                }
              })()
            )
      )
      const exit = yield* Effect.async<{ readonly code: number | null; readonly output: string }>((resume) => {
        const child = ChildProcess.spawn(process.execPath, [
          new URL("../support/takeOneChunk.ts", import.meta.url).pathname,
          server.url
        ])
        let output = ""
        child.stdout.on("data", (data) => (output += String(data)))
        child.stderr.on("data", (data) => (output += String(data)))
        child.on("exit", (code) => resume(Effect.succeed({ code, output })))
        return Effect.sync(() => child.kill("SIGKILL"))
      }).pipe(Effect.timeout("15 seconds"))
      assert.deepStrictEqual(exit, { code: 0, output: "taken\n" })
    })
  )

  it.scopedLive("two million bytes in small lines, and 50 MB to a consumer that discards them", () =>
    withExecd(
      (request) => {
        const block = Buffer.from(out("z".repeat(60)).repeat(500))
        const count = Math.ceil(Number((request.json as { command: string }).command) / block.length)
        return stream(
          (function* () {
            yield init
            for (let i = 0; i < count; i++) yield block
            yield complete
          })()
        )
      },
      (client) =>
        Effect.gen(function* () {
          const small = yield* collect(client.command({ command: "2000000" }))
          const blocks = Math.ceil(2_000_000 / (out("z".repeat(60)).length * 500))
          assert.strictEqual(textOf(small), `${"z".repeat(60)}\n`.repeat(blocks * 500))
          const last = yield* Stream.runLast(client.command({ command: "50000000" }))
          assert.strictEqual(Option.getOrUndefined(last)?._tag, "Exit")
        })
    )
  )
})

describe("the endpoint", () => {
  it.scopedLive("is asked for once, by however many callers", () =>
    withExecd(
      () => ScriptedServer.empty(200),
      (client, server) =>
        Effect.gen(function* () {
          yield* Effect.all(
            Array.from({ length: 20 }, () => client.ping),
            { concurrency: "unbounded" }
          )
          assert.lengthOf(toControlPlane(server), 1)
          assert.lengthOf(toExecd(server), 20)
          yield* client.invalidate
          yield* client.ping
          assert.lengthOf(toControlPlane(server), 2)
        })
    )
  )

  it.scopedLive("a failure to ask for it is everybody's who waits, and the next one asks again", () =>
    Effect.gen(function* () {
      const server = yield* ScriptedServer.make((request) =>
        Effect.delay(Effect.succeed(json(403, { code: "NO", message: request.path })), "50 millis")
      )
      yield* Effect.gen(function* () {
        const client = yield* Effect.flatMap(Execd.Execd, (execd) => execd.connect("s1"))
        const errors = yield* Effect.all(
          Array.from({ length: 20 }, () => Effect.flip(client.command({ command: "x" }).pipe(Stream.runDrain))),
          { concurrency: "unbounded" }
        )
        for (const error of errors) assert.deepInclude(error, { module: "OpenSandbox", status: 403 })
        assert.lengthOf(server.requests, 1)
        yield* Effect.flip(client.ping)
        assert.lengthOf(server.requests, 2)
      }).pipe(Effect.provide(Layer.provide(Execd.layer, OpenSandbox.layer({ url: server.url }))))
    })
  )

  it.scopedLive("a caller that is interrupted while asking does not take the others along", () =>
    Effect.gen(function* () {
      const go = yield* Deferred.make<void>()
      const server = yield* ScriptedServer.make((request) =>
        request.path.startsWith("/v1/")
          ? stream([ScriptedServer.wait(Deferred.await(go)), JSON.stringify({ endpoint: request.headers.host })])
          : ScriptedServer.empty(200)
      )
      yield* Effect.gen(function* () {
        const client = yield* Effect.flatMap(Execd.Execd, (execd) => execd.connect("s1"))
        const first = yield* Effect.fork(client.ping)
        yield* server.waitForRequests(1)
        const second = yield* Effect.fork(client.ping)
        yield* Effect.yieldNow()
        yield* Fiber.interrupt(first)
        yield* Deferred.succeed(go, undefined)
        yield* Fiber.join(second)
      }).pipe(Effect.provide(Layer.provide(Execd.layer, OpenSandbox.layer({ url: server.url }))))
    })
  )

  it.scopedLive("GET and DELETE ask again at once after a 401, and only once", () => {
    let current = 0
    return withExecd(
      (request) =>
        request.headers["x-execd-access-token"] === "t1"
          ? ScriptedServer.empty(200)
          : json(401, { error: "invalid token" }),
      (client, server) =>
        Effect.gen(function* () {
          yield* client.ping
          current = 5
          yield* client.invalidate
          const error = yield* Effect.flip(client.removeFiles(["/x"]))
          assert.strictEqual(error.reason, "Unauthorized")
          assert.strictEqual(error.description, "invalid token")
          assert.deepStrictEqual(
            toExecd(server).map(({ headers, method }) => [method, headers["x-execd-access-token"]]),
            [
              ["GET", "t0"],
              ["GET", "t1"],
              ["DELETE", "t5"],
              ["DELETE", "t6"]
            ]
          )
        }),
      {},
      () => `t${current++}`
    )
  })

  it.scopedLive("POST is not repeated, but the next call asks again", () => {
    let current = 0
    return withExecd(
      (request) =>
        request.headers["x-execd-access-token"] === "t1"
          ? stream([init, complete])
          : request.index === 1
            ? json(401, { error: "invalid token" })
            : ScriptedServer.resetConnection,
      (client, server) =>
        Effect.gen(function* () {
          const error = yield* Effect.flip(Stream.runDrain(client.command({ command: "x" })))
          assert.strictEqual(error.status, 401)
          assert.lengthOf(yield* collect(client.command({ command: "x" })), 2)
          current = 7
          yield* client.invalidate
          assert.strictEqual((yield* Effect.flip(client.move([{ from: "a", to: "b" }]))).reason, "Transport")
          current = 1
          yield* client.move([{ from: "a", to: "b" }])
          assert.deepStrictEqual(
            toExecd(server).map(({ headers }) => headers["x-execd-access-token"]),
            ["t0", "t1", "t7", "t1"]
          )
        }),
      {},
      () => `t${current++}`
    )
  })

  it.scopedLive("a port that moved is found again", () =>
    Effect.gen(function* () {
      const first = yield* ScriptedServer.make(() => ScriptedServer.empty(200))
      const second = yield* ScriptedServer.make(() => json(200, [{ path: "/a" }]))
      let asked = 0
      const control = yield* ScriptedServer.make(() => json(200, { endpoint: asked++ === 0 ? first.url : second.url }))
      yield* Effect.gen(function* () {
        const client = yield* Effect.flatMap(Execd.Execd, (execd) => execd.connect("s1"))
        yield* client.ping
        first.setHandler(() => ScriptedServer.resetConnection)
        assert.strictEqual((yield* client.search("/"))[0]?.path, "/a")
        assert.strictEqual(asked, 2)
      }).pipe(Effect.provide(Layer.provide(Execd.layer, OpenSandbox.layer({ url: control.url }))))
    })
  )

  it.scopedLive("an error of the control plane comes as it is", () =>
    Effect.gen(function* () {
      const control = yield* ScriptedServer.make(() =>
        json(404, { code: "DOCKER::SANDBOX_NOT_FOUND", message: "gone" })
      )
      yield* Effect.gen(function* () {
        const client = yield* Effect.flatMap(Execd.Execd, (execd) => execd.connect("s1"))
        const error = yield* Effect.flip(client.ping)
        assert.deepInclude(error, { module: "OpenSandbox", method: "endpoint", reason: "NotFound" })
        assert.lengthOf(control.requests, 1)
      }).pipe(Effect.provide(Layer.provide(Execd.layer, OpenSandbox.layer({ url: control.url }))))
    })
  )
})

describe("commands by id", () => {
  it.scopedLive("interrupt: a 404 is asked about again, then means gone", () =>
    withExecd(
      ScriptedServer.sequence(
        json(404, { code: "NOT_FOUND", message: "no such command" }),
        ScriptedServer.empty(200),
        json(404, { code: "NOT_FOUND", message: "no such command" })
      ),
      (client, server) =>
        Effect.gen(function* () {
          yield* client.interrupt("c 1&x")
          assert.deepStrictEqual(
            toExecd(server).map(({ method, path }) => `${method} ${path}`),
            ["DELETE /execd/command", "DELETE /execd/command"]
          )
          assert.strictEqual(toExecd(server)[0]?.query.get("id"), "c 1&x")
          yield* client.interrupt("c2")
          assert.lengthOf(toExecd(server), 6)
          assert.strictEqual((yield* Effect.flip(client.interrupt(""))).reason, "InvalidRequest")
        })
    )
  )

  it.scopedLive("interrupt: another error is one", () =>
    withExecd(
      () => json(400, { code: "INVALID", message: "x" }),
      (client) =>
        Effect.map(Effect.flip(client.interrupt("c1")), (error) => assert.strictEqual(error.reason, "InvalidRequest"))
    )
  )

  it.scopedLive("status", () =>
    withExecd(
      ScriptedServer.sequence(
        json(200, { id: "c1", running: true, exit_code: null, error: "", started_at: "x", later: 1 }),
        json(200, { id: "c1", running: false, exit_code: 3, finished_at: null }),
        json(200, { running: false, exit_code: -1, error: "signal: killed" }),
        json(200, { running: false }),
        json(200, { running: true, exit_code: 0 })
      ),
      (client, server) =>
        Effect.gen(function* () {
          assert.deepStrictEqual(yield* client.status("c/1"), {
            id: "c1",
            running: true,
            exitCode: Option.none(),
            error: undefined
          })
          assert.deepStrictEqual((yield* client.status("c1")).exitCode, Option.some(3))
          assert.deepStrictEqual(yield* client.status("c1"), {
            id: "c1",
            running: false,
            exitCode: Option.none(),
            error: "signal: killed"
          })
          assert.deepStrictEqual((yield* client.status("c1")).exitCode, Option.none())
          assert.deepStrictEqual((yield* client.status("c1")).exitCode, Option.none())
          assert.strictEqual(toExecd(server)[0]?.target, "/execd/command/status/c%2F1")
        })
    )
  )

  it.scopedLive("logs: any cut of the server's byte cursor gives the same text", () => {
    const all = Buffer.from("é漢👩‍👩‍👧\nend\n")
    return withExecd(
      (request) => {
        const from = Number(request.query.get("cursor") ?? 0)
        const to = Math.min(all.length, from + 1 + (from % 3))
        return {
          ...text(200, ""),
          headers: { "content-type": "text/plain", "execd-commands-tail-cursor": String(to) },
          body: [all.subarray(from, to)]
        }
      },
      (client, server) =>
        Effect.gen(function* () {
          let joined = ""
          let cursor: string | undefined
          for (let i = 0; i < all.length + 2; i++) {
            const part: { readonly text: string; readonly cursor: Option.Option<string> } = yield* client.logs(
              "c1",
              cursor
            )
            joined += part.text
            cursor = Option.getOrUndefined(part.cursor)
          }
          assert.strictEqual(joined, all.toString("utf8"))
          for (const { query } of toExecd(server).slice(1)) assert.match(query.get("cursor") ?? "", /^\d+$/)
          assert.isNull(toExecd(server)[0]?.query.get("cursor"))
        })
    )
  })

  it.scopedLive("logs without a cursor header", () =>
    withExecd(
      () => text(200, "a\nb"),
      (client) =>
        Effect.map(client.logs("c1"), (logs) =>
          assert.deepStrictEqual(logs, { text: "a\nb", cursor: Option.none(), held: Option.none() })
        )
    )
  )
})

describe("ready", () => {
  const execd = (answer: (index: number) => Response | MockHttp.ConnectionFailed) => {
    let probes = 0
    const mock = MockHttp.make(({ url }) =>
      url.pathname.startsWith("/v1/") ? MockHttp.json(200, { endpoint: "execd:1" }) : answer(probes++)
    )
    const client = Effect.flatMap(Execd.Execd, (service) => service.connect("s1")).pipe(
      Effect.provide(Layer.provide(Execd.layer, Layer.provide(OpenSandbox.layerWithoutHttpClient(), mock.layer)))
    )
    return { mock, client }
  }

  /** Moves the clock in small steps, with a turn of the real event loop in each, until the fiber is done. */
  const pass = <A, E>(fiber: Fiber.Fiber<A, E>, limit: number) =>
    Effect.gen(function* () {
      for (let millis = 0; millis < limit; millis += 100) {
        yield* realTurn
        if (Option.isSome(yield* Fiber.poll(fiber))) return millis
        yield* TestClock.adjust(100)
      }
      return limit
    })

  it.effect("waits for an execd that refuses for a minute", () =>
    Effect.gen(function* () {
      const start = yield* Effect.clockWith((clock) => clock.currentTimeMillis)
      const clock = yield* Effect.clock
      const failures = [
        () => new MockHttp.ConnectionFailed("ECONNREFUSED"),
        () => new Response("<html>Bad Gateway</html>", { status: 502 }),
        () => MockHttp.json(401, { error: "not yet" }),
        () => new Response("", { status: 200 }),
        () => new Response(frame({ type: "error", error: { ename: "CommandExecError", evalue: "127" } }))
      ]
      const { client, mock } = execd((index) =>
        clock.unsafeCurrentTimeMillis() - start < 60_000
          ? (failures[index % failures.length]?.() ?? new Response(null, { status: 500 }))
          : new Response(init + complete)
      )
      const fiber = yield* Effect.fork(Effect.flatMap(client, (_) => _.ready()))
      const took = yield* pass(fiber, 120_000)
      yield* Fiber.join(fiber)
      assert.isAtLeast(took, 59_900)
      assert.isAtMost(took, 64_000)
      assert.isAtMost(mock.sent.length, 120)
      assert.deepStrictEqual(mock.sent[1]?.body, { command: "true" })
    })
  )

  it.effect("gives up after its timeout, with the last error", () =>
    Effect.gen(function* () {
      const { client } = execd(() => new Response("nope", { status: 503 }))
      const fiber = yield* Effect.fork(Effect.flip(Effect.flatMap(client, (_) => _.ready({ timeout: "10 seconds" }))))
      yield* pass(fiber, 20_000)
      const error = yield* Fiber.join(fiber)
      assert.strictEqual(error.reason, "Timeout")
      assert.match(error.description ?? "", /after 10s.*503 nope/)
    })
  )

  it.effect("does not wait for a sandbox that is gone", () =>
    Effect.gen(function* () {
      const mock = MockHttp.make(() => MockHttp.json(404, { code: "DOCKER::SANDBOX_NOT_FOUND", message: "gone" }))
      const client = yield* Effect.flatMap(Execd.Execd, (service) => service.connect("s1")).pipe(
        Effect.provide(Layer.provide(Execd.layer, Layer.provide(OpenSandbox.layerWithoutHttpClient(), mock.layer)))
      )
      assert.strictEqual((yield* Effect.flip(client.ready())).reason, "NotFound")
    })
  )
})

describe("spans", () => {
  it.scopedLive("one for each call, with ids, without environments and tokens", () => {
    const spans: Array<Tracer.Span> = []
    const recording = (base: Tracer.Tracer) =>
      Tracer.make({
        span: (name, parent, context, links, startTime, kind, options) => {
          const span = base.span(name, parent, context, links, startTime, kind, options)
          spans.push(span)
          return span
        },
        context: (f, fiber) => base.context(f, fiber)
      })
    return withExecd(
      (request) => (request.path.endsWith("/command") ? stream([init, complete]) : json(200, null)),
      (client) =>
        Effect.gen(function* () {
          yield* Stream.runDrain(
            client.command({ command: "echo $P", env: { P: "pl4in", T: Redacted.make("s3cret") } })
          )
          yield* client.info(["/x"])
          const own = spans.filter(({ name }) => name.startsWith("Execd."))
          assert.deepStrictEqual(
            own.map(({ name }) => name),
            ["Execd.command", "Execd.info"]
          )
          assert.deepInclude(Object.fromEntries(own[0]?.attributes ?? []), { "sandbox.id": "s1", "command.id": "c1" })
          for (const span of spans) assert.strictEqual(span.status._tag, "Ended", span.name)
          const shown = JSON.stringify(
            spans.map((span) => [span.name, [...span.attributes]]),
            (_, value: unknown) => (typeof value === "bigint" ? String(value) : value)
          )
          assert.include(shown, "http.request.header.x-execd-access-token")
          for (const secret of ["t0ken", "pl4in", "s3cret", "echo"]) assert.notInclude(shown, secret)
        }).pipe((self) => Effect.flatMap(Effect.tracer, (base) => Effect.withTracer(self, recording(base))))
    )
  })
})
