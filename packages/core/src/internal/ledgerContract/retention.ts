/**
 * What is removed, and what is never removed.
 */
import { assert } from "@effect/vitest"
import * as Arr from "effect/Array"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/TestClock"
import type { PruneOptions } from "../../Ledger.js"
import { Ledger } from "../../Ledger.js"
import type { Json } from "../../LedgerEvent.js"
import type { It } from "./support.js"
import { catchUp, collect, failsWith, fresh, output, read, session } from "./support.js"

const count = (sandboxId: string) => Effect.flatMap(Ledger, (ledger) => Stream.runCount(ledger.read({ sandboxId })))

/** Sessions of one name, and what is left of them. */
const family = Effect.gen(function* () {
  const ledger = yield* Ledger
  yield* catchUp
  const name = yield* fresh("name")
  const begin = (payload: { readonly [key: string]: Json } = {}, own: { readonly name?: string } = {}) =>
    Effect.gen(function* () {
      yield* TestClock.adjust("10 millis")
      const sandboxId = yield* fresh("sbx")
      yield* ledger.appendAll([
        { sandboxId, name: own.name ?? name, event: "sandbox.created", payload },
        output({ sandboxId, name: own.name ?? name }, 1, "line\n")
      ])
      return sandboxId
    })
  const mark = (sandboxId: string, event: string, payload?: Json) =>
    Effect.map(ledger.append({ sandboxId, name, event, payload }), ({ ts }) => ts)
  const left = Effect.map(collect(ledger.sandboxes({ name })), (found) =>
    found.map(({ sandboxId }) => sandboxId).toReversed()
  )
  const prune = (options: Omit<PruneOptions, "name">) => ledger.prune({ ...options, name })
  return { begin, left, mark, name, prune }
})

export const retention = (it: It): void => {
  it.effect("prune removes the sessions that ended before a time, and no others", () =>
    Effect.gen(function* () {
      const { begin, left, mark, prune } = yield* family
      const old = yield* begin()
      const running = yield* begin()
      const paused = yield* begin()
      const resumed = yield* begin()
      const checkpointed = yield* begin()
      const recent = yield* begin()
      yield* mark(paused, "sandbox.paused")
      yield* mark(resumed, "sandbox.paused")
      yield* mark(resumed, "sandbox.resumed")
      yield* mark(checkpointed, "sandbox.checkpoint_created", { snapshotId: "snap-1" })
      yield* mark(old, "sandbox.closed")
      yield* mark(checkpointed, "sandbox.closed")
      yield* TestClock.adjust("1 seconds")
      const before = yield* mark(recent, "sandbox.closed")
      // Ended in an older spelling, and used by somebody afterwards.
      const spelled = yield* begin()
      yield* mark(spelled, "sandbox_closed")
      yield* mark(spelled, "note")
      const later = [running, paused, resumed, checkpointed, recent, spelled]
      assert.deepStrictEqual(yield* prune({ before, keepCheckpoints: true }), { sandboxes: 1, entries: 3 })
      assert.deepStrictEqual(yield* left, later)
      assert.strictEqual(yield* count(old), 0)
      assert.strictEqual(yield* count(checkpointed), 4)
      assert.deepStrictEqual(yield* prune({ before, keepCheckpoints: true }), { sandboxes: 0, entries: 0 })
      assert.deepStrictEqual(yield* prune({ before }), { sandboxes: 1, entries: 4 })
      assert.deepStrictEqual(yield* prune({ before: before + 1 }), { sandboxes: 1, entries: 3 })
      assert.deepStrictEqual(yield* left, [running, paused, resumed, spelled])
      assert.deepStrictEqual(yield* prune({ before: Number.MAX_SAFE_INTEGER }), { sandboxes: 1, entries: 4 })
      for (const [sandboxId, entries] of [
        [running, 2],
        [paused, 3],
        [resumed, 4]
      ] as const) {
        assert.strictEqual(yield* count(sandboxId), entries)
      }
      yield* failsWith("InvalidQuery", prune({ before: Number.NaN }))
    })
  )

  it.effect("prune keeps what a session that stays was resumed from, over generations", () =>
    Effect.gen(function* () {
      const { begin, left, mark, name, prune } = yield* family
      const checkpoint = (sandboxId: string) => mark(sandboxId, "sandbox.checkpoint_created", { snapshotId: "snap" })
      const first = yield* begin()
      yield* checkpoint(first)
      const second = yield* begin({ resumedFrom: first, snapshotId: "snap" })
      yield* checkpoint(second)
      const third = yield* begin({ resumedFrom: second, snapshotId: "snap" })
      const unrelated = yield* begin({ resumedFrom: `${first}-gone` })
      const source = yield* begin()
      // Of another name, so that it stays.
      const elsewhere = yield* begin({ resumedFrom: source }, { name: `${name}-other` })
      for (const sandboxId of [first, second, unrelated, source, elsewhere]) {
        yield* mark(sandboxId, "sandbox.closed")
      }
      const before = (yield* mark(third, "note")) + 1
      assert.deepStrictEqual(yield* prune({ before }), { sandboxes: 1, entries: 3 })
      assert.deepStrictEqual(yield* left, [first, second, third, source])
      assert.strictEqual(yield* count(first), 4)
      yield* mark(third, "sandbox.closed")
      assert.strictEqual((yield* prune({ before: before + 1_000 })).sandboxes, 3)
      assert.deepStrictEqual(yield* left, [source])
    })
  )

  it.effect("prune of many sessions, some of them long", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const { left, name, prune } = yield* family
      const sandboxOf = (index: number) => `${name}-${index}`
      yield* ledger.appendAll(
        Arr.makeBy(430, (index) => index).flatMap((index) => {
          const base = { sandboxId: sandboxOf(index), name }
          return [
            { ...base, event: "sandbox.created" },
            ...Arr.makeBy(index === 200 ? 4_500 : 2, (line) => output(base, 1, `${line}`)),
            ...(index % 43 === 0 ? [] : [{ ...base, event: "sandbox.closed" }])
          ]
        })
      )
      assert.deepStrictEqual(yield* prune({ before: Number.MAX_SAFE_INTEGER }), {
        sandboxes: 420,
        entries: 419 * 4 + 4_502
      })
      assert.deepStrictEqual(
        yield* left,
        Arr.makeBy(10, (index) => sandboxOf(index * 43))
      )
    })
  )

  it.effect("a session that has not ended is not deleted, unless by force", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const { begin, mark } = yield* family
      const sandboxId = yield* begin()
      for (const status of ["running", "paused"]) {
        const error = yield* failsWith("StillRunning", ledger.deleteSandbox(sandboxId))
        assert.strictEqual(error.method, "deleteSandbox")
        assert.include(error.description, status)
        yield* mark(sandboxId, "sandbox.paused")
      }
      assert.strictEqual(yield* ledger.deleteSandbox(sandboxId, { force: true }), 4)
      assert.strictEqual(yield* count(sandboxId), 0)
      const ended = yield* begin()
      yield* mark(ended, "sandbox.closed")
      assert.strictEqual(yield* ledger.deleteSandbox(ended), 3)
      // Events that belong to no session.
      const loose = yield* session
      yield* ledger.append({ ...loose, event: "note" })
      assert.strictEqual(yield* ledger.deleteSandbox(loose.sandboxId), 1)
    })
  )

  it.effect("a long deletion that is cut off is finished by the next, and nothing resumes what is left", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const { begin, mark, name } = yield* family
      const sandboxId = yield* begin()
      yield* mark(sandboxId, "sandbox.checkpoint_created", { snapshotId: "snap" })
      yield* ledger.appendAll(Arr.makeBy(9_000, (index) => output({ sandboxId, name }, 2, `${index}`)))
      yield* mark(sandboxId, "sandbox.closed")
      const all = yield* count(sandboxId)
      const fiber = yield* Effect.fork(ledger.deleteSandbox(sandboxId))
      let left = all
      while (left === all) {
        yield* Effect.yieldNow()
        left = yield* count(sandboxId)
      }
      yield* Fiber.interrupt(fiber)
      left = yield* count(sandboxId)
      assert.isBelow(left, all)
      assert.isTrue(Option.isNone(yield* ledger.lastCheckpoint(sandboxId)))
      const status = Option.map(yield* ledger.sandbox(sandboxId), (details) => details.status)
      assert.deepStrictEqual(status, left > 0 ? Option.some("closed") : Option.none())
      assert.strictEqual(yield* ledger.deleteSandbox(sandboxId), left)
      assert.deepStrictEqual(yield* read({ sandboxId }), [])
    })
  )
}
