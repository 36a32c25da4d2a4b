/**
 * Following a ledger: history, and then what is appended.
 */
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Queue from "effect/Queue"
import * as Stream from "effect/Stream"
import type { TailOptions } from "../../Ledger.js"
import type { LedgerError } from "../../LedgerError.js"
import type { LedgerEntry } from "../../LedgerEvent.js"
import type { LedgerStore } from "../../LedgerStore.js"
import { decodeRows } from "./decoding.js"
import { firstPageSize, nextPageSize } from "./pages.js"
import { toRowFilter } from "./queries.js"

export const make = (store: LedgerStore) => {
  const tails = new Set<Queue.Queue<void>>()

  /** Tells everyone who follows that there is something new. */
  const poke = Effect.sync(() => {
    for (const queue of tails) {
      queue.unsafeOffer(undefined)
    }
  })

  // One place that slides: a consumer that stands still costs an appender nothing.
  const pokes = Effect.acquireRelease(
    Effect.tap(Queue.sliding<void>(1), (queue) => Effect.sync(() => tails.add(queue))),
    (queue) =>
      Effect.zipRight(
        Effect.sync(() => tails.delete(queue)),
        Queue.shutdown(queue)
      )
  )

  const follow = (options: TailOptions): Stream.Stream<LedgerEntry, LedgerError> =>
    Stream.unwrapScoped(
      Effect.gen(function* () {
        const filter = toRowFilter(options)
        const queue = yield* pokes
        if (store.changes !== undefined) {
          yield* Effect.forkScoped(Stream.runForEach(store.changes, () => Queue.offer(queue, undefined)))
        }
        const wait =
          store.pollInterval === undefined
            ? Queue.take(queue)
            : Effect.raceFirst(Queue.take(queue), Effect.sleep(store.pollInterval))
        let cursor = options.afterId ?? 0
        let upTo = cursor
        let size = firstPageSize
        const next: Effect.Effect<Chunk.Chunk<LedgerEntry>, LedgerError> = Effect.gen(function* () {
          while (true) {
            if (cursor >= upTo) {
              upTo = yield* Effect.withTracerEnabled(store.settledId, false)
            }
            if (cursor >= upTo) {
              yield* wait
              continue
            }
            const page = yield* store.tail({ ...filter, after: cursor, upTo, limit: size })
            const found = yield* decodeRows(store, page.rows, options.events)
            cursor = page.next ?? upTo
            size = nextPageSize(page.rows)
            if (found.length > 0) {
              return Chunk.unsafeFromArray(found)
            }
          }
        })
        return Stream.repeatEffectChunk(next)
      })
    )

  return { follow, poke }
}
