/**
 * Reading what is there: entries, checkpoints, sandboxes.
 */
import * as Arr from "effect/Array"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import type { Checkpoint, ReadOptions, SandboxDetails, SandboxFilter } from "../../Ledger.js"
import type { LedgerError } from "../../LedgerError.js"
import type { Cursor, LedgerEntry } from "../../LedgerEvent.js"
import { EventName } from "../../LedgerEvent.js"
import type { LedgerStore } from "../../LedgerStore.js"
import { decodeRows } from "./decoding.js"
import { toCheckpoint, toDetails } from "./entries.js"
import { firstPageSize, nextPageSize, paged } from "./pages.js"
import { toRowFilter, toSessionFilter } from "./queries.js"

export const entries = (store: LedgerStore, options: ReadOptions): Stream.Stream<LedgerEntry, LedgerError> => {
  const filter = toRowFilter(options)
  const { events, limit = Infinity, order = "asc", until } = options
  return events?.length === 0
    ? Stream.empty
    : paged(options.after, limit, (after, count) =>
        Effect.flatMap(store.page({ ...filter, order, after, until, limit: count }), ({ next, rows }) =>
          Effect.map(decodeRows(store, rows, events), (items) => ({ items, next, nextSize: nextPageSize(rows) }))
        )
      )
}

export const entryAt = (
  store: LedgerStore,
  sandboxId: string,
  index: number
): Effect.Effect<Option.Option<LedgerEntry>, LedgerError> =>
  store.rowAt(sandboxId, index).pipe(
    Effect.flatMap((row) => decodeRows(store, Option.toArray(row), undefined)),
    Effect.map(Arr.head)
  )

export const checkpoints = (
  store: LedgerStore,
  sandboxId: string,
  range: Pick<ReadOptions, "order" | "after">
): Stream.Stream<Checkpoint, LedgerError> =>
  Stream.filterMap(entries(store, { sandboxId, events: [EventName.checkpointCreated], ...range }), toCheckpoint)

/** The place before everything of this time or later. */
const beforeTime = (time: number): Cursor => ({
  ts: Math.max(Number.MIN_SAFE_INTEGER, Math.min(Number.MAX_SAFE_INTEGER, Math.ceil(time))),
  id: Number.MIN_SAFE_INTEGER
})

export const sandboxes = (store: LedgerStore, filter: SandboxFilter): Stream.Stream<SandboxDetails, LedgerError> => {
  const { before, limit = Infinity, resourceId, runId } = filter
  const query = toSessionFilter(filter)
  return paged(typeof before === "number" ? beforeTime(before) : before, limit, (before, count) =>
    Effect.map(store.sessions({ ...query, before, limit: count }), ({ next, rows }) => {
      const all = rows.map(toDetails)
      // The store compares what it can; whether it is the same text is decided here.
      const items = all.filter(
        (details) =>
          (runId === undefined || details.runId === runId) &&
          (resourceId === undefined || details.resourceId === resourceId)
      )
      return { items, next, nextSize: firstPageSize }
    })
  )
}
