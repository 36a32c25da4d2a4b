/**
 * Two handles to one store.
 */
import { assert } from "@effect/vitest"
import * as Arr from "effect/Array"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/TestClock"
import { Ledger } from "../../Ledger.js"
import type { It } from "./support.js"
import { collect, joinPassingTime, output, read, session, texts } from "./support.js"

export const secondHandle = <E>(it: It, second: Layer.Layer<Ledger, E>): void => {
  it.scoped("a second handle sees, follows and continues the first", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const context = yield* Layer.build(Layer.fresh(second))
      const base = yield* session
      const follower = yield* ledger.tail(base).pipe(Stream.take(200), collect, Effect.fork)
      yield* Effect.gen(function* () {
        const theirs = yield* Ledger
        for (let index = 0; index < 100; index++) {
          yield* ledger.append(output(base, 1, `${index}`))
          yield* theirs.append(output(base, 2, `${index}`))
        }
        assert.strictEqual((yield* read(base)).length, 200)
      }).pipe(Effect.provide(context))
      const seen = yield* joinPassingTime(follower)
      assert.deepStrictEqual(
        seen.map(({ id }) => id),
        seen.map(({ id }) => id).toSorted((a, b) => a - b)
      )
      for (const step of [1, 2]) {
        assert.deepStrictEqual(texts(seen.filter(({ stepIdx }) => stepIdx === step)), Arr.makeBy(100, String))
      }
    })
  )
  it.scoped("no clock of another handle takes a session back in time, nor further than it must", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const context = yield* Layer.build(Layer.fresh(second))
      const theirs = Context.get(context, Ledger)
      const base = yield* session
      const start = yield* TestClock.currentTimeMillis
      const present = (yield* ledger.append({ ...base, event: "present" })).ts
      yield* TestClock.setTime(present + 3_600_000)
      const ahead = yield* ledger.append({ ...base, event: "ahead" })
      assert.strictEqual(ahead.ts, present + 3_600_000)
      yield* TestClock.setTime(start)
      const behind = yield* theirs.appendAll(Arr.makeBy(70, (index) => output(base, 1, `${index}`)))
      assert.deepStrictEqual(Arr.dedupe(behind.map(({ ts }) => ts)), [ahead.ts])
      yield* TestClock.setTime(ahead.ts + 5)
      const later = yield* theirs.append({ ...base, event: "later" })
      assert.strictEqual(later.ts, ahead.ts + 5)
      yield* TestClock.setTime(start)
      const last = yield* ledger.append({ ...base, event: "last" })
      assert.strictEqual(last.ts, later.ts)
      assert.deepStrictEqual((yield* read(base)).slice(1), [ahead, ...behind, later, last])
    })
  )
}
