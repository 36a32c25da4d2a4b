/**
 * Environment records.
 */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Ledger } from "../../Ledger.js"
import type { It } from "./support.js"
import { fresh } from "./support.js"

export const environments = (it: It): void => {
  it.effect("environment records are put, replaced, listed by name and deleted", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const prefix = yield* fresh("env")
      const record = (name: string, snapshotId: string) => ({
        name: prefix + name,
        snapshotId,
        image: "python:3.12",
        builtAt: 1767225600000
      })
      const odd = record("\0é\ud83d", "snap\0")
      yield* ledger.putEnvironment(record("b", "snap-1"))
      yield* ledger.putEnvironment(record("a", "snap-2"))
      yield* ledger.putEnvironment(record("b", "snap-3"))
      yield* ledger.putEnvironment(odd)
      assert.deepStrictEqual(Option.getOrThrow(yield* ledger.environment(`${prefix}b`)), record("b", "snap-3"))
      assert.deepStrictEqual(Option.getOrThrow(yield* ledger.environment(odd.name)), odd)
      assert.isTrue(Option.isNone(yield* ledger.environment(`${prefix}c`)))
      const mine = (yield* ledger.environments).filter(({ name }) => name.startsWith(prefix))
      assert.deepStrictEqual(mine, [odd, record("a", "snap-2"), record("b", "snap-3")])
      assert.isTrue(yield* ledger.deleteEnvironment(`${prefix}b`))
      assert.isFalse(yield* ledger.deleteEnvironment(`${prefix}b`))
      assert.isTrue(yield* ledger.deleteEnvironment(odd.name))
      assert.isTrue(Option.isNone(yield* ledger.environment(`${prefix}b`)))
    })
  )
}
