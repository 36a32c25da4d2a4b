/**
 * Whose the values are.
 */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { WorkingMemory } from "../../WorkingMemory.js"
import { confusable, failsWith, fresh, freshRef, invalidRefs } from "../contract.js"
import type { It } from "./support.js"
import { entries, has } from "./support.js"

export const resources = (it: It): void => {
  it.effect("no two resources are taken for each other", () =>
    Effect.gen(function* () {
      const working = yield* WorkingMemory
      const refs = yield* confusable
      yield* Effect.forEach(refs, (ref, index) => working.set(ref, "k", index), { discard: true })
      for (const [index, ref] of refs.entries()) {
        assert.deepStrictEqual(yield* entries(ref), [["k", index]])
      }
      for (const [index, ref] of refs.entries()) {
        yield* has(ref, "k", index)
        assert.isTrue(yield* working.delete(ref, "k"))
      }
    })
  )

  it.effect("a ref that names nobody is refused by every operation", () =>
    Effect.gen(function* () {
      const working = yield* WorkingMemory
      const ref = yield* freshRef
      for (const invalid of invalidRefs) {
        yield* failsWith("InvalidResourceRef", working.get(invalid, "k"))
        yield* failsWith("InvalidResourceRef", working.set(invalid, "k", 1))
        yield* failsWith("InvalidResourceRef", working.delete(invalid, "k"))
        yield* failsWith("InvalidResourceRef", working.list(invalid))
        yield* failsWith(
          "InvalidResourceRef",
          working.modify(invalid, "k", () => Effect.die("it must not be asked"))
        )
        yield* failsWith("InvalidResourceRef", working.clear(invalid))
        yield* failsWith("InvalidResourceRef", working.copy(invalid, ref))
        yield* failsWith("InvalidResourceRef", working.copy(ref, invalid))
      }
    })
  )

  it.effect("a key must be a text", () =>
    Effect.gen(function* () {
      const working = yield* WorkingMemory
      const ref = yield* freshRef
      const key: string = JSON.parse("7")
      yield* failsWith("InvalidInput", working.get(ref, key))
      yield* failsWith("InvalidInput", working.set(ref, key, 1))
      yield* failsWith("InvalidInput", working.delete(ref, key))
    })
  )

  it.effect("a copy has everything, and a life of its own", () =>
    Effect.gen(function* () {
      const working = yield* WorkingMemory
      const teamId = yield* fresh("team")
      for (const team of [undefined, teamId]) {
        const inTeam = Effect.map(freshRef, (ref) => ({ ...ref, teamId: team }))
        const [from, to] = yield* Effect.all([inTeam, inTeam])
        assert.strictEqual(yield* working.copy(from, to), 0)
        yield* working.set(from, "a", { n: 1 })
        yield* working.set(from, "__proto__", null)
        assert.strictEqual(yield* working.copy(from, to), 2)
        assert.deepStrictEqual(yield* entries(to), yield* entries(from))
        yield* working.set(to, "a", "child")
        yield* working.set(from, "b", "parent")
        yield* working.delete(from, "__proto__")
        assert.deepStrictEqual(yield* entries(from), [
          ["a", { n: 1 }],
          ["b", "parent"]
        ])
        assert.deepStrictEqual(yield* entries(to), [
          ["__proto__", null],
          ["a", "child"]
        ])
      }
    })
  )

  it.effect("a copy goes to an empty resource of the same team", () =>
    Effect.gen(function* () {
      const working = yield* WorkingMemory
      const [from, to] = yield* Effect.all([freshRef, freshRef])
      yield* working.set(from, "a", 1)
      yield* working.set(to, "b", 2)
      yield* failsWith("InvalidInput", working.copy(from, to))
      yield* failsWith("InvalidInput", working.copy(from, from))
      const team = { ...(yield* freshRef), teamId: yield* fresh("team") }
      yield* failsWith("InvalidInput", working.copy(from, team))
      yield* failsWith("InvalidInput", working.copy(team, from))
      assert.deepStrictEqual(yield* entries(from), [["a", 1]])
      assert.deepStrictEqual(yield* entries(to), [["b", 2]])
      assert.deepStrictEqual(yield* entries(team), [])
    })
  )

  it.effect("what is done in a transaction is done as a whole", () =>
    Effect.gen(function* () {
      const working = yield* WorkingMemory
      const ref = yield* freshRef
      const child = yield* freshRef
      if (Option.isNone(working.transaction)) {
        return
      }
      const { run } = working.transaction.value
      yield* working.set(ref, "a", 1)
      const failed = run(
        Effect.gen(function* () {
          yield* working.set(ref, "a", 2)
          yield* working.copy(ref, child)
          yield* has(child, "a", 2)
          return yield* Effect.fail("undo")
        })
      )
      assert.strictEqual(yield* Effect.flip(failed), "undo")
      assert.deepStrictEqual(yield* entries(ref), [["a", 1]])
      assert.deepStrictEqual(yield* entries(child), [])
      yield* run(Effect.zipRight(working.set(ref, "a", 3), working.copy(ref, child)))
      assert.deepStrictEqual(yield* entries(child), [["a", 3]])
    })
  )
}
