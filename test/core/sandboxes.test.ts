import { assert, describe, it } from "@effect/vitest"
import type { LedgerEvent, Sandbox } from "@sandglass/core"
import { Ledger, SandboxError, Sandboxes, SandboxHooks } from "@sandglass/core"
import * as Chunk from "effect/Chunk"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as ScriptedSandboxes from "../support/ScriptedSandboxes.js"
import { complete, exited, init, stdout } from "../support/ScriptedSandboxes.js"
import * as ScriptedServer from "../support/ScriptedServer.js"

const setup = (script: ScriptedSandboxes.Script = {}, options: Sandboxes.Options = {}) =>
  Effect.gen(function* () {
    const server = yield* ScriptedSandboxes.make(script)
    const context = yield* Layer.build(
      Sandboxes.layerWith(options).pipe(Layer.provideMerge(Layer.merge(server.layer, Ledger.layerMemory)))
    )
    const ledger = Context.get(context, Ledger.Ledger)
    const sandboxes = Context.get(context, Sandboxes.Sandboxes)
    const entries = (sandboxId: string) =>
      Effect.map(Stream.runCollect(ledger.read({ sandboxId })), Chunk.toReadonlyArray)
    return { server, ledger, sandboxes, entries }
  })

const events = (entries: ReadonlyArray<LedgerEvent.LedgerEntry>) => entries.map((entry) => entry.event)
const payload = (entry: LedgerEvent.LedgerEntry | undefined) => entry?.payload as { readonly [key: string]: unknown }

/** Answers each command with its own text, and an exit code where it is `exit N`. */
const echo: ScriptedSandboxes.Script["command"] = ({ command }, index) =>
  ScriptedServer.stream([
    init(`c${index}`),
    stdout(`ran ${command}`),
    command.startsWith("exit ") ? exited(command.slice(5)) : complete
  ])

describe("a sandbox in its scope", () => {
  it.scopedLive("is created, recorded, deleted and recorded as closed", () =>
    Effect.gen(function* () {
      const { entries, sandboxes, server } = yield* setup()
      const sandbox = yield* Effect.scoped(
        Effect.tap(
          sandboxes.create({
            image: "node:22",
            name: "ci",
            resources: { cpu: "1" },
            runId: "run @ 😀",
            resourceId: "user-1",
            env: { TOKEN: "s3cret" }
          }),
          (sandbox) =>
            Effect.map(entries(sandbox.id), (all) => assert.deepStrictEqual(events(all), ["sandbox.created"]))
        )
      )
      const all = yield* entries(sandbox.id)
      assert.deepStrictEqual(events(all), ["sandbox.created", "sandbox.closed"])
      assert.deepStrictEqual(all[0]?.payload, {
        sandboxId: "sbx1",
        resources: { cpu: "1" },
        runId: "run @ 😀",
        resourceId: "user-1",
        image: "node:22"
      })
      assert.deepStrictEqual(server.deleted, ["sbx1"])
      const metadata = server.created[0]?.["metadata"] as { readonly [key: string]: string }
      for (const value of Object.values(metadata)) {
        assert.match(value, /^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/)
      }
      assert.strictEqual(metadata["sandglass.name"], "ci")
      const found = yield* sandboxes.list({ runId: "run @ 😀" }).pipe(Stream.runCollect)
      assert.deepStrictEqual(
        Chunk.toReadonlyArray(found).map((_) => [_.sandboxId, _.status]),
        [["sbx1", "closed"]]
      )
    })
  )

  it.scopedLive("is closed after failure, interruption, and early and twice by hand", () =>
    Effect.gen(function* () {
      const { entries, sandboxes, server } = yield* setup()
      yield* sandboxes.create({ image: "i" }).pipe(Effect.zipRight(Effect.fail("boom")), Effect.scoped, Effect.flip)
      const up = yield* Deferred.make<void>()
      const fiber = yield* sandboxes
        .create({ image: "i" })
        .pipe(Effect.zipRight(Deferred.succeed(up, void 0)), Effect.zipRight(Effect.never), Effect.scoped, Effect.fork)
      yield* Deferred.await(up)
      yield* Fiber.interrupt(fiber)
      yield* sandboxes.create({ image: "i" }).pipe(
        Effect.tap((sandbox) => Effect.all([sandbox.close, sandbox.close, sandbox.close], { concurrency: 3 })),
        Effect.tap((sandbox) =>
          Effect.flip(sandbox.exec("x")).pipe(
            Effect.map((error) => assert.deepInclude(error, { _tag: "SandboxError", reason: "Closed" }))
          )
        ),
        Effect.tap((sandbox) =>
          Effect.flip(sandbox.checkpoint()).pipe(
            Effect.map((error) => assert.deepInclude(error, { _tag: "SandboxError", reason: "Closed" }))
          )
        ),
        Effect.scoped
      )
      assert.deepStrictEqual(server.deleted, ["sbx1", "sbx2", "sbx3"])
      for (const id of server.deleted) {
        assert.deepStrictEqual(events(yield* entries(id)), ["sandbox.created", "sandbox.closed"])
      }
    })
  )

  it.scopedLive("detached, it outlives the scope", () =>
    Effect.gen(function* () {
      const { entries, sandboxes, server } = yield* setup()
      const { id } = yield* Effect.scoped(sandboxes.create({ image: "i", detached: true }))
      assert.deepStrictEqual(server.deleted, [])
      yield* Effect.scoped(
        Effect.gen(function* () {
          const again = yield* sandboxes.connect(id)
          yield* again.exec("x")
        })
      )
      assert.deepStrictEqual(server.deleted, [])
      yield* Effect.scoped(
        Effect.gen(function* () {
          const again = yield* sandboxes.connect(id, { detached: false })
          assert.strictEqual((yield* again.exec("y")).seq, 2, "the session goes on")
        })
      )
      assert.deepStrictEqual(server.deleted, [id])
      assert.strictEqual(events(yield* entries(id)).at(-1), "sandbox.closed")
      const error = yield* Effect.flip(Effect.scoped(sandboxes.connect(id)))
      assert.deepInclude(error, { _tag: "SandboxError", reason: "Closed" })
    })
  )

  it.scopedLive("one that never works is deleted", () =>
    Effect.gen(function* () {
      const { sandboxes, server } = yield* setup(
        {
          override: (request) =>
            request.path.startsWith("/execd") && request.method === "POST"
              ? ScriptedServer.text(503, "not yet")
              : undefined
        },
        { readyTimeout: "200 millis" }
      )
      const error = yield* Effect.flip(Effect.scoped(sandboxes.create({ image: "i" })))
      assert.deepInclude(error, { _tag: "SandboxError", reason: "NotReady" })
      assert.deepStrictEqual(server.deleted, ["sbx1"])
    })
  )

  it.scopedLive("a container that fails is a typed error; unknown states are waited out", () =>
    Effect.gen(function* () {
      const states = ["Pending", "Hibernating", "Failed"]
      const { ledger, sandboxes, server } = yield* setup({
        override: (request) =>
          request.method === "GET" && request.path === "/v1/sandboxes/sbx1"
            ? ScriptedServer.json(200, {
                id: "sbx1",
                status: { state: states.length > 1 ? states.shift() : states[0], reason: "no_such_image" },
                extra: { field: 1 },
                createdAt: "2026-01-01T00:00:00Z",
                entrypoint: []
              })
            : undefined
      })
      const error = yield* Effect.flip(Effect.scoped(sandboxes.create({ image: "i" })))
      assert.deepInclude(error, { _tag: "SandboxError", reason: "StartFailed" })
      assert.include(error.message, "no_such_image")
      assert.deepStrictEqual(server.deleted, ["sbx1"])
      assert.isTrue(Option.isNone(yield* ledger.sandbox("sbx1")), "it never ran")
    })
  )

  it.scopedLive("a container that cannot be deleted is recorded as such, in bounded time", () =>
    Effect.gen(function* () {
      const { entries, sandboxes } = yield* setup(
        {
          override: (request) =>
            request.method === "DELETE" && request.path.startsWith("/v1/sandboxes") ? ScriptedServer.silence : undefined
        },
        { closeTimeout: "200 millis" }
      )
      const { id } = yield* Effect.scoped(sandboxes.create({ image: "i" }))
      const closed = (yield* entries(id)).find((entry) => entry.event === "sandbox.closed")
      assert.include(closed?.error, "could not be deleted")
    })
  )

  for (const status of [404, 409]) {
    it.scopedLive(`deleting what is gone (${status}) closes it`, () =>
      Effect.gen(function* () {
        const { entries, sandboxes } = yield* setup({
          override: (request) =>
            request.method === "DELETE" && request.path.startsWith("/v1/sandboxes")
              ? ScriptedServer.json(status, { code: "X", message: "gone" })
              : undefined
        })
        const { id } = yield* Effect.scoped(sandboxes.create({ image: "i" }))
        const closed = (yield* entries(id)).find((entry) => entry.event === "sandbox.closed")
        assert.isDefined(closed)
        assert.isUndefined(closed?.error)
      })
    )
  }

  it.scopedLive("pause and resume are recorded, and the endpoint is asked for again", () =>
    Effect.gen(function* () {
      let paused = false
      let resolved = 0
      const tokens: Array<string | undefined> = []
      let port = 0
      const { entries, sandboxes, server } = yield* setup({
        command: ({ request }) => {
          tokens.push(request.headers["x-execd-access-token"])
          return ScriptedServer.stream([init("c"), complete])
        },
        override: (request) => {
          if (request.path.endsWith("/pause")) paused = true
          if (request.path.endsWith("/resume")) paused = false
          if (request.method === "POST" && /\/(pause|resume)$/.test(request.path)) return ScriptedServer.empty(202)
          if (request.path.endsWith("/endpoints/44772")) {
            return ScriptedServer.json(200, {
              endpoint: `127.0.0.1:${port}/execd/sbx1`,
              headers: { "X-EXECD-ACCESS-TOKEN": `token-${++resolved}` }
            })
          }
          return request.method === "GET" && request.path === "/v1/sandboxes/sbx1"
            ? ScriptedServer.json(200, { id: "sbx1", status: { state: paused ? "Paused" : "Running" } })
            : undefined
        }
      })
      port = server.server.port
      const sandbox = yield* sandboxes.create({ image: "i" })
      yield* sandbox.exec("a")
      yield* sandbox.pause
      assert.strictEqual(Option.getOrThrow(yield* sandboxes.get(sandbox.id)).status, "paused")
      yield* sandbox.resume
      yield* sandbox.exec("b")
      assert.deepStrictEqual(tokens, ["token-1", "token-2"])
      assert.deepStrictEqual(
        events(yield* entries("sbx1")).filter((_) => _.startsWith("sandbox.")),
        ["sandbox.created", "sandbox.paused", "sandbox.resumed"]
      )
    })
  )

  it.scopedLive("blank options are refused before anything is sent", () =>
    Effect.gen(function* () {
      const { sandboxes, server } = yield* setup()
      for (const options of [{ name: " " }, { runId: "" }, { resourceId: " " }]) {
        const error = yield* Effect.flip(Effect.scoped(sandboxes.create({ image: "i", ...options })))
        assert.deepInclude(error, { _tag: "SandboxError", reason: "InvalidOptions" })
      }
      const short = yield* Effect.flip(Effect.scoped(sandboxes.create({ image: "i", timeout: "30 seconds" })))
      assert.deepInclude(short, { _tag: "OpenSandboxError", reason: "InvalidRequest" })
      assert.strictEqual(server.server.requests.length, 0)
    })
  )
})

describe("the cap", () => {
  it.scopedLive("lets no more sandboxes be open than it says, and counts the closed and the failed out", () =>
    Effect.gen(function* () {
      const { sandboxes } = yield* setup({}, { maxConcurrent: 2 })
      let open = 0
      let most = 0
      yield* Effect.forEach(
        Array.from({ length: 8 }, (_, n) => n),
        (n) =>
          sandboxes.create({ image: "i" }).pipe(
            Effect.tap(() =>
              Effect.sync(() => {
                most = Math.max(most, ++open)
              })
            ),
            Effect.tap(() => Effect.sleep("10 millis")),
            Effect.tap((sandbox) => (n % 3 === 0 ? Effect.fail("boom") : n % 3 === 1 ? sandbox.close : Effect.void)),
            Effect.ensuring(
              Effect.sync(() => {
                open--
              })
            ),
            Effect.scoped,
            Effect.ignore
          ),
        { concurrency: "unbounded" }
      )
      assert.strictEqual(most, 2)
    })
  )

  it.scopedLive("a waiting create can be interrupted", () =>
    Effect.gen(function* () {
      const { sandboxes } = yield* setup({}, { maxConcurrent: 1 })
      const first = yield* sandboxes.create({ image: "i" })
      const waiting = yield* Effect.fork(Effect.scoped(sandboxes.create({ image: "i" })))
      yield* Effect.sleep("20 millis")
      yield* Fiber.interrupt(waiting)
      yield* first.close
      yield* Effect.scoped(sandboxes.create({ image: "i" })).pipe(Effect.timeout("5 seconds"))
    })
  )
})

describe("hooks", () => {
  it.scopedLive("are told everything, and a broken one harms neither its siblings nor the operation", () =>
    Effect.gen(function* () {
      const told: Array<string> = []
      const note = (text: string) => Effect.sync(() => told.push(text))
      const broken: SandboxHooks.SandboxHooks = {
        onCreated: () => Effect.fail("no"),
        onClosed: () => Effect.die("no"),
        onCheckpoint: () => Effect.interrupt,
        onExecStarted: () => {
          throw new Error("no")
        },
        onExecCompleted: () => Effect.die(new Error("no"))
      }
      const good: SandboxHooks.SandboxHooks = {
        onCreated: (sandbox) => note(`created ${sandbox.id}`),
        onClosed: (sandbox) => note(`closed ${sandbox.id}`),
        onCheckpoint: (_, checkpoint) => note(`checkpoint ${checkpoint.snapshotId}`),
        onExecStarted: (_, exec) => note(`started ${exec.command}`),
        onExecCompleted: (_, exec) => note(`completed ${exec.command} ${exec.exitCode}`),
        onExecFailed: (_, exec) => note(`failed ${exec.command} ${exec.reason}`)
      }
      const { sandboxes } = yield* setup(
        {
          command: ({ command }) =>
            ScriptedServer.stream(command === "cut" ? [init("c"), ScriptedServer.drop] : [init("c"), complete])
        },
        { hooks: SandboxHooks.composeHooks(broken, good) }
      )
      yield* Effect.scoped(
        Effect.gen(function* () {
          const sandbox = yield* sandboxes.create({ image: "i", hooks: { onCreated: () => note("own") } })
          yield* sandbox.exec("make")
          yield* Effect.flip(sandbox.exec("cut"))
          yield* sandbox.checkpoint()
        })
      )
      assert.deepStrictEqual(told, [
        "created sbx1",
        "own",
        "started make",
        "completed make 0",
        "started cut",
        "failed cut lost",
        "checkpoint snap1",
        "closed sbx1"
      ])
    })
  )
})

describe("resume", () => {
  it.scopedLive("replays what had completed, with its chunks, and writes nothing for it", () =>
    Effect.gen(function* () {
      const { entries, sandboxes, server } = yield* setup({
        command: ({ command }, index) =>
          command === "two"
            ? ScriptedServer.stream([
                init("c"),
                stdout("1"),
                ScriptedServer.sleep(20),
                ScriptedSandboxes.stderr("2"),
                ScriptedServer.sleep(20),
                stdout("3"),
                exited(7)
              ])
            : ScriptedServer.stream([init(`c${index}`), stdout(`ran ${command}`), complete])
      })
      const program = (sandbox: Sandbox.Sandbox) =>
        Effect.gen(function* () {
          const one = yield* sandbox.exec("one")
          const two = yield* Stream.runCollect(sandbox.exec("two", { strict: false }).output)
          const error = yield* Effect.flip(sandbox.exec("two", { cwd: "/x" }))
          return { one, two: Chunk.toReadonlyArray(two), error }
        })
      const first = yield* Effect.scoped(
        Effect.gen(function* () {
          const sandbox = yield* sandboxes.create({
            image: "i",
            name: "ci",
            runId: "run-1",
            resourceId: "r",
            resources: { cpu: "2" }
          })
          const result = yield* program(sandbox)
          yield* sandbox.checkpoint("done")
          yield* sandbox.exec("after")
          return { id: sandbox.id, result }
        })
      )
      const before = server.commands.length
      const sandbox = yield* sandboxes.resume(first.id)
      assert.deepStrictEqual([sandbox.name, sandbox.runId, sandbox.resourceId], ["ci", "run-1", "r"])
      const again = yield* program(sandbox)
      assert.deepStrictEqual(again.one, { ...first.result.one, replayed: true })
      assert.deepStrictEqual(again.two, first.result.two)
      assert.deepInclude(again.error, { _tag: "CommandError", exitCode: 7, replayed: true, stdout: "1\n3\n" })
      assert.strictEqual(server.commands.length, before, "nothing ran")
      assert.deepStrictEqual(events(yield* entries(sandbox.id)), ["sandbox.created"])
      assert.deepStrictEqual(payload((yield* entries(sandbox.id))[0]), {
        sandboxId: "sbx2",
        resources: { cpu: "2" },
        runId: "run-1",
        resourceId: "r",
        snapshotId: "snap1",
        resumedFrom: "sbx1"
      })
      const live = yield* sandbox.exec("after")
      assert.deepInclude(live, { seq: 4, replayed: false })
      assert.deepStrictEqual(server.created[1]?.["snapshotId"], "snap1")
      const running = yield* Effect.flatMap(sandboxes.resume(first.id), (_) => _.start("one"))
      assert.strictEqual(yield* Stream.mkString(running.stdout), "ran one\n")
      assert.isTrue((yield* running.result).replayed)
    })
  )

  it.scopedLive("a resumed session resumed again replays the whole lineage", () =>
    Effect.gen(function* () {
      const { sandboxes, server } = yield* setup({ command: echo })
      const a = yield* sandboxes.create({ image: "i" })
      yield* a.exec("1")
      yield* a.checkpoint("first")
      yield* a.exec("2 lost")
      const b = yield* sandboxes.resume(a.id)
      yield* b.exec("1")
      yield* b.exec("2")
      yield* b.checkpoint()
      const c = yield* sandboxes.resume(b.id)
      assert.isTrue((yield* c.exec("1")).replayed)
      assert.isTrue((yield* c.exec("2")).replayed)
      assert.isFalse((yield* c.exec("3")).replayed)
      // Crashed before a checkpoint of its own: it goes back to the one it came from.
      const d = yield* sandboxes.resume(c.id)
      assert.strictEqual((yield* d.exec("1")).replayed, true)
      assert.strictEqual((yield* d.exec("2")).stdout, "ran 2\n")
      assert.isFalse((yield* d.exec("3")).replayed)
      // By tag, through the lineage.
      const e = yield* sandboxes.resume(d.id, { tag: "first" })
      assert.isTrue((yield* e.exec("1")).replayed)
      assert.isFalse((yield* e.exec("2 again")).replayed)
      assert.deepStrictEqual(
        server.created.map((_) => _["snapshotId"]),
        [undefined, "snap1", "snap2", "snap2", "snap1"]
      )
    })
  )

  it.scopedLive("an exec that failed, was interrupted or was in flight runs live", () =>
    Effect.gen(function* () {
      const slow = yield* Deferred.make<void>()
      const snapshotting = yield* Deferred.make<void>()
      let cut = true
      const { sandboxes, server } = yield* setup({
        command: ({ command }, index) =>
          command === "cut" && cut
            ? ScriptedServer.stream([init("c"), ScriptedServer.drop])
            : command === "slow" && index < 3
              ? ScriptedServer.stream([init("slow"), ScriptedServer.wait(Deferred.await(slow)), complete])
              : ScriptedServer.stream([init("c"), complete]),
        override: (request) =>
          request.method === "GET" && request.path === "/v1/snapshots/snapA"
            ? // While the snapshot is taken the slow command ends: it may not be in it.
              Effect.gen(function* () {
                yield* Deferred.succeed(snapshotting, void 0)
                yield* Effect.sleep("100 millis")
                return ScriptedServer.json(200, { id: "snapA", sandboxId: "sbx1", status: { state: "Ready" } })
              })
            : request.method === "POST" && request.path === "/v1/sandboxes/sbx1/snapshots"
              ? ScriptedServer.json(202, { id: "snapA", sandboxId: "sbx1", status: { state: "Creating" } })
              : undefined
      })
      const a = yield* sandboxes.create({ image: "i" })
      yield* Effect.flip(a.exec("cut"))
      const fiber = yield* Effect.fork(a.exec("slow"))
      yield* Effect.sleep("30 millis")
      yield* a.exec("quick")
      const checkpoint = yield* Effect.fork(a.checkpoint())
      yield* Deferred.await(snapshotting)
      yield* a.exec("during")
      yield* Deferred.succeed(slow, void 0)
      yield* Fiber.join(fiber)
      yield* Fiber.join(checkpoint)
      cut = false
      const before = server.commands.length
      const b = yield* sandboxes.resume(a.id)
      const replayed: Array<boolean> = []
      for (const command of ["cut", "slow", "quick", "during"]) replayed.push((yield* b.exec(command)).replayed)
      assert.deepStrictEqual(replayed, [false, false, true, false])
      assert.strictEqual(server.commands.length, before + 3)
    })
  )

  it.scopedLive("another command than the recorded one is a divergence, or runs live from there", () =>
    Effect.gen(function* () {
      const { sandboxes } = yield* setup({ command: echo })
      const a = yield* sandboxes.create({ image: "i" })
      yield* a.exec("1")
      yield* a.exec("2", { cwd: "/a" })
      yield* a.exec("3")
      yield* a.checkpoint()
      const b = yield* sandboxes.resume(a.id)
      yield* b.exec("1")
      const error = yield* Effect.flip(b.exec("2", { cwd: "/b" }))
      assert.deepInclude(error, { _tag: "ReplayDivergence", seq: 2 })
      assert.include(error.message, `"2" in /a`)
      assert.include(error.message, `"2" in /b`)
      const c = yield* sandboxes.resume(a.id, { onDivergence: "live" })
      assert.isTrue((yield* c.exec("1")).replayed)
      assert.strictEqual((yield* c.exec("two")).stdout, "ran two\n")
      assert.isFalse((yield* c.exec("3")).replayed, "from there on")
    })
  )

  it.scopedLive("keyed execs replay by key, whatever order they start in", () =>
    Effect.gen(function* () {
      const { sandboxes, server } = yield* setup({ command: echo })
      const keys = ["a", "b", "c", "d"]
      const a = yield* sandboxes.create({ image: "i" })
      yield* Effect.forEach(keys, (key) => a.exec(`run ${key}`, { key }), { concurrency: 4 })
      yield* a.exec("join")
      yield* a.checkpoint()
      const before = server.commands.length
      const b = yield* sandboxes.resume(a.id)
      const results = yield* Effect.forEach([...keys].reverse(), (key) => b.exec(`run ${key}`, { key }), {
        concurrency: 4
      })
      assert.deepStrictEqual(
        results.map((_) => _.stdout),
        ["d", "c", "b", "a"].map((key) => `ran run ${key}\n`)
      )
      assert.isTrue((yield* b.exec("join")).replayed)
      assert.strictEqual(server.commands.length, before)
      const c = yield* sandboxes.resume(a.id)
      assert.deepInclude(yield* Effect.flip(c.exec("run a")), { _tag: "ReplayDivergence" })
      assert.deepInclude(yield* Effect.flip(c.exec("other", { key: "a" })), { _tag: "ReplayDivergence" })
      assert.isFalse((yield* c.exec("new", { key: "new" })).replayed)
    })
  )

  it.scopedLive("has clear errors", () =>
    Effect.gen(function* () {
      const { ledger, sandboxes } = yield* setup({ command: echo })
      const unknown = yield* Effect.flip(Effect.scoped(sandboxes.resume("nobody")))
      assert.deepInclude(unknown, { _tag: "SandboxError", reason: "NotFound" })
      const a = yield* sandboxes.create({ image: "i" })
      assert.deepInclude(yield* Effect.flip(Effect.scoped(sandboxes.resume(a.id))), { reason: "NoCheckpoint" })
      yield* a.checkpoint("x")
      assert.deepInclude(yield* Effect.flip(Effect.scoped(sandboxes.resume(a.id, { tag: "y" }))), {
        reason: "NoCheckpoint"
      })
      assert.deepInclude(yield* Effect.flip(a.checkpoint("")), { reason: "InvalidOptions" })
      const b = yield* sandboxes.resume(a.id)
      yield* b.checkpoint()
      yield* ledger.deleteSandbox(a.id, { force: true })
      assert.deepInclude(yield* Effect.flip(Effect.scoped(sandboxes.resume(b.id))), { reason: "LineageIncomplete" })
    })
  )
})

describe("fork, restore, environment", () => {
  it.scopedLive("a fork is a session of its own that knows where it came from", () =>
    Effect.gen(function* () {
      const { entries, sandboxes } = yield* setup({ command: echo })
      const a = yield* sandboxes.create({ image: "i", name: "ci", runId: "run", resourceId: "r" })
      yield* a.exec("1")
      const fork = yield* a.fork()
      assert.match(fork.name, /^fork-ci-/)
      assert.strictEqual(fork.runId, "run")
      assert.isFalse((yield* fork.exec("other")).replayed)
      assert.deepInclude(payload((yield* entries(fork.id))[0]), {
        forkedFrom: "snap1",
        parentSandboxId: a.id,
        snapshotId: "snap1",
        resourceId: "r"
      })
      assert.include(events(yield* entries(a.id)), "sandbox.checkpoint_created")
    })
  )

  it.scopedLive(
    "a fork may be for somebody else of the same team, with hooks of its own beside the inherited ones",
    () =>
      Effect.gen(function* () {
        const { entries, sandboxes } = yield* setup({ command: echo })
        const told: Array<string> = []
        const hooks = (who: string) => ({
          onCreated: (sandbox: SandboxHooks.HookSandbox) =>
            Effect.sync(() => told.push(`${who}: ${sandbox.id} of ${sandbox.resourceId} in ${sandbox.teamId}`))
        })
        const a = yield* sandboxes.create({ image: "i", resourceId: "r", teamId: "t", hooks: hooks("a") })
        const b = yield* a.fork({ name: "child", resourceId: "child", hooks: hooks("b") })
        assert.deepStrictEqual([b.name, b.resourceId, b.teamId], ["child", "child", "t"])
        assert.deepStrictEqual(told, ["a: sbx1 of r in t", "a: sbx2 of child in t", "b: sbx2 of child in t"])
        assert.deepInclude(payload((yield* entries(b.id))[0]), {
          resourceId: "child",
          teamId: "t",
          parentSandboxId: a.id
        })
        const c = yield* b.fork()
        assert.deepStrictEqual([c.resourceId, c.teamId], ["child", "t"])
        assert.lengthOf(told, 5)
        assert.deepInclude(yield* Effect.flip(Effect.scoped(a.fork({ resourceId: " " }))), { reason: "InvalidOptions" })
        assert.deepInclude(yield* Effect.flip(Effect.scoped(sandboxes.create({ image: "i", teamId: "" }))), {
          reason: "InvalidOptions"
        })
      })
  )

  it.scopedLive("a container that the ledger does not know is attached to for whom one says", () =>
    Effect.gen(function* () {
      const { ledger, sandboxes } = yield* setup()
      const { id } = yield* Effect.scoped(sandboxes.create({ image: "i", detached: true, resourceId: "before" }))
      const known = yield* sandboxes.connect(id, { resourceId: "r", teamId: "t" })
      assert.deepStrictEqual([known.resourceId, known.teamId], ["before", undefined])
      yield* ledger.deleteSandbox(id, { force: true })
      const unknown = yield* sandboxes.connect(id, { resourceId: "r", teamId: "t" })
      assert.deepStrictEqual([unknown.resourceId, unknown.teamId], ["r", "t"])
      assert.deepInclude(Option.getOrThrow(yield* ledger.sandbox(id)), { resourceId: "r", teamId: "t" })
    })
  )

  it.scopedLive("a restored snapshot inherits run and resource, and replays nothing", () =>
    Effect.gen(function* () {
      const { entries, sandboxes } = yield* setup({ command: echo })
      const a = yield* sandboxes.create({ image: "i", name: "ci", runId: "run", resourceId: "r", teamId: "t" })
      yield* a.exec("1")
      const { snapshotId } = yield* a.checkpoint()
      const b = yield* sandboxes.restoreSnapshot(snapshotId)
      assert.deepStrictEqual([b.runId, b.resourceId, b.teamId, b.name], ["run", "r", "t", "ci"])
      assert.isFalse((yield* b.exec("1")).replayed)
      assert.deepInclude(payload((yield* entries(b.id))[0]), { fromSnapshot: snapshotId, snapshotId })
    })
  )

  it.scopedLive("an environment is built once, however many ask, and again when its snapshot or image changed", () =>
    Effect.gen(function* () {
      const { entries, ledger, sandboxes, server } = yield* setup({ command: echo })
      let builds = 0
      const definition = (image: string) => ({
        name: "python",
        image,
        build: (sandbox: Sandbox.Sandbox) =>
          Effect.zipRight(
            Effect.sync(() => {
              builds++
            }),
            Effect.zipRight(Effect.sleep("20 millis"), sandbox.exec("pip"))
          )
      })
      const made = yield* Effect.forEach([1, 2, 3, 4], () => sandboxes.environment(definition("python:3.11")), {
        concurrency: 4
      })
      assert.strictEqual(builds, 1)
      assert.deepStrictEqual(
        server.created.map((_) => _["snapshotId"]),
        [undefined, ...Array(4).fill("snap1")]
      )
      assert.deepInclude(payload((yield* entries(made[0]?.id ?? ""))[0]), {
        fromEnvironment: "python",
        image: "python:3.11",
        snapshotId: "snap1"
      })
      assert.deepStrictEqual(server.deleted, ["sbx1"], "the builder is gone")
      yield* sandboxes.environment(definition("python:3.11"))
      assert.strictEqual(builds, 1)
      server.deletedSnapshots.push("snap1")
      yield* sandboxes.environment(definition("python:3.11"))
      assert.strictEqual(builds, 2)
      yield* sandboxes.environment(definition("python:3.12"))
      assert.strictEqual(builds, 3)
      assert.deepInclude(Option.getOrThrow(yield* ledger.environment("python")), {
        image: "python:3.12",
        snapshotId: "snap3"
      })
    })
  )

  it.scopedLive("a build that fails leaves nothing behind, and the next one tries again", () =>
    Effect.gen(function* () {
      const { ledger, sandboxes, server } = yield* setup({ command: echo })
      let fail = true
      const definition = {
        name: "env",
        image: "i",
        build: (sandbox: Sandbox.Sandbox): Effect.Effect<unknown, SandboxError.ExecFailure | "mine"> =>
          fail ? sandbox.exec("exit 9") : Effect.fail("mine")
      }
      const error = yield* Effect.flip(Effect.scoped(sandboxes.environment(definition)))
      assert.deepInclude(error, { _tag: "CommandError", exitCode: 9 })
      fail = false
      assert.strictEqual(yield* Effect.flip(Effect.scoped(sandboxes.environment(definition))), "mine")
      assert.isTrue(Option.isNone(yield* ledger.environment("env")))
      assert.deepStrictEqual(server.deleted, ["sbx1", "sbx2"])
      assert.deepStrictEqual(server.snapshots, [])
    })
  )

  it.scopedLive("a snapshot that fails is a typed error and is not recorded", () =>
    Effect.gen(function* () {
      const { entries, sandboxes, server } = yield* setup({
        override: (request) =>
          request.method === "POST" && request.path.endsWith("/snapshots")
            ? ScriptedServer.json(202, { id: "bad", sandboxId: "sbx1", status: { state: "Committing" } })
            : request.path === "/v1/snapshots/bad" && request.method === "GET"
              ? ScriptedServer.json(200, {
                  id: "bad",
                  sandboxId: "sbx1",
                  status: { state: "Failed", message: "disk full" }
                })
              : undefined
      })
      const a = yield* sandboxes.create({ image: "i" })
      const error = yield* Effect.flip(a.checkpoint("x"))
      assert.deepInclude(error, { _tag: "SandboxError", reason: "SnapshotFailed" })
      assert.include(error.message, "disk full")
      assert.deepStrictEqual(server.deletedSnapshots, ["bad"])
      assert.deepStrictEqual(events(yield* entries(a.id)), ["sandbox.created"])
    })
  )
})

describe("history", () => {
  it.scopedLive("lists, gets, closes and deletes", () =>
    Effect.gen(function* () {
      const { sandboxes, server } = yield* setup({ command: echo })
      const scope = yield* Scope.make()
      const a = yield* sandboxes.create({ image: "i", name: "a" }).pipe(Scope.extend(scope))
      yield* a.append("permission.requested", { tool: "bash" }, { stepIdx: 3 })
      const left = yield* sandboxes.create({ image: "i", name: "b", detached: true })
      const listed = Chunk.toReadonlyArray(yield* Stream.runCollect(sandboxes.list()))
      assert.deepStrictEqual(
        listed.map((_) => _.name),
        ["b", "a"]
      )
      const refused = yield* Effect.flip(sandboxes.delete(left.id))
      assert.deepInclude(refused, { _tag: "SandboxError", reason: "StillRunning" })
      yield* sandboxes.close(left.id)
      assert.deepStrictEqual(server.deleted, [left.id])
      assert.strictEqual(Option.getOrThrow(yield* sandboxes.get(left.id)).status, "closed")
      assert.strictEqual(yield* sandboxes.delete(left.id), 2)
      assert.isTrue(Option.isNone(yield* sandboxes.get(left.id)))
      yield* Scope.close(scope, Exit.void)
      assert.strictEqual(yield* sandboxes.delete(a.id), 3)
      assert.isFalse(SandboxError.isSandboxError(undefined))
    })
  )
})
