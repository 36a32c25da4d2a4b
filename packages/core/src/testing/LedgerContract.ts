/**
 * What every ledger does, as tests: for those who write a backend.
 *
 * The tests are isolated by their data, so they may run against a database that holds something already.
 *
 * @since 0.1.0
 */
import { assert, layer as testLayer } from "@effect/vitest"
import * as Arr from "effect/Array"
import * as Chunk from "effect/Chunk"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as FastCheck from "effect/FastCheck"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Random from "effect/Random"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/TestClock"
import type { EventInput, ReadOptions } from "../Ledger.js"
import { Ledger } from "../Ledger.js"
import type { LedgerErrorReason } from "../LedgerError.js"
import { LedgerError } from "../LedgerError.js"
import type { Cursor, Json, LedgerEntry } from "../LedgerEvent.js"

/**
 * What a backend can be tested for beyond the common part.
 *
 * @since 0.1.0
 * @category models
 */
export interface Capabilities<E = never> {
  /** Another handle to the same store, as another process would have it. */
  readonly second?: Layer.Layer<Ledger, E> | undefined
}

const fresh = (prefix: string) =>
  Effect.map(
    Effect.all([Random.nextIntBetween(0, 2 ** 31), Random.nextIntBetween(0, 2 ** 31)]),
    (parts) => `${prefix}-${parts.map((part) => part.toString(36)).join("")}`
  )

const session = Effect.map(Effect.all([fresh("sbx"), fresh("name")]), ([sandboxId, name]) => ({ sandboxId, name }))

const collect = <A>(stream: Stream.Stream<A, LedgerError, Ledger>) =>
  Effect.map(Stream.runCollect(stream), Chunk.toReadonlyArray)

const read = (options: ReadOptions) => Effect.flatMap(Ledger, (ledger) => collect(ledger.read(options)))

const output = (
  base: { readonly sandboxId: string; readonly name: string },
  seq: number,
  text: string
): EventInput => ({
  ...base,
  stepIdx: seq,
  event: "exec.output",
  payload: { seq, type: "stdout", text }
})

const texts = (entries: ReadonlyArray<LedgerEntry>): ReadonlyArray<unknown> =>
  entries.map(({ payload }) =>
    typeof payload === "object" && payload !== null && "text" in payload ? payload.text : undefined
  )

const toInput = ({ id: _id, ts: _ts, ...event }: LedgerEntry): EventInput => event

const failsWith = <A>(reason: LedgerErrorReason, self: Effect.Effect<A, LedgerError, Ledger>) =>
  Effect.map(Effect.flip(self), (error) => {
    assert.instanceOf(error, LedgerError)
    assert.strictEqual(error.reason, reason)
    return error
  })

/** Lets a clock of its own pass for whatever waits, until the fiber is done. */
const joinPassingTime = <A, E>(fiber: Fiber.Fiber<A, E>): Effect.Effect<A, E> =>
  Effect.flatMap(
    Fiber.poll(fiber),
    Option.match({
      onSome: () => Fiber.join(fiber),
      onNone: () =>
        TestClock.adjust("1 second").pipe(
          Effect.zipRight(Effect.yieldNow()),
          Effect.zipRight(Effect.suspend(() => joinPassingTime(fiber)))
        )
    })
  )

const awkwardTexts = [
  "a\0b",
  "\0",
  "\ud83d",
  "\ude00",
  "x\ud83dy\ude00z",
  "😀",
  "\\u0000",
  "\\\\ud83d",
  'back\\slash\n\t"quoted"',
  "$sandglass.escaped:x\\u0000",
  "\u2028\u2029\ufeff\uffff",
  "'; DROP TABLE alineo_events; --",
  ""
]

const awkwardPayloads: ReadonlyArray<Json> = [
  null,
  true,
  0,
  -1.5,
  2 ** 53 - 1,
  1e21,
  5e-324,
  "",
  "text",
  '{"a":1}',
  "[1,2]",
  "123",
  "null",
  "{not json",
  [],
  {},
  [null, [[]], { a: [{}] }],
  { snake_case: 1, camelCase: 2, "": 3, "a.b": { $: [] } },
  // Written as text: a literal would set the prototype.
  JSON.parse('{"__proto__":{"x":1},"constructor":2,"toJSON":3}'),
  { "$sandglass.escaped": "object", a: "\\u0000" },
  { "$sandglass.escaped": "value", value: "\\u0000" },
  { "$sandglass.escaped": { "$sandglass.escaped": "\0" } },
  ...awkwardTexts,
  ...awkwardTexts.map((text) => ({ [text]: text, nested: [text, { [text]: [text] }] }))
]

const jsonText = FastCheck.oneof(
  FastCheck.string(),
  FastCheck.string({ unit: "binary" }),
  // Any code unit: halves of pairs and NUL are frequent.
  FastCheck.array(FastCheck.constantFrom("\0", "\\", "\ud83d", "\ude00", "u0000", "a", '"', "{"), { maxLength: 8 }).map(
    (units) => units.join("")
  ),
  FastCheck.constantFrom("__proto__", "$sandglass.escaped", "value", "object")
)

/**
 * Arbitrary JSON, rich in what databases dislike.
 *
 * @since 0.1.0
 * @category arbitraries
 */
export const arbitraryJson: FastCheck.Arbitrary<Json> = FastCheck.letrec<{ readonly json: Json }>((tie) => ({
  json: FastCheck.oneof(
    { depthSize: "small", withCrossShrink: true },
    FastCheck.constant(null),
    FastCheck.boolean(),
    FastCheck.integer(),
    FastCheck.double({ noNaN: true, noDefaultInfinity: true }).map((value) => (value === 0 ? 0 : value)),
    jsonText,
    FastCheck.array(tie("json"), { maxLength: 4 }),
    FastCheck.array(FastCheck.tuple(jsonText, tie("json")), { maxLength: 4 }).map(Object.fromEntries)
  )
})).json

/**
 * Runs the whole contract against a ledger.
 *
 * @example
 * ```ts
 * import { Ledger } from "@sandglass/core"
 * import { LedgerContract } from "@sandglass/core/testing"
 *
 * LedgerContract.suite("memory", Ledger.layerMemory)
 * ```
 *
 * @since 0.1.0
 * @category suites
 */
export const suite = <E, E2 = never>(
  name: string,
  layer: Layer.Layer<Ledger, E>,
  capabilities: Capabilities<E2> = {}
): void =>
  testLayer(layer, { timeout: "60 seconds" })(`Ledger contract: ${name}`, (it) => {
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
          for (let index = 0; index < 200; index++) {
            stored.push(yield* ledger.append(output(base, 1, `${step} ${index}`)))
          }
        }
        assert.isTrue(stored.every((entry, index) => index === 0 || entry.ts >= (stored[index - 1]?.ts ?? Infinity)))
        assert.deepStrictEqual(yield* read({ sandboxId: base.sandboxId }), stored)
      })
    )

    it.effect("any payload survives", () =>
      Effect.gen(function* () {
        const ledger = yield* Ledger
        const base = yield* session
        const payloads = [...awkwardPayloads, ...FastCheck.sample(arbitraryJson, 300)]
        const stored = yield* ledger.appendAll(payloads.map((payload) => ({ ...base, event: "any", payload })))
        const found = yield* read({ sandboxId: base.sandboxId })
        assert.strictEqual(found.length, payloads.length)
        for (const [index, payload] of payloads.entries()) {
          assert.deepStrictEqual(found[index]?.payload, payload)
          assert.deepStrictEqual(stored[index]?.payload, payload)
        }
      })
    )

    it.effect("any text survives in the columns", () =>
      Effect.gen(function* () {
        const ledger = yield* Ledger
        const base = yield* session
        const samples = [...awkwardTexts, ...FastCheck.sample(jsonText, 100)]
        const events = samples.map(
          (text): EventInput => ({
            sandboxId: base.sandboxId + text,
            name: base.name + text,
            stepIdx: -1,
            event: `e${text}`,
            error: text
          })
        )
        const stored = yield* ledger.appendAll(events)
        assert.deepStrictEqual(stored.map(toInput), events)
        for (const entry of stored) {
          const found = yield* read({ sandboxId: entry.sandboxId, name: entry.name, events: [entry.event] })
          assert.deepInclude(found, entry)
          assert.isTrue(found.every((other) => other.sandboxId === entry.sandboxId))
        }
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
        yield* Effect.forEach(Arr.range(1, 2000), (index) => ledger.append(output(base, 1, `${index}`)), {
          discard: true
        })
        yield* Deferred.succeed(gate, undefined)
        assert.deepStrictEqual(texts(yield* joinPassingTime(follower)), Arr.makeBy(2001, String))
      })
    )

    it.effect("sandboxes, newest first, with all that is known of them", () =>
      Effect.gen(function* () {
        const ledger = yield* Ledger
        const { name } = yield* session
        const runId = yield* fresh("run")
        const make = (payload: { readonly [key: string]: Json }) =>
          Effect.gen(function* () {
            yield* TestClock.adjust("10 millis")
            const sandboxId = yield* fresh("sbx")
            const entry = yield* ledger.append({ sandboxId, name, event: "sandbox.created", payload })
            yield* ledger.append(output({ sandboxId, name }, 1, "noise"))
            return entry
          })
        const payload = {
          runId,
          resourceId: "res-1",
          parentSandboxId: "sbx-parent",
          resumedFrom: "sbx-old",
          forkedFrom: "snap-1",
          fromSnapshot: "snap-2",
          fromEnvironment: "python",
          image: "node:22",
          snapshotId: "snap-3",
          resources: { cpu: "500m", memory: "512Mi" },
          other: [1]
        }
        const full = yield* make(payload)
        const paused = yield* make({ runId })
        const resumed = yield* make({ runId: `${runId}-2` })
        const closed = yield* make({ runId })
        const bare = yield* ledger.append({ sandboxId: yield* fresh("sbx"), name, event: "sandbox.created" })
        const mark = ({ sandboxId }: LedgerEntry, event: string) => ledger.append({ sandboxId, name, event })
        yield* mark(paused, "sandbox.paused")
        yield* mark(resumed, "sandbox.paused")
        yield* mark(resumed, "sandbox.resumed")
        yield* mark(closed, "sandbox.paused")
        yield* TestClock.adjust("5 millis")
        const end = yield* mark(closed, "sandbox.closed")
        yield* mark(closed, "sandbox.resumed")

        const all = yield* collect(ledger.sandboxes({ name }))
        assert.deepStrictEqual(
          all.map(({ sandboxId, status }) => [sandboxId, status]),
          [
            [bare.sandboxId, "running"],
            [closed.sandboxId, "closed"],
            [resumed.sandboxId, "running"],
            [paused.sandboxId, "paused"],
            [full.sandboxId, "running"]
          ]
        )
        const { other: _other, ...fields } = payload
        assert.deepStrictEqual(all[4], {
          sandboxId: full.sandboxId,
          name,
          status: "running",
          ...fields,
          createdAt: full.ts,
          cursor: { ts: full.ts, id: full.id },
          payload
        })
        assert.strictEqual(all[1]?.closedAt, end.ts)
        assert.deepStrictEqual(all[0]?.payload, {})

        const ids = (filter: Parameters<typeof ledger.sandboxes>[0]) =>
          Effect.map(collect(ledger.sandboxes({ name, ...filter })), (found) => found.map(({ sandboxId }) => sandboxId))
        assert.deepStrictEqual(
          yield* ids({ status: "running" }),
          [bare, resumed, full].map((_) => _.sandboxId)
        )
        assert.deepStrictEqual(yield* ids({ status: "paused" }), [paused.sandboxId])
        assert.deepStrictEqual(yield* ids({ status: "closed" }), [closed.sandboxId])
        assert.deepStrictEqual(
          yield* ids({ runId }),
          [closed, paused, full].map((_) => _.sandboxId)
        )
        assert.deepStrictEqual(yield* ids({ runId, status: "closed" }), [closed.sandboxId])
        assert.deepStrictEqual(
          yield* ids({ limit: 2 }),
          [bare, closed].map((_) => _.sandboxId)
        )
        assert.deepStrictEqual(yield* ids({ limit: 0 }), [])
        assert.deepStrictEqual(
          yield* ids({ before: resumed.ts }),
          [paused, full].map((_) => _.sandboxId)
        )
        assert.deepStrictEqual(
          yield* ids({ before: bare }),
          [closed, resumed, paused, full].map((_) => _.sandboxId)
        )
        assert.deepStrictEqual(Option.getOrThrow(yield* ledger.sandbox(full.sandboxId)), all[4])
        assert.deepStrictEqual(
          yield* collect(ledger.sandboxes({ runId })),
          all.filter((_) => _.runId === runId)
        )
        assert.isTrue(Option.isNone(yield* ledger.sandbox(`${full.sandboxId}x`)))
      })
    )

    it.effect("sandboxes over several pages, and by a run id of any text", () =>
      Effect.gen(function* () {
        const ledger = yield* Ledger
        const { name } = yield* session
        const created = yield* ledger.appendAll(
          Arr.makeBy(1234, (index) => ({
            sandboxId: `${name}-${index}`,
            name,
            event: "sandbox.created",
            payload: { runId: index % 100 === 0 ? `a\\b"c/é\0${name}` : "other" }
          }))
        )
        const found = yield* collect(ledger.sandboxes({ name }))
        assert.deepStrictEqual(
          found.map(({ cursor }) => cursor.id),
          created.map(({ id }) => id).toReversed()
        )
        const ofRun = yield* collect(ledger.sandboxes({ name, runId: `a\\b"c/é\0${name}` }))
        assert.strictEqual(ofRun.length, 13)
      })
    )

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

    it.scoped("a deleted session is gone, others stay, ids are not used again", () =>
      Effect.gen(function* () {
        const ledger = yield* Ledger
        const base = yield* session
        const other = yield* session
        const kept = yield* ledger.append({ ...other, event: "sandbox.created" })
        const gone = yield* ledger.appendAll([
          { ...base, event: "sandbox.created" },
          ...Arr.makeBy(20, (index) => output(base, 1, `${index}`))
        ])
        const newest = Math.max(...gone.map(({ id }) => id))
        const follower = yield* ledger
          .tail({ name: other.name, afterId: newest })
          .pipe(Stream.take(1), collect, Effect.fork)
        yield* Effect.yieldNow()
        assert.strictEqual(yield* ledger.deleteSandbox(base.sandboxId), 21)
        assert.strictEqual(yield* ledger.deleteSandbox(base.sandboxId), 0)
        assert.deepStrictEqual(yield* read({ sandboxId: base.sandboxId }), [])
        assert.isTrue(Option.isNone(yield* ledger.sandbox(base.sandboxId)))
        assert.deepStrictEqual(yield* read({ sandboxId: other.sandboxId }), [kept])
        const next = yield* ledger.append({ ...other, event: "note" })
        assert.isAbove(next.id, newest)
        assert.deepStrictEqual(yield* joinPassingTime(follower), [next])
      })
    )

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

    it.effect("the older spellings read as today's", () =>
      Effect.gen(function* () {
        const ledger = yield* Ledger
        const base = yield* session
        const at = (stepIdx: number, event: string, payload?: Json): EventInput => ({
          ...base,
          stepIdx,
          event,
          payload
        })
        yield* ledger.appendAll([
          at(-1, "sandbox_created", { sandboxId: base.sandboxId, runId: base.name }),
          at(1, "exec_start", { seq: 1, cmd: "npm ci", env: { A: "1", TOKEN: "secret" } }),
          at(1, "exec_event", { seq: 1, type: "init", text: "c0ffee" }),
          at(1, "exec_event", { seq: 1, type: "stdout", text: "added" }),
          at(1, "exec_event", { seq: 1, type: "stdout", text: "\n" }),
          at(1, "exec_event", { seq: 1, type: "stderr", text: "found", extra: true }),
          at(1, "exec_complete", { seq: 1, exitCode: 0 }),
          at(-1, "checkpoint_created", { snapshotId: "snap-1", name: "one" }),
          at(2, "exec_start", { seq: 2, cmd: "bash", interactive: true }),
          at(2, "exec_event", { seq: 2, type: "stdin", text: "ls" }),
          at(2, "exec_event", { seq: 2, type: "stdout", text: "$ " }),
          at(3, "exec_start", { seq: 3, code: "print(1, end='')" }),
          at(3, "exec_event", { seq: 3, type: "stdout", text: "1" }),
          at(-1, "sandbox_paused"),
          at(-1, "sandbox_resumed"),
          at(-1, "step_start"),
          at(-1, "sandbox_closed")
        ])
        const entries = yield* read(base)
        assert.deepStrictEqual(
          entries.map(({ event }) => event),
          [
            "sandbox.created",
            "exec.started",
            "exec_event",
            "exec.output",
            "exec.output",
            "exec.output",
            "exec.completed",
            "sandbox.checkpoint_created",
            "exec.started",
            "exec.output",
            "exec.output",
            "exec.started",
            "exec.output",
            "sandbox.paused",
            "sandbox.resumed",
            "step_start",
            "sandbox.closed"
          ]
        )
        assert.deepStrictEqual(entries[1]?.payload, { seq: 1, cmd: "npm ci", envNames: ["A", "TOKEN"] })
        assert.deepStrictEqual(entries[5]?.payload, { seq: 1, type: "stderr", text: "found\n", extra: true })
        const outputs = yield* read({ ...base, events: ["exec.output"] })
        assert.deepStrictEqual(texts(outputs), ["added\n", "\n", "found\n", "ls", "$ ", "1"])
        assert.deepStrictEqual(
          yield* read({ ...base, events: ["exec.output"], limit: 2, order: "desc" }),
          outputs.toReversed().slice(0, 2)
        )
        assert.deepStrictEqual(yield* read({ ...base, events: ["exec_event"] }), entries.slice(2, 3))
        assert.deepStrictEqual(
          yield* read({ ...base, withoutOutput: true }),
          entries.filter(({ event }) => event !== "exec.output" && event !== "exec_event")
        )
        assert.deepStrictEqual(
          (yield* read({ sandboxId: base.sandboxId, events: ["exec.started"] })).map(({ stepIdx }) => stepIdx),
          [1, 2, 3]
        )
        const details = Option.getOrThrow(yield* ledger.sandbox(base.sandboxId))
        assert.strictEqual(details.status, "closed")
        assert.strictEqual(details.runId, base.name)
        assert.strictEqual((yield* collect(ledger.sandboxes({ runId: base.name }))).length, 1)
        assert.strictEqual(Option.getOrThrow(yield* ledger.lastCheckpoint(base.sandboxId)).tag, "one")
        const followed = yield* ledger.tail({ sandboxId: base.sandboxId }).pipe(Stream.take(17), collect)
        assert.deepStrictEqual(followed, entries)
      })
    )

    const { second } = capabilities
    if (second !== undefined) {
      it.scoped("a second handle sees, follows and continues the first", () =>
        Effect.gen(function* () {
          const ledger = yield* Ledger
          const other = Layer.build(Layer.fresh(second))
          const context = yield* other
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
    }
  })
