/**
 * From a page of stored rows to entries in today's spelling.
 */
import * as Effect from "effect/Effect"
import type { LedgerError } from "../../LedgerError.js"
import type { LedgerEntry } from "../../LedgerEvent.js"
import { EventName } from "../../LedgerEvent.js"
import type { LedgerStore, Row } from "../../LedgerStore.js"
import { decodeRow } from "./entries.js"
import * as Legacy from "./legacy.js"

/** Whether output in the older spelling was stored with its line ends: its exec's start says so. */
const isRaw = (store: LedgerStore, { sandboxId, stepIdx }: Row): Effect.Effect<boolean, LedgerError> =>
  store
    .page({
      sandboxId,
      stepIdx,
      events: Legacy.spellings(EventName.execStarted),
      withoutOutput: true,
      order: "asc",
      after: undefined,
      until: undefined,
      limit: 10
    })
    .pipe(Effect.map(({ rows }) => rows.some((row) => Legacy.isRawStart(decodeRow(row).payload))))

/** The exec that a row belongs to. */
const execOf = (row: Row): string => `${row.stepIdx} ${row.sandboxId}`

/** The entries of these rows, of the wanted events only: a store finds some that turn out to be others. */
export const decodeRows = (
  store: LedgerStore,
  rows: ReadonlyArray<Row>,
  events: ReadonlyArray<string> | undefined
): Effect.Effect<ReadonlyArray<LedgerEntry>, LedgerError> => {
  const entries = rows.map(decodeRow)
  const wanted = events === undefined ? undefined : new Set(events.map(Legacy.canonical))
  const finish = (raw: (position: number) => boolean) => {
    const normalized = entries.map((entry, position) => Legacy.normalize(entry, raw(position)))
    return wanted === undefined ? normalized : normalized.filter((entry) => wanted.has(entry.event))
  }
  const execs = new Map<string, Row>()
  for (const [position, entry] of entries.entries()) {
    const row = rows[position]
    if (row !== undefined && Legacy.isLegacyOutput(entry.event, entry.payload)) {
      execs.set(execOf(row), row)
    }
  }
  if (execs.size === 0) {
    return Effect.succeed(finish(() => false))
  }
  return Effect.map(
    Effect.filter(execs, ([, row]) => isRaw(store, row)),
    (found) => {
      const raw = new Set(found.map(([exec]) => exec))
      return finish((position) => {
        const row = rows[position]
        return row !== undefined && raw.has(execOf(row))
      })
    }
  )
}
