/** What Postgres does for an operation: every statement that it sends, and the plan of each, for the values at hand. */
import { createRequire } from "node:module"
import * as SqlClient from "@effect/sql/SqlClient"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"

export interface Plan extends Schema.Schema.Type<typeof PlanFields> {
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

interface Recorded {
  readonly text: string
  readonly values: ReadonlyArray<unknown>
}

/** The driver plans each statement for the values at hand: those are needed to see what it does. */
const watchDriver = (tables: RegExp) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const recorded: Array<Recorded> = []
      const { prototype }: { readonly prototype: object } = createRequire(import.meta.url)("pg").Client
      const query: unknown = Reflect.get(prototype, "query")
      const watching = function (this: unknown, ...args: ReadonlyArray<unknown>) {
        const [text, values] = args
        if (typeof text === "string" && tables.test(text) && !/^EXPLAIN/.test(text)) {
          recorded.push({ text, values: Array.isArray(values) ? values : [] })
        }
        return typeof query === "function" ? Reflect.apply(query, this, args) : undefined
      }
      Reflect.set(prototype, "query", watching)
      return { recorded, restore: () => Reflect.set(prototype, "query", query) }
    }),
    ({ restore }) => Effect.sync(restore)
  )

/** Runs an operation, and then each of its statements that name one of the tables once more, to see how. */
export const explained = <A, E, R>(tables: RegExp, operation: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { recorded, result } = yield* Effect.scoped(
      Effect.gen(function* () {
        const { recorded } = yield* watchDriver(tables)
        return { result: yield* operation, recorded }
      })
    )
    const plans = yield* Effect.forEach(recorded, ({ text, values }) =>
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
    return { result, statements: recorded.length, nodes: plans.flat() }
  })

/** How many rows of the tables were looked at. */
export const looked = (nodes: ReadonlyArray<Plan>): number =>
  nodes
    .filter((node) => node["Relation Name"] !== undefined)
    .reduce(
      (sum, node) => sum + (node["Actual Rows"] + (node["Rows Removed by Filter"] ?? 0)) * node["Actual Loops"],
      0
    )

export const indexesOf = (nodes: ReadonlyArray<Plan>): ReadonlyArray<string> =>
  Array.from(new Set(nodes.flatMap((node) => node["Index Name"] ?? []))).toSorted()

/** For the message of an assertion. */
export const describePlan = (nodes: ReadonlyArray<Plan>): string =>
  nodes
    .map(
      (node) =>
        `${node["Node Type"]} ${node["Relation Name"] ?? ""} ${node["Index Name"] ?? ""} ` +
        `${node["Actual Rows"]}+${node["Rows Removed by Filter"] ?? 0} x${node["Actual Loops"]}`
    )
    .join("\n  ")
