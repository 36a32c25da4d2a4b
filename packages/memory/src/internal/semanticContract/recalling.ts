/**
 * What is found, and in which order.
 */
import { assert } from "@effect/vitest"
import * as Arr from "effect/Array"
import * as Effect from "effect/Effect"
import { SemanticMemory } from "../../SemanticMemory.js"
import { failsWith, fresh, freshRef } from "../contract.js"
import type { It } from "./support.js"
import { contents, prunable, recalled } from "./support.js"

/** The same on every run: from -1 to 1. */
const pseudoRandom = (seed: number) => {
  let state = seed >>> 0
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.round((state / 2 ** 31 - 1) * 1_000) / 1_000
  }
}

const cosine = (a: ReadonlyArray<number>, b: ReadonlyArray<number>): number => {
  const product = (x: ReadonlyArray<number>, y: ReadonlyArray<number>) =>
    x.reduce((sum, value, index) => sum + value * (y[index] ?? 0), 0)
  return product(a, b) / Math.sqrt(product(a, a) * product(b, b))
}

export const recalling = (it: It, exact: boolean): void => {
  it.effect("the closest come first, with their cosine", () =>
    Effect.gen(function* () {
      const semantic = yield* SemanticMemory
      const ref = yield* freshRef
      const facts = ["[0,1] orthogonal", "[3,4] in between", "[-2,0] opposite", "[7,0] the same", "[4,3] close"]
      yield* semantic.rememberAll(
        ref,
        facts.map((content) => ({ content }))
      )
      const found = yield* semantic.recall(ref, "[1,0] query", { topK: 10 })
      assert.deepStrictEqual(contents(found), [
        "[7,0] the same",
        "[4,3] close",
        "[3,4] in between",
        "[0,1] orthogonal",
        "[-2,0] opposite"
      ])
      for (const [index, score] of [1, 0.8, 0.6, 0, -1].entries()) {
        assert.approximately(found[index]?.score ?? Number.NaN, score, 1e-6)
      }
      assert.deepStrictEqual(
        contents(yield* semantic.recall(ref, "[1,0] query", { topK: 2 })),
        contents(found).slice(0, 2)
      )
      const atLeast = (minScore: number) =>
        Effect.map(semantic.recall(ref, "[1,0] query", { topK: 4, minScore }), (facts) => facts.length)
      assert.strictEqual(yield* atLeast(0.7), 2)
      assert.strictEqual(yield* atLeast(-1), 4)
      assert.strictEqual(yield* atLeast(1.1), 0)
    })
  )

  it.effect("of equals the older comes first, and no more than ten come unless more are asked for", () =>
    Effect.gen(function* () {
      const semantic = yield* SemanticMemory
      const ref = yield* freshRef
      const facts = Arr.makeBy(30, (index) => ({ content: `[1,1] number ${index}` }))
      yield* Effect.forEach(facts, (fact) => semantic.remember(ref, fact))
      assert.deepStrictEqual(contents(yield* semantic.recall(ref, "[1,1]")), contents(facts.slice(0, 10)))
      assert.deepStrictEqual(contents(yield* semantic.recall(ref, "[1,1]", { topK: 100_000 })), contents(facts))
    })
  )

  it.effect("an empty resource has nothing to recall", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* recalled(yield* freshRef, "anything", 5), [])
    })
  )

  it.effect("a query that makes no sense is refused", () =>
    Effect.gen(function* () {
      const semantic = yield* SemanticMemory
      const ref = yield* freshRef
      yield* semantic.remember(ref, { content: "a" })
      for (const query of ["", " \n", JSON.parse("7")]) {
        yield* failsWith("InvalidInput", semantic.recall(ref, query))
      }
      for (const topK of [0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, JSON.parse('"3"')]) {
        yield* failsWith("InvalidInput", semantic.recall(ref, "a", { topK }))
      }
      for (const minScore of [Number.NaN, JSON.parse('"0"')]) {
        yield* failsWith("InvalidInput", semantic.recall(ref, "a", { minScore }))
      }
    })
  )

  it.effect(
    "five facts among ten thousand of somebody else's are found, all five",
    () =>
      Effect.gen(function* () {
        const semantic = yield* SemanticMemory
        const [mine, other] = yield* Effect.all([freshRef, freshRef])
        const team = { ...mine, teamId: yield* fresh("team") }
        const theirs = Arr.makeBy(10_000, (index) => ({ content: `[1,0,0.000${index}] theirs ${index}` }))
        yield* semantic.rememberAll(other, theirs)
        // Everything of theirs is closer to the query than anything of mine.
        const facts = Arr.makeBy(5, (index) => ({ content: `[0.1,${index + 1}] mine ${index}` }))
        for (const ref of [mine, team]) {
          yield* semantic.rememberAll(ref, facts)
          assert.deepStrictEqual(yield* recalled(ref, "[1,0]", 5), contents(facts))
          assert.deepStrictEqual(yield* recalled(ref, "[1,0]", 50), contents(facts))
        }
        const found = yield* recalled(other, "[1,0]", 20)
        assert.strictEqual(found.length, 20)
        assert.isTrue(found.every((content) => content.includes("theirs")))
      }),
    120_000
  )

  it.effect(
    "among thousands the closest are found",
    () =>
      Effect.gen(function* () {
        const semantic = yield* SemanticMemory
        const ref = yield* freshRef
        const next = pseudoRandom(7)
        const vectors = Arr.makeBy(3_000, () => Arr.makeBy(32, next))
        const content = (vector: ReadonlyArray<number>) => JSON.stringify(vector)
        // Some in one go, and some one by one.
        yield* semantic.rememberAll(
          ref,
          vectors.slice(100).map((vector) => ({ content: content(vector) }))
        )
        yield* Effect.forEach(vectors.slice(0, 100), (vector) => semantic.remember(ref, { content: content(vector) }), {
          discard: true
        })
        const check = (present: ReadonlyArray<ReadonlyArray<number>>) =>
          Effect.gen(function* () {
            let hits = 0
            const queries = Arr.makeBy(20, () => Arr.makeBy(32, next))
            for (const query of queries) {
              const expected = present
                .map((vector) => ({ vector, score: cosine(query, vector) }))
                .sort((a, b) => b.score - a.score)
                .slice(0, 10)
                .map(({ vector }) => content(vector))
              const found = yield* recalled(ref, content(query), 10)
              assert.strictEqual(found.length, 10)
              if (exact) {
                assert.deepStrictEqual(found, expected)
              }
              hits += found.filter((fact) => expected.includes(fact)).length
            }
            assert.isAtLeast(hits / (queries.length * 10), 0.9)
          })
        yield* check(vectors)
        // What is forgotten takes no place among the best.
        const { count, forget } = yield* prunable
        const half = yield* semantic.recall(ref, content(vectors[0] ?? []), { topK: 1_500 })
        assert.strictEqual(half.length, 1_500)
        assert.strictEqual(
          yield* forget(
            ref,
            half.map(({ id }) => id)
          ),
          1_500
        )
        assert.strictEqual(yield* count(ref), 1_500)
        const gone = new Set(contents(half))
        yield* check(vectors.filter((vector) => !gone.has(content(vector))))
        // Remembered again they are found again.
        yield* semantic.rememberAll(
          ref,
          half.map(({ content }) => ({ content }))
        )
        yield* check(vectors)
      }),
    120_000
  )
}
