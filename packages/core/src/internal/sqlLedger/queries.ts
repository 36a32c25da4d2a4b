/**
 * The queries of a ledger. Where the wanted rows may be far apart, each looks at so many and says where to go on.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { LedgerError } from "../../LedgerError.js"
import type { Cursor } from "../../LedgerEvent.js"
import type { LedgerStore, PageQuery, SessionQuery, TailQuery } from "../../LedgerStore.js"
import { isPlainJson } from "../ledger/codec.js"
import { pageOf } from "../ledger/pages.js"
import { closedAt, created, createdEvents, isPaused, milestone } from "./conditions.js"
import type { Dialect } from "./dialect.js"
import type { EventRow, SessionEventRow } from "./rows.js"
import { integer, toCursor, toRow, toSession } from "./rows.js"
import { before, filterConditions, isSubset, Statement, selectPage, where } from "./statement.js"
import type { Transactions } from "./transactions.js"

/** How many rows a single query looks at where the wanted ones may be far apart. */
const windowRows = 20_000
const windowSessions = 1_000

/** Whether an id is the same text inside JSON, and inside JSON that is a JSON string, whoever wrote it. */
const isComparable = (id: string): boolean => !/[\\"\p{Cc}]/u.test(id)

export const make = (
  dialect: Dialect,
  { read }: Transactions
): Pick<LedgerStore, "page" | "tail" | "sessions" | "rowAt" | "countBefore"> => {
  /** Where the row stands that is so many rows ahead; `undefined` when the end comes first. */
  const placeAhead = (
    range: Pick<PageQuery, "order" | "after" | "until">,
    conditions: ReadonlyArray<string>,
    offset: number
  ): Effect.Effect<Cursor | undefined, LedgerError> => {
    const statement = new Statement(dialect)
    const text = selectPage(statement, "ts, id", () => [...conditions], range, { count: 1, offset }, dialect.ledgerTs)
    return Effect.map(read<{ readonly ts: unknown; readonly id: unknown }>(text, statement.params), ([row]) =>
      row === undefined ? undefined : toCursor(row)
    )
  }

  const page = (query: PageQuery) =>
    Effect.gen(function* () {
      const direct =
        query.sandboxId !== undefined ||
        (query.events !== undefined && isSubset(query.events, createdEvents)) ||
        (query.name === undefined &&
          query.stepIdx === undefined &&
          query.events === undefined &&
          query.withoutOutput !== true)
      // Matches may be rare: look at so many rows, and go on from there with the next page.
      const end = direct ? undefined : yield* placeAhead(query, [], windowRows)
      const until = end ?? query.until
      const statement = new Statement(dialect)
      const text = selectPage(
        statement,
        dialect.columns,
        () => filterConditions(statement, query),
        { ...query, until },
        { count: query.limit },
        query.sandboxId === undefined ? dialect.ledgerTs : "ts"
      )
      const rows = yield* read<EventRow>(text, statement.params)
      return pageOf(rows.map(toRow), query.limit, toCursor, end)
    })

  const tail = (query: TailQuery) =>
    Effect.gen(function* () {
      const end = Math.min(query.upTo, query.after + windowRows)
      const statement = new Statement(dialect)
      const range = [`id > ${statement.param(query.after)}`, `id <= ${statement.param(end)}`]
      const { sandboxId, stepIdx, ...others } = query
      const conditions = filterConditions(statement, others)
      if (sandboxId !== undefined) {
        conditions.push(dialect.filter(`sandbox_id = ${statement.param(sandboxId)}`))
      }
      if (stepIdx !== undefined) {
        conditions.push(dialect.filter(`step_idx = ${statement.param(stepIdx)}`))
      }
      const text = `SELECT ${dialect.columns} FROM alineo_events${where([...range, ...conditions])} ORDER BY id LIMIT ${dialect.limit(
        statement.param(query.limit)
      )}`
      const rows = (yield* read<EventRow>(text, statement.params)).map(toRow)
      const last = rows[rows.length - 1]
      if (last !== undefined && rows.length >= query.limit) {
        return { rows, next: last.id }
      }
      if (end >= query.upTo) {
        return { rows, next: undefined }
      }
      if (last !== undefined || sandboxId === undefined) {
        return { rows, next: end }
      }
      // Nothing of this sandbox for a while: one look into its index says where it goes on.
      const jump = new Statement(dialect)
      const found = yield* read<{ readonly id: unknown }>(
        `SELECT min(id + 0) AS id FROM alineo_events WHERE sandbox_id = ${jump.param(sandboxId)} AND ${dialect.filter(`id > ${jump.param(end)}`)}`,
        jump.params
      )
      const next = integer(found[0]?.id, Number.POSITIVE_INFINITY)
      return { rows, next: next > query.upTo ? undefined : next - 1 }
    })

  const sessions = (query: SessionQuery) =>
    Effect.gen(function* () {
      const { name, resourceId, runId, sandboxId, status } = query
      const ofResource = sandboxId === undefined && resourceId !== undefined && isComparable(resourceId)
      const range = { order: "desc" as const, after: query.before, until: undefined }
      const end =
        sandboxId !== undefined ||
        ofResource ||
        (status === undefined && runId === undefined && resourceId === undefined)
          ? undefined
          : yield* placeAhead(range, [created], windowSessions)
      const statement = new Statement(dialect)
      const text = selectPage(
        statement,
        `${dialect.columns}, ${closedAt} AS closed_at, ${isPaused} AS is_paused`,
        () => {
          const conditions = [created]
          if (sandboxId !== undefined) {
            conditions.push(milestone, `sandbox_id = ${statement.param(sandboxId)}`)
          }
          if (name !== undefined) {
            const condition = `name = ${statement.param(name)}`
            conditions.push(sandboxId === undefined && !ofResource ? condition : dialect.filter(condition))
          }
          if (ofResource) {
            const given = dialect.asResourceId(statement.param(resourceId))
            conditions.push(dialect.hasResourceId, `${dialect.resourceId} = ${given}`)
          }
          for (const id of [runId, ofResource ? undefined : resourceId]) {
            if (id === undefined || !isPlainJson(id)) continue
            const quoted = JSON.stringify(id)
            const twice = JSON.stringify(quoted).slice(1, -1)
            conditions.push(
              `(${dialect.contains(dialect.payloadText, statement.param(quoted))} OR ${dialect.contains(
                dialect.payloadText,
                statement.param(twice)
              )})`
            )
          }
          if (status === "closed") {
            conditions.push(`${closedAt} IS NOT NULL`)
          } else if (status !== undefined) {
            conditions.push(`${closedAt} IS NULL`, `coalesce(${isPaused}, 0) = ${status === "paused" ? 1 : 0}`)
          }
          return conditions
        },
        { ...range, until: end },
        { count: query.limit },
        sandboxId === undefined && name === undefined && !ofResource ? dialect.ledgerTs : "ts"
      )
      const found = yield* read<SessionEventRow>(text, statement.params)
      return pageOf(found.map(toSession), query.limit, ({ created }) => toCursor(created), end)
    })

  const rowAt = (sandboxId: string, index: number) => {
    const statement = new Statement(dialect)
    // The place is found in the index alone.
    const text =
      `SELECT ${dialect.columns} FROM alineo_events WHERE id = (SELECT id FROM alineo_events WHERE sandbox_id = ` +
      `${statement.param(sandboxId)} ORDER BY ts, id LIMIT 1 OFFSET ${statement.param(index)})`
    return Effect.map(read<EventRow>(text, statement.params), ([row]) => Option.map(Option.fromNullable(row), toRow))
  }

  const countBefore = (sandboxId: string, cursor: Cursor) => {
    const statement = new Statement(dialect)
    const conditions = [`sandbox_id = ${statement.param(sandboxId)}`, before(statement, cursor)]
    return Effect.map(
      read<{ readonly count: unknown }>(
        `SELECT count(*) AS count FROM alineo_events${where(conditions)}`,
        statement.params
      ),
      ([row]) => integer(row?.count, 0)
    )
  }

  return { page, tail, sessions, rowAt, countBefore }
}
