/**
 * The backend of the ledger in memory.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { Encoded, EnvironmentRecord, Row, RowFilter, SessionQuery, SessionRow } from "../Ledger.js"
import type { Cursor } from "../LedgerEvent.js"
import { EventName } from "../LedgerEvent.js"
import { decodePayload } from "./ledgerCodec.js"
import * as Legacy from "./ledgerLegacy.js"

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

const matches =
  (filter: RowFilter) =>
  (row: Row): boolean =>
    (filter.sandboxId === undefined || row.sandboxId === filter.sandboxId) &&
    (filter.name === undefined || row.name === filter.name) &&
    (filter.stepIdx === undefined || row.stepIdx === filter.stepIdx) &&
    (filter.events === undefined || filter.events.includes(row.event)) &&
    (filter.withoutOutput !== true || !Legacy.outputEvents.includes(row.event))

const isCreated = (row: Row): boolean => Legacy.canonical(row.event) === EventName.sandboxCreated

/** `ts` never goes backwards and ids count up, so one array is in the order of both. */
export const make = (): Encoded => {
  let lastId = 0
  let all: Array<Row> = []
  const bySandbox = new Map<string, Array<Row>>()
  const environments = new Map<string, EnvironmentRecord>()

  const rowsOf = (filter: { readonly sandboxId?: string | undefined }): ReadonlyArray<Row> =>
    filter.sandboxId === undefined ? all : (bySandbox.get(filter.sandboxId) ?? [])

  const toSession = (created: Row): SessionRow => {
    let paused = false
    let closedAt: number | null = null
    for (const row of rowsOf(created)) {
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

  const hasRunId = (row: Row, runId: string): boolean => {
    const payload = row.payload === null ? undefined : decodePayload(row.payload)
    return Legacy.isRecord(payload) && payload["runId"] === runId
  }

  const isSession =
    (query: SessionQuery) =>
    (row: Row): boolean =>
      isCreated(row) &&
      (query.name === undefined || row.name === query.name) &&
      (query.before === undefined || compare(row, query.before) < 0) &&
      (query.runId === undefined || hasRunId(row, query.runId))

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
          return stored.id
        })
      ),
    page: (query) =>
      Effect.sync(() => {
        const { after, limit, order, until } = query
        const candidates = rowsOf(query)
        const step = order === "asc" ? 1 : -1
        const isMatch = matches(query)
        const rows: Array<Row> = []
        let index =
          order === "asc"
            ? after === undefined
              ? 0
              : countBefore(candidates, (row) => compare(row, after) > 0)
            : (after === undefined ? candidates.length : countBefore(candidates, (row) => compare(row, after) >= 0)) - 1
        for (; rows.length < limit; index += step) {
          const row = candidates[index]
          if (row === undefined || (until !== undefined && compare(row, until) * step > 0)) {
            break
          }
          if (isMatch(row)) {
            rows.push(row)
          }
        }
        const last = rows[rows.length - 1]
        return { rows, next: rows.length < limit || last === undefined ? undefined : { ts: last.ts, id: last.id } }
      }),
    tail: (query) =>
      Effect.sync(() => {
        const candidates = rowsOf(query)
        const isMatch = matches(query)
        const rows: Array<Row> = []
        let index = countBefore(candidates, (row) => row.id > query.after)
        for (; rows.length < query.limit; index++) {
          const row = candidates[index]
          if (row === undefined || row.id > query.upTo) {
            break
          }
          if (isMatch(row)) {
            rows.push(row)
          }
        }
        return { rows, next: rows.length < query.limit ? undefined : rows[rows.length - 1]?.id }
      }),
    settledId: Effect.sync(() => lastId),
    sessions: (query) =>
      Effect.sync(() => {
        const candidates = rowsOf(query)
        const isMatch = isSession(query)
        const rows: Array<SessionRow> = []
        for (let index = candidates.length - 1; index >= 0 && rows.length < query.limit; index--) {
          const row = candidates[index]
          if (row !== undefined && isMatch(row)) {
            const session = toSession(row)
            if (query.status === undefined || session.status === query.status) {
              rows.push(session)
            }
          }
        }
        const last = rows[rows.length - 1]?.created
        return {
          rows,
          next: rows.length < query.limit || last === undefined ? undefined : { ts: last.ts, id: last.id }
        }
      }),
    remove: (sandboxId) =>
      Effect.sync(() => {
        const removed = bySandbox.get(sandboxId)?.length ?? 0
        if (removed > 0) {
          bySandbox.delete(sandboxId)
          all = all.filter((row) => row.sandboxId !== sandboxId)
        }
        return removed
      }),
    environment: (name) => Effect.sync(() => Option.fromNullable(environments.get(name))),
    environments: Effect.sync(() => Array.from(environments.values())),
    putEnvironment: (record) => Effect.sync(() => void environments.set(record.name, { ...record })),
    deleteEnvironment: (name) => Effect.sync(() => environments.delete(name))
  }
}
