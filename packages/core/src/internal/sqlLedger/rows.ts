/**
 * Rows as the drivers return them. What a column holds is whatever some program put there: SQLite keeps values of any
 * type in any column, and Postgres gives 64-bit integers as text. Everything is made what it ought to be, or as near to
 * it as can be, so that a row that one cannot make sense of is no reason not to read the others.
 */
import type { EnvironmentRecord } from "../../Ledger.js"
import type { Cursor } from "../../LedgerEvent.js"
import type { Row, SessionRow } from "../../LedgerStore.js"

/** A row as the drivers return it. */
export interface EventRow {
  readonly id: unknown
  readonly sandbox_id: unknown
  readonly name: unknown
  readonly step_idx: unknown
  readonly branch: unknown
  readonly event: unknown
  readonly payload: unknown
  readonly error: unknown
  readonly ts: unknown
}

export interface SessionEventRow extends EventRow {
  readonly closed_at: unknown
  readonly is_paused: unknown
}

export interface EnvironmentRow {
  readonly name: unknown
  readonly snapshot_id: unknown
  readonly image: unknown
  readonly built_at: unknown
}

const utf8 = new TextDecoder("utf-8", { ignoreBOM: true })

const text = (value: unknown): string | null =>
  typeof value === "string"
    ? value
    : value === null || value === undefined
      ? null
      : ArrayBuffer.isView(value) || value instanceof ArrayBuffer
        ? utf8.decode(value)
        : String(value)

/** A whole number, as drivers and other programs write it. */
export const integer = <A>(value: unknown, otherwise: A): number | A => {
  if (typeof value === "number" && Number.isInteger(value)) {
    return value
  }
  const written = text(value)?.trim() ?? ""
  const number = written === "" ? Number.NaN : Number(written)
  return Number.isFinite(number) ? Math.floor(number) : otherwise
}

/** No date is beyond it. */
const endOfTime = 8_640_000_000_000_000

/** Of what is no time the place in the order is kept: it comes last, or first where there is nothing at all. */
const time = (value: unknown): number =>
  Math.min(endOfTime, Math.max(-endOfTime, integer(value, (value ?? -Infinity) === -Infinity ? -endOfTime : endOfTime)))

/** Whether the `ts` of a row is no whole number that a cursor holds. In SQL. */
export const isOddTs = `ts NOT BETWEEN ${-endOfTime} AND ${endOfTime}`

export const toRow = (row: EventRow): Row => ({
  id: integer(row.id, 0),
  sandboxId: text(row.sandbox_id) ?? "",
  name: text(row.name) ?? "",
  stepIdx: integer(row.step_idx, -1),
  branch: integer(row.branch, null),
  event: text(row.event) ?? "",
  payload: text(row.payload),
  error: text(row.error),
  ts: time(row.ts)
})

export const toEnvironment = (row: EnvironmentRow): EnvironmentRecord => ({
  name: text(row.name) ?? "",
  snapshotId: text(row.snapshot_id) ?? "",
  image: text(row.image) ?? "",
  builtAt: time(row.built_at)
})

export const toSession = (row: SessionEventRow): SessionRow => {
  const closedAt = row.closed_at === null ? null : time(row.closed_at)
  return {
    created: toRow(row),
    status: closedAt !== null ? "closed" : integer(row.is_paused, 0) === 1 ? "paused" : "running",
    closedAt
  }
}

export const toCursor = (row: { readonly ts?: unknown; readonly id?: unknown }): Cursor => ({
  ts: time(row.ts),
  id: integer(row.id, 0)
})
