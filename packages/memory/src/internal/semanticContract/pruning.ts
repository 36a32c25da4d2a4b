/**
 * Listing, forgetting, copying.
 */
import { assert } from "@effect/vitest"
import * as Arr from "effect/Array"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/TestClock"
import { SemanticMemory } from "../../SemanticMemory.js"
import { failsWith, fresh, freshRef } from "../contract.js"
import type { It, Model } from "./support.js"
import { contents, count, listed, prunable, recalled, transaction } from "./support.js"

export const pruning = (it: It, model: Model): void => {
  it.effect(
    "facts are listed page by page",
    () =>
      Effect.gen(function* () {
        const semantic = yield* SemanticMemory
        const { listAll } = yield* prunable
        const ref = yield* freshRef
        const facts = yield* semantic.rememberAll(
          ref,
          Arr.makeBy(1_300, (index) => ({ content: `fact ${index}` }))
        )
        assert.deepStrictEqual(yield* listed(ref), facts)
        assert.deepStrictEqual(
          Chunk.toReadonlyArray(yield* Stream.runCollect(Stream.take(listAll(ref), 3))),
          facts.slice(0, 3)
        )
        assert.deepStrictEqual(yield* listed(yield* freshRef), [])
      }),
    120_000
  )

  it.effect(
    "facts are listed by when they were last remembered",
    () =>
      Effect.gen(function* () {
        const semantic = yield* SemanticMemory
        const { listOldest } = yield* prunable
        const [ref, other] = yield* Effect.all([freshRef, freshRef])
        const oldest = (before?: number) =>
          Effect.map(Stream.runCollect(listOldest(ref, { before })), (facts) => contents(Chunk.toReadonlyArray(facts)))
        yield* semantic.remember(other, { content: "of another" })
        yield* TestClock.setTime(1_000)
        const many = Arr.makeBy(1_300, (index) => `fact ${index}`)
        yield* semantic.rememberAll(
          ref,
          many.map((content) => ({ content }))
        )
        yield* TestClock.setTime(2_000)
        yield* semantic.rememberAll(ref, [{ content: "later" }, { content: "fact 3" }])
        yield* TestClock.setTime(3_000)
        yield* semantic.remember(ref, { content: "fact 1" })
        const rest = many.filter((content) => content !== "fact 1" && content !== "fact 3")
        assert.deepStrictEqual(yield* oldest(), [...rest, "fact 3", "later", "fact 1"])
        assert.deepStrictEqual(yield* oldest(3_000), [...rest, "fact 3", "later"])
        assert.deepStrictEqual(yield* oldest(1_000.5), rest)
        assert.deepStrictEqual(yield* oldest(1_000), [])
        assert.deepStrictEqual(yield* oldest(Number.NEGATIVE_INFINITY), [])
        const some = yield* Stream.runCollect(Stream.take(listOldest(ref), 2))
        assert.deepStrictEqual(contents(Chunk.toReadonlyArray(some)), ["fact 0", "fact 2"])
        yield* failsWith("InvalidInput", Stream.runDrain(listOldest(ref, { before: Number.NaN })))
      }),
    120_000
  )

  it.effect("what is forgotten is gone, and nothing else", () =>
    Effect.gen(function* () {
      const semantic = yield* SemanticMemory
      const { clear, forget } = yield* prunable
      const [ref, other] = yield* Effect.all([freshRef, freshRef])
      const facts = yield* semantic.rememberAll(ref, [
        { content: "a" },
        { content: "b" },
        { content: "c" },
        { content: "d" }
      ])
      const [theirs] = yield* semantic.rememberAll(other, [{ content: "a" }])
      const idOf = (index: number) => facts[index]?.id ?? ""
      assert.strictEqual(yield* forget(ref, [idOf(0), theirs?.id ?? "", "unknown", idOf(2), idOf(0)]), 2)
      assert.strictEqual(yield* forget(ref, [idOf(0)]), 0)
      assert.strictEqual(yield* forget(ref, []), 0)
      yield* failsWith("InvalidInput", forget(ref, JSON.parse("[7]")))
      yield* failsWith("InvalidInput", forget(ref, JSON.parse('"id"')))
      assert.deepStrictEqual(contents(yield* listed(ref)), ["b", "d"])
      assert.deepStrictEqual(yield* recalled(ref, "a", 10), yield* recalled(ref, "a", 2))
      assert.strictEqual(yield* count(ref), 2)
      const again = yield* semantic.remember(ref, { content: "a" })
      assert.notStrictEqual(again.id, idOf(0))
      assert.deepStrictEqual(contents(yield* listed(ref)), ["b", "d", "a"])
      assert.strictEqual(yield* clear(ref), 3)
      assert.strictEqual(yield* clear(ref), 0)
      assert.strictEqual(yield* count(ref), 0)
      assert.deepStrictEqual(yield* recalled(ref, "a", 10), [])
      assert.deepStrictEqual(contents(yield* listed(other)), ["a"])
    })
  )

  it.effect(
    "all of thousands can go at once",
    () =>
      Effect.gen(function* () {
        const semantic = yield* SemanticMemory
        const { clear } = yield* prunable
        const ref = yield* freshRef
        yield* semantic.rememberAll(
          ref,
          Arr.makeBy(6_000, (index) => ({ content: `fact ${index}` }))
        )
        assert.strictEqual(yield* clear(ref), 6_000)
        assert.strictEqual(yield* count(ref), 0)
        yield* semantic.remember(ref, { content: "after" })
        assert.deepStrictEqual(yield* recalled(ref, "fact 77", 10), ["after"])
      }),
    120_000
  )

  it.effect(
    "a copy has the facts with their vectors, and a life of its own",
    () =>
      Effect.gen(function* () {
        const semantic = yield* SemanticMemory
        const { copy, forget } = yield* prunable
        const teamId = yield* fresh("team")
        for (const team of [undefined, teamId]) {
          const inTeam = Effect.map(freshRef, (ref) => ({ ...ref, teamId: team }))
          const [from, to] = yield* Effect.all([inTeam, inTeam])
          assert.strictEqual(yield* copy(from, to), 0)
          const facts = yield* semantic.rememberAll(from, [
            {
              content: "Lives in Vienna",
              metadata: { a: 1 },
              sourceRef: { sandboxId: "s", entryIndex: 1 },
              sourceDigest: "d"
            },
            ...Arr.makeBy(900, (index) => ({ content: `fact ${index}` }))
          ])
          yield* TestClock.adjust("1 hour")
          const asked = model.asked.length
          assert.strictEqual(yield* copy(from, to), 901)
          assert.strictEqual(model.asked.length, asked)
          const copies = yield* listed(to)
          assert.deepStrictEqual(
            copies.map((fact) => ({ ...fact, id: "" })),
            facts.map((fact) => ({ ...fact, id: "" }))
          )
          assert.strictEqual(new Set([...copies, ...facts].map(({ id }) => id)).size, 1_802)
          const scores = (ref: typeof from) =>
            Effect.map(semantic.recall(ref, "fact 345", { topK: 20 }), (found) =>
              found.map(({ content, score }) => [content, score])
            )
          assert.deepStrictEqual(yield* scores(to), yield* scores(from))
          yield* semantic.remember(to, { content: "child" })
          yield* semantic.remember(from, { content: "parent", metadata: { b: 2 } })
          yield* forget(
            from,
            facts.slice(0, 1).map(({ id }) => id)
          )
          assert.deepStrictEqual(yield* recalled(to, "Lives in Vienna", 1), ["Lives in Vienna"])
          assert.notInclude(contents(yield* listed(from)), "child")
          assert.notInclude(contents(yield* listed(to)), "parent")
        }
      }),
    120_000
  )

  it.effect("a copy goes to an empty resource of the same team", () =>
    Effect.gen(function* () {
      const semantic = yield* SemanticMemory
      const { copy } = yield* prunable
      const [from, to] = yield* Effect.all([freshRef, freshRef])
      yield* semantic.remember(from, { content: "a" })
      yield* semantic.remember(to, { content: "b" })
      yield* failsWith("InvalidInput", copy(from, to))
      yield* failsWith("InvalidInput", copy(from, from))
      const team = { ...(yield* freshRef), teamId: yield* fresh("team") }
      yield* failsWith("InvalidInput", copy(from, team))
      assert.deepStrictEqual(contents(yield* listed(from)), ["a"])
      assert.deepStrictEqual(contents(yield* listed(to)), ["b"])
      assert.deepStrictEqual(yield* listed(team), [])
    })
  )

  it.effect(
    "what is done in a transaction is done as a whole",
    () =>
      Effect.gen(function* () {
        const semantic = yield* SemanticMemory
        const { clear, copy } = yield* prunable
        const [ref, child] = yield* Effect.all([freshRef, freshRef])
        const together = yield* transaction
        if (together === undefined) {
          return
        }
        const many = Arr.makeBy(700, (index) => ({ content: `fact ${index}` }))
        yield* semantic.remember(ref, { content: "before" })
        const failed = together.run(
          Effect.gen(function* () {
            yield* semantic.rememberAll(ref, many)
            yield* copy(ref, child)
            assert.strictEqual(yield* count(child), 701)
            assert.deepStrictEqual(yield* recalled(child, "fact 77", 1), ["fact 77"])
            yield* clear(ref)
            return yield* Effect.fail("undo")
          })
        )
        assert.strictEqual(yield* Effect.flip(failed), "undo")
        assert.deepStrictEqual(contents(yield* listed(ref)), ["before"])
        assert.strictEqual(yield* count(child), 0)
        assert.deepStrictEqual(yield* recalled(ref, "fact 77", 10), ["before"])
        yield* together.run(Effect.zipRight(semantic.rememberAll(ref, many), copy(ref, child)))
        assert.deepStrictEqual(yield* recalled(child, "fact 77", 1), ["fact 77"])
      }),
    120_000
  )
}

export const secondHandle = <E>(it: It, second: Layer.Layer<SemanticMemory, E>): void => {
  it.scoped(
    "a second handle sees what the first remembers, and forgets it",
    () =>
      Effect.gen(function* () {
        const semantic = yield* SemanticMemory
        const ref = yield* freshRef
        const context = yield* Layer.build(Layer.fresh(second))
        const many = (prefix: string) => Arr.makeBy(700, (index) => ({ content: `${prefix} ${index}` }))
        const facts = yield* semantic.rememberAll(ref, many("ours"))
        yield* Effect.gen(function* () {
          const theirs = yield* SemanticMemory
          const { forget } = yield* prunable
          assert.deepStrictEqual(yield* listed(ref), facts)
          assert.deepStrictEqual(yield* recalled(ref, "ours 123", 1), ["ours 123"])
          yield* theirs.rememberAll(ref, many("theirs"))
          yield* forget(
            ref,
            facts.slice(0, 300).map(({ id }) => id)
          )
        }).pipe(Effect.provide(context))
        assert.deepStrictEqual(yield* recalled(ref, "theirs 456", 1), ["theirs 456"])
        assert.deepStrictEqual(yield* recalled(ref, "ours 345", 1), ["ours 345"])
        assert.notInclude(yield* recalled(ref, "ours 123", 1), "ours 123")
        assert.strictEqual((yield* semantic.recall(ref, "ours 123", { topK: 1_100 })).length, 1_100)
        assert.strictEqual((yield* semantic.recall(ref, "ours 123", { topK: 1_101 })).length, 1_100)
      }),
    120_000
  )
}
