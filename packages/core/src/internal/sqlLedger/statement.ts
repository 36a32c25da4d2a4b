/**
 * Texts of queries, with their parameters.
 */
import type { Cursor } from "../../LedgerEvent.js"
import type { PageQuery, RowFilter } from "../../LedgerStore.js"
import * as Legacy from "../ledger/legacy.js"
import { created, createdEvents, milestone, noOutput, removalOrder } from "./conditions.js"
import type { Dialect } from "./dialect.js"
import type { Param } from "./transactions.js"

/** The parameters of a statement, in the order in which its text names them. */
export class Statement {
  readonly params: Array<Param> = []
  constructor(readonly dialect: Dialect) {}
  param(value: Param): string {
    this.params.push(value)
    return this.dialect.param(this.params.length)
  }
}

export const where = (conditions: ReadonlyArray<string>): string =>
  conditions.length === 0 ? "" : ` WHERE ${conditions.join(" AND ")}`

export const isSubset = (some: ReadonlyArray<string>, all: ReadonlyArray<string>): boolean =>
  some.every((item) => all.includes(item))

/** One condition for each part of the filter, the literal ones for the sake of the partial indexes. */
export const filterConditions = (statement: Statement, filter: RowFilter): Array<string> => {
  const { dialect } = statement
  const conditions: Array<string> = []
  if (filter.sandboxId !== undefined) {
    conditions.push(`sandbox_id = ${statement.param(filter.sandboxId)}`)
  }
  if (filter.stepIdx !== undefined) {
    const condition = `step_idx = ${statement.param(filter.stepIdx)}`
    conditions.push(filter.sandboxId === undefined ? dialect.filter(condition) : condition)
  }
  if (filter.name !== undefined) {
    conditions.push(dialect.filter(`name = ${statement.param(filter.name)}`))
  }
  if (filter.events !== undefined) {
    conditions.push(
      filter.sandboxId === undefined && isSubset(filter.events, createdEvents)
        ? created
        : filter.sandboxId !== undefined && isSubset(filter.events, Legacy.milestones)
          ? milestone
          : filter.withoutOutput === true
            ? noOutput
            : "1 = 1",
      dialect.eventIn(statement.param(JSON.stringify(filter.events)))
    )
  } else if (filter.withoutOutput === true) {
    conditions.push(noOutput)
  }
  return conditions
}

/** The ids of the rows of a session that are the next to be removed. */
export const selectRemovable = (statement: Statement, sandboxId: string, limit: number): string =>
  `${removalOrder
    .map(
      (condition) =>
        `SELECT id FROM (SELECT id FROM alineo_events WHERE sandbox_id = ${statement.param(sandboxId)} AND ${condition} ` +
        `LIMIT ${statement.param(limit)}) AS removable`
    )
    .join(" UNION ALL ")} LIMIT ${statement.param(limit)}`

/** A place in `(ts, id)` order, as the texts of its two values. */
interface Place {
  readonly ts: () => string
  readonly id: () => string
}

/** What stands in a row for its `ts` may be something that a cursor cannot hold: then the row itself is asked. */
const placeOf = (statement: Statement, cursor: Cursor): Place => ({
  ts: () =>
    `coalesce((SELECT ts FROM alineo_events WHERE id = ${statement.param(cursor.id)} AND ` +
    `${statement.dialect.isOddTs}), ${statement.param(cursor.ts)})`,
  id: () => statement.param(cursor.id)
})

/** Beyond a place, in either direction, the place itself included or not. `column` is what stands for `ts`. */
const beyond = (statement: Statement, comparison: "<" | "<=" | ">" | ">=", { id, ts }: Place, column = "ts"): string =>
  statement.dialect.comparesPairs
    ? `(${column}, id) ${comparison} (${ts()}, ${id()})`
    : `ts ${comparison[0]}= ${ts()} AND (ts ${comparison[0]} ${ts()} OR id ${comparison} ${id()})`

export const before = (statement: Statement, cursor: Cursor): string =>
  beyond(statement, "<", placeOf(statement, cursor))

/**
 * A page in `(ts, id)` order. SQLite does not use an index for a comparison of pairs when one of them is the rowid, and
 * would walk through all rows of one millisecond for each page that begins inside it: there it takes two searches.
 * `column` is `ts`, or what stands for it in the order of the whole ledger.
 */
export const selectPage = (
  statement: Statement,
  select: string,
  conditions: () => Array<string>,
  range: Pick<PageQuery, "order" | "after" | "until">,
  limit: { readonly count: number; readonly offset?: number },
  column: string
): string => {
  const { order, until } = range
  // A page without a cursor is a search all the same.
  const after: Place =
    range.after === undefined
      ? order === "asc"
        ? { ts: () => statement.dialect.lowest, id: () => "0" }
        : { ts: () => statement.dialect.highest, id: () => "9223372036854775807" }
      : placeOf(statement, range.after)
  const [further, direction] = order === "asc" ? [">" as const, "ASC"] : ["<" as const, "DESC"]
  const end = (): Array<string> =>
    until === undefined ? [] : [beyond(statement, order === "asc" ? "<=" : ">=", placeOf(statement, until), column)]
  const { count, offset = 0 } = limit
  const limited = (rows: number) => statement.dialect.limit(statement.param(rows))
  const slice = () => (offset === 0 ? limited(count) : `${limited(count)} OFFSET ${limited(offset)}`)
  const sorted = `ORDER BY ${column} ${direction}, id ${direction}`
  if (statement.dialect.comparesPairs) {
    const all = [...conditions(), beyond(statement, further, after, column), ...end()]
    return `SELECT ${select} FROM alineo_events${where(all)} ${sorted} LIMIT ${slice()}`
  }
  const half = (condition: () => string, order: string): string =>
    `SELECT * FROM (SELECT ${select} FROM alineo_events${where([...conditions(), condition(), ...end()])} ${order} LIMIT ${statement.param(
      count + offset
    )})`
  const same = half(() => `ts = ${after.ts()} AND id ${further} ${after.id()}`, `ORDER BY id ${direction}`)
  const other = half(() => `ts ${further} ${after.ts()}`, sorted)
  return `${same} UNION ALL ${other} LIMIT ${slice()}`
}
