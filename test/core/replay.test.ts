import { assert, describe, it } from "@effect/vitest"
import type { Sandbox } from "@sandglass/core"
import { Ledger, LedgerError, Sandboxes } from "@sandglass/core"
import * as Chunk from "effect/Chunk"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Stream from "effect/Stream"
import * as ScriptedSandboxes from "../support/ScriptedSandboxes.js"
import { complete, exited, init, stdout } from "../support/ScriptedSandboxes.js"
import * as ScriptedServer from "../support/ScriptedServer.js"

type LedgerService = Context.Tag.Service<Ledger.Ledger>

const setup = (
  script: ScriptedSandboxes.Script = {},
  change: (ledger: LedgerService) => LedgerService = (ledger) => ledger,
  options: Sandboxes.Options = {}
) =>
  Effect.gen(function* () {
    const server = yield* ScriptedSandboxes.make(script)
    const ledger = change(yield* Ledger.makeMemory)
    const context = yield* Layer.build(
      Sandboxes.layerWith(options).pipe(
        Layer.provideMerge(Layer.merge(server.layer, Layer.succeed(Ledger.Ledger, ledger)))
      )
    )
    const entries = (sandboxId: string) =>
      Effect.map(Stream.runCollect(ledger.read({ sandboxId })), Chunk.toReadonlyArray)
    return { server, ledger, sandboxes: Context.get(context, Sandboxes.Sandboxes), entries }
  })

let runs = 0
/** Each run prints its own number; `exit N` exits with it; `flaky` is lost the first time. */
const counting = (): NonNullable<ScriptedSandboxes.Script["command"]> => {
  let flaky = 0
  return ({ command }, index) =>
    command === "flaky" && flaky++ === 0
      ? ScriptedServer.stream([init(`c${index}`), ScriptedServer.sleep(20), ScriptedServer.drop])
      : ScriptedServer.stream([
          init(`c${index}`),
          stdout(`run ${++runs} ${command}`),
          command.startsWith("exit ") ? exited(command.slice(5)) : complete
        ])
}

describe("several handles on one sandbox", () => {
  it.scopedLive("each exec keeps its own output and exit code, and replays as itself", () =>
    Effect.gen(function* () {
      const go = yield* Deferred.make<void>()
      const { sandboxes } = yield* setup({
        command: ({ command }) =>
          ScriptedServer.stream([
            init(command),
            stdout(`${command} 1`),
            ScriptedServer.wait(Deferred.await(go)),
            stdout(`${command} 2`),
            command === "deploy" ? exited(1) : complete
          ])
      })
      const one = yield* sandboxes.create({ image: "i" })
      const two = yield* sandboxes.connect(one.id)
      const build = yield* one.start("build")
      const deploy = yield* two.start("deploy", { strict: false })
      yield* Effect.sleep("30 millis")
      yield* Deferred.succeed(go, void 0)
      assert.strictEqual(yield* Stream.mkString(build.stdout), "build 1\nbuild 2\n")
      assert.strictEqual(yield* Stream.mkString(deploy.stdout), "deploy 1\ndeploy 2\n")
      yield* build.result
      yield* deploy.result
      yield* one.checkpoint()
      for (const [command, exitCode] of [
        ["deploy", 1],
        ["build", 0]
      ] as const) {
        const resumed = yield* sandboxes.resume(one.id)
        const result = yield* resumed.exec(command, { strict: false })
        assert.deepInclude(result, { exitCode, replayed: true, stdout: `${command} 1\n${command} 2\n` })
      }
    })
  )

  it.scopedLive("what runs through another handle while a snapshot is taken is not replayed", () =>
    Effect.gen(function* () {
      const go = yield* Deferred.make<void>()
      const { sandboxes } = yield* setup({
        command: () => ScriptedServer.stream([init("c"), ScriptedServer.wait(Deferred.await(go)), complete]),
        override: (request) =>
          request.path === "/v1/sandboxes/sbx1/snapshots" && request.method === "POST"
            ? Effect.as(
                Effect.zipRight(Deferred.succeed(go, void 0), Effect.sleep("100 millis")),
                ScriptedServer.json(202, { id: "s", sandboxId: "sbx1", status: { state: "Ready" } })
              )
            : undefined
      })
      const one = yield* sandboxes.create({ image: "i" })
      const running = yield* one.start("slow")
      const two = yield* sandboxes.connect(one.id)
      yield* two.checkpoint()
      yield* running.result
      const resumed = yield* sandboxes.resume(one.id)
      assert.isFalse((yield* resumed.exec("slow")).replayed)
    })
  )

  it.scopedLive("a handle on a resumed sandbox goes on behind what that had replayed", () =>
    Effect.gen(function* () {
      const { sandboxes } = yield* setup({ command: counting() })
      const parent = yield* sandboxes.create({ image: "i" })
      const first = yield* parent.exec("date")
      yield* parent.exec("b")
      yield* parent.checkpoint()
      const child = yield* sandboxes.resume(parent.id)
      yield* child.exec("date")
      yield* child.exec("b")
      const attached = yield* sandboxes.connect(child.id)
      assert.strictEqual((yield* attached.exec("date")).seq, 3)
      yield* child.checkpoint()
      const again = yield* sandboxes.resume(child.id)
      assert.strictEqual((yield* again.exec("date")).stdout, first.stdout)
    })
  )
})

describe("a program that changed, or that tries again", () => {
  it.scopedLive("after a divergence that ran live the abandoned history is never replayed again", () =>
    Effect.gen(function* () {
      const { sandboxes } = yield* setup({ command: counting() })
      const parent = yield* sandboxes.create({ image: "i" })
      yield* parent.exec("k1", { key: "k1" })
      yield* parent.exec("k2", { key: "k2" })
      for (const command of ["a", "b", "c", "cat state"]) yield* parent.exec(command)
      yield* parent.checkpoint()
      const child = yield* sandboxes.resume(parent.id, { onDivergence: "live" })
      assert.isTrue((yield* child.exec("k1", { key: "k1" })).replayed)
      yield* child.exec("other", { key: "other" })
      assert.isTrue((yield* child.exec("a")).replayed)
      assert.isFalse((yield* child.exec("B2")).replayed)
      yield* child.checkpoint()
      const grandchild = yield* sandboxes.resume(child.id)
      assert.isTrue((yield* grandchild.exec("k1", { key: "k1" })).replayed)
      assert.isTrue((yield* grandchild.exec("other", { key: "other" })).replayed)
      assert.isTrue((yield* grandchild.exec("a")).replayed)
      assert.isTrue((yield* grandchild.exec("B2")).replayed)
      assert.isFalse((yield* grandchild.exec("c")).replayed)
      assert.isFalse((yield* grandchild.exec("cat state")).replayed)
      assert.isFalse((yield* grandchild.exec("k2", { key: "k2" })).replayed)
    })
  )

  it.scopedLive("another input, shell, user or environment is another exec", () =>
    Effect.gen(function* () {
      const { sandboxes } = yield* setup({
        command: counting(),
        override: (request) =>
          /\/(files\/upload|directories)$/.test(request.path) ? ScriptedServer.empty(200) : undefined
      })
      const parent = yield* sandboxes.create({ image: "i" })
      const options = { stdin: "print(1)", env: { A: "1" }, shell: "zsh", uid: 5 }
      yield* parent.exec("python3 -", options)
      yield* parent.checkpoint()
      for (const change of [{ stdin: "print(2)" }, { env: { B: "1" } }, { shell: "sh" }, { uid: 0 }]) {
        const resumed = yield* sandboxes.resume(parent.id)
        const error = yield* Effect.flip(resumed.exec("python3 -", { ...options, ...change }))
        assert.deepInclude(error, { _tag: "ReplayDivergence", seq: 1 })
        assert.include(error.message, "another shell, session, user, environment or input")
      }
      const resumed = yield* sandboxes.resume(parent.id)
      const same = yield* resumed.exec("python3 -", { ...options, env: { A: "another value" } })
      assert.isTrue(same.replayed)
    })
  )

  it.scopedLive("a key that is used again replays its results in their order", () =>
    Effect.gen(function* () {
      const { sandboxes } = yield* setup({ command: counting() })
      const parent = yield* sandboxes.create({ image: "i" })
      const results = [yield* parent.exec("poll", { key: "poll" }), yield* parent.exec("poll", { key: "poll" })]
      yield* parent.checkpoint()
      const child = yield* sandboxes.resume(parent.id)
      for (const { stdout } of results) {
        assert.deepInclude(yield* child.exec("poll", { key: "poll" }), { stdout, replayed: true })
      }
      assert.isFalse((yield* child.exec("poll", { key: "poll" })).replayed)
    })
  )

  it.scopedLive("an exec that failed and was tried again is found by the program that tries once", () =>
    Effect.gen(function* () {
      const { sandboxes, server } = yield* setup({ command: counting() })
      const program = (sandbox: Sandbox.Sandbox) =>
        Effect.all([Effect.retry(sandbox.exec("flaky"), { times: 1 }), sandbox.exec("next")])
      const parent = yield* sandboxes.create({ image: "i" })
      yield* program(parent)
      yield* parent.checkpoint()
      const before = server.commands.length
      const child = yield* sandboxes.resume(parent.id)
      const results = yield* program(child)
      assert.deepStrictEqual(
        results.map((result) => result.replayed),
        [true, true]
      )
      assert.strictEqual(server.commands.length, before)
      assert.strictEqual((yield* child.exec("live")).seq, 3)
      yield* child.checkpoint()
      const grandchild = yield* sandboxes.resume(child.id)
      yield* program(grandchild)
      assert.isTrue((yield* grandchild.exec("live")).replayed)
    })
  )
})

describe("a ledger that hangs or fails", () => {
  for (const hanging of ["exec.started", "exec.completed", "sandbox.created"]) {
    it.scopedLive(
      `on ${hanging} leaves everything interruptible and bounded`,
      () =>
        Effect.gen(function* () {
          const hang = (events: ReadonlyArray<Ledger.EventInput>) => events.some(({ event }) => event === hanging)
          const { sandboxes, server } = yield* setup(
            { command: counting() },
            (ledger) => ({
              ...ledger,
              append: (event) => (hang([event]) ? Effect.never : ledger.append(event)),
              appendAll: (events) => (hang(events) ? Effect.never : ledger.appendAll(events))
            }),
            { closeTimeout: "300 millis" }
          )
          const fiber = yield* Effect.fork(
            Effect.scoped(Effect.flatMap(sandboxes.create({ image: "i" }), (sandbox) => sandbox.exec("x")))
          )
          yield* Effect.sleep("300 millis")
          const exit = yield* Fiber.interrupt(fiber).pipe(Effect.timeout("12 seconds"))
          assert.isTrue(Exit.isInterrupted(exit))
          assert.deepStrictEqual(server.deleted, ["sbx1"])
        }),
      20_000
    )
  }

  it.scopedLive("an interrupted checkpoint is either recorded with its snapshot or neither", () =>
    Effect.gen(function* () {
      const go = yield* Deferred.make<void>()
      const { entries, sandboxes, server } = yield* setup({}, (ledger) => ({
        ...ledger,
        append: (event) =>
          event.event === "sandbox.checkpoint_created"
            ? Effect.zipRight(Deferred.await(go), ledger.append(event))
            : ledger.append(event)
      }))
      const sandbox = yield* sandboxes.create({ image: "i" })
      const fiber = yield* Effect.fork(sandbox.checkpoint())
      yield* Effect.sleep("100 millis")
      yield* Fiber.interrupt(fiber)
      yield* Deferred.succeed(go, void 0)
      yield* Effect.sleep("100 millis")
      const recorded = (yield* entries(sandbox.id)).some((entry) => entry.event === "sandbox.checkpoint_created")
      assert.strictEqual(recorded, !server.deletedSnapshots.includes("snap1"))
      yield* sandboxes.resume(sandbox.id)
    })
  )

  it.scopedLive("a checkpoint that cannot be recorded takes its snapshot back", () =>
    Effect.gen(function* () {
      const { sandboxes, server } = yield* setup({}, (ledger) => ({
        ...ledger,
        append: (event) =>
          event.event === "sandbox.checkpoint_created"
            ? Effect.fail(new LedgerError.LedgerError({ method: "append", reason: "Connection" }))
            : ledger.append(event)
      }))
      const sandbox = yield* sandboxes.create({ image: "i" })
      assert.strictEqual((yield* Effect.flip(sandbox.checkpoint()))._tag, "LedgerError")
      assert.deepStrictEqual(server.deletedSnapshots, ["snap1"])
    })
  )
})

describe("closing and pausing", () => {
  it.scopedLive(
    "closing ends the execs that wait for a silent server",
    () =>
      Effect.gen(function* () {
        const { entries, sandboxes } = yield* setup({
          command: ({ command }) => ScriptedServer.stream([init(command), stdout("up"), ScriptedServer.hold])
        })
        const sandbox = yield* sandboxes.create({ image: "i" })
        const fibers = yield* Effect.forEach([1, 2, 3], (n) => Effect.fork(Effect.flip(sandbox.exec(`serve ${n}`))))
        yield* Effect.sleep("100 millis")
        yield* sandbox.close
        for (const fiber of fibers) {
          const error = yield* Fiber.join(fiber).pipe(Effect.timeout("8 seconds"))
          assert.deepInclude(error, { _tag: "ExecError", reason: "Closed" })
        }
        const failed = (yield* entries(sandbox.id)).filter((entry) => entry.event === "exec.failed")
        assert.strictEqual(failed.length, 3)
      }),
    20_000
  )

  it.scopedLive(
    "what could not be stopped while the sandbox was paused is stopped when it resumes",
    () =>
      Effect.gen(function* () {
        let paused = false
        const stopped: Array<string> = []
        const { sandboxes } = yield* setup({
          command: () => ScriptedServer.stream([init("c1"), stdout("up"), ScriptedServer.hold]),
          interrupt: (id) => {
            if (paused) return ScriptedServer.json(501, { code: "PAUSED", message: "paused" })
            stopped.push(id)
            return ScriptedServer.empty(200)
          },
          override: (request) => {
            if (request.path.endsWith("/pause")) paused = true
            if (request.path.endsWith("/resume")) paused = false
            if (/\/(pause|resume)$/.test(request.path)) return ScriptedServer.empty(202)
            return request.method === "GET" && request.path === "/v1/sandboxes/sbx1"
              ? ScriptedServer.json(200, { id: "sbx1", status: { state: paused ? "Paused" : "Running" } })
              : undefined
          }
        })
        const sandbox = yield* sandboxes.create({ image: "i" })
        const fiber = yield* Effect.fork(sandbox.exec("serve"))
        yield* Effect.sleep("100 millis")
        yield* sandbox.pause
        yield* Fiber.interrupt(fiber)
        assert.deepStrictEqual(stopped, [])
        yield* sandbox.resume
        assert.deepStrictEqual(stopped, ["c1"])
      }),
    20_000
  )

  it.scopedLive("an application cannot append events of our own", () =>
    Effect.gen(function* () {
      const { sandboxes } = yield* setup()
      const sandbox = yield* sandboxes.create({ image: "i" })
      const error = yield* Effect.flip(sandbox.append("exec.completed", { seq: 1, exitCode: 0 }))
      assert.deepInclude(error, { _tag: "LedgerError", reason: "InvalidEvent" })
    })
  )
})
