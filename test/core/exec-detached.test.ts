import { assert, describe, it } from "@effect/vitest"
import { Ledger, Sandboxes, SandboxMetrics } from "@sandglass/core"
import * as Chunk from "effect/Chunk"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Metric from "effect/Metric"
import * as Stream from "effect/Stream"
import { oneScripted, payloadsOf, refusing } from "../support/oneScripted.js"
import { complete, init } from "../support/ScriptedSandboxes.js"
import * as ScriptedServer from "../support/ScriptedServer.js"

/** A background command as the server has it: `output` so far, `end` once it has ended. Answers by bytes; cursors are byte offsets. */
class Background {
  output = Buffer.alloc(0)
  end: { readonly exit_code?: number; readonly error?: string } | undefined
  script = ""
  gone = false
  cursorHeader = true
  /** What a request for the output waits for. */
  gate: Effect.Effect<unknown> = Effect.void

  print(text: string | Uint8Array) {
    this.output = Buffer.concat([this.output, Buffer.from(text)])
  }

  readonly routes = {
    command: ({ command }: { readonly command: string }) => {
      this.script = command
      return ScriptedServer.stream([init("bg"), complete])
    },
    override: (request: ScriptedServer.RecordedRequest) => {
      const execd = request.path.replace(/^\/execd\/[^/]+/, "")
      if (execd === "/command/status/bg") {
        return this.gone
          ? ScriptedServer.json(404, { code: "NOT_FOUND", message: "who?" })
          : ScriptedServer.json(200, { id: "bg", running: this.end === undefined, ...this.end })
      }
      if (execd !== "/command/bg/logs") return undefined
      return Effect.map(this.gate, () => {
        const from = Number(request.query.get("cursor") ?? 0)
        const headers = this.cursorHeader ? { "execd-commands-tail-cursor": String(this.output.length) } : {}
        return { ...ScriptedServer.text(200, "", headers), body: [this.output.subarray(from)] }
      })
    }
  }
}

const setup = (background: Background, options = {}) => oneScripted(background.routes, options)

const result = <E, R, A>(self: Effect.Effect<{ readonly result: Effect.Effect<A, E> }, E, R>) =>
  Effect.scoped(Effect.flatMap(self, (running) => running.result))

const mark = (script: string) => /sandglass-[0-9a-z]+: /.exec(script)?.[0] ?? ""

const outputs = (texts: ReadonlyArray<{ readonly [key: string]: unknown }>) => texts.map(({ text }) => text).join("")

describe("a detached command", () => {
  it.scopedLive("two followers at once tell every byte once, also when the one that recorded it is gone", () =>
    Effect.gen(function* () {
      const background = new Background()
      const { context, sandbox } = yield* setup(background)
      const detached = yield* sandbox.startDetached("serve", { strict: false })
      const other = yield* Effect.flatMap(Context.get(context, Sandboxes.Sandboxes).connect(sandbox.id), (_) =>
        Effect.map(Stream.runHead(_.commands), (head) => (head._tag === "Some" ? head.value : detached))
      )
      const lines = Array.from({ length: 60 }, (_, n) => `line ${n} é漢👩‍👩‍👧\n`)
      // Both ask before either records.
      const both = yield* Deferred.make<void>()
      let asked = 0
      background.gate = Effect.suspend(() =>
        ++asked < 2 ? Deferred.await(both) : Effect.asVoid(Deferred.succeed(both, void 0))
      )
      background.print(lines[0] ?? "")
      const first = yield* Effect.fork(result(detached.attach))
      const read = yield* Effect.fork(
        Effect.scoped(Effect.flatMap(other.attach, (running) => Stream.mkString(running.stdout)))
      )
      for (const [n, line] of lines.slice(1).entries()) {
        for (const byte of Buffer.from(line)) {
          background.print(Uint8Array.of(byte))
          if (n % 7 === 0) yield* Effect.sleep("1 millis")
        }
        yield* Effect.sleep("2 millis")
        if (n === 30) yield* Fiber.interrupt(first)
      }
      background.end = { exit_code: 0 }
      assert.strictEqual(yield* Fiber.join(read), lines.join(""))
      const again = yield* result(detached.attach)
      assert.deepInclude(again, { exitCode: 0, stdout: lines.join(""), replayed: true })
      yield* sandbox.checkpoint()
      const resumed = yield* Context.get(context, Sandboxes.Sandboxes).resume(sandbox.id)
      const replayed = yield* Effect.flatMap(resumed.startDetached("serve", { strict: false }), (_) => result(_.attach))
      assert.deepInclude(replayed, { exitCode: 0, stdout: lines.join(""), replayed: true })
    })
  )

  it.scopedLive("what two followers record of one read is told once, and completes once", () =>
    Effect.gen(function* () {
      const background = new Background()
      // Nobody's is written before everybody has looked.
      const everybody = yield* Deferred.make<void>()
      let writers = 0
      const ledger = Layer.map(Ledger.layerMemory, (context) => {
        const own = Context.get(context, Ledger.Ledger)
        return Context.make(Ledger.Ledger, {
          ...own,
          appendAll: (events) =>
            Effect.suspend(() =>
              ++writers < 5 ? Deferred.await(everybody) : Effect.asVoid(Deferred.succeed(everybody, void 0))
            ).pipe(Effect.zipRight(own.appendAll(events)))
        })
      })
      const { entries, sandbox } = yield* setup(background, { ledger })
      const detached = yield* sandbox.startDetached("serve")
      // More than one piece of 64 KiB.
      const text = "é".repeat(150_000)
      background.print(text)
      background.end = { exit_code: 0 }
      const all = yield* Effect.all(
        Array.from({ length: 5 }, () => result(detached.attach)),
        { concurrency: "unbounded" }
      )
      for (const { stdout } of all) assert.strictEqual(stdout, text)
      assert.strictEqual(payloadsOf(yield* entries, "exec.completed")[0]?.["stdoutLength"], 150_000)
      assert.lengthOf(payloadsOf(yield* entries, "exec.output"), 15)
      assert.strictEqual((yield* result(detached.attach)).stdout, text)
    })
  )

  it.scopedLive("its last bytes count though they are half a character, and so does a byte order mark", () =>
    Effect.gen(function* () {
      const background = new Background()
      const { sandbox } = yield* setup(background)
      const detached = yield* sandbox.startDetached("serve")
      background.print(Buffer.from("\uFEFFa\0b漢").subarray(0, -1))
      const running = yield* detached.attach
      assert.strictEqual(yield* Stream.mkString(Stream.take(running.stdout, 1)), "\uFEFFa\0b")
      background.end = { exit_code: 0 }
      assert.strictEqual((yield* running.result).stdout, "\uFEFFa\0b\uFFFD")
    })
  )

  it.scopedLive("a server that tells no place to go on from is an error, not the same output for ever", () =>
    Effect.gen(function* () {
      const background = new Background()
      background.cursorHeader = false
      const { entries, sandbox } = yield* setup(background)
      const detached = yield* sandbox.startDetached("serve")
      background.print("again and again")
      const error = yield* Effect.flip(result(detached.attach))
      assert.deepInclude(error, { _tag: "ExecError", reason: "Protocol" })
      assert.lengthOf(payloadsOf(yield* entries, "exec.output"), 0)
    })
  )

  for (const [name, end, printed, reason, description] of [
    ["killed", { error: "signal: killed" }, "", "Killed", "signal: killed"],
    ["that took too long", { error: "timeout: killed" }, "", "Timeout", "timeout: killed"],
    ["of unknown end", {}, "", "Lost", "the server does not know its exit code"],
    ["whose script failed", { error: "signal: killed" }, "MARKthe disk is full\n", "Failed", "the disk is full"]
  ] as const) {
    it.scopedLive(`one ${name} fails alike whenever it is followed, with its output`, () =>
      Effect.gen(function* () {
        const background = new Background()
        const seen: Array<string> = []
        const { entries, sandbox } = yield* setup(background)
        const detached = yield* sandbox.startDetached("serve", { idempotencyKey: "k" })
        background.print(`up\n${printed.replace("MARK", mark(background.script))}`)
        background.end = end
        for (let times = 0; times < 2; times++) {
          const error = yield* Effect.flip(result(detached.attach))
          assert.deepInclude(error, { _tag: "ExecError", reason, description })
          assert.isTrue(error._tag === "ExecError" && error.stdout.startsWith("up\n"))
          seen.push(yield* Stream.mkString(Stream.catchAll((yield* detached.attach).stdout, () => Stream.empty)))
        }
        assert.strictEqual(seen[0], seen[1])
        assert.lengthOf(payloadsOf(yield* entries, "exec.failed"), 1)
        assert.deepStrictEqual(Chunk.toReadonlyArray(yield* Stream.runCollect(sandbox.commands)), [])
      })
    )
  }

  it.scopedLive("one that the server has forgotten is lost, and no longer listed", () =>
    Effect.gen(function* () {
      const background = new Background()
      const { sandbox } = yield* setup(background)
      const detached = yield* sandbox.startDetached("serve")
      background.gone = true
      assert.deepInclude(yield* Effect.flip(result(detached.attach)), { _tag: "ExecError", reason: "Lost" })
      assert.deepStrictEqual(Chunk.toReadonlyArray(yield* Stream.runCollect(sandbox.commands)), [])
    })
  )

  it.scopedLive("closing the sandbox ends its follower", () =>
    Effect.gen(function* () {
      const background = new Background()
      const { sandbox } = yield* setup(background)
      const detached = yield* sandbox.startDetached("serve")
      background.gate = Effect.never
      const running = yield* detached.attach
      yield* Effect.sleep("50 millis")
      yield* sandbox.close
      const error = yield* Effect.flip(running.result).pipe(Effect.timeout("5 seconds"))
      assert.deepInclude(error, { _tag: "ExecError", reason: "Closed" })
    })
  )

  it.scopedLive("a ledger that fails in the middle costs the follower, not the output", () =>
    Effect.gen(function* () {
      const background = new Background()
      let refused = 0
      const { entries, sandbox, server } = yield* setup(background, {
        ledger: refusing(({ event }) => event === "exec.output" && ++refused === 2)
      })
      const detached = yield* sandbox.startDetached("serve")
      background.print("one ")
      const running = yield* detached.attach
      yield* Stream.runDrain(Stream.take(running.stdout, 1))
      background.print("two ")
      assert.deepInclude(yield* Effect.flip(running.result), { _tag: "LedgerError", reason: "Connection" })
      assert.deepStrictEqual(server.interrupted, [], "it goes on")
      background.print("three")
      background.end = { exit_code: 0 }
      assert.strictEqual((yield* result(detached.attach)).stdout, "one two three")
      assert.strictEqual(outputs(payloadsOf(yield* entries, "exec.output")), "one two three")
    })
  )

  it.scopedLive("hooks are told of its start and its end, and it is counted", () =>
    Effect.gen(function* () {
      const background = new Background()
      const told: Array<string> = []
      const tell = (what: string) => () => Effect.sync(() => told.push(what))
      const { context } = yield* setup(background)
      const sandbox = yield* Context.get(context, Sandboxes.Sandboxes).create({
        image: "i",
        hooks: { onExecStarted: tell("started"), onExecCompleted: tell("completed"), onExecFailed: tell("failed") }
      })
      const counted = Metric.tagged(SandboxMetrics.execs, "outcome", "completed")
      const before = yield* Metric.value(counted)
      const detached = yield* sandbox.startDetached("serve")
      background.end = { exit_code: 0 }
      yield* result(detached.attach)
      yield* result(detached.attach)
      assert.deepStrictEqual(told, ["started", "completed"])
      assert.strictEqual((yield* Metric.value(counted)).count - before.count, 1)
    })
  )
})
