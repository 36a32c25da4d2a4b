import { createRequire } from "node:module"
import * as SqlClient from "@effect/sql/SqlClient"
import { assert, layer } from "@effect/vitest"
import { Ledger } from "@sandglass/core"
import { PgLedger } from "@sandglass/sql-pg"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import { database } from "../support/postgres.js"

const events = 200_000
const sessions = 2_000

/** One session of very many events, and very many small ones around it. */
const fill = (sql: SqlClient.SqlClient) =>
  sql.unsafe(`
    INSERT INTO alineo_events (sandbox_id, name, step_idx, event, payload, ts)
    SELECT 'sbx-' || i, 'name-' || (i % 7), -1, 'sandbox.created', 
      jsonb_build_object('runId', 'run-' || (i % 100), 'resourceId', 'user-' || (i % 400)), 1000 + i
    FROM generate_series(0, ${sessions - 1}) AS i;
    INSERT INTO alineo_events (sandbox_id, name, step_idx, event, payload, ts)
    SELECT 'sbx-big', 'big', i / 200,
      CASE i % 200 WHEN 0 THEN 'exec.started' WHEN 199 THEN 'exec.completed' ELSE 'exec.output' END,
      jsonb_build_object('seq', i / 200, 'type', 'stdout', 'text', 'line'), 2000 + i / 50
    FROM generate_series(0, ${events - 1}) AS i;
    INSERT INTO alineo_events (sandbox_id, name, step_idx, event, payload, ts) VALUES
      ('sbx-big', 'big', -1, 'sandbox.created', '{"runId":"run-big"}', 1999),
      ('sbx-big', 'big', -1, 'sandbox.checkpoint_created', '{"snapshotId":"snap-1","name":"one"}', 3000),
      ('sbx-0', 'name-0', -1, 'sandbox.closed', NULL, 9000)`)

interface Plan extends Schema.Schema.Type<typeof PlanFields> {
  readonly Plans?: ReadonlyArray<Plan> | undefined
}

const PlanFields = Schema.Struct({
  "Node Type": Schema.String,
  "Relation Name": Schema.optional(Schema.String),
  "Index Name": Schema.optional(Schema.String),
  "Actual Rows": Schema.Number,
  "Actual Loops": Schema.Number,
  "Rows Removed by Filter": Schema.optional(Schema.Number)
})

const Plan = Schema.Struct({
  ...PlanFields.fields,
  Plans: Schema.optional(Schema.Array(Schema.suspend((): Schema.Schema<Plan> => Plan)))
})

const decodePlans = Schema.decodeUnknown(
  Schema.Tuple(Schema.Struct({ "QUERY PLAN": Schema.Tuple(Schema.Struct({ Plan })) }))
)

const nodesOf = (plan: Plan): ReadonlyArray<Plan> => [plan, ...(plan.Plans ?? []).flatMap(nodesOf)]

/** The driver plans each statement for the values at hand: those are needed to see what it does. */
const recorded: Array<{ readonly text: string; readonly values: ReadonlyArray<unknown> }> = []

const watchDriver = Effect.acquireRelease(
  Effect.sync(() => {
    const { prototype }: { readonly prototype: object } = createRequire(import.meta.url)("pg").Client
    const query: unknown = Reflect.get(prototype, "query")
    const watching = function (this: unknown, ...args: ReadonlyArray<unknown>) {
      const [text, values] = args
      if (typeof text === "string" && /alineo_events/.test(text) && !/^EXPLAIN/.test(text)) {
        recorded.push({ text, values: Array.isArray(values) ? values : [] })
      }
      return typeof query === "function" ? Reflect.apply(query, this, args) : undefined
    }
    Reflect.set(prototype, "query", watching)
    return () => Reflect.set(prototype, "query", query)
  }),
  (restore) => Effect.sync(restore)
)

for (const statistics of ["fresh", "of an empty table"] as const) {
  const filled = Layer.scopedDiscard(
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* sql`ALTER TABLE alineo_events SET (autovacuum_enabled = false)`
      yield* sql`ANALYZE alineo_events`
      yield* fill(sql)
      if (statistics === "fresh") {
        yield* sql`VACUUM ANALYZE alineo_events`
      }
      yield* watchDriver
    })
  )
  const postgres = Layer.unwrapScoped(
    Effect.map(database, (url) => Layer.provideMerge(filled, PgLedger.layer({ url })))
  )

  layer(postgres, { timeout: "60 seconds" })(`PgLedger on a large ledger, statistics ${statistics}`, (it) => {
    /** How the database ran what an operation asked it. */
    const plans = <A, E>(operation: Effect.Effect<A, E, Ledger.Ledger>) =>
      Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        recorded.length = 0
        const result = yield* operation
        const statements = recorded.splice(0)
        const nodes = yield* Effect.forEach(statements, ({ text, values }) =>
          sql.unsafe(`EXPLAIN (ANALYZE, FORMAT JSON) ${text}`, values).pipe(
            Effect.flatMap(decodePlans),
            Effect.map(
              ([
                {
                  "QUERY PLAN": [{ Plan: plan }]
                }
              ]) => nodesOf(plan)
            )
          )
        )
        return { result, statements: statements.length, nodes: nodes.flat() }
      })

    /** Rows of the table that were looked at. */
    const looked = (nodes: ReadonlyArray<Plan>) =>
      nodes
        .filter((node) => node["Relation Name"] === "alineo_events")
        .reduce(
          (sum, node) => sum + (node["Actual Rows"] + (node["Rows Removed by Filter"] ?? 0)) * node["Actual Loops"],
          0
        )

    const indexesOf = (nodes: ReadonlyArray<Plan>) => new Set(nodes.flatMap((node) => node["Index Name"] ?? []))

    const describe = (nodes: ReadonlyArray<Plan>) =>
      nodes
        .map((node) =>
          [
            node["Node Type"],
            node["Relation Name"],
            node["Index Name"],
            `${node["Actual Rows"]} and ${node["Rows Removed by Filter"] ?? 0} more, ${node["Actual Loops"]} times`
          ].join(" ")
        )
        .join("\n")

    const throughIndexes = (nodes: ReadonlyArray<Plan>, most: number) => {
      assert.isAbove(nodes.length, 0)
      assert.isFalse(
        nodes.some((node) => node["Node Type"] === "Seq Scan" && node["Relation Name"] === "alineo_events"),
        describe(nodes)
      )
      assert.isAtMost(looked(nodes), most, describe(nodes))
    }

    const read = (options: Ledger.ReadOptions) =>
      Effect.flatMap(Ledger.Ledger, (ledger) => Stream.runCount(ledger.read(options)))

    const after = { ts: 2500, id: 27_000 }

    const queries: ReadonlyArray<readonly [most: number, options: Ledger.ReadOptions]> = [
      [2600, { sandboxId: "sbx-big", limit: 2500 }],
      [2600, { sandboxId: "sbx-big", order: "desc", limit: 2500 }],
      [6000, { sandboxId: "sbx-big", after, until: { ts: 2600, id: 0 } }],
      [20, { sandboxId: "sbx-big", name: "big", limit: 10 }],
      [20, { sandboxId: "sbx-big", events: ["exec.output"], after, limit: 10 }],
      [300, { sandboxId: "sbx-big", stepIdx: 7 }],
      [300, { sandboxId: "sbx-big", stepIdx: 7, after: { ts: 2030, id: 0 } }],
      [300, { sandboxId: "sbx-big", stepIdx: 7, events: ["exec.output"], order: "desc" }],
      [30, { sandboxId: "sbx-big", withoutOutput: true, limit: 10 }],
      [30, { sandboxId: "sbx-big", withoutOutput: true, after, limit: 10 }],
      [30, { sandboxId: "sbx-big", events: ["exec.started"], limit: 10 }],
      [10, { sandboxId: "sbx-big", events: ["sandbox.closed", "sandbox.checkpoint_created"] }],
      [20, { events: ["sandbox.created"], limit: 10 }],
      [2600, { limit: 2500 }],
      [20, { order: "desc", limit: 10 }]
    ]
    for (const [most, options] of queries) {
      it.effect(`read ${JSON.stringify(options)}`, () =>
        Effect.gen(function* () {
          const { nodes, result } = yield* plans(read(options))
          assert.isAbove(result, 0)
          throughIndexes(nodes, most)
        })
      )
    }

    it.effect("listing reads the sessions, and of each only its lifecycle", () =>
      Effect.gen(function* () {
        const ledger = yield* Ledger.Ledger
        for (const [most, filter, count] of [
          [8 * sessions, {}, sessions + 1],
          [300, { limit: 50 }, 50],
          [20, { name: "big" }, 1],
          [1500, { name: "name-1", before: 2500 }, 215],
          [1100, { status: "running", limit: 10 }, 10],
          [8 * sessions, { status: "closed" }, 1],
          [8 * sessions, { runId: "run-big" }, 1],
          [8 * sessions, { runId: "run-3", status: "running" }, 20],
          [40, { resourceId: "user-7" }, 5],
          [30, { resourceId: "user-7", limit: 2 }, 2],
          [40, { resourceId: "user-7", name: "name-0", status: "running", runId: "run-7" }, 1],
          [5, { resourceId: "user-77/none" }, 0]
        ] satisfies ReadonlyArray<readonly [number, Ledger.SandboxFilter, number]>) {
          const { nodes, result } = yield* plans(Stream.runCount(ledger.sandboxes(filter)))
          assert.strictEqual(result, count)
          throughIndexes(nodes, most)
        }
        const one = yield* plans(ledger.sandbox("sbx-big"))
        assert.isTrue(Option.isSome(one.result))
        assert.strictEqual(one.statements, 1)
        throughIndexes(one.nodes, 10)
      })
    )

    it.effect("the last checkpoint is found without its session", () =>
      Effect.gen(function* () {
        const ledger = yield* Ledger.Ledger
        const { nodes, result, statements } = yield* plans(ledger.lastCheckpoint("sbx-big", { tag: "one" }))
        assert.strictEqual(Option.getOrThrow(result).snapshotId, "snap-1")
        assert.strictEqual(statements, 1)
        throughIndexes(nodes, 10)
        assert.include([...indexesOf(nodes)].join(), "milestones")
      })
    )

    it.effect("a page is all that is read at a time", () =>
      Effect.gen(function* () {
        const ledger = yield* Ledger.Ledger
        const { result, statements } = yield* plans(
          ledger.read({ sandboxId: "sbx-big" }).pipe(Stream.chunks, Stream.take(2), Stream.runCollect)
        )
        assert.isAtMost(statements, 3)
        assert.isTrue(Array.from(result).every((chunk) => Chunk.size(chunk) <= 1000))
      })
    )

    it.effect("tail finds its place by id, however far away that is", () =>
      Effect.gen(function* () {
        const ledger = yield* Ledger.Ledger
        for (const options of [
          {},
          { sandboxId: "sbx-big" },
          { sandboxId: "sbx-0", stepIdx: -1 },
          { afterId: events }
        ] satisfies ReadonlyArray<Ledger.TailOptions>) {
          const { nodes, result } = yield* plans(ledger.tail(options).pipe(Stream.take(1), Stream.runCount))
          throughIndexes(nodes, 25_000)
          assert.strictEqual(result, 1)
        }
        // From its first event to its last lie all others: two windows, one jump.
        const { nodes, result, statements } = yield* plans(
          ledger.tail({ sandboxId: "sbx-0" }).pipe(
            Stream.take(2),
            Stream.map(({ event }) => event),
            Stream.runCollect
          )
        )
        assert.deepStrictEqual(Array.from(result), ["sandbox.created", "sandbox.closed"])
        assert.isAtMost(statements, 8)
        throughIndexes(nodes, 50_000)
      })
    )

    it.effect("an append looks at the last entry, and at no other", () =>
      Effect.gen(function* () {
        const ledger = yield* Ledger.Ledger
        const { nodes } = yield* plans(ledger.append({ sandboxId: "sbx-new", name: "new", event: "note" }))
        throughIndexes(nodes, 5)
        yield* ledger.deleteSandbox("sbx-new")
      })
    )

    it.effect("deleting a session looks for it by its index", () =>
      Effect.gen(function* () {
        const ledger = yield* Ledger.Ledger
        const { nodes, result } = yield* plans(ledger.deleteSandbox("sbx-0"))
        assert.strictEqual(result, 2)
        throughIndexes(nodes, 10)
      })
    )
  })
}
