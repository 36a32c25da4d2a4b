import { assert, describe, it } from "@effect/vitest"
import { Ledger, LedgerError, LedgerStore } from "@sandglass/core"
import * as Arr from "effect/Array"
import * as Cause from "effect/Cause"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import * as Tracer from "effect/Tracer"

const base = { sandboxId: "sbx-1", name: "ci" }

const error = (reason: LedgerError.LedgerErrorReason) =>
  new LedgerError.LedgerError({ method: "backend", reason, description: "no" })

/** A backend that stores nothing and counts ids, so that a test sees what it is asked for. */
const backend = (overrides: Partial<LedgerStore.LedgerStore>) => {
  const batches: Array<ReadonlyArray<LedgerStore.NewRow>> = []
  let id = 0
  const append: LedgerStore.LedgerStore["append"] = (rows) =>
    Effect.sync(() => {
      batches.push(rows)
      return rows.map(({ ts }) => ({ ts, id: ++id }))
    })
  const store: LedgerStore.LedgerStore = {
    restrictedJson: false,
    append,
    restore: append,
    joined: Effect.succeed(false),
    page: () => Effect.succeed({ rows: [], next: undefined }),
    rowAt: () => Effect.succeed(Option.none()),
    countBefore: () => Effect.succeed(0),
    tail: () => Effect.succeed({ rows: [], next: undefined }),
    settledId: Effect.succeed(0),
    sessions: () => Effect.succeed({ rows: [], next: undefined }),
    remove: () => Effect.succeed(0),
    environment: () => Effect.succeed(Option.none()),
    environments: Effect.succeed([]),
    putEnvironment: () => Effect.void,
    deleteEnvironment: () => Effect.succeed(false),
    ...overrides
  }
  return { batches, store, append: store.append }
}

describe("LedgerStore.makeLedger", () => {
  it.effect("finds the rows that a database refuses and stores all others", () =>
    Effect.gen(function* () {
      const plain = backend({})
      const { store } = backend({
        append: (rows) =>
          rows.some(({ event }) => event === "refused") ? Effect.fail(error("Constraint")) : plain.append(rows)
      })
      const ledger = yield* LedgerStore.makeLedger(store)
      const refused = [0, 17, 18, 99]
      const failure = yield* Effect.flip(
        ledger.appendAll(
          Arr.makeBy(100, (index) => ({
            ...base,
            event: refused.includes(index) ? "refused" : "note",
            payload: index
          }))
        )
      )
      assert.strictEqual(failure.reason, "InvalidEvent")
      assert.strictEqual(failure.method, "appendAll")
      assert.deepStrictEqual(
        failure.rejected?.map(({ index }) => index),
        refused
      )
      assert.deepStrictEqual(
        plain.batches.flat().map(({ payload }) => Number(payload)),
        Arr.range(0, 99).filter((index) => !refused.includes(index))
      )
    })
  )

  it.effect("passes on what is no fault of the rows, once, under the name of the operation", () =>
    Effect.gen(function* () {
      let calls = 0
      const { store } = backend({
        append: () => Effect.suspend(() => Effect.fail(error(++calls > 0 ? "Connection" : "Unknown"))),
        page: () => Effect.fail(error("Contention"))
      })
      const ledger = yield* LedgerStore.makeLedger(store)
      const failure = yield* Effect.flip(ledger.appendAll(Arr.makeBy(10, () => ({ ...base, event: "note" }))))
      assert.strictEqual(failure.reason, "Connection")
      assert.strictEqual(failure.method, "appendAll")
      assert.strictEqual(failure.description, "no")
      assert.isTrue(failure.isRetryable)
      assert.strictEqual(calls, 1)
      assert.strictEqual((yield* Effect.flip(Stream.runDrain(ledger.read()))).method, "read")
      assert.strictEqual((yield* Effect.flip(ledger.lastCheckpoint("sbx-1"))).method, "lastCheckpoint")
    })
  )

  it.effect("appends that wait for a commit share the next one", () =>
    Effect.gen(function* () {
      const gate = yield* Deferred.make<void>()
      const entered = yield* Deferred.make<void>()
      const plain = backend({})
      const { store } = backend({
        append: (rows) =>
          Deferred.succeed(entered, undefined).pipe(
            Effect.zipRight(Deferred.await(gate)),
            Effect.zipRight(plain.append(rows))
          )
      })
      const ledger = yield* LedgerStore.makeLedger(store)
      const first = yield* Effect.fork(ledger.append({ ...base, event: "first" }))
      yield* Deferred.await(entered)
      const others = yield* Effect.forEach(Arr.range(1, 20), (payload) =>
        Effect.fork(ledger.append({ ...base, event: "note", payload }))
      )
      yield* Effect.yieldNow()
      const interrupted = others[4]
      assert.isDefined(interrupted)
      yield* Fiber.interrupt(interrupted)
      yield* Deferred.succeed(gate, undefined)
      yield* Fiber.join(first)
      const rest = yield* Effect.forEach(
        others.filter((fiber) => fiber !== interrupted),
        Fiber.join
      )
      assert.deepStrictEqual(
        rest.map(({ payload }) => payload),
        Arr.range(1, 20).filter((payload) => payload !== 5)
      )
      assert.deepStrictEqual(
        rest.map(({ id }) => id),
        Arr.range(2, 20)
      )
      assert.deepStrictEqual(
        plain.batches.map(({ length }) => length),
        [1, 19]
      )
    })
  )

  it.effect("an interrupted append does not disturb those that share its commit", () =>
    Effect.gen(function* () {
      const gate = yield* Deferred.make<void>()
      const entered = yield* Deferred.make<void>()
      const plain = backend({})
      const { store } = backend({
        append: (rows) =>
          Deferred.succeed(entered, undefined).pipe(
            Effect.zipRight(Deferred.await(gate)),
            Effect.zipRight(plain.append(rows))
          )
      })
      const ledger = yield* LedgerStore.makeLedger(store)
      const fibers = yield* Effect.forEach(Arr.range(0, 2), (payload) =>
        Effect.fork(ledger.append({ ...base, event: "note", payload }))
      )
      yield* Deferred.await(entered)
      const [leader, ...followers] = fibers
      assert.isDefined(leader)
      yield* Fiber.interrupt(leader)
      yield* Deferred.succeed(gate, undefined)
      yield* Effect.forEach(followers, Fiber.join)
      assert.deepStrictEqual(
        plain.batches.flat().map(({ payload }) => payload),
        ["0", "1", "2"]
      )
    })
  )

  it.effect("what one append is refused for or breaks is no failure of those that share its commit", () =>
    Effect.gen(function* () {
      // Of an append with a row that the database refuses the other three are stored.
      for (const [fault, storedOfBad] of [
        [Effect.fail(error("Constraint")), 3],
        [Effect.fail(error("Unknown")), 0],
        [Effect.die(new Error("broken")), 0]
      ] as const) {
        const gate = yield* Deferred.make<void>()
        const plain = backend({})
        const { store } = backend({
          append: (rows) =>
            Deferred.await(gate).pipe(
              Effect.zipRight(rows.some(({ event }) => event === "bad") ? fault : plain.append(rows))
            )
        })
        const ledger = yield* LedgerStore.makeLedger(store)
        const fibers = yield* Effect.forEach(Arr.range(0, 63), (fiber) =>
          Effect.fork(
            Effect.exit(
              ledger.appendAll(
                Arr.makeBy(4, (index) => ({
                  ...base,
                  event: (fiber === 17 && index === 2) || fiber === 40 ? "bad" : "note",
                  payload: `${fiber} ${index}`
                }))
              )
            )
          )
        )
        yield* Effect.yieldNow()
        yield* Deferred.succeed(gate, undefined)
        const exits = yield* Effect.forEach(fibers, Fiber.join)
        assert.deepStrictEqual(
          exits.flatMap((exit, fiber) => (Exit.isFailure(exit) ? [fiber] : [])),
          [17, 40]
        )
        const stored = plain.batches.flat().map(({ payload }) => String(JSON.parse(String(payload))))
        assert.strictEqual(stored.length, 62 * 4 + storedOfBad)
        assert.strictEqual(new Set(stored).size, stored.length)
        assert.strictEqual(stored.filter((payload) => payload.startsWith("17 ")).length, storedOfBad)
      }
    })
  )

  it.effect("a failure on the way says which events were stored", () =>
    Effect.gen(function* () {
      const plain = backend({})
      let lost = false
      const { store } = backend({
        append: (rows) => {
          if (lost) return Effect.fail(error("Connection"))
          if (rows.some(({ event }) => event === "refused")) return Effect.fail(error("Constraint"))
          lost = true
          return plain.append(rows)
        }
      })
      const ledger = yield* LedgerStore.makeLedger(store)
      const failure = yield* Effect.flip(
        ledger.appendAll(Arr.makeBy(8, (index) => ({ ...base, event: index === 5 ? "refused" : "note" })))
      )
      assert.strictEqual(failure.reason, "Connection")
      assert.deepStrictEqual(
        failure.rejected?.map(({ index }) => index),
        [4, 5, 6, 7]
      )
      assert.strictEqual(plain.batches.flat().length, 4)
    })
  )

  it.effect("what waits for a slow database is bounded: other appends are not even encoded", () =>
    Effect.gen(function* () {
      const gate = yield* Deferred.make<void>()
      const plain = backend({})
      const { store } = backend({
        append: (rows) => Effect.zipRight(Deferred.await(gate), plain.append(rows))
      })
      const ledger = yield* LedgerStore.makeLedger(store)
      const batches = 3_000
      const encoded = new Set<number>()
      const fibers = yield* Effect.forEach(Arr.range(1, batches), (batch) =>
        Effect.fork(
          ledger.appendAll(
            Arr.makeBy(10, (index) => ({
              ...base,
              event: "note",
              payload: {
                get position() {
                  encoded.add(batch)
                  return batch * 10 + index
                }
              }
            }))
          )
        )
      )
      for (let turn = 0; turn < 10; turn++) {
        yield* Effect.yieldNow()
      }
      assert.isAbove(encoded.size, 100)
      assert.isBelow(encoded.size, 500)
      // Two that stand in line go away: nobody else is held up by it.
      const gone = [fibers[2_000], fibers[2_500]]
      for (const fiber of gone) {
        assert.isDefined(fiber)
        yield* Fiber.interrupt(fiber)
      }
      // More than may ever wait at a time.
      const huge = yield* Effect.fork(ledger.appendAll(Arr.makeBy(10_000, () => ({ ...base, event: "huge" }))))
      yield* Deferred.succeed(gate, undefined)
      yield* Effect.forEach(
        fibers.filter((fiber) => !gone.includes(fiber)),
        Fiber.join
      )
      assert.strictEqual((yield* Fiber.join(huge)).length, 10_000)
      const rows = plain.batches.flat()
      assert.strictEqual(rows.length, (batches - 2) * 10 + 10_000)
      const positions = rows.flatMap(({ event, payload }) =>
        event === "note" ? [Number(JSON.parse(String(payload)).position)] : []
      )
      assert.isTrue(positions.every((position, index) => index === 0 || position > (positions[index - 1] ?? Infinity)))
      assert.isBelow(Math.max(...plain.batches.filter((batch) => batch[0]?.event !== "huge").map((_) => _.length)), 513)
    })
  )

  it.effect("what waits is bounded in characters, too", () =>
    Effect.gen(function* () {
      const gate = yield* Deferred.make<void>()
      const plain = backend({})
      const { store } = backend({
        append: (rows) => Effect.zipRight(Deferred.await(gate), plain.append(rows))
      })
      const ledger = yield* LedgerStore.makeLedger(store)
      let encoded = 0
      const text = "x".repeat(1_000_000)
      const fibers = yield* Effect.forEach(Arr.range(1, 100), () =>
        Effect.fork(
          ledger.append({
            ...base,
            event: "note",
            payload: {
              get text() {
                encoded += 1
                return text
              }
            }
          })
        )
      )
      for (let turn = 0; turn < 10; turn++) {
        yield* Effect.yieldNow()
      }
      // A payload is looked at more than once.
      assert.isBelow(encoded, 100)
      yield* Deferred.succeed(gate, undefined)
      yield* Effect.forEach(fibers, Fiber.join)
      assert.strictEqual(plain.batches.flat().length, 100)
      assert.isBelow(Math.max(...plain.batches.map(({ length }) => length)), 10)
    })
  )

  it.live("interrupting the append that starts a commit never stops the ones after it", () =>
    Effect.gen(function* () {
      const ledger = yield* LedgerStore.makeLedger(backend({}).store)
      for (let ops = 16; ops < 80; ops++) {
        // Interrupted at every place where a fiber can be.
        const fiber = yield* ledger
          .append({ ...base, event: "interrupted" })
          .pipe(Effect.withMaxOpsBeforeYield(ops), Effect.fork)
        yield* Effect.yieldNow()
        yield* Fiber.interrupt(fiber)
        const next = yield* Effect.timeoutOption(ledger.append({ ...base, event: "next" }), "2 seconds")
        assert.isTrue(Option.isSome(next), `${ops}`)
      }
    })
  )

  it.effect("an append with refused rows is not cut in two by an interruption, in a transaction of the caller's", () =>
    Effect.gen(function* () {
      const plain = backend({})
      const { store } = backend({
        joined: Effect.succeed(true),
        append: (rows) =>
          Effect.zipRight(
            Effect.yieldNow(),
            rows.some(({ event }) => event === "refused") ? Effect.fail(error("Constraint")) : plain.append(rows)
          )
      })
      const ledger = yield* LedgerStore.makeLedger(store)
      for (let turns = 0; turns < 12; turns++) {
        const fiber = yield* Effect.fork(
          ledger.appendAll(Arr.makeBy(8, (index) => ({ ...base, event: index === 5 ? "refused" : "note" })))
        )
        for (let turn = 0; turn < turns; turn++) {
          yield* Effect.yieldNow()
        }
        yield* Fiber.interrupt(fiber)
        assert.include([0, 7], plain.batches.splice(0).flat().length)
      }
    })
  )

  it.effect("a defect of a backend stays a defect, of that append alone", () =>
    Effect.gen(function* () {
      const plain = backend({})
      const broken = new Error("broken")
      for (const append of [
        () => Effect.die(broken),
        () => {
          throw broken
        }
      ]) {
        const { store } = backend({
          append: (rows) => (rows.some(({ event }) => event === "bad") ? append() : plain.append(rows)),
          page: append
        })
        const ledger = yield* LedgerStore.makeLedger(store)
        for (const operation of [ledger.append({ ...base, event: "bad" }), Stream.runDrain(ledger.read())]) {
          const cause = yield* Effect.flip(Effect.sandbox<unknown, LedgerError.LedgerError, never>(operation))
          assert.include(String(Option.getOrUndefined(Cause.dieOption(cause))), "broken")
        }
        yield* ledger.append({ ...base, event: "good" })
      }
    })
  )

  it.effect("what commits has nothing of the context of the append that happened to start it", () =>
    Effect.gen(function* () {
      class Mine extends Context.Tag("Mine")<Mine, string>() {}
      const plain = backend({})
      const seen: Array<boolean> = []
      const { store } = backend({
        append: (rows) =>
          Effect.flatMap(Effect.context<never>(), (context) => {
            seen.push(Option.isSome(Context.getOption(context, Mine)))
            return plain.append(rows)
          })
      })
      const ledger = yield* LedgerStore.makeLedger(store)
      yield* Effect.provideService(ledger.append({ ...base, event: "note" }), Mine, "mine")
      assert.deepStrictEqual(seen, [false])
    })
  )

  it.effect("opens one span per operation, with ids and without payloads", () =>
    Effect.gen(function* () {
      const spans: Array<Tracer.Span> = []
      const tracer = Tracer.make({
        context: (f) => f(),
        span: (name, parent, context, links, startTime, kind) => {
          const attributes = new Map<string, unknown>()
          const span: Tracer.Span = {
            _tag: "Span",
            name,
            spanId: String(spans.length),
            traceId: "trace",
            parent,
            context,
            status: { _tag: "Started", startTime },
            attributes,
            links,
            sampled: true,
            kind,
            end: () => undefined,
            attribute: (key, value) => void attributes.set(key, value),
            event: () => undefined,
            addLinks: () => undefined
          }
          spans.push(span)
          return span
        }
      })
      yield* Effect.gen(function* () {
        const ledger = yield* Ledger.Ledger
        yield* ledger.append({ ...base, event: "note", payload: "secret", error: "secret" })
        yield* ledger.appendAll([{ ...base, event: "note", payload: { text: "secret" } }])
        yield* Stream.runDrain(ledger.read(base))
        yield* ledger.tail(base).pipe(Stream.take(1), Stream.runDrain)
        yield* ledger.lastCheckpoint(base.sandboxId)
        yield* Stream.runDrain(ledger.checkpoints(base.sandboxId))
        yield* Stream.runDrain(ledger.sandboxes(base))
        yield* ledger.sandbox(base.sandboxId)
        yield* ledger.putEnvironment({ name: "env", snapshotId: "snap", image: "img", builtAt: 1 })
        yield* ledger.environment("env")
        yield* ledger.environments
        yield* ledger.deleteEnvironment("env")
        const exported = yield* Stream.runCollect(ledger.exportSandbox(base.sandboxId))
        yield* ledger.deleteSandbox(base.sandboxId)
        yield* ledger.importSandboxes(Stream.fromChunk(exported))
        yield* ledger.prune({ before: 0 })
      }).pipe(Effect.provide(Ledger.layerMemory), Effect.withTracer(tracer))
      assert.deepStrictEqual(
        spans.map(({ name }) => name),
        [
          "append",
          "appendAll",
          "read",
          "tail",
          "lastCheckpoint",
          "checkpoints",
          "sandboxes",
          "sandbox",
          "putEnvironment",
          "environment",
          "environments",
          "deleteEnvironment",
          "exportSandbox",
          "deleteSandbox",
          "importSandboxes",
          "prune"
        ].map((method) => `Ledger.${method}`)
      )
      assert.strictEqual(spans[0]?.attributes.get("sandbox.id"), base.sandboxId)
      assert.notInclude(JSON.stringify(spans.map(({ attributes }) => Array.from(attributes))), "secret")
    })
  )

  it.effect("a layer of its own is a ledger of its own", () =>
    Effect.gen(function* () {
      const count = Effect.flatMap(Ledger.Ledger, (ledger) => Stream.runCount(ledger.read()))
      const both = Effect.zip(
        Effect.flatMap(Ledger.Ledger, (ledger) => ledger.append({ ...base, event: "note" })),
        count
      )
      const [, first] = yield* Effect.provide(both, Layer.fresh(Ledger.layerMemory))
      const second = yield* Effect.provide(count, Layer.fresh(Ledger.layerMemory))
      assert.deepStrictEqual([first, second], [1, 0])
    })
  )
})
