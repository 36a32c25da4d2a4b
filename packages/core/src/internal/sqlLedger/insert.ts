/**
 * Inserting many rows with few statements.
 */
import * as Effect from "effect/Effect"
import type { NewRow } from "../../LedgerStore.js"
import type { SqlFailure } from "../../SqlStore.js"

/** Statement texts stay the same from call to call: drivers keep prepared statements by their text. */
const batchSizes = [256, 64, 16, 4, 1] as const

export const insertColumns = "sandbox_id, name, step_idx, branch, event, payload, error, ts"

/** A time beyond it, the year 9999, is none that a later entry has to follow: another program counted something else. */
export const latestTs = 253_402_300_799_999

/** Appends the values of `insertColumns` to `params`, none of them earlier than a time. */
export const rowParams = (
  rows: ReadonlyArray<NewRow>,
  params: Array<unknown>,
  earliest = Number.NEGATIVE_INFINITY
): Array<unknown> => {
  for (const row of rows) {
    const ts = Math.max(row.ts, earliest)
    params.push(row.sandboxId, row.name, row.stepIdx, row.branch, row.event, row.payload, row.error, ts)
  }
  return params
}

/** Calls `insert` with as few and as large batches as there are statements for. */
export const makeInBatches = (textOf: (size: number) => string) => {
  const texts = new Map(batchSizes.map((size) => [size, textOf(size)]))
  return <A>(
    rows: ReadonlyArray<NewRow>,
    insert: (batch: ReadonlyArray<NewRow>, text: string) => Effect.Effect<A, SqlFailure>
  ): Effect.Effect<Array<A>, SqlFailure> => {
    const batches: Array<Effect.Effect<A, SqlFailure>> = []
    let from = 0
    for (const [size, text] of texts) {
      for (; rows.length - from >= size; from += size) {
        batches.push(insert(from === 0 && rows.length === size ? rows : rows.slice(from, from + size), text))
      }
    }
    return Effect.all(batches)
  }
}
