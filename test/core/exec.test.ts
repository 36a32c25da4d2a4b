import { Writable } from "node:stream"
import { assert, describe, it } from "@effect/vitest"
import type { LedgerEvent, SandboxError } from "@sandglass/core"
import { Ledger, LedgerError, Sandboxes } from "@sandglass/core"
import * as Chunk from "effect/Chunk"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import * as Sink from "effect/Sink"
import * as Stream from "effect/Stream"
import * as ScriptedSandboxes from "../support/ScriptedSandboxes.js"
import { complete, exited, init, ping, stderr, stdout } from "../support/ScriptedSandboxes.js"
import * as ScriptedServer from "../support/ScriptedServer.js"

/** A sandbox on a scripted server, with a ledger in memory. */
const setup = (script: ScriptedSandboxes.Script, ledger: Layer.Layer<Ledger.Ledger> = Ledger.layerMemory) =>
  Effect.gen(function* () {
    const server = yield* ScriptedSandboxes.make(script)
    const context = yield* Layer.build(Sandboxes.layer.pipe(Layer.provideMerge(Layer.merge(server.layer, ledger))))
    const sandbox = yield* Effect.flatMap(Sandboxes.Sandboxes, (_) => _.create({ image: "node:22", name: "t" })).pipe(
      Effect.provide(context)
    )
    const entries = Effect.map(Stream.runCollect(sandbox.history), Chunk.toReadonlyArray)
    return { server, sandbox, entries, context }
  })

/** Waits until the connection of the first command is closed. */
const closedSocket = (server: { readonly commands: ReadonlyArray<ScriptedSandboxes.Command> }) =>
  server.commands[0]?.request.closed ?? Effect.dieMessage("no command was sent")

/** Without what is random or a digest. */
const plain = ({ execId: _execId, fingerprint: _fingerprint, ...rest }: { readonly [key: string]: unknown }) => rest

const ofExec = (entries: ReadonlyArray<LedgerEvent.LedgerEntry>) =>
  entries
    .filter((entry) => entry.stepIdx > 0)
    .map((entry) => [entry.event, plain(entry.payload as { readonly [key: string]: unknown })])

const payloadOf = (entries: ReadonlyArray<LedgerEvent.LedgerEntry>, event: string) =>
  entries.find((entry) => entry.event === event)?.payload as { readonly [key: string]: unknown } | undefined

describe("a command that ends well", () => {
  it.scopedLive("is recorded: start, output, end", () =>
    Effect.gen(function* () {
      const { entries, sandbox, server } = yield* setup({
        command: () => ScriptedServer.stream([init("c1") + stdout("a") + stdout("\n") + stdout("b") + complete])
      })
      const result = yield* sandbox.exec("make", { cwd: "/src", env: { TOKEN: "s3cret", B: Redacted.make("hidden") } })
      assert.strictEqual(result.stdout, "a\n\nb\n")
      assert.deepInclude(result, {
        exitCode: 0,
        stderr: "",
        seq: 1,
        truncated: false,
        replayed: false,
        outputIncomplete: false,
        stdoutLength: 5
      })
      assert.deepStrictEqual(ofExec(yield* entries), [
        ["exec.started", { seq: 1, cmd: "make", cwd: "/src", envNames: ["TOKEN", "B"] }],
        ["exec.output", { seq: 1, type: "stdout", text: "a\n\nb\n" }],
        ["exec.completed", { seq: 1, exitCode: 0, commandId: "c1", stdoutLength: 5, stderrLength: 0 }]
      ])
      assert.deepInclude(server.commands[0]?.body, {
        command: "make",
        cwd: "/src",
        envs: { TOKEN: "s3cret", B: "hidden" }
      })
      assert.notInclude(JSON.stringify(yield* entries), "s3cret")
      assert.notInclude(JSON.stringify(yield* entries), "hidden")
    })
  )

  it.scopedLive("delivers nothing that is not in the ledger already", () =>
    Effect.gen(function* () {
      const { entries, sandbox } = yield* setup({
        command: () =>
          ScriptedServer.stream([
            init("c1"),
            stdout("one"),
            ScriptedServer.sleep(20),
            stderr("two"),
            ScriptedServer.sleep(20),
            stdout("three") + complete
          ])
      })
      const seen: Array<string> = []
      yield* sandbox.exec("x").output.pipe(
        Stream.runForEach((chunk) =>
          Effect.gen(function* () {
            seen.push(`${chunk.stream} ${chunk.text}`)
            const recorded = (yield* entries).filter((entry) => entry.event === "exec.output")
            assert.isAtLeast(recorded.length, seen.length)
          })
        )
      )
      assert.deepStrictEqual(seen, ["stdout one\n", "stderr two\n", "stdout three\n"])
    })
  )

  it.scopedLive("words are quoted for the shell", () =>
    Effect.gen(function* () {
      const { sandbox, server } = yield* setup({})
      yield* sandbox.exec(["echo", "it's", "a b", "$HOME", "", "-n"])
      yield* sandbox.exec("echo 'x'", { shell: "zsh" })
      assert.deepStrictEqual(
        server.commands.map((_) => _.command),
        [`echo 'it'\\''s' 'a b' '$HOME' '' -n`, `zsh -c 'echo '\\''x'\\'''`]
      )
    })
  )

  it.scopedLive("a timeout of 5 seconds is 5000 on the wire", () =>
    Effect.gen(function* () {
      const { sandbox, server } = yield* setup({})
      yield* sandbox.exec("x", { timeout: "5 seconds" })
      assert.strictEqual(server.commands[0]?.body["timeout"], 5000)
    })
  )

  it.scopedLive("heartbeats leave no trace", () =>
    Effect.gen(function* () {
      const { entries, sandbox } = yield* setup({
        command: () => ScriptedServer.stream([init("c1"), ping.repeat(1200), complete])
      })
      const result = yield* sandbox.exec("quiet")
      assert.strictEqual(result.stdout, "")
      assert.deepStrictEqual(
        ofExec(yield* entries).map(([event]) => event),
        ["exec.started", "exec.completed"]
      )
    })
  )

  it.scopedLive("lines, streams and pipes", () =>
    Effect.gen(function* () {
      const { sandbox } = yield* setup({
        command: () => ScriptedServer.stream([init("c1"), stdout("1") + stderr("e") + stdout("2"), complete])
      })
      const exec = sandbox.exec("x")
      assert.deepStrictEqual(Chunk.toReadonlyArray(yield* Stream.runCollect(exec.lines)), ["1", "2"])
      assert.strictEqual(yield* Stream.mkString(exec.stderr), "e\n")
      const written: Array<string> = []
      const target = {
        write: (chunk: string, callback: () => void) => {
          written.push(chunk)
          callback()
        }
      }
      assert.strictEqual((yield* exec.pipeTo(target)).exitCode, 0)
      assert.deepStrictEqual(written, ["1\n", "e\n", "2\n"])
      let first: unknown
      const result = yield* exec.pipeTo(
        Sink.forEachWhile((chunk) =>
          Effect.sync(() => {
            first = chunk
            return false
          })
        )
      )
      assert.deepStrictEqual(first, { stream: "stdout", text: "1\n" })
      assert.strictEqual(result.stdout, "1\n2\n")
      assert.strictEqual(result.seq, 4, "each run is one execution")
    })
  )

  it.scopedLive("a writable that fails ends the exec and stops the command", () =>
    Effect.gen(function* () {
      const { entries, sandbox, server } = yield* setup({
        command: () => ScriptedServer.stream([init("c1"), stdout("1"), ScriptedServer.hold])
      })
      const error = yield* sandbox
        .exec("x")
        .pipeTo({
          write: (_: string, callback: (error: Error) => void) => callback(new Error("EPIPE"))
        })
        .pipe(Effect.flip)
      assert.deepInclude(error, { _tag: "ExecError", reason: "Pipe", seq: 1 })
      assert.deepStrictEqual(server.interrupted, ["c1"])
      assert.strictEqual(payloadOf(yield* entries, "exec.failed")?.["reason"], "pipe")
    })
  )
})

describe("Node writables", () => {
  it.scopedLive("that fail, or are destroyed while a write is pending, end the exec and nothing else", () =>
    Effect.gen(function* () {
      const { sandbox } = yield* setup({
        command: () => ScriptedServer.stream([init("c1"), stdout("1"), ScriptedServer.sleep(30), stdout("2"), complete])
      })
      const failing = new Writable({ write: (_chunk, _encoding, callback) => callback(new Error("disk full")) })
      const full = yield* Effect.flip(sandbox.exec("x").pipeTo(failing))
      assert.deepInclude(full, { _tag: "ExecError", reason: "Pipe", description: "disk full" })
      const stuck = new Writable({ write: () => {} })
      const fiber = yield* Effect.fork(Effect.flip(sandbox.exec("x").pipeTo(stuck)))
      yield* Effect.sleep("50 millis")
      stuck.destroy()
      const destroyed = yield* Fiber.join(fiber).pipe(Effect.timeout("5 seconds"))
      assert.deepInclude(destroyed, { _tag: "ExecError", reason: "Pipe" })
      const collected: Array<string> = []
      const good = new Writable({
        write: (chunk, _encoding, callback) => {
          collected.push(String(chunk))
          callback()
        }
      })
      yield* sandbox.exec("x").pipeTo(good)
      yield* sandbox.exec("x").pipeTo(good)
      assert.strictEqual(collected.join(""), "1\n2\n1\n2\n")
      assert.strictEqual(good.listenerCount("error") + good.listenerCount("close"), 0)
      assert.notInclude(JSON.stringify(sandbox.exec("x", { env: { A: "plain" } })), "plain")
    })
  )
})

describe("exit codes", () => {
  it.scopedLive("strict by default, and returned with strict: false", () =>
    Effect.gen(function* () {
      const { entries, sandbox } = yield* setup({
        command: () => ScriptedServer.stream([init("c1"), stdout("out") + stderr("err") + exited(3)])
      })
      const error = yield* Effect.flip(sandbox.exec("false"))
      assert.deepInclude(error, {
        _tag: "CommandError",
        exitCode: 3,
        command: "false",
        stdout: "out\n",
        stderr: "err\n"
      })
      assert.strictEqual((yield* sandbox.exec("false", { strict: false })).exitCode, 3)
      const streamed = yield* Effect.flip(Stream.runDrain(sandbox.exec("false").stdout))
      assert.deepInclude(streamed, { _tag: "CommandError", exitCode: 3, stderr: "err\n" })
      assert.strictEqual(payloadOf(yield* entries, "exec.completed")?.["exitCode"], 3)
    })
  )

  for (const [evalue, reason] of [
    ["signal: killed", "Killed"],
    ["-1", "Killed"],
    ["", "Failed"],
    ["fork/exec /x: no such file", "Failed"]
  ] as const) {
    it.scopedLive(`${JSON.stringify(evalue)} is no exit code`, () =>
      Effect.gen(function* () {
        const { entries, sandbox } = yield* setup({
          command: () => ScriptedServer.stream([init("c1"), stdout("partial"), exited(evalue)])
        })
        const error = yield* Effect.flip(sandbox.exec("x", { strict: false }))
        assert.deepInclude(error, { _tag: "ExecError", reason, stdout: "partial\n" })
        const all = yield* entries
        assert.strictEqual(payloadOf(all, "exec.failed")?.["reason"], reason.toLowerCase())
        assert.isUndefined(payloadOf(all, "exec.completed"))
      })
    )
  }

  it.scopedLive("-1 after the timeout is a timeout", () =>
    Effect.gen(function* () {
      const { sandbox } = yield* setup({
        command: () => ScriptedServer.stream([init("c1"), ScriptedServer.sleep(80), exited(-1)])
      })
      const error = yield* Effect.flip(sandbox.exec("sleep 9", { timeout: "50 millis" }))
      assert.deepInclude(error, { _tag: "ExecError", reason: "Timeout" })
    })
  )
})

describe("a stream that breaks", () => {
  // A pause before the cut: what a fetch has received but not handed out is gone when the connection fails.
  const broken = [init("c1"), stdout("1"), stdout("2"), stdout("3"), ScriptedServer.sleep(50), ScriptedServer.drop]

  it.scopedLive("is an unknown outcome when the server cannot say more", () =>
    Effect.gen(function* () {
      const { entries, sandbox, server } = yield* setup({ command: () => ScriptedServer.stream(broken) })
      const seen: Array<string> = []
      const error = yield* sandbox.exec("x").stdout.pipe(
        Stream.runForEach((text) => Effect.sync(() => seen.push(text))),
        Effect.flip
      )
      assert.deepInclude(error, { _tag: "ExecError", reason: "Lost", stdout: "1\n2\n3\n" })
      assert.strictEqual(seen.join(""), "1\n2\n3\n")
      assert.isTrue(server.server.requests.some((request) => request.path.endsWith("/command/status/c1")))
      assert.strictEqual(payloadOf(yield* entries, "exec.failed")?.["reason"], "lost")
    })
  )

  it.scopedLive("is settled by the server's status", () =>
    Effect.gen(function* () {
      const { entries, sandbox } = yield* setup({
        command: () => ScriptedServer.stream(broken),
        status: (id) => ScriptedServer.json(200, { id, running: false, exit_code: 0 })
      })
      const result = yield* sandbox.exec("x")
      assert.deepInclude(result, { exitCode: 0, outputIncomplete: true, stdout: "1\n2\n3\n" })
      assert.deepInclude(payloadOf(yield* entries, "exec.completed"), { exitCode: 0, outputIncomplete: true })
    })
  )

  it.scopedLive("stops a command that is still running", () =>
    Effect.gen(function* () {
      const { sandbox, server } = yield* setup({
        command: () => ScriptedServer.stream(broken),
        status: (id) => ScriptedServer.json(200, { id, running: true })
      })
      assert.deepInclude(yield* Effect.flip(sandbox.exec("x")), { _tag: "ExecError", reason: "Lost" })
      assert.deepStrictEqual(server.interrupted, ["c1"])
    })
  )

  it.scopedLive("a failure inside a 200 keeps its code and message", () =>
    Effect.gen(function* () {
      const { entries, sandbox } = yield* setup({
        command: () =>
          ScriptedServer.stream([
            init("c1"),
            stdout("1"),
            stdout("2"),
            frameOf({ code: "RUNTIME_ERROR", message: "x" })
          ])
      })
      const error = yield* Effect.flip(sandbox.exec("x"))
      assert.deepInclude(error, { _tag: "ExecError", reason: "Failed", code: "RUNTIME_ERROR" })
      assert.include(error.message, "x")
      assert.strictEqual(payloadOf(yield* entries, "exec.failed")?.["reason"], "failed")
    })
  )

  it.scopedLive("an HTML page is a failure that shows it", () =>
    Effect.gen(function* () {
      const { sandbox } = yield* setup({
        command: () => ScriptedServer.text(200, "<html><body>login</body></html>", { "content-type": "text/html" })
      })
      const error = yield* Effect.flip(sandbox.exec("x"))
      assert.deepInclude(error, { _tag: "ExecError", reason: "Protocol" })
      assert.include(error.message, "<html>")
    })
  )

  it.scopedLive("an empty stream is a failure", () =>
    Effect.gen(function* () {
      const { sandbox } = yield* setup({ command: () => ScriptedServer.stream([]) })
      assert.strictEqual((yield* Effect.flip(sandbox.exec("x")))._tag, "ExecError")
    })
  )

  it.scopedLive("a refused command is sent once and recorded as rejected", () =>
    Effect.gen(function* () {
      for (const status of [400, 502]) {
        const { entries, sandbox, server } = yield* setup({
          command: () => ScriptedServer.json(status, { code: "NO", message: "not this" })
        })
        const error = yield* Effect.flip(sandbox.exec("x"))
        assert.deepInclude(error, { _tag: "OpenSandboxError", status, code: "NO" })
        assert.strictEqual(server.commands.length, 1)
        assert.strictEqual(payloadOf(yield* entries, "exec.failed")?.["reason"], "rejected")
      }
    })
  )

  it.scopedLive("the result is there at once though the socket stays open", () =>
    Effect.gen(function* () {
      const { sandbox, server } = yield* setup({
        command: () => ScriptedServer.stream([init("c1"), stdout("1"), complete, ScriptedServer.hold])
      })
      assert.strictEqual((yield* sandbox.exec("x")).stdout, "1\n")
      yield* closedSocket(server).pipe(Effect.timeout("5 seconds"))
      assert.deepStrictEqual(server.interrupted, [])
    })
  )
})

const frameOf = (fields: { readonly [key: string]: unknown }) => `${JSON.stringify(fields)}\n\n`

describe("interruption", () => {
  const script = [init("c1"), stdout("1"), stderr("2"), stdout("3"), exited(0)]
  for (let cut = 0; cut <= script.length; cut++) {
    it.scopedLive(
      `after ${cut} events only the interruption surfaces, and the command is stopped`,
      () =>
        Effect.gen(function* () {
          const reached = yield* Deferred.make<void>()
          const { entries, sandbox, server } = yield* setup({
            command: () =>
              ScriptedServer.stream([
                ...script.slice(0, Math.min(cut, 4)),
                ScriptedServer.wait(Deferred.succeed(reached, void 0)),
                ...(cut === script.length ? [exited(0)] : []),
                ScriptedServer.hold
              ])
          })
          const fiber = yield* Effect.fork(sandbox.exec("x"))
          yield* Deferred.await(reached)
          yield* Effect.sleep("20 millis")
          const exit = yield* Fiber.interrupt(fiber)
          const all = yield* entries
          if (cut === script.length) {
            assert.isTrue(Exit.isSuccess(exit))
            assert.strictEqual(payloadOf(all, "exec.completed")?.["exitCode"], 0)
            return
          }
          assert.isTrue(Exit.isInterrupted(exit))
          assert.strictEqual(payloadOf(all, "exec.failed")?.["reason"], "interrupted")
          assert.deepStrictEqual(server.interrupted, cut === 0 ? [] : ["c1"])
          yield* closedSocket(server).pipe(Effect.timeout("5 seconds"))
        }),
      15_000
    )
  }

  it.scopedLive("before the id is known it waits for the id", () =>
    Effect.gen(function* () {
      const arrived = yield* Deferred.make<void>()
      const { sandbox, server } = yield* setup({
        command: () =>
          Effect.as(
            Deferred.succeed(arrived, void 0),
            ScriptedServer.stream([ScriptedServer.sleep(150), init("late"), ScriptedServer.hold])
          )
      })
      const fiber = yield* Effect.fork(sandbox.exec("x"))
      yield* Deferred.await(arrived)
      yield* Fiber.interrupt(fiber)
      assert.deepStrictEqual(server.interrupted, ["late"])
    })
  )

  it.scopedLive("taking one chunk stops the command and frees the socket", () =>
    Effect.gen(function* () {
      const { entries, sandbox, server } = yield* setup({
        command: () => ScriptedServer.stream([init("c1"), stdout("1"), ScriptedServer.hold])
      })
      assert.strictEqual(yield* Stream.mkString(Stream.take(sandbox.exec("x").stdout, 1)), "1\n")
      assert.deepStrictEqual(server.interrupted, ["c1"])
      yield* closedSocket(server).pipe(Effect.timeout("5 seconds"))
      assert.strictEqual(payloadOf(yield* entries, "exec.failed")?.["reason"], "interrupted")
    })
  )
})

describe("a failing ledger", () => {
  it.scopedLive("ends the exec with its error and stops the command", () =>
    Effect.gen(function* () {
      let appends = 0
      const failing = Layer.map(Ledger.layerMemory, (context) => context).pipe(
        Layer.flatMap((context) => {
          const ledger = Effect.runSync(Effect.provide(Ledger.Ledger, context))
          return Layer.succeed(Ledger.Ledger, {
            ...ledger,
            appendAll: (events) =>
              events.some((event) => event.event === "exec.output") && ++appends === 3
                ? Effect.fail(new LedgerError.LedgerError({ method: "appendAll", reason: "Connection" }))
                : ledger.appendAll(events)
          })
        })
      )
      const { sandbox, server } = yield* setup(
        {
          command: () =>
            ScriptedServer.stream([
              init("c1"),
              ...[1, 2, 3, 4].flatMap((n) => [stdout(`line ${n}`), ScriptedServer.sleep(30)]),
              ScriptedServer.hold
            ])
        },
        failing
      )
      const seen: Array<string> = []
      const error = yield* sandbox.exec("x").stdout.pipe(
        Stream.runForEach((text) => Effect.sync(() => seen.push(text))),
        Effect.flip
      )
      assert.deepInclude(error, { _tag: "LedgerError", reason: "Connection" })
      assert.deepStrictEqual(seen, ["line 1\n", "line 2\n"])
      assert.deepStrictEqual(server.interrupted, ["c1"])
    })
  )
})

describe("truncation", () => {
  it.scopedLive("keeps head and tail, says so, and the ledger knows the full size", () =>
    Effect.gen(function* () {
      const line = "x".repeat(999)
      const { entries, sandbox } = yield* setup({
        command: () =>
          ScriptedServer.stream([
            init("c1"),
            ...Array.from({ length: 30 }, (_, n) => stdout(`${n}`.padStart(4, "0") + line.slice(4)).repeat(100)),
            stdout("the end"),
            complete
          ])
      })
      const result = yield* sandbox.exec("x", { maxOutput: 1_000_000 })
      assert.isTrue(result.truncated)
      assert.strictEqual(result.stdoutLength, 3_000_008)
      assert.isTrue(result.stdout.startsWith("0000xxx"))
      assert.isTrue(result.stdout.endsWith("the end\n"))
      assert.include(result.stdout, "\n[2000008 characters left out]\n")
      const all = yield* entries
      assert.strictEqual(payloadOf(all, "exec.completed")?.["stdoutLength"], 3_000_008)
      const recorded = all
        .filter((entry) => entry.event === "exec.output")
        .reduce((sum, entry) => sum + String((entry.payload as { text: string }).text).length, 0)
      assert.strictEqual(recorded, 3_000_008)
    })
  )
})

describe("a running exec", () => {
  it.scopedLive("has streams that many may read, from the first chunk on, and a result", () =>
    Effect.gen(function* () {
      const more = yield* Deferred.make<void>()
      const { sandbox } = yield* setup({
        command: () =>
          ScriptedServer.stream([
            init("c1"),
            stdout("1") + stderr("e"),
            ScriptedServer.wait(Deferred.await(more)),
            stdout("2"),
            complete
          ])
      })
      const running = yield* sandbox.start("serve")
      assert.strictEqual(yield* Stream.mkString(Stream.take(running.stdout, 1)), "1\n")
      const late = yield* Effect.fork(Stream.mkString(running.stdout))
      const other = yield* Effect.fork(Stream.runCollect(running.output))
      yield* Effect.sleep("20 millis")
      yield* Deferred.succeed(more, void 0)
      assert.strictEqual(yield* Fiber.join(late), "1\n2\n")
      assert.deepStrictEqual(Chunk.toReadonlyArray(yield* Fiber.join(other)), [
        { stream: "stdout", text: "1\n" },
        { stream: "stderr", text: "e\n" },
        { stream: "stdout", text: "2\n" }
      ])
      assert.strictEqual((yield* running.result).stdout, "1\n2\n")
      assert.deepStrictEqual(Chunk.toReadonlyArray(yield* Stream.runCollect(running.lines)), ["1", "2"])
    })
  )

  it.scopedLive("stops when it is interrupted, and when its scope closes", () =>
    Effect.gen(function* () {
      const { sandbox, server } = yield* setup({
        command: (_, index) => ScriptedServer.stream([init(`c${index}`), stdout("up"), ScriptedServer.hold])
      })
      const first = yield* sandbox.start("serve")
      yield* Stream.runDrain(Stream.take(first.stdout, 1))
      yield* first.interrupt
      assert.deepInclude(yield* Effect.flip(first.result), { _tag: "ExecError", reason: "Interrupted" })
      assert.deepInclude(yield* Effect.flip(Stream.runDrain(first.output)), {
        _tag: "ExecError",
        reason: "Interrupted"
      })
      yield* Effect.scoped(
        Effect.flatMap(sandbox.start("serve"), (running) => Stream.runDrain(Stream.take(running.stdout, 1)))
      )
      assert.deepStrictEqual(server.interrupted, ["c0", "c1"])
    })
  )

  it.scopedLive("a command that is refused does not start", () =>
    Effect.gen(function* () {
      const { sandbox } = yield* setup({ command: () => ScriptedServer.json(400, { code: "NO", message: "no" }) })
      const running = yield* sandbox.start("x")
      assert.deepInclude(yield* Effect.flip(running.result), { _tag: "OpenSandboxError", code: "NO" })
      assert.deepInclude(yield* Effect.flip(Stream.runDrain(running.output)), { _tag: "OpenSandboxError", code: "NO" })
    })
  )
})

describe("bad input", () => {
  it.scopedLive("is a clear error before anything is sent or recorded", () =>
    Effect.gen(function* () {
      const { entries, sandbox, server } = yield* setup({})
      const refused: ReadonlyArray<Effect.Effect<unknown, SandboxError.CodeFailure, Scope.Scope>> = [
        sandbox.exec(" "),
        sandbox.exec([]),
        sandbox.exec("x", { key: "" }),
        sandbox.exec("x", { maxOutput: -1 }),
        sandbox.exec("x", { gid: 5 }),
        sandbox.exec("x", { uid: -1 }),
        sandbox.exec("x", { uid: 1.5 }),
        sandbox.exec("x", { timeout: 0 }),
        sandbox.exec("x", { timeout: "-5 seconds" as never }),
        sandbox.exec("x", { timeout: "soon" as never }),
        sandbox.exec("x", { raw: true, uid: 5 }),
        sandbox.exec("x", { raw: true, env: { "a-b": "" } }),
        sandbox.exec("echo a\0b"),
        sandbox.exec("x", { cwd: "/a\0b" }),
        sandbox.exec("x", { env: { "A=B": "" } }),
        sandbox.exec("x", { env: { A: Redacted.make("s3cret\0") } }),
        sandbox.execCode(" ", { language: "python" }),
        sandbox.execCode("1", { language: "" }),
        sandbox.openTerminal({ command: " " }),
        sandbox.startDetached(""),
        sandbox.start("x", { key: "" })
      ]
      for (const exec of refused) {
        assert.deepInclude(yield* Effect.flip(exec), { _tag: "SandboxError", reason: "InvalidOptions" })
      }
      assert.strictEqual(server.commands.length, 0)
      assert.deepStrictEqual(ofExec(yield* entries), [])
    })
  )
})
