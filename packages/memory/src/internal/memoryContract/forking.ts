/**
 * Copies of a memory.
 */
import { assert } from "@effect/vitest"
import * as Arr from "effect/Array"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Memory from "../../Memory.js"
import { MemoryStoreError } from "../../MemoryError.js"
import type { ResourceRef } from "../../ResourceRef.js"
import { SemanticMemory } from "../../SemanticMemory.js"
import { WorkingMemory } from "../../WorkingMemory.js"
import { failsWith, fresh, freshRef } from "../contract.js"
import type { It } from "./support.js"
import { contents, forWhom, listed, session } from "./support.js"

const setUp = Effect.gen(function* () {
  const memory = yield* Memory.FullMemory
  const ref: ResourceRef = { resourceId: yield* fresh("parent"), teamId: "t" }
  const one = yield* session(forWhom(ref))
  yield* memory.working.set(ref, "k", { a: 1 })
  yield* memory.working.set(ref, "__proto__", null)
  yield* memory.rememberAll(ref, [
    { content: "one", metadata: { m: 1 } },
    { content: "two", sourceRef: { sandboxId: one.sandboxId, entryIndex: 0 } }
  ])
  return { memory, ref, child: yield* fresh("child") }
})

const everything = (ref: ResourceRef) =>
  Effect.gen(function* () {
    const memory = yield* Memory.FullMemory
    return { working: Array.from(yield* memory.working.list(ref)), facts: yield* listed(ref) }
  })

const nothing = { working: [], facts: [] }

export const forking = (it: It): void => {
  it.effect("a fork has all of it, and neither sees what the other does later", () =>
    Effect.gen(function* () {
      const { child, memory, ref } = yield* setUp
      const before = yield* everything(ref)
      const result = yield* memory.fork(ref, child)
      const forked: ResourceRef = { resourceId: child, teamId: "t" }
      assert.deepStrictEqual(result, { ref: forked, workingKeysCopied: 2, semanticFactsCopied: 2 })
      const copy = yield* everything(forked)
      assert.deepStrictEqual(copy.working, before.working)
      // Its own ids, and no proof: the session is that of the parent.
      assert.deepStrictEqual(
        copy.facts.map((fact) => ({ ...fact, id: "" })),
        before.facts.map((fact) => ({ ...fact, id: "", verified: false }))
      )
      assert.strictEqual(new Set([...copy.facts, ...before.facts].map(({ id }) => id)).size, 4)
      assert.deepStrictEqual(contents(yield* memory.recall(forked, "two", { topK: 1 })), ["two"])
      yield* memory.working.set(forked, "k", "child")
      yield* memory.working.set(ref, "new", "parent")
      yield* memory.remember(forked, { content: "of the child" })
      yield* memory.remember(ref, { content: "of the parent" })
      yield* memory.forget(
        ref,
        before.facts.map(({ id }) => id)
      )
      assert.deepStrictEqual(contents(yield* listed(forked)), ["one", "two", "of the child"])
      assert.deepStrictEqual(contents(yield* listed(ref)), ["of the parent"])
      assert.deepStrictEqual(yield* memory.working.get(ref, "k"), Option.some({ a: 1 }))
      assert.deepStrictEqual(yield* memory.working.get(forked, "new"), Option.none())
    })
  )

  it.effect("what is empty can be forked", () =>
    Effect.gen(function* () {
      const memory = yield* Memory.FullMemory
      const child = yield* fresh("child")
      const result = yield* memory.fork(yield* freshRef, child)
      assert.deepStrictEqual(result, { ref: { resourceId: child }, workingKeysCopied: 0, semanticFactsCopied: 0 })
    })
  )

  it.effect("a fork never adds to a memory, nor becomes its own", () =>
    Effect.gen(function* () {
      const { child, memory, ref } = yield* setUp
      const taken: ResourceRef = { resourceId: child, teamId: "t" }
      yield* failsWith("InvalidInput", memory.fork(ref, ref.resourceId))
      yield* failsWith("InvalidResourceRef", memory.fork(ref, " "))
      yield* memory.remember(taken, { content: "was there" })
      yield* failsWith("InvalidInput", memory.fork(ref, child))
      assert.deepStrictEqual((yield* everything(taken)).working, [])
      assert.deepStrictEqual(contents(yield* listed(taken)), ["was there"])
      const other = yield* fresh("child")
      yield* memory.working.set({ resourceId: other, teamId: "t" }, "was", "there")
      yield* failsWith("InvalidInput", memory.fork(ref, other))
      const left = yield* everything({ resourceId: other, teamId: "t" })
      assert.deepStrictEqual(left, { working: [["was", "there"]], facts: [] })
      // The same id in another team is somebody else.
      const elsewhere: ResourceRef = { resourceId: child }
      yield* memory.remember(elsewhere, { content: "of no team" })
      assert.deepStrictEqual(contents(yield* listed(elsewhere)), ["of no team"])
    })
  )

  it.effect("all or nothing, whichever half fails, in one store and in two", () =>
    Effect.gen(function* () {
      const { child, ref } = yield* setUp
      const working = yield* WorkingMemory
      const semantic = yield* SemanticMemory
      const prunable = Option.getOrThrow(semantic.prunable)
      const before = yield* everything(ref)
      const broken = new MemoryStoreError({ method: "copy", reason: "Connection" })
      const withProvider = (service: typeof semantic, store: typeof working) =>
        Memory.makeFull().pipe(
          Effect.provideService(SemanticMemory, service),
          Effect.provideService(WorkingMemory, store)
        )
      const failing = [
        // The second of the two, after the first has been done.
        withProvider(
          {
            ...semantic,
            prunable: Option.some({
              ...prunable,
              copy: (from, to) => Effect.zipRight(prunable.copy(from, to), Effect.fail(broken))
            })
          },
          working
        ),
        withProvider(semantic, {
          ...working,
          copy: (from, to) => Effect.zipRight(working.copy(from, to), Effect.fail(broken))
        })
      ]
      for (const make of failing.slice(semantic.transaction._tag === "Some" ? 0 : 2)) {
        yield* failsWith("MemoryStoreError", (yield* make).fork(ref, child))
        assert.deepStrictEqual(yield* everything({ resourceId: child, teamId: "t" }), nothing)
      }
      // As if the two were in different databases.
      const apart = { ...semantic, transaction: Option.none() }
      const never = { ...working, copy: () => Effect.fail(broken) }
      yield* failsWith("MemoryStoreError", (yield* withProvider(apart, never)).fork(ref, child))
      assert.deepStrictEqual(yield* everything({ resourceId: child, teamId: "t" }), nothing)
      const done = yield* withProvider(apart, working)
      assert.strictEqual((yield* done.fork(ref, child)).semanticFactsCopied, 2)
      assert.deepStrictEqual(yield* everything(ref), before)
    })
  )

  it.effect("interrupted between the two halves it has done nothing", () =>
    Effect.gen(function* () {
      const { child, ref } = yield* setUp
      const working = yield* WorkingMemory
      const semantic = yield* SemanticMemory
      for (const transaction of [Option.none(), semantic.transaction]) {
        const reached = yield* Deferred.make<void>()
        const memory = yield* Memory.makeFull().pipe(
          Effect.provideService(SemanticMemory, { ...semantic, transaction }),
          Effect.provideService(WorkingMemory, {
            ...working,
            transaction,
            copy: () => Effect.zipRight(Deferred.succeed(reached, undefined), Effect.never)
          })
        )
        const fiber = yield* Effect.fork(memory.fork(ref, child))
        yield* Deferred.await(reached)
        yield* Fiber.interrupt(fiber)
        assert.deepStrictEqual(yield* everything({ resourceId: child, teamId: "t" }), nothing)
      }
    })
  )

  it.effect("of many forks to one resource at once one succeeds", () =>
    Effect.gen(function* () {
      const { child, memory, ref } = yield* setUp
      const results = yield* Effect.all(
        Arr.makeBy(5, () => Effect.either(memory.fork(ref, child))),
        { concurrency: 5 }
      )
      assert.strictEqual(results.filter(({ _tag }) => _tag === "Right").length, 1)
      for (const result of results) if (result._tag === "Left") assert.strictEqual(result.left._tag, "InvalidInput")
      const copy = yield* everything({ resourceId: child, teamId: "t" })
      assert.deepStrictEqual([copy.working.length, copy.facts.length], [2, 2])
    })
  )
}
