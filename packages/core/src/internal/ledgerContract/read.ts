/**
 * Filters, cursors and limits.
 */
import { assert } from "@effect/vitest"
import * as Arr from "effect/Array"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as TestClock from "effect/TestClock"
import type { ReadOptions } from "../../Ledger.js"
import { Ledger } from "../../Ledger.js"
import type { Cursor, LedgerEntry } from "../../LedgerEvent.js"
import type { It } from "./support.js"
import { collect, failsWith, output, read, session } from "./support.js"

export const reading = (it: It): void => {
  it.effect("an entry by its place in a session, and its place by its cursor", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const base = yield* session
      const other = yield* session
      const stored = yield* ledger.appendAll(
        Arr.makeBy(40, (index) => output(index % 2 === 0 ? base : other, 1, `${index}`))
      )
      const own = stored.filter(({ sandboxId }) => sandboxId === base.sandboxId)
      for (const index of [0, 1, 19]) {
        const entry = own[index]
        assert.isDefined(entry)
        assert.deepStrictEqual(yield* ledger.entryAt(base.sandboxId, index), Option.some(entry))
        assert.strictEqual(yield* ledger.indexOf(base.sandboxId, entry), index)
      }
      assert.deepStrictEqual(yield* ledger.entryAt(base.sandboxId, 20), Option.none())
      assert.deepStrictEqual(yield* ledger.entryAt(`${base.sandboxId}x`, 0), Option.none())
      const last = stored[39]
      assert.isDefined(last)
      assert.strictEqual(yield* ledger.indexOf(base.sandboxId, { ts: last.ts + 1, id: 0 }), 20)
      assert.strictEqual(yield* ledger.indexOf(`${base.sandboxId}x`, last), 0)
      yield* failsWith("InvalidQuery", ledger.entryAt(base.sandboxId, -1))
      yield* failsWith("InvalidQuery", ledger.entryAt(base.sandboxId, 0.5))
    })
  )

  it.effect("reads by every filter", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const base = yield* session
      const other = yield* session
      const stored = yield* ledger.appendAll([
        { ...base, event: "sandbox.created" },
        { ...base, stepIdx: 1, event: "exec.started", payload: { seq: 1 } },
        output(base, 1, "a"),
        { ...other, name: base.name, event: "sandbox.created" },
        { ...base, stepIdx: 2, event: "exec.started", payload: { seq: 2 } },
        output(base, 2, "b"),
        output(base, 1, "c"),
        { ...base, stepIdx: 1, event: "exec.completed", payload: { seq: 1, exitCode: 0 } },
        { ...base, name: other.name, event: "note" },
        { ...base, event: "sandbox.closed" }
      ])
      const ids = (options: ReadOptions) =>
        Effect.map(read(options), (entries) => entries.map((entry) => stored.findIndex(({ id }) => id === entry.id)))
      const { sandboxId } = base
      assert.deepStrictEqual(yield* ids({ sandboxId }), [0, 1, 2, 4, 5, 6, 7, 8, 9])
      assert.deepStrictEqual(yield* ids({ name: base.name }), [0, 1, 2, 3, 4, 5, 6, 7, 9])
      assert.deepStrictEqual(yield* ids({ name: base.name, order: "desc", limit: 2 }), [9, 7])
      assert.deepStrictEqual(yield* ids({ sandboxId, name: other.name }), [8])
      assert.deepStrictEqual(yield* ids({ sandboxId, stepIdx: 1 }), [1, 2, 6, 7])
      assert.deepStrictEqual(yield* ids({ sandboxId, stepIdx: 1, withoutOutput: true }), [1, 7])
      assert.deepStrictEqual(yield* ids({ sandboxId, withoutOutput: true }), [0, 1, 4, 7, 8, 9])
      assert.deepStrictEqual(yield* ids({ sandboxId, events: ["exec.output"] }), [2, 5, 6])
      assert.deepStrictEqual(yield* ids({ sandboxId, events: ["exec.output", "note"], order: "desc" }), [8, 6, 5, 2])
      assert.deepStrictEqual(yield* ids({ name: base.name, events: ["sandbox.created"] }), [0, 3])
      assert.deepStrictEqual(yield* ids({ name: base.name, events: ["note", "sandbox.closed"] }), [9])
      assert.deepStrictEqual(yield* ids({ name: base.name, stepIdx: 2 }), [4, 5])
      assert.deepStrictEqual(yield* ids({ sandboxId, events: [] }), [])
      assert.deepStrictEqual(yield* ids({ sandboxId, events: ["exec.output"], withoutOutput: true }), [])
      assert.deepStrictEqual(yield* ids({ sandboxId, limit: 0 }), [])
      assert.deepStrictEqual(yield* ids({ sandboxId, limit: 2 }), [0, 1])
      assert.deepStrictEqual(yield* ids({ sandboxId: `${sandboxId}x` }), [])
      const [first, last] = [stored[0], stored[9]]
      assert.isDefined(first)
      assert.isDefined(last)
      const whole = yield* ids({ after: { ts: first.ts, id: first.id - 1 }, until: last })
      assert.deepStrictEqual(
        whole.filter((index) => index >= 0),
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
      )
    })
  )

  it.effect("cursors cut anywhere, in both directions", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const base = yield* session
      const stored: Array<LedgerEntry> = []
      for (let batch = 0; batch < 6; batch++) {
        yield* TestClock.adjust("1 millis")
        stored.push(...(yield* ledger.appendAll(Arr.makeBy(3, (index) => output(base, 1, `${batch} ${index}`)))))
      }
      const { sandboxId } = base
      for (const [index, cursor] of stored.entries()) {
        const after: Cursor = { ts: cursor.ts, id: cursor.id }
        assert.deepStrictEqual(yield* read({ sandboxId, after }), stored.slice(index + 1))
        assert.deepStrictEqual(yield* read({ sandboxId, until: after }), stored.slice(0, index + 1))
        assert.deepStrictEqual(yield* read({ sandboxId, after, limit: 4 }), stored.slice(index + 1, index + 5))
        assert.deepStrictEqual(yield* read({ sandboxId, after, order: "desc" }), stored.slice(0, index).toReversed())
        assert.deepStrictEqual(
          yield* read({ sandboxId, until: after, order: "desc" }),
          stored.slice(index).toReversed()
        )
        assert.deepStrictEqual(
          yield* read({ sandboxId, stepIdx: 1, after, until: stored[index + 3] }),
          index + 3 < stored.length ? stored.slice(index + 1, index + 4) : stored.slice(index + 1)
        )
      }
    })
  )

  it.effect("a query that makes no sense is InvalidQuery", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      for (const limit of [-1, 1.5, Number.NaN, Number.POSITIVE_INFINITY]) {
        yield* failsWith("InvalidQuery", read({ limit }))
        yield* failsWith("InvalidQuery", collect(ledger.sandboxes({ limit })))
      }
      yield* failsWith("InvalidQuery", read({ after: { ts: Number.NaN, id: 1 } }))
      yield* failsWith("InvalidQuery", read({ until: { ts: 1, id: 0.5 } }))
      yield* failsWith("InvalidQuery", read({ stepIdx: 0.5 }))
      yield* failsWith("InvalidQuery", collect(ledger.tail({ afterId: -1 })))
      yield* failsWith("InvalidQuery", collect(ledger.sandboxes({ before: Number.NaN })))
    })
  )
}
