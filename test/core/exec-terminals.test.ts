import { EventEmitter } from "node:events"
import { assert, describe, it } from "@effect/vitest"
import { Sandboxes } from "@sandglass/core"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Stream from "effect/Stream"
import { oneScripted, payloadsOf, refusing } from "../support/oneScripted.js"
import * as ScriptedServer from "../support/ScriptedServer.js"

const { hold, json, reset, sleep, wait, webSocket, wsBinary, wsClose, wsText } = ScriptedServer

const connected = wsText({ type: "connected", session_id: "t1", mode: "pty" })
const print = (text: string | Uint8Array) => wsBinary(1, text)
const exit = (code: number) => wsText({ type: "exit", exit_code: code })
const goodbye = wsClose(1000, "process exited")

type Play = (request: ScriptedServer.RecordedRequest) => Iterable<ScriptedServer.Step>

/** Every connection to the one terminal plays the next script. */
const terminals = (...plays: ReadonlyArray<Play>) => {
  const asked: Array<string> = []
  const sockets: Array<ScriptedServer.RecordedRequest> = []
  let running = true
  const override = (request: ScriptedServer.RecordedRequest) => {
    const path = request.path.replace(/^\/execd\/[^/]+/, "")
    if (!path.startsWith("/pty")) return undefined
    if (path.endsWith("/ws")) {
      sockets.push(request)
      const play = plays[Math.min(sockets.length, plays.length) - 1]
      return webSocket(request, play?.(request) ?? [])
    }
    asked.push(`${request.method} ${path}`)
    if (request.method === "POST") return json(201, { session_id: "t1" })
    // A while, during which there is no connection.
    if (request.method === "GET")
      return Effect.delay(Effect.succeed(json(200, { session_id: "t1", running, output_offset: 0 })), "200 millis")
    running = false
    return ScriptedServer.empty(200)
  }
  return { script: { override }, asked, sockets }
}

const typed = (request: ScriptedServer.RecordedRequest | undefined) =>
  Buffer.concat((request?.frames ?? []).filter(({ opcode }) => opcode === 2).map(({ payload }) => payload.subarray(1)))

const untilTyped = (request: ScriptedServer.RecordedRequest, text: string) =>
  wait(request.waitForFrame(() => typed(request).includes(text)))

/** A person's terminal. */
class Person extends EventEmitter {
  readonly columns = 80
  readonly rows = 24
  shown = ""
  private queue: Array<string> = []
  private flowing = false

  pause() {
    this.flowing = false
  }
  resume() {
    this.flowing = true
    this.flush()
  }
  type(text: string) {
    this.queue.push(text)
    this.flush()
  }
  write(chunk: Uint8Array, callback: () => void) {
    this.shown += Buffer.from(chunk).toString()
    callback()
  }
  private flush() {
    while (this.flowing && this.queue.length > 0) this.emit("data", this.queue.shift())
  }
}

describe("a terminal", () => {
  it.scopedLive("that another client takes over is theirs: a typed error, and nobody ends it", () =>
    Effect.gen(function* () {
      const { asked, script } = terminals(() => [connected, print("$ "), sleep(30), wsClose(4001, "TAKEN_OVER")])
      const { entries, sandbox } = yield* oneScripted(script)
      yield* Effect.scoped(
        Effect.gen(function* () {
          const terminal = yield* sandbox.openTerminal()
          const error = yield* Effect.flip(terminal.exitCode)
          assert.deepInclude(error, { _tag: "ExecError", reason: "TakenOver", code: "TAKEN_OVER", stdout: "$ " })
          assert.deepInclude(yield* Effect.flip(Stream.runDrain(terminal.output)), { reason: "TakenOver" })
          assert.deepInclude(yield* Effect.flip(terminal.write("x")), { reason: "Conflict", code: "TAKEN_OVER" })
        })
      )
      assert.deepStrictEqual(asked, ["POST /pty"])
      assert.deepInclude(payloadsOf(yield* entries, "exec.failed")[0], { reason: "takenover" })
    })
  )

  it.scopedLive("what is typed while the connection is gone arrives on the next one, recorded once", () =>
    Effect.gen(function* () {
      const { script, sockets } = terminals(
        () => [connected, print("$ "), sleep(30), reset],
        (request) => [connected, untilTyped(request, "b"), print("ab"), exit(0), goodbye]
      )
      const { entries, sandbox } = yield* oneScripted(script)
      const terminal = yield* sandbox.openTerminal()
      yield* Stream.runDrain(Stream.take(terminal.output, 1))
      yield* sockets[0]?.closed ?? Effect.void
      yield* Effect.sleep("50 millis")
      yield* terminal.write("a")
      yield* terminal.write("b")
      assert.strictEqual(yield* terminal.exitCode, 0)
      assert.strictEqual(yield* Stream.mkString(Stream.decodeText(terminal.output)), "$ ab")
      assert.strictEqual(typed(sockets[1]).toString(), "ab")
      assert.deepStrictEqual(
        payloadsOf(yield* entries, "exec.output")
          .filter(({ type }) => type === "stdin")
          .map(({ text }) => text),
        ["a", "b"]
      )
    })
  )

  it.scopedLive("that cannot be opened in time is given up at once, not with the scope", () =>
    Effect.gen(function* () {
      const { asked, script, sockets } = terminals(() => [hold])
      const { sandbox } = yield* oneScripted(script)
      yield* Effect.flip(sandbox.openTerminal().pipe(Effect.timeout("200 millis")))
      assert.deepStrictEqual(asked, ["POST /pty", "DELETE /pty/t1"])
      yield* (sockets[0]?.closed ?? Effect.void).pipe(Effect.timeout("5 seconds"))
    })
  )

  it.scopedLive("with a window that makes no sense is refused before anything is sent", () =>
    Effect.gen(function* () {
      const { asked, script } = terminals(() => [hold])
      const { sandbox } = yield* oneScripted(script)
      for (const size of [
        { cols: 0, rows: 1 },
        { cols: 80, rows: 1.5 },
        { cols: 80, rows: 70_000 }
      ]) {
        const error = yield* Effect.flip(sandbox.openTerminal({ size }))
        assert.deepInclude(error, { _tag: "SandboxError", reason: "InvalidOptions" })
      }
      assert.deepStrictEqual(asked, [])
    })
  )
})

describe("raw bytes", () => {
  it.scopedLive("are taken from the server however slow their consumer is: it waits for nobody", () =>
    Effect.gen(function* () {
      const piece = Buffer.alloc(50_000, "x")
      const count = 200
      let sent = 0
      const all = yield* Deferred.make<void>()
      const { script } = terminals(function* () {
        yield wsText({ type: "connected", session_id: "t1", mode: "pipe" })
        for (; sent < count; sent++) yield print(piece)
        yield wait(Deferred.succeed(all, void 0))
        yield exit(0)
        yield goodbye
      })
      const { sandbox } = yield* oneScripted(script)
      let size = 0
      let chunks = 0
      yield* sandbox.exec("x", { raw: true }).output.pipe(
        Stream.runForEach(({ bytes = new Uint8Array(), text }) => {
          assert.strictEqual(text.length, bytes.length)
          size += bytes.length
          return chunks++ === 0 ? Deferred.await(all) : Effect.void
        })
      )
      assert.strictEqual(size, count * piece.length)
    })
  )

  it.scopedLive("have their bytes wherever they are read", () =>
    Effect.gen(function* () {
      const { script } = terminals(() => [
        wsText({ type: "connected", session_id: "t1", mode: "pipe" }),
        print("plain"),
        sleep(20),
        print(Buffer.from([0xff, 0x00])),
        exit(0),
        goodbye
      ])
      const { context, sandbox } = yield* oneScripted(script)
      const bytes = <E>(output: Stream.Stream<{ readonly bytes?: Uint8Array | undefined }, E>) =>
        Stream.runFold(output, "", (all, chunk) => all + Buffer.from(chunk.bytes ?? "none").toString("hex"))
      const expected = `${Buffer.from("plain").toString("hex")}ff00`
      assert.strictEqual(yield* bytes(sandbox.exec("x", { raw: true }).output), expected)
      const running = yield* sandbox.start("x", { raw: true })
      assert.strictEqual(yield* bytes(running.output), expected)
      yield* sandbox.checkpoint()
      const resumed = yield* Context.get(context, Sandboxes.Sandboxes).resume(sandbox.id)
      const again = resumed.exec("x", { raw: true })
      assert.strictEqual(yield* bytes(again.output), expected)
      assert.isTrue((yield* resumed.exec("x", { raw: true })).replayed)
    })
  )
})

describe("a person at a terminal", () => {
  it.scopedLive("goes on typing after a broken connection, and the end of the input is told", () =>
    Effect.gen(function* () {
      const { script, sockets } = terminals(
        (request) => [connected, print("$ "), untilTyped(request, "one"), sleep(20), reset],
        (request) => [
          connected,
          untilTyped(request, "two"),
          print("2"),
          untilTyped(request, "\u0004"),
          exit(4),
          goodbye
        ]
      )
      const { sandbox } = yield* oneScripted(script)
      const person = new Person()
      const terminal = yield* sandbox.openTerminal()
      const attached = yield* Effect.fork(terminal.attach(person, person))
      yield* Effect.sleep("20 millis")
      person.type("one")
      yield* sockets[0]?.closed ?? Effect.void
      yield* Effect.sleep("50 millis")
      person.type("two")
      person.type("three")
      yield* Effect.sleep("400 millis")
      person.emit("end")
      assert.strictEqual(yield* Fiber.join(attached).pipe(Effect.timeout("10 seconds")), 4)
      assert.strictEqual(person.shown, "$ 2")
      assert.strictEqual(typed(sockets[1]).toString(), "twothree\u0004")
      assert.strictEqual(person.listenerCount("data") + person.listenerCount("end"), 0)
    })
  )

  it.scopedLive("is told when the ledger takes no more: nothing is typed that is not recorded", () =>
    Effect.gen(function* () {
      const { script, sockets } = terminals(() => [connected, print("$ "), hold])
      const { sandbox } = yield* oneScripted(script, {
        ledger: refusing((event) => JSON.stringify(event).includes('"stdin"'))
      })
      const person = new Person()
      const terminal = yield* sandbox.openTerminal()
      const attached = yield* Effect.fork(Effect.flip(terminal.attach(person, person)))
      yield* Effect.sleep("50 millis")
      person.type("rm -rf /\n")
      const error = yield* Fiber.join(attached).pipe(Effect.timeout("5 seconds"))
      assert.deepInclude(error, { _tag: "LedgerError", reason: "Connection" })
      assert.strictEqual(typed(sockets[0]).toString(), "")
    })
  )

  it.scopedLive("may leave: the terminal stays, the person's terminal is as it was", () =>
    Effect.gen(function* () {
      const { script } = terminals((request) => [connected, print("$ "), untilTyped(request, "x"), exit(0), goodbye])
      const { sandbox } = yield* oneScripted(script)
      const person = new Person()
      const raw: Array<boolean> = []
      const input = Object.assign(person, { setRawMode: (on: boolean) => raw.push(on) })
      const terminal = yield* sandbox.openTerminal()
      const shown = yield* Deferred.make<void>()
      const fiber = yield* Effect.fork(
        terminal.attach(input, {
          write: (_chunk, callback) => {
            Effect.runSync(Deferred.succeed(shown, void 0))
            callback()
          }
        })
      )
      yield* Deferred.await(shown)
      yield* Fiber.interrupt(fiber)
      assert.deepStrictEqual(raw, [true, false])
      assert.strictEqual(person.listenerCount("data") + person.listenerCount("end"), 0)
      yield* terminal.write("x")
      assert.strictEqual(yield* terminal.exitCode, 0)
    })
  )
})
