/**
 * Sessions out of a ledger and in again.
 */
import { assert } from "@effect/vitest"
import * as Arr from "effect/Array"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as FastCheck from "effect/FastCheck"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/TestClock"
import type { EventInput } from "../../Ledger.js"
import { Ledger, makeMemory } from "../../Ledger.js"
import { LedgerError } from "../../LedgerError.js"
import type { Json, LedgerEntry } from "../../LedgerEvent.js"
import type { It } from "./support.js"
import { catchUp, collect, failsWith, fresh, joinPassingTime, output, read, session } from "./support.js"
import { arbitraryJson } from "./texts.js"

const exported = (sandboxId: string) =>
  Effect.flatMap(Ledger, (ledger) => Effect.map(collect(ledger.exportSandbox(sandboxId)), (lines) => lines.join("")))

const importOf = (...pieces: ReadonlyArray<string | Uint8Array>) =>
  Effect.flatMap(Ledger, (ledger) => ledger.importSandboxes(Stream.fromIterable(pieces)))

const withoutIds = (entries: ReadonlyArray<LedgerEntry>) => entries.map(({ id: _id, ...entry }) => entry)

const awkward = ["a\0b", "😀".slice(0, 1), "\u2028\u2029", "a\r\nb\n", "é漢👩‍👩‍👧", '"\\', "$sandglass.escaped", ""]

const ofEverything = (base: { readonly sandboxId: string; readonly name: string }): ReadonlyArray<EventInput> => [
  { ...base, event: "sandbox.created", payload: { runId: "run-1", resources: { cpu: "1" } } },
  { ...base, stepIdx: 1, event: "exec.started", payload: { seq: 1, cmd: "print" } },
  ...Arr.makeBy(700, (index) => output(base, 1, `line ${index}\n`)),
  ...awkward.map((text) => output(base, 1, text)),
  ...awkward.map((error) => ({ ...base, name: `${base.name}${error}`, branch: 3, event: `own${error}`, error })),
  ...[null, true, 0, -1.5e300, "text", '{"a":1}', [], {}, { end: "x" }, { $$: 1 }].map((payload) => ({
    ...base,
    event: "own",
    payload
  })),
  { ...base, stepIdx: 1, event: "exec.completed", payload: { seq: 1, exitCode: 0 } }
]

/** A session with checkpoints that refer to its entries, and with the entries of another between its own. */
const storeSession = (base: { readonly sandboxId: string; readonly name: string }) =>
  Effect.gen(function* () {
    const ledger = yield* Ledger
    yield* catchUp
    const other = yield* session
    for (const chunk of Arr.chunksOf(ofEverything(base), 100)) {
      yield* ledger.appendAll(chunk)
      yield* ledger.append({ ...other, event: "between" })
      yield* TestClock.adjust("3 millis")
    }
    const entries = yield* read({ sandboxId: base.sandboxId })
    const places = [entries[0], entries[350], entries[entries.length - 1]].flatMap((entry) =>
      entry === undefined ? [] : [{ ts: entry.ts, id: entry.id }]
    )
    for (const [index, completedUntil] of places.entries()) {
      yield* ledger.append({
        ...base,
        event: "sandbox.checkpoint_created",
        payload: { snapshotId: `snap-${index}`, completedUntil }
      })
    }
    yield* ledger.append({
      ...base,
      event: "sandbox.checkpoint_created",
      payload: { completedUntil: { ts: 0, id: 0 } }
    })
    yield* ledger.append({ ...base, event: "sandbox.closed" })
    return entries.length
  })

/** To what entry the checkpoints refer, by its number. */
const references = (entries: ReadonlyArray<LedgerEntry>) =>
  entries.flatMap(({ event, payload }) => {
    const place =
      event === "sandbox.checkpoint_created" &&
      typeof payload === "object" &&
      payload !== null &&
      "snapshotId" in payload
        ? (payload["completedUntil"] as { readonly ts: number; readonly id: number })
        : undefined
    return place === undefined ? [] : [entries.findIndex(({ id, ts }) => id === place.id && ts === place.ts)]
  })

export const exporting = (it: It): void => {
  it.effect("a session goes out, and comes back the same: texts, times, order, and what checkpoints refer to", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const base = yield* session
      const own = yield* storeSession(base)
      const before = yield* read({ sandboxId: base.sandboxId })
      const details = yield* ledger.sandbox(base.sandboxId)
      const text = yield* exported(base.sandboxId)
      assert.strictEqual(text.split("\n").length, before.length + 3)
      assert.deepStrictEqual(references(before), [0, 350, own - 1])
      yield* ledger.deleteSandbox(base.sandboxId)
      // Here every id is another one, and the ledger has later entries.
      yield* TestClock.adjust("1 hour")
      yield* ledger.append({ ...(yield* session), event: "later" })
      const follower = yield* ledger
        .tail({ sandboxId: base.sandboxId })
        .pipe(Stream.take(before.length), collect, Effect.fork)
      assert.deepStrictEqual(yield* importOf(text), [{ sandboxId: base.sandboxId, entries: before.length }])
      const after = yield* read({ sandboxId: base.sandboxId })
      assert.isAbove(after[0]?.id ?? 0, before[before.length - 1]?.id ?? Infinity)
      assert.deepStrictEqual(references(after), references(before))
      const plain = (entries: ReadonlyArray<LedgerEntry>) =>
        withoutIds(entries.filter(({ event }) => event !== "sandbox.checkpoint_created"))
      assert.deepStrictEqual(plain(after), plain(before))
      assert.deepStrictEqual(
        after.map(({ ts }) => ts),
        before.map(({ ts }) => ts)
      )
      assert.strictEqual(yield* exported(base.sandboxId), text)
      assert.deepStrictEqual(
        Option.map(yield* ledger.sandbox(base.sandboxId), ({ cursor: _cursor, ...known }) => known),
        Option.map(details, ({ cursor: _cursor, ...known }) => known)
      )
      assert.strictEqual((yield* read({ sandboxId: base.sandboxId, stepIdx: 1 })).length, 702 + awkward.length)
      assert.deepStrictEqual(yield* joinPassingTime(follower), after)
      // What comes later stands behind it, in every order.
      yield* ledger.append({ ...base, event: "after" })
      assert.strictEqual((yield* read({ sandboxId: base.sandboxId, order: "desc", limit: 1 }))[0]?.event, "after")
    })
  )

  it.effect("a session goes into another ledger and back", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const base = yield* session
      yield* storeSession(base)
      const text = yield* exported(base.sandboxId)
      const other = yield* makeMemory
      yield* other.append({ ...base, sandboxId: "other", event: "first" })
      yield* other.importSandboxes(ledger.exportSandbox(base.sandboxId))
      assert.strictEqual((yield* collect(other.exportSandbox(base.sandboxId))).join(""), text)
      yield* ledger.deleteSandbox(base.sandboxId)
      yield* ledger.importSandboxes(other.exportSandbox(base.sandboxId))
      assert.strictEqual(yield* exported(base.sandboxId), text)
    })
  )

  it.effect("any payload goes out and comes back", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const base = yield* session
      const payloads: ReadonlyArray<Json> = FastCheck.sample(arbitraryJson, { numRuns: 200, seed: 7 })
      yield* ledger.appendAll(payloads.map((payload) => ({ ...base, event: "own", payload })))
      const before = yield* read({ sandboxId: base.sandboxId })
      const text = yield* exported(base.sandboxId)
      yield* ledger.deleteSandbox(base.sandboxId)
      yield* importOf(text)
      assert.deepStrictEqual(withoutIds(yield* read({ sandboxId: base.sandboxId })), withoutIds(before))
      assert.strictEqual(yield* exported(base.sandboxId), text)
    })
  )

  it.effect("bytes and text, cut anywhere; several sessions; line ends of any kind", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const [one, two] = [yield* session, yield* session]
      for (const base of [one, two]) {
        yield* ledger.appendAll([
          { ...base, event: "sandbox.created" },
          output(base, 1, "é漢👩‍👩‍👧\n"),
          { ...base, event: "sandbox.closed" }
        ])
      }
      const text = (yield* exported(one.sandboxId)) + (yield* exported(two.sandboxId))
      const bytes = new TextEncoder().encode(text)
      const both = [one, two].map(({ sandboxId }) => ({ sandboxId, entries: 3 }))
      const again = (...pieces: ReadonlyArray<string | Uint8Array>) =>
        Effect.gen(function* () {
          yield* ledger.deleteSandbox(one.sandboxId)
          yield* ledger.deleteSandbox(two.sandboxId)
          assert.deepStrictEqual(yield* importOf(...pieces), both)
          assert.strictEqual((yield* exported(one.sandboxId)) + (yield* exported(two.sandboxId)), text)
        })
      yield* again(...Array.from(bytes, (byte) => Uint8Array.of(byte)))
      yield* again(...text.split(""))
      yield* again(text.trimEnd())
      yield* again(`\n${text.replaceAll("\n", "\r\n\r\n")}`)
      yield* again(text.slice(0, 100), bytes.slice(new TextEncoder().encode(text.slice(0, 100)).length))
      for (let cut = 1; cut < bytes.length; cut += 37) {
        yield* again(bytes.slice(0, cut), new Uint8Array(), bytes.slice(cut))
      }
      assert.deepStrictEqual(yield* importOf(), [])
    })
  )

  it.effect("a bad line is told, and nothing stays of its session", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const base = yield* session
      yield* ledger.appendAll([
        { ...base, event: "sandbox.created" },
        ...Arr.makeBy(1_100, (index) => output(base, 1, `${index}`)),
        {
          ...base,
          event: "sandbox.checkpoint_created",
          payload: { snapshotId: "snap", completedUntil: { ts: 0, id: 0 } }
        },
        { ...base, event: "sandbox.closed" }
      ])
      const text = yield* exported(base.sandboxId)
      yield* ledger.deleteSandbox(base.sandboxId)
      const lines = text.trimEnd().split("\n")
      const last = lines.length
      const parsed = (line: number): { readonly [key: string]: Json } => JSON.parse(lines[line - 1] ?? "")
      const change = (line: number, fields: { readonly [key: string]: unknown }) =>
        lines.with(line - 1, JSON.stringify({ ...parsed(line), ...fields }))
      const cases: ReadonlyArray<readonly [line: number, lines: ReadonlyArray<string>]> = [
        [1, lines.slice(1)],
        [1, ["{}", ...lines]],
        [1, change(1, { version: 2 })],
        [1, change(1, { format: "other" })],
        [1, change(1, { sandboxId: "" })],
        [1, ['{"ts":1', ...lines]],
        [3, lines.with(2, (lines[2] ?? "").slice(0, -1))],
        [3, lines.with(2, "[]")],
        [3, lines.with(2, "null")],
        [700, change(700, { ts: "1" })],
        [700, change(700, { ts: 1.5 })],
        [700, change(700, { ts: -1e15 })],
        [700, change(700, { event: "" })],
        [700, change(700, { event: 7 })],
        [700, change(700, { stepIdx: 2 ** 31 })],
        [700, change(700, { sandboxId: "other" })],
        [700, change(700, { surprise: 1 })],
        [700, lines.toSpliced(699, 0, lines[0] ?? "")],
        [last - 2, change(last - 2, { payload: { snapshotId: "snap", completedUntil: { ts: 1, id: last - 3 } } })],
        [last - 2, change(last - 2, { payload: { snapshotId: "snap", completedUntil: { ts: 1, id: 0.5 } } })],
        // A line is lost, or the rest is.
        [last - 1, lines.toSpliced(600, 1)],
        [last, lines.slice(0, -1)],
        [801, lines.slice(0, 800)],
        [last, change(last, { end: "other" })],
        [last + 1, [...lines, "x"]]
      ]
      for (const [line, changed] of cases) {
        const error = yield* failsWith("InvalidImport", importOf(`${changed.join("\n")}\n`))
        assert.strictEqual(error.line, line, error.message)
        assert.strictEqual(error.method, "importSandboxes")
        assert.include(error.message, `line ${line}`)
        const whole = line > last
        assert.strictEqual((yield* read({ sandboxId: base.sandboxId })).length, whole ? last - 2 : 0)
        yield* ledger.deleteSandbox(base.sandboxId)
      }
      const broken = new TextEncoder().encode(lines.with(4, "\u00ff").join("\n"))
      const notUtf8 = yield* failsWith("InvalidImport", importOf(broken.with(broken.indexOf(0xc3), 0xff)))
      assert.strictEqual(notUtf8.line, 5)
      // The same, cut off in the middle of a character.
      const cut = new TextEncoder().encode(`${lines.slice(0, 3).join("\n")}\né`)
      assert.strictEqual((yield* failsWith("InvalidImport", importOf(cut.slice(0, -1)))).line, 4)
      assert.deepStrictEqual(yield* read({ sandboxId: base.sandboxId }), [])
      yield* importOf(text)
      assert.strictEqual(yield* exported(base.sandboxId), text)
    })
  )

  it.effect("what is there already is not imported a second time, and what is not there is not exported", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const base = yield* session
      yield* ledger.appendAll([
        { ...base, event: "sandbox.created" },
        { ...base, event: "sandbox.closed" }
      ])
      const text = yield* exported(base.sandboxId)
      assert.strictEqual((yield* failsWith("AlreadyExists", importOf(text))).line, 1)
      assert.strictEqual((yield* read({ sandboxId: base.sandboxId })).length, 2)
      yield* ledger.deleteSandbox(base.sandboxId)
      // Twice in one stream: the first time stays.
      assert.strictEqual((yield* failsWith("AlreadyExists", importOf(text, text))).line, 5)
      assert.strictEqual(yield* exported(base.sandboxId), text)
      const error = yield* failsWith("NotFound", exported(yield* fresh("sbx")))
      assert.strictEqual(error.method, "exportSandbox")
    })
  )

  it.effect("an import that fails or is interrupted on the way leaves nothing", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const base = yield* session
      yield* ledger.appendAll([
        { ...base, event: "sandbox.created" },
        ...Arr.makeBy(2_000, (index) => output(base, 1, `${index}`)),
        { ...base, event: "sandbox.closed" }
      ])
      const text = yield* exported(base.sandboxId)
      yield* ledger.deleteSandbox(base.sandboxId)
      const some = Stream.make(text.slice(0, text.length >>> 1))
      const failure = yield* Effect.flip(ledger.importSandboxes(Stream.concat(some, Stream.fail("lost"))))
      assert.strictEqual(failure, "lost")
      assert.deepStrictEqual(yield* read({ sandboxId: base.sandboxId }), [])
      const reached = yield* Deferred.make<void>()
      const fiber = yield* Effect.fork(
        ledger.importSandboxes(
          Stream.concat(some, Stream.fromEffect(Effect.zipRight(Deferred.succeed(reached, undefined), Effect.never)))
        )
      )
      yield* Deferred.await(reached)
      assert.isAbove((yield* read({ sandboxId: base.sandboxId })).length, 0)
      assert.instanceOf(yield* Effect.flip(importOf(text)), LedgerError)
      yield* Fiber.interrupt(fiber)
      assert.deepStrictEqual(yield* read({ sandboxId: base.sandboxId }), [])
      yield* importOf(text)
      assert.strictEqual(yield* exported(base.sandboxId), text)
    })
  )
}
