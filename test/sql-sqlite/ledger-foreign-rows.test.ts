import * as SqlClient from "@effect/sql/SqlClient"
import { assert, describe, it } from "@effect/vitest"
import { Ledger } from "@sandglass/core"
import { SqliteLedger } from "@sandglass/sql-sqlite"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/TestClock"

const base = { sandboxId: "sbx-1", name: "ci" }
const memory = SqliteLedger.layer({ filename: ":memory:" })

/** A row as another program may have written it, each value as SQL. */
const insert = (row: Readonly<Record<string, string>>) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) => {
    const values: Readonly<Record<string, string>> = {
      sandbox_id: "'sbx-1'",
      name: "'ci'",
      step_idx: "1",
      event: "'note'",
      ts: "10",
      ...row
    }
    return sql.unsafe(
      `INSERT INTO alineo_events (${Object.keys(values).join(", ")}) VALUES (${Object.values(values).join(", ")})`
    )
  })

const collect = <A, E>(stream: Stream.Stream<A, E>) => Effect.map(Stream.runCollect(stream), (_) => Array.from(_))

/** Reads one entry at a time, as one does who keeps a cursor. */
const oneByOne = (order: "asc" | "desc", most: number) =>
  Effect.gen(function* () {
    const ledger = yield* Ledger.Ledger
    const ids: Array<number> = []
    let after: { readonly ts: number; readonly id: number } | undefined
    while (ids.length <= most) {
      const [entry] = yield* collect(ledger.read({ order, after, limit: 1 }))
      if (entry === undefined) {
        break
      }
      after = { ts: entry.ts, id: entry.id }
      ids.push(entry.id)
    }
    return ids
  })

describe("SqliteLedger and rows that other programs wrote", () => {
  const end = 8_640_000_000_000_000

  const rows: ReadonlyArray<readonly [row: Readonly<Record<string, string>>, read: Readonly<Record<string, unknown>>]> =
    [
      [{ sandbox_id: "x'73'" }, { sandboxId: "s" }],
      [{ sandbox_id: "CAST(7 AS BLOB)" }, { sandboxId: "7" }],
      [{ name: "x'6e6d'" }, { name: "nm" }],
      [{ name: "x'ff'" }, { name: "\ufffd" }],
      [{ event: "x'65'" }, { event: "e" }],
      [{ payload: "x'7b2261223a327d'" }, { payload: { a: 2 } }],
      [{ payload: "5.5" }, { payload: 5.5 }],
      [{ payload: "'not json {'" }, { payload: "not json {" }],
      [{ payload: "x''" }, { payload: "" }],
      [{ error: "x'78'" }, { error: "x" }],
      [{ error: "12" }, { error: "12" }],
      [{ step_idx: "'abc'" }, { stepIdx: -1 }],
      [{ step_idx: "x'00'" }, { stepIdx: -1 }],
      [{ step_idx: "1.5" }, { stepIdx: 1 }],
      [{ step_idx: "9e999" }, { stepIdx: -1 }],
      [{ branch: "'left'" }, { branch: undefined }],
      [{ branch: "2.5" }, { branch: 2 }],
      [{ ts: "9.75" }, { ts: 9 }],
      [{ ts: "-5" }, { ts: -5 }],
      [{ ts: "'yesterday'" }, { ts: end }],
      [{ ts: "x'0102'" }, { ts: end }],
      [{ ts: "9223372036854775807" }, { ts: end }],
      [{ ts: "-9223372036854775807 - 1" }, { ts: -end }],
      [{ ts: "-9e999" }, { ts: -end }],
      [{ event: "'sandbox.checkpoint_created'", payload: "'{\"snapshotId\":5}'" }, { payload: { snapshotId: 5 } }],
      [{ event: "'exec_event'", payload: '\'{"type":"stdout","text":5}\'' }, { event: "exec.output" }],
      [{ event: "'exec_start'", payload: `'{"env":[1,"A=2",[]]}'` }, { payload: { envNames: ["A"] } }]
    ]

  it.effect("each reads as well as can be", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger.Ledger
      for (const [row] of rows) {
        yield* insert(row)
      }
      const entries = yield* collect(ledger.read())
      assert.deepStrictEqual(
        entries.toSorted((a, b) => a.id - b.id).map(({ id }) => id),
        rows.map((_, index) => index + 1)
      )
      for (const [index, [row, expected]] of rows.entries()) {
        const entry = entries.find(({ id }) => id === index + 1)
        assert.deepInclude({ ...base, branch: undefined, ...entry }, expected, JSON.stringify(row))
      }
      assert.deepStrictEqual(
        entries.map(({ ts }) => ts),
        entries.map(({ ts }) => ts).toSorted((a, b) => a - b)
      )
      const ids = entries.map(({ id }) => id)
      assert.deepStrictEqual(
        (yield* collect(ledger.read({ order: "desc" }))).map(({ id }) => id),
        ids.toReversed()
      )
      assert.deepStrictEqual(yield* oneByOne("asc", rows.length), ids)
      assert.deepStrictEqual(yield* oneByOne("desc", rows.length), ids.toReversed())
      assert.strictEqual(yield* Stream.runCount(Stream.take(ledger.tail(), rows.length)), rows.length)
      assert.deepStrictEqual(yield* collect(ledger.checkpoints(base.sandboxId)), [])
    }).pipe(Effect.provide(memory))
  )

  it.effect("many of them take several pages, and each is read once", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger.Ledger
      const sql = yield* SqlClient.SqlClient
      yield* sql.unsafe(`
        INSERT INTO alineo_events (sandbox_id, name, step_idx, event, ts)
        WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 2999)
        SELECT 'sbx-1', 'ci', -1, 'note', CASE i % 5 WHEN 0 THEN 'day ' || (i % 7) WHEN 1 THEN 20 + 1.0 / (1 + i % 11)
          WHEN 2 THEN CAST('day' AS BLOB) WHEN 3 THEN 9223372036854775000 + i % 3 ELSE 20 END FROM n`)
      for (const options of [{}, base, { name: base.name }]) {
        const ids = (yield* collect(ledger.read(options))).map(({ id }) => id)
        assert.strictEqual(ids.length, 3000)
        assert.strictEqual(new Set(ids).size, 3000)
        assert.deepStrictEqual(
          (yield* collect(ledger.read({ ...options, order: "desc" }))).map(({ id }) => id),
          ids.toReversed()
        )
      }
    }).pipe(Effect.provide(memory))
  )

  it.effect("what is nested as deeply as can be breaks neither reading nor the batch that it comes in", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger.Ledger
      let stored = 0
      for (const depth of [5_000, 20_000, 100_000]) {
        const deep = `${"[".repeat(depth)}${"]".repeat(depth)}`
        for (const json of [deep, `{"$sandglass.escaped":"object","a":${deep}}`, `{"env":[${deep}]}`]) {
          yield* insert({ event: "'exec_start'", payload: `'${json}'` })
          stored++
          yield* Effect.ignore(
            ledger.appendAll([
              { ...base, event: "note", payload: JSON.parse(json) },
              { ...base, event: "sibling" }
            ])
          )
        }
      }
      const seen = yield* collect(ledger.read())
      assert.strictEqual(seen.filter(({ event }) => event === "exec.started").length, stored)
      assert.strictEqual(seen.filter(({ event }) => event === "sibling").length, stored)
    }).pipe(Effect.provide(memory))
  )

  it.effect("what is appended has its own time, unless they are later in earnest", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger.Ledger
      yield* TestClock.setTime(100)
      for (const ts of ["'yesterday'", "x'01'", "9223372036854775807", "1767225600000000", "99.5"]) {
        yield* insert({ ts })
      }
      assert.strictEqual((yield* ledger.append({ ...base, event: "mine" })).ts, 100)
      yield* insert({ ts: "200.5" })
      const [first, second] = yield* ledger.appendAll([
        { ...base, event: "mine" },
        { ...base, event: "mine" }
      ])
      assert.deepStrictEqual([first?.ts, second?.ts], [201, 201])
    }).pipe(Effect.provide(memory))
  )

  it.effect("sandboxes and environments are found among them", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger.Ledger
      const sql = yield* SqlClient.SqlClient
      yield* ledger.append({ ...base, event: "sandbox.created", payload: { runId: "run-1" } })
      yield* insert({ sandbox_id: "'a'", event: "'sandbox.created'", payload: "'[1,2]'", ts: "'yesterday'" })
      yield* insert({ sandbox_id: "'b'", event: "'sandbox_created'", payload: `'"{\\"runId\\":5}"'`, ts: "11.5" })
      yield* insert({ sandbox_id: "'b'", event: "'sandbox_closed'", ts: "x'00'" })
      yield* insert({ sandbox_id: "'c'", event: "'sandbox.created'", payload: "x'ff'", name: "x'ff'" })
      const sandboxes = yield* collect(ledger.sandboxes())
      assert.deepStrictEqual(
        sandboxes.map(({ sandboxId, status }) => `${sandboxId} ${status}`),
        ["a running", "b closed", "c running", "sbx-1 running"]
      )
      assert.deepStrictEqual(
        (yield* collect(ledger.sandboxes({ runId: "run-1" }))).map(({ sandboxId }) => sandboxId),
        ["sbx-1"]
      )
      assert.isTrue(Option.isSome(yield* ledger.sandbox("b")))
      yield* sql.unsafe("INSERT INTO alineo_environments VALUES (x'61', 5, x'62', 'never'), ('z', 's', 'i', 7)")
      assert.deepStrictEqual(yield* ledger.environments, [
        { name: "a", snapshotId: "5", image: "b", builtAt: end },
        { name: "z", snapshotId: "s", image: "i", builtAt: 7 }
      ])
    }).pipe(Effect.provide(memory))
  )

  it.effect("a program that reads integers as bigints reads them as numbers here", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger.Ledger
      const entry = yield* ledger.append({ ...base, stepIdx: 3, branch: 1, event: "note" })
      assert.deepStrictEqual(yield* collect(ledger.read()), [entry])
      assert.deepStrictEqual(yield* collect(Stream.take(ledger.tail(), 1)), [entry])
      assert.strictEqual(yield* ledger.deleteSandbox(base.sandboxId), 1)
    }).pipe(Effect.provideService(SqlClient.SafeIntegers, true), Effect.provide(memory))
  )
})
