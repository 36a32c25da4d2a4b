/**
 * What the ledger knows of sandboxes.
 */
import { assert } from "@effect/vitest"
import * as Arr from "effect/Array"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/TestClock"
import { Ledger } from "../../Ledger.js"
import type { Json, LedgerEntry } from "../../LedgerEvent.js"
import type { It } from "./support.js"
import { catchUp, collect, fresh, joinPassingTime, output, read, session } from "./support.js"

export const sandboxes = (it: It): void => {
  it.effect("sandboxes, newest first, with all that is known of them", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      yield* catchUp
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
        teamId: "team-1",
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
      const paused = yield* make({ runId, resourceId: "res-2", note: "res-1" })
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
      assert.deepStrictEqual(yield* ids({ resourceId: "res-1" }), [full.sandboxId])
      assert.deepStrictEqual(yield* ids({ resourceId: "res-2", runId, status: "paused" }), [paused.sandboxId])
      assert.deepStrictEqual(yield* ids({ resourceId: "team-1" }), [])
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

  it.effect("sandboxes over several pages, and by run and resource ids of any text", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const { name } = yield* session
      const created = yield* ledger.appendAll(
        Arr.makeBy(1234, (index) => ({
          sandboxId: `${name}-${index}`,
          name,
          event: "sandbox.created",
          payload: {
            runId: index % 100 === 0 ? `a\\b"c/é\0${name}` : "other",
            resourceId: index % 200 === 0 ? `r\\b"c/é\0${name}` : `r-${name}`
          }
        }))
      )
      const found = yield* collect(ledger.sandboxes({ name }))
      assert.deepStrictEqual(
        found.map(({ cursor }) => cursor.id),
        created.map(({ id }) => id).toReversed()
      )
      const ofRun = yield* collect(ledger.sandboxes({ name, runId: `a\\b"c/é\0${name}` }))
      assert.strictEqual(ofRun.length, 13)
      const ofResource = yield* collect(ledger.sandboxes({ resourceId: `r\\b"c/é\0${name}` }))
      assert.strictEqual(ofResource.length, 7)
      assert.strictEqual((yield* collect(ledger.sandboxes({ resourceId: `r-${name}` }))).length, 1227)
      assert.strictEqual((yield* collect(ledger.sandboxes({ resourceId: `r-${name}`, limit: 3 }))).length, 3)
    })
  )

  it.effect("sandboxes by resource ids that look alike", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const { name } = yield* session
      const ids = [
        ...["", "/x", "é", "😀", "'", "a'--", "%", "x", `"`, "\\", "\\u0041", "\n", "\ud83d", "$sandglass.escaped:"],
        ...["a", "b"].map((end) => "long ".repeat(1_000) + end)
      ].map((end) => `${name}${end}`)
      yield* ledger.appendAll(
        ids.map((resourceId, index) => ({
          sandboxId: `${name}-${index}`,
          name,
          event: "sandbox.created",
          payload: index % 2 === 0 ? { resourceId } : { resourceId, text: "\0" }
        }))
      )
      for (const [index, resourceId] of ids.entries()) {
        const found = yield* collect(ledger.sandboxes({ resourceId }))
        assert.deepStrictEqual(
          found.map(({ sandboxId }) => sandboxId),
          [`${name}-${index}`]
        )
      }
      // A payload that names it elsewhere is not that of the resource.
      const elsewhere = { resources: { resourceId: `${name}-x` }, runId: `${name}-x`, text: `"resourceId":"${name}-x"` }
      const payloads: ReadonlyArray<Json> = [elsewhere, { resourceId: 7 }, [], "text", null]
      yield* ledger.appendAll(
        payloads.map((payload, index) => ({ sandboxId: `${name}-y${index}`, name, event: "sandbox.created", payload }))
      )
      assert.deepStrictEqual(yield* collect(ledger.sandboxes({ resourceId: `${name}-x` })), [])
      assert.deepStrictEqual(yield* collect(ledger.sandboxes({ resourceId: "7", name })), [])
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
        ...Arr.makeBy(19, (index) => output(base, 1, `${index}`)),
        { ...base, event: "sandbox.closed" }
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
}
