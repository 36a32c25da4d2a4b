/**
 * Changes that depend on what was there.
 */
import { assert } from "@effect/vitest"
import type { Json } from "@sandglass/core/LedgerEvent"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { WorkingMemory } from "../../WorkingMemory.js"
import { freshRef } from "../contract.js"
import { isObject } from "../json.js"
import type { It } from "./support.js"
import { entries, has, increment, numberOf } from "./support.js"

export const modifying = (it: It): void => {
  it.effect("modify creates, changes, removes, and leaves alone", () =>
    Effect.gen(function* () {
      const working = yield* WorkingMemory
      const ref = yield* freshRef
      const seen: Array<Option.Option<Json>> = []
      const to = (next: Option.Option<Json>) =>
        working.modify(ref, "k", (current) => {
          seen.push(current)
          return Effect.succeed(["result", next])
        })
      assert.strictEqual(yield* to(Option.none()), "result")
      assert.deepStrictEqual(yield* entries(ref), [])
      yield* to(Option.some(null))
      yield* has(ref, "k", null)
      yield* to(Option.some({ a: 1 }))
      yield* to(Option.some({ a: 1 }))
      yield* has(ref, "k", { a: 1 })
      yield* to(Option.none())
      assert.deepStrictEqual(yield* entries(ref), [])
      assert.deepStrictEqual(seen, [
        Option.none(),
        Option.none(),
        Option.some(null),
        Option.some({ a: 1 }),
        Option.some({ a: 1 })
      ])
    })
  )

  it.effect("where the function fails nothing changes", () =>
    Effect.gen(function* () {
      const working = yield* WorkingMemory
      const ref = yield* freshRef
      yield* working.set(ref, "k", 1)
      assert.strictEqual(yield* Effect.flip(working.modify(ref, "k", () => Effect.fail("no" as const))), "no")
      const defect = yield* Effect.exit(working.modify(ref, "k", () => Effect.die("bug")))
      assert.strictEqual(defect._tag, "Failure")
      yield* has(ref, "k", 1)
    })
  )

  it.effect("a write of somebody else in between is not lost", () =>
    Effect.gen(function* () {
      const working = yield* WorkingMemory
      const ref = yield* freshRef
      const interfere: Array<Effect.Effect<unknown, unknown>> = [
        working.set(ref, "k", { theirs: 1 }),
        working.delete(ref, "k"),
        working.set(ref, "k", null)
      ]
      const seen: Array<Option.Option<Json>> = []
      yield* working.modify(ref, "k", (current) =>
        Effect.gen(function* () {
          seen.push(current)
          yield* interfere.shift() ?? Effect.void
          return [
            "done",
            Option.some({ ...(Option.isSome(current) && isObject(current.value) ? current.value : {}), ours: 2 })
          ]
        })
      )
      assert.deepStrictEqual(seen, [Option.none(), Option.some({ theirs: 1 }), Option.none(), Option.some(null)])
      yield* has(ref, "k", { ours: 2 })
    })
  )

  it.effect("of concurrent changes none is lost", () =>
    Effect.gen(function* () {
      const working = yield* WorkingMemory
      const ref = yield* freshRef
      yield* Effect.all(
        Array.from({ length: 60 }, () => increment(ref, "count")),
        { concurrency: "unbounded", discard: true }
      )
      yield* has(ref, "count", 60)
      const setField = (field: string) =>
        working.modify(ref, "profile", (current) =>
          Effect.as(Effect.yieldNow(), [
            undefined,
            Option.some<Json>({
              ...(Option.isSome(current) && isObject(current.value) ? current.value : {}),
              [field]: true
            })
          ])
        )
      yield* Effect.all([setField("a"), setField("b")], { concurrency: "unbounded", discard: true })
      yield* has(ref, "profile", { a: true, b: true })
    })
  )
}

export const secondHandle = <E>(it: It, second: Layer.Layer<WorkingMemory, E>): void => {
  it.scoped("a second handle sees what the first writes, and their changes add up", () =>
    Effect.gen(function* () {
      const ref = yield* freshRef
      const context = yield* Layer.build(Layer.fresh(second))
      yield* Effect.all(
        Array.from({ length: 40 }, (_, index) =>
          index % 2 === 0 ? increment(ref, "count") : Effect.provide(increment(ref, "count"), context)
        ),
        { concurrency: "unbounded", discard: true }
      )
      yield* has(ref, "count", 40)
      const theirs = yield* Effect.provide(entries(ref), context)
      assert.strictEqual(numberOf(Option.fromNullable(theirs[0]?.[1])), 40)
    })
  )
}
