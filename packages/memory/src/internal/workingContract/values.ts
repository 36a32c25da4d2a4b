/**
 * Keys and values of one resource.
 */
import { assert } from "@effect/vitest"
import type { Json } from "@sandglass/core/LedgerEvent"
import { LedgerContract } from "@sandglass/core/testing"
import * as Effect from "effect/Effect"
import * as FastCheck from "effect/FastCheck"
import * as Option from "effect/Option"
import { WorkingMemory } from "../../WorkingMemory.js"
import { awkwardTexts, failsWith, freshRef } from "../contract.js"
import type { It } from "./support.js"
import { entries, has } from "./support.js"

export const values = (it: It): void => {
  it.effect("a value is there from its setting to its deletion", () =>
    Effect.gen(function* () {
      const working = yield* WorkingMemory
      const ref = yield* freshRef
      assert.deepStrictEqual(yield* working.get(ref, "k"), Option.none())
      assert.isFalse(yield* working.delete(ref, "k"))
      yield* working.set(ref, "k", { a: [1] })
      yield* has(ref, "k", { a: [1] })
      yield* working.set(ref, "k", "other")
      yield* has(ref, "k", "other")
      assert.isTrue(yield* working.delete(ref, "k"))
      assert.deepStrictEqual(yield* working.get(ref, "k"), Option.none())
      assert.deepStrictEqual(yield* entries(ref), [])
    })
  )

  it.effect("a stored null is a value", () =>
    Effect.gen(function* () {
      const working = yield* WorkingMemory
      const ref = yield* freshRef
      for (const value of [null, false, 0, "", [], {}]) {
        yield* working.set(ref, "k", value)
        yield* has(ref, "k", value)
      }
    })
  )

  it.effect("any JSON comes back as it was", () =>
    Effect.gen(function* () {
      const working = yield* WorkingMemory
      const ref = yield* freshRef
      const samples: ReadonlyArray<Json> = [
        JSON.parse('{"__proto__":{"x":1},"constructor":2}'),
        { b: 1, a: 2 },
        '{"looks":"like JSON"}',
        2 ** 53 - 1,
        1e21,
        ...awkwardTexts,
        ...awkwardTexts.map((text) => ({ [text]: [text] })),
        ...FastCheck.sample(LedgerContract.arbitraryJson, 100)
      ]
      yield* Effect.forEach(samples, (value, index) => working.set(ref, `k${index}`, value), { discard: true })
      const all = yield* working.list(ref)
      assert.strictEqual(all.size, samples.length)
      for (const [index, value] of samples.entries()) {
        assert.deepStrictEqual(all.get(`k${index}`), value)
        assert.strictEqual(JSON.stringify(all.get(`k${index}`)), JSON.stringify(value))
      }
      yield* has(ref, "k0", samples[0] ?? null)
    })
  )

  it.effect("keys are any texts, listed in order", () =>
    Effect.gen(function* () {
      const working = yield* WorkingMemory
      const ref = yield* freshRef
      const keys = ["", " ", ...awkwardTexts]
      for (const key of keys) {
        assert.deepStrictEqual(yield* working.get(ref, key), Option.none())
        yield* working.set(ref, key, key)
      }
      for (const key of keys) {
        yield* has(ref, key, key)
      }
      const sorted = keys.toSorted((a, b) => (a < b ? -1 : 1))
      assert.deepStrictEqual(
        yield* entries(ref),
        sorted.map((key) => [key, key])
      )
      for (const key of keys) {
        assert.isTrue(yield* working.delete(ref, key))
      }
      assert.deepStrictEqual(yield* entries(ref), [])
    })
  )

  it.effect("what is no JSON is refused, and nothing changes", () =>
    Effect.gen(function* () {
      const working = yield* WorkingMemory
      const ref = yield* freshRef
      yield* working.set(ref, "k", "before")
      const cycle: Array<unknown> = []
      cycle.push(cycle)
      const refused: ReadonlyArray<unknown> = [
        undefined,
        Number.NaN,
        Number.POSITIVE_INFINITY,
        new Date(0),
        new Map(),
        () => 1,
        Symbol("s"),
        10n,
        { deep: [{ value: undefined }, Number.NaN] },
        cycle
      ]
      for (const value of refused) {
        // What a program without types may do.
        const json = value as Json
        yield* failsWith("InvalidInput", working.set(ref, "k", json))
        yield* failsWith(
          "InvalidInput",
          working.modify(ref, "k", () => Effect.succeed([undefined, Option.some(json)]))
        )
      }
      assert.deepStrictEqual(yield* entries(ref), [["k", "before"]])
    })
  )

  it.effect("a key whose value is undefined counts as absent", () =>
    Effect.gen(function* () {
      const working = yield* WorkingMemory
      const ref = yield* freshRef
      yield* working.set(ref, "k", JSON.parse('{"a":1}'))
      const value: { readonly [key: string]: Json | undefined } = { a: 1, b: undefined }
      yield* working.set(ref, "k", value as Json)
      assert.strictEqual(JSON.stringify(yield* entries(ref)), '[["k",{"a":1}]]')
    })
  )

  it.effect("nobody changes what is stored by changing what was given or returned", () =>
    Effect.gen(function* () {
      const working = yield* WorkingMemory
      const ref = yield* freshRef
      const given = { list: [1] }
      yield* working.set(ref, "k", given)
      given.list.push(2)
      const returned = yield* working.get(ref, "k")
      const listed = (yield* working.list(ref)).get("k")
      for (const value of [Option.getOrNull(returned), listed]) {
        Object.assign(Object(value), { list: "changed" })
      }
      yield* has(ref, "k", { list: [1] })
    })
  )

  it.effect("clear removes what one resource has", () =>
    Effect.gen(function* () {
      const working = yield* WorkingMemory
      const [ref, other] = yield* Effect.all([freshRef, freshRef])
      assert.strictEqual(yield* working.clear(ref), 0)
      yield* working.set(ref, "a", 1)
      yield* working.set(ref, "b", 2)
      yield* working.set(other, "a", 3)
      assert.strictEqual(yield* working.clear(ref), 2)
      assert.deepStrictEqual(yield* entries(ref), [])
      assert.deepStrictEqual(yield* entries(other), [["a", 3]])
    })
  )
}
