import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { makeCounter } from "../../packages/memory/src/internal/memory/autoCompact.js"

const heap = Effect.sync(() => {
  Bun.gc(true)
  return process.memoryUsage().heapUsed / 1024 ** 2
})

const use = (count: (resource: string, facts: number) => Effect.Effect<boolean>, from: number, to: number) =>
  Effect.gen(function* () {
    let due = 0
    for (let index = from; index < to; index++) {
      if (yield* count(`["user-${index}",null] ${"of a name that would be noticed ".repeat(8)}`, 1)) due++
    }
    return due
  })

it.effect(
  "the counts of automatic compaction do not grow with the number of resources, and each is checked every so often",
  () =>
    Effect.gen(function* () {
      const count = makeCounter(5)
      assert.strictEqual(yield* use(count, 0, 10_000), 0, "as long as all are counted, the first fact is the first")
      const before = yield* heap
      const due = yield* use(count, 10_000, 100_000)
      const after = yield* heap
      // 90,000 of these names are 50 MB.
      assert.isBelow(after - before, 8, `${before} MB, then ${after} MB`)
      // Of those that were forgotten meanwhile a fifth is due at any fact.
      assert.approximately(due / 90_000, 1 / 5, 0.02)
      const known = makeCounter(3)
      const results = []
      for (let fact = 0; fact < 7; fact++) results.push(yield* known("a", 1))
      results.push(yield* known("a", 2), yield* known("b", 7))
      assert.deepStrictEqual(results, [false, false, true, false, false, true, false, true, true])
    }),
  60_000
)
