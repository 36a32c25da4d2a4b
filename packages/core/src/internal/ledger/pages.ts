/**
 * Paging by key: how large pages are, and streams of them.
 */
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import type { LedgerError } from "../../LedgerError.js"
import type { Page, Row } from "../../LedgerStore.js"

const pageSize = 1000

/** Pages start smaller and follow the size of the rows: a row of output may be long. */
export const firstPageSize = 200
const pageCharacters = 4 * 1024 * 1024

export const nextPageSize = (rows: ReadonlyArray<Row>): number => {
  let characters = 0
  for (const row of rows) {
    characters += row.payload === null ? 0 : row.payload.length
  }
  return rows.length === 0
    ? pageSize
    : Math.max(16, Math.min(pageSize, Math.floor(pageCharacters / (characters / rows.length + 1))))
}

/** What a store answers: a page that is full is followed by another, any other by what the store knows of (`end`). */
export const pageOf = <A, C>(rows: ReadonlyArray<A>, limit: number, place: (row: A) => C, end?: C): Page<A, C> => {
  const last = rows[rows.length - 1]
  return { rows, next: last !== undefined && rows.length >= limit ? place(last) : end }
}

export interface Found<A, C> {
  readonly items: ReadonlyArray<A>
  /** Where the next page begins; `undefined` after the last. */
  readonly next: C | undefined
  /** How large the next page is to be. */
  readonly nextSize: number
}

/** Page after page from a place on, until there are none or so many items were found. */
export const paged = <A, C>(
  from: C | undefined,
  limit: number,
  fetch: (from: C | undefined, count: number) => Effect.Effect<Found<A, C>, LedgerError>
): Stream.Stream<A, LedgerError> => {
  interface State {
    readonly from: C | undefined
    readonly left: number
    readonly size: number
  }
  const start: State = { from, left: limit, size: firstPageSize }
  return limit === 0
    ? Stream.empty
    : Stream.paginateChunkEffect(start, (state) =>
        Effect.map(fetch(state.from, Math.min(state.size, state.left)), ({ items, next, nextSize }) => {
          const some = items.length > state.left ? items.slice(0, state.left) : items
          const left = state.left - some.length
          return [
            Chunk.unsafeFromArray(some),
            next === undefined || left <= 0
              ? Option.none<State>()
              : Option.some<State>({ from: next, left, size: nextSize })
          ]
        })
      )
}
