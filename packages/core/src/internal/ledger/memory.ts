/**
 * A store in memory.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { EnvironmentRecord } from "../../Ledger.js"
import type { Cursor } from "../../LedgerEvent.js"
import { EventName } from "../../LedgerEvent.js"
import type { LedgerStore, Row, RowFilter, SessionQuery, SessionRow } from "../../LedgerStore.js"
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

const createsSession = (query: SessionQuery, row: Row): boolean =>
  Legacy.canonical(row.event) === EventName.sandboxCreated &&
  (query.name === undefined || row.name === query.name) &&
  (query.before === undefined || compare(row, query.before) < 0) &&
  createdWith(row, "runId", query.runId) &&
  createdWith(row, "resourceId", query.resourceId)

/** Checkpoints first, what says that there was a session last. */
const removalRank = (row: Row): number => {
  const event = Legacy.canonical(row.event)
  return event === EventName.checkpointCreated ? 0 : Legacy.milestones.includes(event) ? 2 : 1
}

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

/** `ts` never goes backwards and ids count up, so one array is in the order of both. */
export const make = (): LedgerStore => {
  let lastId = 0
  let all: Array<Row> = []
  const bySandbox = new Map<string, Array<Row>>()
  const environments = new Map<string, EnvironmentRecord>()

  const rowsOf = (filter: { readonly sandboxId?: string | undefined }): ReadonlyArray<Row> =>
    filter.sandboxId === undefined ? all : (bySandbox.get(filter.sandboxId) ?? [])

  return {
    restrictedJson: false,
    joined: Effect.succeed(false),
    append: (rows) =>
      Effect.sync(() =>
        rows.map((row) => {
          const stored: Row = { ...row, id: ++lastId }
          all.push(stored)
          const session = bySandbox.get(row.sandboxId)
          if (session === undefined) {
            bySandbox.set(row.sandboxId, [stored])
          } else {
            session.push(stored)
          }
          return cursorOf(stored)
        })
      ),
    page: (query) =>
      Effect.sync(() => {
        const { after, limit, order, until } = query
        const candidates = rowsOf(query)
        const step = order === "asc" ? 1 : -1
        const from =
          order === "asc"
            ? after === undefined
              ? 0
              : countBefore(candidates, (row) => compare(row, after) > 0)
            : (after === undefined ? candidates.length : countBefore(candidates, (row) => compare(row, after) >= 0)) - 1
        const within = (row: Row) => until === undefined || compare(row, until) * step <= 0
        return pageOf(scan(candidates, from, step, limit, within, matching(query)), limit, cursorOf)
      }),
    rowAt: (sandboxId, index) => Effect.sync(() => Option.fromNullable(bySandbox.get(sandboxId)?.[index])),
    countBefore: (sandboxId, cursor) =>
      Effect.sync(() => countBefore(bySandbox.get(sandboxId) ?? [], (row) => compare(row, cursor) >= 0)),
    tail: (query) =>
      Effect.sync(() => {
        const { after, limit, upTo } = query
        const candidates = rowsOf(query)
        const from = countBefore(candidates, (row) => row.id > after)
        const rows = scan(candidates, from, 1, limit, (row) => row.id <= upTo, matching(query))
        return pageOf(rows, limit, (row) => row.id)
      }),
    settledId: Effect.sync(() => lastId),
    sessions: (query) =>
      Effect.sync(() => {
        const { limit, status } = query
        const candidates = rowsOf(query)
        const pick = (row: Row): SessionRow | undefined => {
          if (!createsSession(query, row)) {
            return undefined
          }
          const session = toSession(row, rowsOf(row))
          return status === undefined || session.status === status ? session : undefined
        }
        const rows = scan(candidates, candidates.length - 1, -1, limit, () => true, pick)
        return pageOf(rows, limit, ({ created }) => cursorOf(created))
      }),
    remove: (sandboxId, limit) =>
      Effect.sync(() => {
        const rows = bySandbox.get(sandboxId) ?? []
        const gone = new Set(rows.toSorted((a, b) => removalRank(a) - removalRank(b)).slice(0, limit))
        if (gone.size < rows.length) {
          bySandbox.set(
            sandboxId,
            rows.filter((row) => !gone.has(row))
          )
        } else {
          bySandbox.delete(sandboxId)
        }
        all = all.filter((row) => !gone.has(row))
        return gone.size
      }),
    environment: (name) => Effect.sync(() => Option.fromNullable(environments.get(name))),
    environments: Effect.sync(() => Array.from(environments.values())),
    putEnvironment: (record) => Effect.sync(() => void environments.set(record.name, { ...record })),
    deleteEnvironment: (name) => Effect.sync(() => environments.delete(name))
  }
}
