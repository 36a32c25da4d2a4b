import { assert, describe, it } from "@effect/vitest"
import type { LedgerEvent, SandboxHooks } from "@sandglass/core"
import { Ledger, Sandboxes } from "@sandglass/core"
import { Agents, EmbeddingModel, Memory, MemoryError, MemoryHooks, WorkingMemory } from "@sandglass/memory"
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
import { complete, init, stdout } from "../support/ScriptedSandboxes.js"
import * as ScriptedServer from "../support/ScriptedServer.js"

type Change = (memory: Memory.FullService) => Partial<Memory.FullService>

const setup = (
  script: ScriptedSandboxes.Script = {},
  { change = () => ({}), options = {} }: { readonly change?: Change; readonly options?: Sandboxes.Options } = {}
) =>
  Effect.gen(function* () {
    const server = yield* ScriptedSandboxes.make(script)
    const memories = Memory.layerMemory.pipe(
      Layer.provideMerge(Layer.merge(Ledger.layerMemory, EmbeddingModel.layerLexical()))
    )
    const changed = Layer.effect(
      Memory.Memory,
      Effect.map(Memory.FullMemory, (memory): Memory.FullService => ({ ...memory, ...change(memory) }))
    )
    const context = yield* Layer.build(
      Agents.layer.pipe(
        Layer.provide(changed),
        Layer.provideMerge(Sandboxes.layerWith(options)),
        Layer.provideMerge(Layer.merge(server.layer, memories))
      )
    )
    const memory = Context.get(context, Memory.FullMemory)
    const ledger = Context.get(context, Ledger.Ledger)
    return {
      server,
      ledger,
      memory,
      agents: Context.get(context, Agents.Agents),
      sandboxes: Context.get(context, Sandboxes.Sandboxes),
      created: (sandboxId: string) => Effect.map(ledger.sandbox(sandboxId), Option.getOrThrow),
      last: (resourceId: string, teamId?: string) =>
        MemoryHooks.lastSession({ resourceId, teamId }).pipe(
          Effect.provideService(WorkingMemory.WorkingMemory, memory.working),
          Effect.map(Option.getOrUndefined)
        ),
      isEmpty: (resourceId: string, teamId?: string) =>
        Effect.gen(function* () {
          const ref = { resourceId, teamId }
          const facts = yield* Stream.runCount(memory.listAll(ref))
          return facts === 0 && (yield* memory.working.list(ref)).size === 0
        })
    }
  })

const echo: ScriptedSandboxes.Script["command"] = ({ command }, index) =>
  ScriptedServer.stream([init(`c${index}`), stdout(`ran ${command}`), complete])

const entries = (stream: Stream.Stream<LedgerEvent.LedgerEntry, unknown>) =>
  Effect.map(Stream.runCollect(stream), Chunk.toReadonlyArray)

describe("sessions of an agent", () => {
  it.scopedLive("what an agent remembers is there in its next sandbox", () =>
    Effect.gen(function* () {
      const { agents, created, last, server } = yield* setup({ command: echo })
      yield* Effect.scoped(
        Effect.gen(function* () {
          const agent = yield* agents.load({ name: "helper", image: "node:22" })
          assert.deepStrictEqual([agent.name, agent.ref], ["helper", { resourceId: "helper" }])
          assert.isTrue(agent.memory.hasSemanticMemory)
          yield* agent.memory.set("k", { a: 1 })
          yield* agent.sandbox.exec("first")
          const [entry] = yield* entries(agent.memory.episodicRecall({ limit: 1 }))
          assert.isDefined(entry)
          assert.strictEqual(entry.event, "exec.completed")
          const sourceRef = yield* agent.memory.sourceRef(entry)
          const fact = yield* agent.memory.remember({ content: "first was run", sourceRef })
          assert.isTrue(fact.verified)
          assert.deepStrictEqual(yield* last("helper"), { sandboxId: agent.sandbox.id })
        })
      )
      assert.deepStrictEqual(server.deleted, ["sbx1"])
      const again = yield* agents.load({ name: "helper", image: "node:22", hooks: {} })
      assert.deepStrictEqual(yield* again.memory.get("k"), Option.some({ a: 1 }))
      const [fact] = yield* again.memory.recall("what was run first?")
      assert.deepStrictEqual([fact?.content, fact?.verified], ["first was run", true])
      const snippet = yield* again.memory.buildContextSnippet({ query: "run" })
      assert.include(snippet, `- "k": {"a":1}`)
      assert.include(snippet, `- "first was run" (verified)`)
      const events = yield* entries(again.memory.episodicRecall({ withoutOutput: true }))
      assert.deepStrictEqual(
        events.map(({ event, sandboxId }) => [sandboxId, event]),
        [
          ["sbx1", "sandbox.created"],
          ["sbx1", "exec.started"],
          ["sbx1", "exec.completed"],
          ["sbx1", "sandbox.closed"],
          ["sbx2", "sandbox.created"]
        ]
      )
      assert.deepInclude(yield* created("sbx2"), { name: "helper", resourceId: "helper" })
      const modified = yield* again.memory.modify("n", (n) => Effect.succeed([n, Option.some(1)] as const))
      assert.deepStrictEqual(modified, Option.none())
      assert.deepStrictEqual(Array.from((yield* again.memory.list).keys()), ["k", "n", "sandglass.session"])
      assert.isTrue(yield* again.memory.delete("n"))
      assert.strictEqual(yield* again.memory.forget([fact?.id ?? ""]), 1)
      assert.strictEqual(yield* Stream.runCount(again.memory.listAll), 0)
      assert.strictEqual((yield* again.memory.compactSemanticMemory({ maxFacts: 0 })).forgotten, 0)
      assert.lengthOf(yield* again.memory.episodicTree(), 2)
    })
  )

  it.scopedLive("whom it is for, and hooks of one's own", () =>
    Effect.gen(function* () {
      const { agents, created, isEmpty, last } = yield* setup()
      const told: Array<SandboxHooks.HookSandbox> = []
      const agent = yield* agents.load({
        name: "helper",
        image: "node:22",
        resourceId: "user-7",
        teamId: "t",
        hooks: { onCreated: (sandbox) => Effect.sync(() => told.push(sandbox)) }
      })
      assert.deepStrictEqual(agent.ref, { resourceId: "user-7", teamId: "t" })
      assert.deepInclude(yield* created("sbx1"), { name: "helper", resourceId: "user-7", teamId: "t" })
      assert.strictEqual(told[0]?.id, "sbx1")
      assert.deepStrictEqual(yield* last("user-7", "t"), { sandboxId: "sbx1" })
      assert.isTrue(yield* isEmpty("user-7"))
      assert.isTrue(yield* isEmpty("helper"))
      const { cursor, snapshotId } = yield* agent.sandbox.checkpoint("tag")
      const checkpoint = { sandboxId: "sbx1", snapshotId, tag: "tag", createdAt: cursor.ts }
      assert.deepStrictEqual(yield* last("user-7", "t"), { sandboxId: "sbx1", checkpoint })
      for (const nobody of [{ name: " " }, { name: "helper", teamId: "" }, { name: "helper", resourceId: "\t" }]) {
        const error = yield* Effect.flip(agents.load({ image: "node:22", ...nobody }))
        assert.strictEqual(error._tag, "InvalidResourceRef")
      }
    })
  )

  it.scopedLive("resumed, it has its sandbox as it was and its memory as it is", () =>
    Effect.gen(function* () {
      const { agents, created, last, memory } = yield* setup({ command: echo })
      const first = yield* agents.load({ name: "helper", image: "i", teamId: "t" })
      yield* first.sandbox.exec("one")
      yield* first.sandbox.checkpoint()
      yield* first.memory.set("k", "after the checkpoint")
      const resumed = yield* agents.resume(first.sandbox.id)
      assert.deepStrictEqual([resumed.name, resumed.ref], ["helper", { resourceId: "helper", teamId: "t" }])
      assert.isTrue((yield* resumed.sandbox.exec("one")).replayed)
      assert.deepStrictEqual(yield* resumed.memory.get("k"), Option.some("after the checkpoint"))
      assert.deepInclude(yield* created(resumed.sandbox.id), { resumedFrom: "sbx1", resourceId: "helper", teamId: "t" })
      assert.strictEqual((yield* last("helper", "t"))?.sandboxId, resumed.sandbox.id)
      const other = yield* agents.resume(first.sandbox.id, { resourceId: "other" })
      assert.deepStrictEqual(other.ref, { resourceId: "other", teamId: "t" })
      yield* memory.working.set(other.ref, "k", 1)
      assert.deepStrictEqual(yield* other.memory.get("k"), Option.some(1))
      const failed = yield* Effect.flip(agents.resume(other.sandbox.id, { tag: "none" }))
      assert.deepInclude(failed, { _tag: "SandboxError", reason: "NoCheckpoint" })
      const unknown = yield* Effect.flip(agents.resume("nothing"))
      assert.deepInclude(unknown, { _tag: "SandboxError", reason: "NotFound" })
    })
  )

  it.scopedLive("a sandbox that says nothing of whom it is for is that of its name", () =>
    Effect.gen(function* () {
      const { agents, created, memory, sandboxes } = yield* setup()
      const old = yield* sandboxes.create({ image: "i", name: "helper", detached: true })
      yield* old.checkpoint()
      yield* memory.working.set({ resourceId: "helper" }, "k", 1)
      const attached = yield* agents.attach(old.id, { resourceId: "ignored" })
      assert.deepStrictEqual(attached.ref, { resourceId: "helper" })
      const resumed = yield* agents.resume(old.id)
      assert.deepStrictEqual(resumed.ref, { resourceId: "helper" })
      assert.strictEqual((yield* created(resumed.sandbox.id)).resourceId, "helper")
      const episodes = yield* entries(resumed.memory.episodicRecall({ events: ["sandbox.created"] }))
      assert.deepStrictEqual(
        episodes.map(({ sandboxId }) => sandboxId),
        [old.id, resumed.sandbox.id]
      )
    })
  )

  it.scopedLive("attached to a sandbox that runs, it leaves it running", () =>
    Effect.gen(function* () {
      const { agents, created, last, ledger, server } = yield* setup()
      const { id } = (yield* Effect.scoped(agents.load({ name: "helper", image: "i", detached: true }))).sandbox
      yield* Effect.scoped(agents.load({ name: "helper", image: "i" }))
      assert.strictEqual((yield* last("helper"))?.sandboxId, "sbx2")
      yield* Effect.scoped(
        Effect.gen(function* () {
          const agent = yield* agents.attach(id)
          assert.deepStrictEqual([agent.sandbox.id, agent.ref], [id, { resourceId: "helper" }])
          assert.strictEqual((yield* last("helper"))?.sandboxId, id)
          yield* agent.sandbox.checkpoint("t")
          assert.strictEqual((yield* last("helper"))?.checkpoint?.tag, "t")
        })
      )
      assert.deepStrictEqual(server.deleted, ["sbx2"])
      yield* ledger.deleteSandbox(id, { force: true })
      const unknown = yield* agents.attach(id, { name: "found", teamId: "t" })
      assert.deepStrictEqual(unknown.ref, { resourceId: "found", teamId: "t" })
      assert.deepInclude(yield* created(id), { name: "found", resourceId: "found", teamId: "t" })
    })
  )

  it.scopedLive("a note that cannot be made stops nobody", () =>
    Effect.gen(function* () {
      const broken = new MemoryError.MemoryStoreError({ method: "WorkingMemory.modify", reason: "Connection" })
      const { agents } = yield* setup(
        {},
        { change: ({ working }) => ({ working: { ...working, modify: () => Effect.fail(broken) } }) }
      )
      const agent = yield* agents.load({ name: "helper", image: "i" })
      assert.strictEqual((yield* agents.attach(agent.sandbox.id)).sandbox.id, agent.sandbox.id)
      assert.strictEqual((yield* agent.spawn({ name: "child" })).sandbox.id, "sbx2")
    })
  )
})

describe("children", () => {
  it.scopedLive("a child has a copy of the sandbox and a copy of the memory", () =>
    Effect.gen(function* () {
      const { agents, created, last, memory, server } = yield* setup({ command: echo })
      const told: Array<string> = []
      const parent = yield* agents.load({ name: "parent", image: "i", teamId: "t" })
      yield* parent.memory.set("k", 1)
      yield* parent.memory.remember({ content: "a fact" })
      const scope = yield* Scope.make()
      const child = yield* Scope.extend(
        parent.spawn({
          name: "child",
          hooks: { onCreated: ({ resourceId }) => Effect.sync(() => told.push(`${resourceId}`)) }
        }),
        scope
      )
      assert.deepStrictEqual([child.name, child.ref], ["child", { resourceId: "child", teamId: "t" }])
      const { sandboxId, snapshotId, ...details } = yield* created(child.sandbox.id)
      assert.deepInclude(details, { resourceId: "child", teamId: "t", parentSandboxId: "sbx1" })
      assert.deepStrictEqual(told, ["child"])
      assert.deepStrictEqual(yield* child.memory.get("k"), Option.some(1))
      assert.strictEqual(yield* Stream.runCount(child.memory.listAll), 1)
      yield* child.memory.set("k", 2)
      yield* parent.memory.remember({ content: "another" })
      assert.deepStrictEqual(yield* parent.memory.get("k"), Option.some(1))
      assert.strictEqual(yield* Stream.runCount(child.memory.listAll), 1)
      // Each has a note of its own sandbox, and of its own checkpoints from there on.
      const noted = yield* last("parent", "t")
      assert.deepStrictEqual([noted?.sandboxId, noted?.checkpoint?.snapshotId], ["sbx1", snapshotId])
      assert.strictEqual((yield* last("child", "t"))?.sandboxId, sandboxId)
      const later = yield* child.sandbox.checkpoint()
      assert.strictEqual((yield* last("child", "t"))?.checkpoint?.snapshotId, later.snapshotId)
      assert.deepStrictEqual(yield* last("parent", "t"), noted)
      // The tree knows where the child came from, and so does its lineage.
      const [root] = yield* child.memory.episodicTree()
      assert.deepStrictEqual([root?.session.sandboxId, root?.own], ["sbx1", false])
      assert.deepStrictEqual(
        root?.children.map((node) => node.session.sandboxId),
        [child.sandbox.id]
      )
      const lineage = yield* entries(child.memory.episodicRecall({ branch: "lineage", events: ["sandbox.created"] }))
      assert.lengthOf(lineage, 2)
      const grandchild = yield* child.spawn({ name: "grandchild", resourceId: "gc" })
      assert.deepStrictEqual(yield* grandchild.memory.get("k"), Option.some(2))
      assert.deepStrictEqual(grandchild.ref, { resourceId: "gc", teamId: "t" })
      yield* Scope.close(scope, Exit.void)
      assert.deepStrictEqual(server.deleted, ["sbx2"])
      assert.deepStrictEqual(yield* memory.working.get({ resourceId: "child", teamId: "t" }, "k"), Option.some(2))
    })
  )

  it.scopedLive("a child that would have the memory of somebody is refused before anything is made", () =>
    Effect.gen(function* () {
      const { agents, memory, server } = yield* setup()
      const parent = yield* agents.load({ name: "parent", image: "i" })
      yield* memory.working.set({ resourceId: "taken" }, "k", 1)
      const refused = [
        ["InvalidInput", { name: "taken" }],
        ["InvalidInput", { name: "child", resourceId: "parent" }],
        ["InvalidResourceRef", { name: "child", resourceId: " " }],
        ["InvalidResourceRef", { name: "" }]
      ] as const
      for (const [tag, options] of refused) {
        assert.strictEqual((yield* Effect.flip(parent.spawn(options)))._tag, tag)
      }
      assert.deepStrictEqual([server.created.length, server.snapshots.length], [1, 0])
      // One whose facts only are taken is found out at the end.
      yield* memory.remember({ resourceId: "facts" }, { content: "of another" })
      assert.strictEqual((yield* Effect.flip(parent.spawn({ name: "facts", detached: true })))._tag, "InvalidInput")
      assert.deepStrictEqual(server.deleted, ["sbx2"])
      assert.strictEqual(yield* Stream.runCount(memory.listAll({ resourceId: "facts" })), 1)
      assert.strictEqual((yield* memory.working.list({ resourceId: "facts" })).size, 0)
    })
  )

  it.scopedLive("without a sandbox there is no memory either", () =>
    Effect.gen(function* () {
      let refuse: ScriptedSandboxes.Script["override"]
      const { agents, isEmpty, server } = yield* setup(
        { override: (request) => refuse?.(request) },
        { options: { readyTimeout: "300 millis" } }
      )
      const parent = yield* agents.load({ name: "parent", image: "i" })
      yield* parent.memory.remember({ content: "a fact" })
      const failures: ReadonlyArray<readonly [reason: string, override: ScriptedSandboxes.Script["override"]]> = [
        [
          "no snapshot",
          (request) => (request.path.endsWith("/snapshots") ? ScriptedServer.text(500, "no") : undefined)
        ],
        [
          "no container",
          (request) =>
            request.method === "POST" && request.path === "/v1/sandboxes" ? ScriptedServer.text(500, "no") : undefined
        ],
        [
          "not ready",
          (request) =>
            request.method === "POST" && request.path.startsWith("/execd") ? ScriptedServer.text(503, "no") : undefined
        ]
      ]
      for (const [reason, override] of failures) {
        for (const detached of [false, true]) {
          refuse = override
          const made = server.created.length
          yield* Effect.flip(Effect.scoped(parent.spawn({ name: "child", detached })))
          refuse = undefined
          assert.isTrue(yield* isEmpty("child"), reason)
          assert.deepStrictEqual(server.deleted.length, server.created.length - 1, reason)
          assert.strictEqual(server.created.length - made, reason === "not ready" ? 1 : 0, reason)
        }
      }
      // And then it works.
      const child = yield* parent.spawn({ name: "child" })
      assert.strictEqual(yield* Stream.runCount(child.memory.listAll), 1)
    })
  )

  it.scopedLive("without a memory there is no sandbox either", () =>
    Effect.gen(function* () {
      const broken = new MemoryError.MemoryStoreError({ method: "Memory.fork", reason: "Connection" })
      let works = false
      const { agents, isEmpty, server } = yield* setup(
        {},
        { change: ({ fork }) => ({ fork: (...args) => (works ? fork(...args) : Effect.fail(broken)) }) }
      )
      const parent = yield* agents.load({ name: "parent", image: "i" })
      yield* parent.memory.set("k", 1)
      for (const detached of [false, true]) {
        const error = yield* Effect.flip(parent.spawn({ name: "child", detached }))
        assert.strictEqual(error._tag, "MemoryStoreError")
        assert.isTrue(yield* isEmpty("child"))
      }
      assert.deepStrictEqual(server.deleted, ["sbx2", "sbx3"])
      works = true
      assert.deepStrictEqual(yield* (yield* parent.spawn({ name: "child" })).memory.get("k"), Option.some(1))
    })
  )

  it.scopedLive("interrupted at any moment there is neither", () =>
    Effect.gen(function* () {
      const moments = ["container", "copying", "copied", "noting"] as const
      for (const moment of moments) {
        for (const detached of [false, true]) {
          const reached = yield* Deferred.make<void>()
          let armed = false
          const arrive = (at: (typeof moments)[number]) =>
            Effect.suspend(() => (armed && at === moment ? Deferred.succeed(reached, undefined) : Effect.void))
          const { agents, isEmpty, server } = yield* setup(
            {},
            {
              change: (memory) => ({
                fork: (...args) =>
                  arrive("copying").pipe(
                    Effect.zipRight(Effect.sleep("30 millis")),
                    Effect.zipRight(memory.fork(...args)),
                    Effect.zipLeft(arrive("copied")),
                    Effect.zipLeft(Effect.sleep("30 millis"))
                  ),
                working: {
                  ...memory.working,
                  modify: (...args) =>
                    arrive("noting").pipe(
                      Effect.zipRight(Effect.sleep("30 millis")),
                      Effect.zipRight(memory.working.modify(...args))
                    )
                }
              })
            }
          )
          const parent = yield* agents.load({ name: "parent", image: "i" })
          yield* parent.memory.set("k", 1)
          yield* parent.memory.remember({ content: "a fact" })
          // The parent notes its checkpoint too; from the container on it is the child's turn.
          const hooks = {
            onCreated: () =>
              Effect.zipRight(
                Effect.sync(() => {
                  armed = true
                }),
                arrive("container")
              )
          }
          const fiber = yield* Effect.fork(parent.spawn({ name: "child", detached, hooks }))
          yield* Deferred.await(reached)
          const exit = yield* Fiber.interrupt(fiber)
          assert.isTrue(Exit.isInterrupted(exit), moment)
          assert.isTrue(yield* isEmpty("child"), `${moment}, ${detached}`)
          assert.deepStrictEqual(server.deleted, ["sbx2"], `${moment}, ${detached}`)
        }
      }
    })
  )
})
