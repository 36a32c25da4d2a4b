/**
 * Rows as the drivers return them.
 */
import type { EnvironmentRecord } from "../../Ledger.js"
import type { Cursor } from "../../LedgerEvent.js"
import type { Row, SessionRow } from "../../LedgerStore.js"

/** Postgres gives 64-bit integers as text. */
export type Integer = number | string

/** A row as the drivers return it. */
export interface EventRow {
  readonly id: Integer
  readonly sandbox_id: string
  readonly name: string
  readonly step_idx: number
  readonly branch: number | null
  readonly event: string
  readonly payload: string | null
  readonly error: string | null
  readonly ts: Integer
}

export interface SessionEventRow extends EventRow {
  readonly closed_at: Integer | null
  readonly is_paused: number | boolean | null
}

export interface EnvironmentRow {
  readonly name: string
  readonly snapshot_id: string
  readonly image: string
  readonly built_at: Integer
}

export const toRow = (row: EventRow): Row => ({
  id: Number(row.id),
  sandboxId: row.sandbox_id,
  name: row.name,
  stepIdx: row.step_idx,
  branch: row.branch,
  event: row.event,
  // SQLite columns hold whatever other programs put there.
  payload: row.payload === null || typeof row.payload === "string" ? row.payload : String(row.payload),
  error: row.error,
  ts: Number(row.ts)
})

export const toEnvironment = (row: EnvironmentRow): EnvironmentRecord => ({
  name: row.name,
  snapshotId: row.snapshot_id,
  image: row.image,
  builtAt: Number(row.built_at)
})

export const toSession = (row: SessionEventRow): SessionRow => ({
  created: toRow(row),
  status: row.closed_at !== null ? "closed" : row.is_paused === 1 ? "paused" : "running",
  closedAt: row.closed_at === null ? null : Number(row.closed_at)
})

export const toCursor = (row: { readonly ts: Integer; readonly id: Integer }): Cursor => ({
  ts: Number(row.ts),
  id: Number(row.id)
})
