/**
 * Checkpoints.
 */
import { assert } from "@effect/vitest"
import * as Arr from "effect/Array"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as TestClock from "effect/TestClock"
import { Ledger } from "../../Ledger.js"
import type { Cursor } from "../../LedgerEvent.js"
import type { It } from "./support.js"
import { collect, output, session } from "./support.js"

export const checkpoints = (it: It): void => {
  it.effect("checkpoints in order, the last, the last with a tag, the last until", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const base = yield* session
      assert.isTrue(Option.isNone(yield* ledger.lastCheckpoint(base.sandboxId)))
      const cursors: Array<Cursor> = []
      for (const [index, tag] of ["first", undefined, "first", "second", undefined].entries()) {
        yield* TestClock.adjust(index % 2 === 0 ? "1 millis" : "0 millis")
        yield* ledger.append(output(base, index, "noise"))
        const { id, ts } = yield* ledger.append({
          ...base,
          event: "sandbox.checkpoint_created",
          payload: { snapshotId: `snap-${index}`, ...(tag === undefined ? undefined : { name: tag }), extra: index }
        })
        cursors.push({ ts, id })
      }
      yield* ledger.append({ ...base, event: "sandbox.checkpoint_created", payload: { broken: true } })
      const all = yield* collect(ledger.checkpoints(base.sandboxId))
      assert.deepStrictEqual(
        all.map(({ snapshotId }) => snapshotId),
        Arr.makeBy(5, (index) => `snap-${index}`)
      )
      assert.deepStrictEqual(all[2], {
        ...base,
        snapshotId: "snap-2",
        tag: "first",
        cursor: cursors[2] ?? { ts: -1, id: -1 },
        payload: { snapshotId: "snap-2", name: "first", extra: 2 }
      })
      const last = (options?: { readonly tag?: string; readonly until?: Cursor | undefined }) =>
        Effect.map(
          ledger.lastCheckpoint(base.sandboxId, options),
          (checkpoint) => Option.getOrUndefined(checkpoint)?.snapshotId
        )
      assert.strictEqual(yield* last(), "snap-4")
      assert.strictEqual(yield* last({ tag: "first" }), "snap-2")
      assert.strictEqual(yield* last({ tag: "none" }), undefined)
      assert.strictEqual(yield* last({ until: cursors[3] }), "snap-3")
      assert.strictEqual(yield* last({ until: cursors[1], tag: "first" }), "snap-0")
      assert.strictEqual(yield* last({ until: { ts: 0, id: 0 } }), undefined)
    })
  )
}
