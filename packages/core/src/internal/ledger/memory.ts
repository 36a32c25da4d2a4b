/**
 * A store in memory.
 */
import * as Arr from "effect/Array"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { EnvironmentRecord } from "../../Ledger.js"
import type { Cursor } from "../../LedgerEvent.js"
import { EventName } from "../../LedgerEvent.js"
import type { LedgerStore, NewRow, Row, RowFilter, SessionQuery, SessionRow } from "../../LedgerStore.js"
import { stringField } from "../json.js"
import { decodePayload } from "./codec.js"
import { cursorOf } from "./entries.js"
import * as Legacy from "./legacy.js"
import { pageOf } from "./pages.js"

const compare = (row: Row, cursor: Cursor): number => row.ts - cursor.ts || row.id - cursor.id

/** How many rows of the sorted array come before the first for which `reached` holds. */
const countBefore = (rows: ReadonlyArray<Row>, reached: (row: Row) => boolean): number => {
  let low = 0
  let high = rows.length
  while (low < high) {
    const middle = (low + high) >>> 1
    const row = rows[middle]
    if (row !== undefined && !reached(row)) {
      low = middle + 1
    } else {
      high = middle
    }
  }
  return low
}

/** So many of what is picked of the rows at most, from an index on in steps of 1 or -1, as long as rows are `within`. */
const scan = <A>(
  rows: ReadonlyArray<Row>,
  from: number,
  step: 1 | -1,
  limit: number,
  within: (row: Row) => boolean,
  pick: (row: Row) => A | undefined
): Array<A> => {
  const picked: Array<A> = []
  for (let index = from; picked.length < limit; index += step) {
    const row = rows[index]
    if (row === undefined || !within(row)) {
      break
    }
    const found = pick(row)
    if (found !== undefined) {
      picked.push(found)
    }
  }
  return picked
}

const matching =
  (filter: RowFilter) =>
  (row: Row): Row | undefined =>
    (filter.sandboxId === undefined || row.sandboxId === filter.sandboxId) &&
    (filter.name === undefined || row.name === filter.name) &&
    (filter.stepIdx === undefined || row.stepIdx === filter.stepIdx) &&
    (filter.events === undefined || filter.events.includes(row.event)) &&
    (filter.withoutOutput !== true || !Legacy.outputEvents.includes(row.event))
      ? row
      : undefined

const createdWith = (row: Row, field: "runId" | "resourceId", value: string | undefined): boolean =>
  value === undefined || (row.payload !== null && stringField(decodePayload(row.payload), field) === value)

const isCreated = (row: Row): boolean => Legacy.canonical(row.event) === EventName.sandboxCreated

const isAsked = (query: SessionQuery, row: Row): boolean =>
  (query.name === undefined || row.name === query.name) &&
  createdWith(row, "runId", query.runId) &&
  createdWith(row, "resourceId", query.resourceId)

/** What becomes of a session, by all of its rows. */
const toSession = (created: Row, rows: ReadonlyArray<Row>): SessionRow => {
  let paused = false
  let closedAt: number | null = null
  for (const row of rows) {
    const event = Legacy.canonical(row.event)
    if (event === EventName.sandboxClosed) {
      closedAt ??= row.ts
    } else if (event === EventName.sandboxPaused) {
      paused = true
    } else if (event === EventName.sandboxResumed || event === EventName.sandboxCreated) {
      paused = false
    }
  }
  return { created, closedAt, status: closedAt !== null ? "closed" : paused ? "paused" : "running" }
}

type Order = (a: Row, b: Row) => number

const byTime: Order = (a, b) => compare(a, b)
const byId: Order = (a, b) => a.id - b.id

/** Rows in an order, most of which come in that order. */
class SortedRows {
  rows: Array<Row> = []
  constructor(readonly order: Order) {}

  add(more: ReadonlyArray<Row>): void {
    const last = this.rows[this.rows.length - 1]
    const [first] = more
    const inOrder = last === undefined || first === undefined || this.order(last, first) < 0
    for (const row of more) {
      this.rows.push(row)
    }
    if (!inOrder) {
      // Two runs that are in order each: they are merged.
      this.rows.sort(this.order)
    }
  }
}

interface Session {
  readonly timed: SortedRows
  readonly numbered: SortedRows
}

const newSession = (): Session => ({ timed: new SortedRows(byTime), numbered: new SortedRows(byId) })

const none = newSession()

export const make = (): LedgerStore => {
  let lastId = 0
  const all = newSession()
  /** The rows of all sessions that begin one. */
  const created = new SortedRows(byTime)
  const bySandbox = new Map<string, Session>()
  const environments = new Map<string, EnvironmentRecord>()
  /** Rows that were removed from their session and are still in the lists of all. */
  const gone = new Set<Row>()

  const sessionOf = (filter: { readonly sandboxId?: string | undefined }): Session =>
    filter.sandboxId === undefined ? all : (bySandbox.get(filter.sandboxId) ?? none)

  /** Adds rows whose `ts` do not decrease. */
  const insert = (rows: Arr.NonEmptyReadonlyArray<NewRow>): ReadonlyArray<Cursor> => {
    const stored = Arr.map(rows, (row): Row => ({ ...row, id: ++lastId }))
    all.timed.add(stored)
    all.numbered.add(stored)
    created.add(stored.filter(isCreated))
    for (let from = 0, to = 1; from < stored.length; to++) {
      const sandboxId = stored[from]?.sandboxId ?? ""
      if (stored[to]?.sandboxId !== sandboxId) {
        const session = bySandbox.get(sandboxId) ?? newSession()
        bySandbox.set(sandboxId, session)
        const rows = stored.slice(from, to)
        session.timed.add(rows)
        session.numbered.add(rows)
        from = to
      }
    }
    return stored.map(cursorOf)
  }

  const forget = (rows: ReadonlyArray<Row>): void => {
    for (const row of rows) {
      gone.add(row)
    }
    // What it costs is shared by as many removals.
    if (gone.size > all.timed.rows.length / 2) {
      for (const list of [all.timed, all.numbered, created]) {
        list.rows = list.rows.filter((row) => !gone.has(row))
      }
      gone.clear()
    }
  }

  const present = (row: Row): Row | undefined => (gone.has(row) ? undefined : row)

  const chosen = (filter: RowFilter) => {
    const matches = matching(filter)
    return filter.sandboxId === undefined ? (row: Row) => present(row) && matches(row) : matches
  }

  return {
    restrictedJson: false,
    joined: Effect.succeed(false),
    append: (rows) =>
      Effect.sync(() => {
        const latest = all.timed.rows[all.timed.rows.length - 1]?.ts ?? Number.NEGATIVE_INFINITY
        return insert(Arr.map(rows, (row) => (row.ts < latest ? { ...row, ts: latest } : row)))
      }),
    restore: (rows) => Effect.sync(() => insert(rows)),
    page: (query) =>
      Effect.sync(() => {
        const { after, limit, order, until } = query
        const { rows } = sessionOf(query).timed
        const step = order === "asc" ? 1 : -1
        const from =
          order === "asc"
            ? after === undefined
              ? 0
              : countBefore(rows, (row) => compare(row, after) > 0)
            : (after === undefined ? rows.length : countBefore(rows, (row) => compare(row, after) >= 0)) - 1
        const within = (row: Row) => until === undefined || compare(row, until) * step <= 0
        return pageOf(scan(rows, from, step, limit, within, chosen(query)), limit, cursorOf)
      }),
    rowAt: (sandboxId, index) => Effect.sync(() => Option.fromNullable(sessionOf({ sandboxId }).timed.rows[index])),
    countBefore: (sandboxId, cursor) =>
      Effect.sync(() => countBefore(sessionOf({ sandboxId }).timed.rows, (row) => compare(row, cursor) >= 0)),
    tail: (query) =>
      Effect.sync(() => {
        const { after, limit, upTo } = query
        const { rows } = sessionOf(query).numbered
        const from = countBefore(rows, (row) => row.id > after)
        return pageOf(
          scan(rows, from, 1, limit, (row) => row.id <= upTo, chosen(query)),
          limit,
          (row) => row.id
        )
      }),
    settledId: Effect.sync(() => lastId),
    sessions: (query) =>
      Effect.sync(() => {
        const { before, limit, sandboxId, status } = query
        const rows = sandboxId === undefined ? created.rows : sessionOf(query).timed.rows.filter(isCreated)
        const pick = (row: Row): SessionRow | undefined => {
          if (present(row) === undefined || !isAsked(query, row)) {
            return undefined
          }
          const session = toSession(row, sessionOf(row).timed.rows)
          return status === undefined || session.status === status ? session : undefined
        }
        const from = before === undefined ? rows.length : countBefore(rows, (row) => compare(row, before) >= 0)
        const found = scan(rows, from - 1, -1, limit, () => true, pick)
        return pageOf(found, limit, (session) => cursorOf(session.created))
      }),
    // All at once: nobody waits for it.
    remove: (sandboxId) =>
      Effect.sync(() => {
        const { rows } = sessionOf({ sandboxId }).timed
        bySandbox.delete(sandboxId)
        forget(rows)
        return rows.length
      }),
    environment: (name) => Effect.sync(() => Option.fromNullable(environments.get(name))),
    environments: Effect.sync(() => Array.from(environments.values())),
    putEnvironment: (record) => Effect.sync(() => void environments.set(record.name, { ...record })),
    deleteEnvironment: (name) => Effect.sync(() => environments.delete(name))
  }
}
