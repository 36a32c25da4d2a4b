/**
 * History and then what is appended, once each.
 */
import { assert } from "@effect/vitest"
import * as Arr from "effect/Array"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import { Ledger } from "../../Ledger.js"
import type { It } from "./support.js"
import { collect, joinPassingTime, output, session, texts } from "./support.js"

export const tailing = (it: It): void => {
  it.scoped("tail gives history and then what is appended, once each and in order", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const base = yield* session
      yield* ledger.appendAll(Arr.makeBy(1500, (index) => output(base, 1, `${index}`)))
      const seen = yield* Deferred.make<void>()
      const follower = yield* ledger.tail({ sandboxId: base.sandboxId }).pipe(
        Stream.tap(() => Deferred.succeed(seen, undefined)),
        Stream.take(3000),
        collect,
        Effect.fork
      )
      yield* Deferred.await(seen)
      for (let from = 1500; from < 3000; from += 100) {
        yield* ledger.appendAll(Arr.makeBy(100, (index) => output(base, 1, `${from + index}`)))
        yield* ledger.append({ ...base, sandboxId: `${base.sandboxId}-other`, event: "note" })
      }
      const entries = yield* joinPassingTime(follower)
      assert.deepStrictEqual(texts(entries), Arr.makeBy(3000, String))
    })
  )

  it.scoped("tail starts behind an id and filters", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const base = yield* session
      const other = yield* session
      const first = yield* ledger.append(output(base, 1, "before"))
      const follow = (options: { readonly name?: string; readonly events?: ReadonlyArray<string> }) =>
        ledger.tail({ ...options, afterId: first.id }).pipe(Stream.take(2), collect, Effect.fork)
      const byName = yield* follow({ name: base.name })
      const byEvent = yield* follow({ name: base.name, events: ["mark"] })
      const everything = yield* follow({})
      yield* Effect.yieldNow()
      const stored = yield* ledger.appendAll([
        { ...other, event: "mark" },
        output(base, 1, "a"),
        { ...base, event: "mark" },
        { ...base, event: "mark", payload: 2 }
      ])
      assert.deepStrictEqual(yield* joinPassingTime(byName), stored.slice(1, 3))
      assert.deepStrictEqual(yield* joinPassingTime(byEvent), stored.slice(2))
      assert.strictEqual((yield* joinPassingTime(everything)).length, 2)
    })
  )

  it.scoped("a reader that stands still delays nobody and misses nothing", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const base = yield* session
      const started = yield* Deferred.make<void>()
      const gate = yield* Deferred.make<void>()
      yield* ledger.append(output(base, 1, "0"))
      const follower = yield* ledger.tail(base).pipe(
        Stream.tap(() => Effect.zipRight(Deferred.succeed(started, undefined), Deferred.await(gate))),
        Stream.take(2001),
        collect,
        Effect.fork
      )
      yield* Deferred.await(started)
      yield* Effect.forEach(
        Arr.chunksOf(Arr.range(1, 2000), 8),
        (indexes) => ledger.appendAll(indexes.map((index) => output(base, 1, `${index}`))),
        { discard: true }
      )
      yield* Deferred.succeed(gate, undefined)
      assert.deepStrictEqual(texts(yield* joinPassingTime(follower)), Arr.makeBy(2001, String))
    })
  )
}
