/**
 * What an append stores, in which order, and what it refuses.
 */
import { assert } from "@effect/vitest"
import * as Arr from "effect/Array"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as TestClock from "effect/TestClock"
import { Ledger } from "../../Ledger.js"
import type { Json, LedgerEntry } from "../../LedgerEvent.js"
import type { It } from "./support.js"
import { failsWith, output, read, session, texts, toInput } from "./support.js"

export const appending = (it: It): void => {
  it.effect("append returns the entry that read finds", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const base = yield* session
      const plain = yield* ledger.append({ ...base, event: "note" })
      const full = yield* ledger.append({
        ...base,
        stepIdx: 3,
        branch: 2,
        event: "step.failed",
        payload: { seq: 3, list: [1, null, "x"] },
        error: "boom"
      })
      assert.deepStrictEqual(toInput(plain), { ...base, stepIdx: -1, event: "note" })
      assert.isBelow(plain.id, full.id)
      assert.isAtMost(plain.ts, full.ts)
      assert.deepStrictEqual(yield* read(base), [plain, full])
    })
  )

  it.effect("appendAll keeps the order, over several pages", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const base = yield* session
      const events = Arr.makeBy(2501, (index) => output(base, 1, `line ${index}\n`))
      const stored = yield* ledger.appendAll(events)
      assert.deepStrictEqual(stored.map(toInput), events)
      assert.isTrue(stored.every((entry, index) => index === 0 || entry.id > (stored[index - 1]?.id ?? Infinity)))
      assert.deepStrictEqual(yield* read({ sandboxId: base.sandboxId }), stored)
      assert.deepStrictEqual(yield* read({ sandboxId: base.sandboxId, order: "desc" }), stored.toReversed())
    })
  )

  it.effect("an empty batch is nothing", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      assert.deepStrictEqual(yield* ledger.appendAll([]), [])
    })
  )

  it.effect("the order holds within one millisecond and when the clock steps back", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const base = yield* session
      const start = yield* TestClock.currentTimeMillis
      const stored: Array<LedgerEntry> = []
      for (const step of [5_000, 5_000, 1_000, 0, 7_000]) {
        yield* TestClock.setTime(start + step)
        for (let index = 0; index < 50; index++) {
          stored.push(yield* ledger.append(output(base, 1, `${step} ${index}`)))
        }
        stored.push(...(yield* ledger.appendAll(Arr.makeBy(150, (index) => output(base, 1, `${step} ${50 + index}`)))))
      }
      assert.isTrue(stored.every((entry, index) => index === 0 || entry.ts >= (stored[index - 1]?.ts ?? Infinity)))
      assert.deepStrictEqual(yield* read({ sandboxId: base.sandboxId }), stored)
    })
  )

  it.effect("what is not JSON never takes the rest of its batch with it", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const base = yield* session
      const cyclic: Record<string, unknown> = {}
      cyclic["self"] = [cyclic, cyclic]
      const bad: ReadonlyArray<unknown> = [
        cyclic,
        1n,
        { deep: [1n] },
        [undefined],
        { list: [1, undefined] },
        Number.NaN,
        { n: Number.POSITIVE_INFINITY },
        Symbol("s"),
        () => 1,
        { at: new Date(0) },
        new Map([[1, 2]]),
        new Uint8Array(2)
      ]
      const badEvents = [
        // What the types forbid is what is tested.
        ...bad.map((payload) => ({ ...base, event: "bad", payload: payload as Json })),
        { ...base, sandboxId: "", event: "bad" },
        { ...base, event: "" },
        { ...base, event: "bad", stepIdx: 1.5 },
        { ...base, event: "bad", stepIdx: 2 ** 31 },
        { ...base, event: "bad", branch: Number.NaN }
      ]
      const events = badEvents.flatMap((event, index) => [output(base, 1, `good ${index}`), event])
      const error = yield* failsWith("InvalidEvent", ledger.appendAll(events))
      assert.deepStrictEqual(
        error.rejected?.map(({ index }) => index),
        badEvents.map((_, index) => 2 * index + 1)
      )
      assert.isTrue(error.rejected?.every(({ description }) => description.length > 0))
      assert.strictEqual(error.method, "appendAll")
      assert.deepStrictEqual(
        texts(yield* read(base)),
        badEvents.map((_, index) => `good ${index}`)
      )
      const single = yield* failsWith("InvalidEvent", ledger.append({ ...base, event: "", payload: 1 }))
      assert.strictEqual(single.method, "append")
    })
  )

  it.effect("a payload that is nested too deeply for a database is refused alone; one that is not comes back", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const base = yield* session
      const nested = (depth: number) => JSON.parse("[".repeat(depth) + "]".repeat(depth)) as Json
      const events = [300, 3_000, 9_000, 20_000, 30_000].flatMap((depth) => [
        output(base, 1, `before ${depth}`),
        { ...base, event: "nested", payload: nested(depth) },
        output(base, 1, `after ${depth}`)
      ])
      const result = yield* Effect.either(ledger.appendAll(events))
      const rejected = result._tag === "Left" ? (result.left.rejected ?? []).map(({ index }) => index) : []
      assert.isTrue(rejected.every((index) => index % 3 === 1 && index > 1))
      assert.isTrue(result._tag === "Right" || result.left.reason === "InvalidEvent")
      const depthOf = ({ payload }: { readonly payload?: Json | undefined }): number => {
        let depth = 0
        for (let inner: Json | undefined = payload; Array.isArray(inner); inner = inner[0]) depth += 1
        return depth
      }
      const stored = yield* read(base)
      assert.deepStrictEqual(
        stored.map((entry) => (entry.event === "nested" ? depthOf(entry) : texts([entry])[0])),
        events.flatMap((event, index) =>
          rejected.includes(index)
            ? []
            : [
                "payload" in event && event.event === "nested"
                  ? depthOf(event)
                  : texts([{ ...event, id: 0, ts: 0, stepIdx: 1 }])[0]
              ]
        )
      )
    })
  )

  it.effect("a field that is undefined is absent", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const base = yield* session
      // As `exactOptionalPropertyTypes` forbids and plain JavaScript does.
      const payload = { a: 1, b: undefined, c: { d: undefined } } as unknown as Json
      const stored = yield* ledger.append({ ...base, event: "note", payload })
      assert.deepStrictEqual(stored.payload, { a: 1, c: {} })
      assert.deepStrictEqual(yield* read(base), [stored])
    })
  )

  it.effect("nothing in the ledger is shared with what was given or read", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const base = yield* session
      const list = [1]
      yield* ledger.append({ ...base, event: "note", payload: { list } })
      list.push(2)
      const [first] = yield* read(base)
      assert.isDefined(first)
      assert.deepStrictEqual(first.payload, { list: [1] })
      // A reader without types.
      const found = first.payload as unknown as { list: Array<number> }
      found.list.push(3)
      assert.deepStrictEqual((yield* read(base))[0]?.payload, { list: [1] })
    })
  )

  it.effect("concurrent appends all arrive, each fiber's in its order", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const base = yield* session
      yield* Effect.forEach(
        Arr.range(0, 19),
        (fiber) =>
          Effect.forEach(
            Arr.range(0, 24),
            (index) => ledger.appendAll([output(base, fiber, `${index}`), output(base, fiber, `${index}'`)]),
            { discard: true }
          ),
        { concurrency: "unbounded", discard: true }
      )
      assert.strictEqual((yield* read(base)).length, 1000)
      for (const fiber of Arr.range(0, 19)) {
        assert.deepStrictEqual(
          texts(yield* read({ ...base, stepIdx: fiber })),
          Arr.range(0, 24).flatMap((index) => [`${index}`, `${index}'`])
        )
      }
    })
  )

  it.effect("of an interrupted append everything is there, or nothing", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const base = yield* session
      yield* Effect.forEach(
        Arr.range(0, 39),
        (step) =>
          Effect.gen(function* () {
            const fiber = yield* Effect.fork(
              ledger.appendAll(Arr.makeBy(10, (index) => output(base, step, `${index}`)))
            )
            for (let turn = 0; turn < step % 8; turn++) {
              yield* Effect.yieldNow()
            }
            yield* Fiber.interrupt(fiber)
          }),
        { concurrency: 8, discard: true }
      )
      // Behind whatever was still under way.
      yield* ledger.append({ ...base, event: "end" })
      for (const step of Arr.range(0, 39)) {
        assert.include([0, 10], (yield* read({ ...base, stepIdx: step })).length)
      }
    })
  )
}
