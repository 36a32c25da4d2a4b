/** The ledger's table as the raw driver sees it. */
import type { Ledger } from "@sandglass/core"
import type { LedgerError } from "@sandglass/core/LedgerError"
import { SqliteLedger } from "@sandglass/sql-sqlite"
import * as Effect from "effect/Effect"

export type Value = string | number | null

/** A file with the ledger's tables and indexes, in WAL mode, which the file keeps; every other pragma is the database's default. */
export const emptyLedger = (filename: string): Effect.Effect<void, LedgerError> =>
  Effect.asVoid(Effect.scoped(SqliteLedger.make({ filename })))

const columns = "sandbox_id, name, step_idx, branch, event, payload, error, ts"
const width = 8

/** One statement for so many rows; `param` is the text of the parameter at a place. */
export const insertOf = (rows: number, param: (place: number) => string = () => "?"): string =>
  `INSERT INTO alineo_events (${columns}) VALUES ${Array.from(
    { length: rows },
    (_, row) => `(${Array.from({ length: width }, (_, column) => param(row * width + column + 1)).join(", ")})`
  ).join(", ")}`

/** The values of an event's row. */
export const rowOf = (event: Ledger.EventInput): ReadonlyArray<Value> => [
  event.sandboxId,
  event.name,
  event.stepIdx ?? -1,
  event.branch ?? null,
  event.event,
  event.payload === undefined ? null : JSON.stringify(event.payload),
  event.error ?? null,
  1_767_225_600_000
]
