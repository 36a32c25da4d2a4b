/**
 * Working memory with a schema.
 */
import { assert } from "@effect/vitest"
import type { Json } from "@sandglass/core/LedgerEvent"
import * as Arr from "effect/Array"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type { ResourceRef } from "../../ResourceRef.js"
import * as SchemaWorkingMemory from "../../SchemaWorkingMemory.js"
import { WorkingMemory } from "../../WorkingMemory.js"
import { failsWith, freshRef, invalidRefs } from "../contract.js"
import type { It } from "./support.js"

const Profile = Schema.Struct({
  name: Schema.String,
  age: Schema.optional(Schema.Int),
  since: Schema.optional(Schema.Date),
  address: Schema.optional(
    Schema.Struct({ city: Schema.optional(Schema.String), zip: Schema.optional(Schema.String) })
  ),
  tags: Schema.optional(Schema.Array(Schema.String))
})

class Account extends Schema.Class<Account>("Account")({ owner: Schema.String, balance: Schema.NumberFromString }) {}

/** A schema of no library: a count as text that is read as a number; answers later if it is told to. */
const counting = (later: boolean): SchemaWorkingMemory.StandardSchema<{ count: string }, { count: number }> => ({
  "~standard": {
    version: 1,
    vendor: "test",
    validate: (value) => {
      const { count }: { count?: unknown } = Object(value)
      const result =
        typeof count === "string" && /^\d+$/.test(count)
          ? { value: { count: Number(count) } }
          : {
              issues: [
                { message: "no count", path: ["count"] },
                { message: "at all", path: [{ key: "count" }, 0] }
              ]
            }
      return later ? Promise.resolve(result) : result
    }
  }
})

const stored = (ref: ResourceRef, key: string) => Effect.flatMap(WorkingMemory, (working) => working.get(ref, key))

export const schemas = (it: It): void => {
  it.effect("a value of a schema is written, read, changed and cleared", () =>
    Effect.gen(function* () {
      const profile = yield* SchemaWorkingMemory.make(Profile)
      const ref = yield* freshRef
      assert.strictEqual(profile.key, "state")
      assert.deepStrictEqual(yield* profile.get(ref), Option.none())
      assert.isFalse(yield* profile.clear(ref))
      const since = new Date(0)
      assert.deepStrictEqual(yield* profile.set(ref, { name: "Ada", since }), { name: "Ada", since })
      assert.deepStrictEqual(
        yield* stored(ref, "state"),
        Option.some<Json>({ name: "Ada", since: "1970-01-01T00:00:00.000Z" })
      )
      const changed = yield* profile.update(ref, { age: 36, address: { city: "London" } })
      assert.deepStrictEqual(changed, { name: "Ada", since, age: 36, address: { city: "London" } })
      const again = yield* profile.update(ref, { address: { zip: "W1" }, since: undefined, tags: ["a"] })
      assert.deepStrictEqual(again, { name: "Ada", age: 36, address: { city: "London", zip: "W1" }, tags: ["a"] })
      const shorter = yield* profile.update(ref, { address: { city: undefined }, tags: [] })
      assert.deepStrictEqual(shorter, { name: "Ada", age: 36, address: { zip: "W1" }, tags: [] })
      assert.deepStrictEqual(yield* profile.get(ref), Option.some(shorter))
      assert.isTrue(yield* profile.clear(ref))
      assert.deepStrictEqual(yield* profile.get(ref), Option.none())
    })
  )

  it.effect("an update makes a value where there is none, if it fits", () =>
    Effect.gen(function* () {
      const profile = yield* SchemaWorkingMemory.make(Profile, { key: "profile" })
      const ref = yield* freshRef
      yield* failsWith("InvalidInput", profile.update(ref, { age: 36 }))
      assert.deepStrictEqual(yield* stored(ref, "profile"), Option.none())
      assert.deepStrictEqual(yield* profile.update(ref, { name: "Ada" }), { name: "Ada" })
    })
  )

  it.effect("what does not fit is not written", () =>
    Effect.gen(function* () {
      const profile = yield* SchemaWorkingMemory.make(Profile)
      const ref = yield* freshRef
      yield* profile.set(ref, { name: "Ada" })
      for (const patch of [{ age: 0.5 }, { name: undefined }, JSON.parse(`{"tags":[1]}`), JSON.parse("7")]) {
        const error = yield* failsWith("InvalidInput", profile.update(ref, patch))
        assert.strictEqual(error.method, "SchemaWorkingMemory.update")
      }
      yield* failsWith("InvalidInput", profile.set(ref, { name: "Ada", age: 0.5 }))
      assert.deepStrictEqual(yield* stored(ref, "state"), Option.some<Json>({ name: "Ada" }))
    })
  )

  it.effect("what is stored and does not fit is an error, and stays as it was", () =>
    Effect.gen(function* () {
      const working = yield* WorkingMemory
      const ref = yield* freshRef
      const profile = yield* SchemaWorkingMemory.make(Profile, { key: "k" })
      const counter = yield* SchemaWorkingMemory.make(counting(false), { key: "k" })
      for (const { clear, get, update } of [
        {
          get: Effect.asVoid(profile.get(ref)),
          update: Effect.asVoid(profile.update(ref, {})),
          clear: profile.clear(ref)
        },
        {
          get: Effect.asVoid(counter.get(ref)),
          update: Effect.asVoid(counter.update(ref, {})),
          clear: counter.clear(ref)
        }
      ]) {
        for (const value of [{ name: 7, count: 7 }, "text", null, []]) {
          yield* working.set(ref, "k", value)
          const error = yield* failsWith("InvalidStoredValue", get)
          assert.deepStrictEqual([error.method, error.key], ["SchemaWorkingMemory.get", "k"])
          yield* failsWith("InvalidStoredValue", update)
          assert.deepStrictEqual(yield* stored(ref, "k"), Option.some<Json>(value))
        }
        assert.isTrue(yield* clear)
      }
    })
  )

  it.effect("fields that the schema does not know are kept", () =>
    Effect.gen(function* () {
      const working = yield* WorkingMemory
      const profile = yield* SchemaWorkingMemory.make(Profile)
      const ref = yield* freshRef
      yield* working.set(ref, "state", { name: "Ada", later: { version: 2 } })
      yield* profile.update(ref, { age: 36 })
      assert.deepStrictEqual(
        yield* stored(ref, "state"),
        Option.some<Json>({ name: "Ada", later: { version: 2 }, age: 36 })
      )
    })
  )

  it.effect("of concurrent updates none is lost", () =>
    Effect.gen(function* () {
      const Counts = Schema.Record({ key: Schema.String, value: Schema.Number })
      const counts = yield* SchemaWorkingMemory.make(Counts)
      const ref = yield* freshRef
      yield* Effect.all(
        Arr.makeBy(20, (index) => counts.update(ref, { [`key ${index}`]: index })),
        { concurrency: 5 }
      )
      const expected = Object.fromEntries(Arr.makeBy(20, (index) => [`key ${index}`, index]))
      assert.deepStrictEqual(yield* counts.get(ref), Option.some(expected))
      yield* counts.update(ref, JSON.parse(`{"constructor":1,"toString":2}`))
      assert.deepStrictEqual(yield* counts.get(ref), Option.some({ ...expected, constructor: 1, toString: 2 }))
    })
  )

  it.effect("classes keep being classes", () =>
    Effect.gen(function* () {
      const account = yield* SchemaWorkingMemory.make(Account)
      const ref = yield* freshRef
      yield* account.set(ref, new Account({ owner: "Ada", balance: 1 }))
      const changed = yield* account.update(ref, { balance: 2 })
      assert.instanceOf(changed, Account)
      assert.deepStrictEqual(changed, new Account({ owner: "Ada", balance: 2 }))
      assert.deepStrictEqual(yield* stored(ref, "state"), Option.some<Json>({ owner: "Ada", balance: "2" }))
    })
  )

  it.effect("a Standard Schema of any library: what went in is stored, what comes out is read", () =>
    Effect.gen(function* () {
      for (const later of [false, true]) {
        const counter = yield* SchemaWorkingMemory.make(counting(later))
        const ref = yield* freshRef
        assert.deepStrictEqual(yield* counter.set(ref, { count: "7" }), { count: 7 })
        assert.deepStrictEqual(yield* stored(ref, "state"), Option.some<Json>({ count: "7" }))
        assert.deepStrictEqual(yield* counter.get(ref), Option.some({ count: 7 }))
        assert.deepStrictEqual(yield* counter.update(ref, { count: "8" }), { count: 8 })
        const error = yield* failsWith("InvalidInput", counter.update(ref, { count: "x" }))
        assert.strictEqual(error.description, "count: no count; count.0: at all")
        yield* failsWith("InvalidInput", counter.set(ref, { count: "" }))
        assert.deepStrictEqual(yield* stored(ref, "state"), Option.some<Json>({ count: "8" }))
      }
    })
  )

  it.effect("a schema that throws is an error", () =>
    Effect.gen(function* () {
      const broken = yield* SchemaWorkingMemory.make({
        "~standard": {
          version: 1,
          vendor: "test",
          validate: (): never => {
            throw new Error("broken")
          }
        }
      })
      const ref = yield* freshRef
      const error = yield* failsWith("InvalidInput", broken.set(ref, {}))
      assert.strictEqual(error.description, "broken")
      assert.deepStrictEqual(yield* stored(ref, "state"), Option.none())
    })
  )

  it.effect("what passes and is no JSON is refused", () =>
    Effect.gen(function* () {
      const anything = yield* SchemaWorkingMemory.make(Schema.Unknown)
      const ref = yield* freshRef
      for (const value of [new Date(0), 1n, Number.NaN, () => 1, undefined]) {
        yield* failsWith("InvalidInput", anything.set(ref, value))
      }
      assert.deepStrictEqual(yield* stored(ref, "state"), Option.none())
      for (const nobody of invalidRefs) {
        yield* failsWith("InvalidResourceRef", anything.get(nobody))
        yield* failsWith("InvalidResourceRef", anything.set(nobody, 1))
        yield* failsWith("InvalidResourceRef", anything.update(nobody, {}))
        yield* failsWith("InvalidResourceRef", anything.clear(nobody))
      }
    })
  )
}
