/**
 * Rows of concurrent appends share commits.
 */
import * as Arr from "effect/Array"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type { LedgerError } from "../../LedgerError.js"
import type { LedgerStore, NewRow } from "../../LedgerStore.js"
import type { Draft } from "./prepare.js"

/** Rows of several callers share a commit up to this many. */
const sharedCommitRows = 512

export interface Stored {
  /** By position: the id, or why the database refused the row. */
  readonly results: ReadonlyArray<number | LedgerError>
  /** The `ts` they were stored with. */
  readonly ts: number
}

interface Waiting {
  readonly drafts: ReadonlyArray<Draft>
  readonly done: Deferred.Deferred<Stored, LedgerError>
}

/** What stores rows: all that the database accepts, in order, with a `ts` that never goes backwards. */
export const make = (store: LedgerStore) => {
  const waiting: Array<Waiting> = []
  let draining = false
  let lastTs = 0

  const now = Effect.map(Effect.clock, (clock) => {
    lastTs = Math.max(lastTs, Math.trunc(clock.unsafeCurrentTimeMillis()))
    return lastTs
  })

  const insert = (
    rows: Arr.NonEmptyReadonlyArray<NewRow>
  ): Effect.Effect<ReadonlyArray<number | LedgerError>, LedgerError> =>
    Effect.catchIf(
      store.append(rows),
      (error) => error.reason === "Constraint",
      (error) => {
        const middle = rows.length >>> 1
        const [left, right] = [rows.slice(0, middle), rows.slice(middle)]
        return Arr.isNonEmptyReadonlyArray(left) && Arr.isNonEmptyReadonlyArray(right)
          ? Effect.zipWith(insert(left), insert(right), (a, b) => [...a, ...b])
          : Effect.succeed([error])
      }
    )

  const commit = (drafts: ReadonlyArray<Draft>): Effect.Effect<Stored, LedgerError> =>
    Effect.flatMap(now, (ts) => {
      const rows = drafts.map((draft): NewRow => ({ ...draft, ts }))
      return Arr.isNonEmptyReadonlyArray(rows)
        ? Effect.map(insert(rows), (results): Stored => ({ results, ts }))
        : Effect.succeed<Stored>({ results: [], ts })
    })

  /** Takes what may share the next commit out of the queue. */
  const takeGroup = (): ReadonlyArray<Waiting> => {
    const group: Array<Waiting> = []
    let size = 0
    for (let next = waiting[0]; next !== undefined; next = waiting[0]) {
      if (group.length > 0 && size + next.drafts.length > sharedCommitRows) {
        break
      }
      waiting.shift()
      group.push(next)
      size += next.drafts.length
    }
    return group
  }

  const drain = Effect.gen(function* () {
    while (true) {
      const group = takeGroup()
      if (group.length === 0) {
        draining = false
        return
      }
      const exit = yield* Effect.exit(commit(group.flatMap(({ drafts }) => drafts)))
      let position = 0
      for (const { done, drafts } of group) {
        const from = position
        position += drafts.length
        Deferred.unsafeDone(
          done,
          Exit.map(exit, ({ results, ts }) => ({ results: results.slice(from, from + drafts.length), ts }))
        )
      }
    }
  })

  /**
   * Rows wait in one queue, and whatever has gathered while a commit was under way shares the next one. The work is
   * done by a fiber of its own: interrupting a caller takes its rows out of the queue, or lets them be written
   * whole, and never disturbs the rows of others.
   */
  const commitShared = (drafts: ReadonlyArray<Draft>): Effect.Effect<Stored, LedgerError> =>
    Effect.flatMap(Deferred.make<Stored, LedgerError>(), (done) => {
      const entry: Waiting = { drafts, done }
      return Effect.suspend(() => {
        waiting.push(entry)
        if (draining) {
          return Deferred.await(done)
        }
        draining = true
        return Effect.zipRight(Effect.forkDaemon(Effect.interruptible(drain)), Deferred.await(done))
      }).pipe(
        Effect.onInterrupt(() =>
          Effect.sync(() => {
            const position = waiting.indexOf(entry)
            if (position >= 0) {
              waiting.splice(position, 1)
            }
          })
        )
      )
    })

  return (drafts: ReadonlyArray<Draft>): Effect.Effect<Stored, LedgerError> =>
    Effect.flatMap(store.joined, (joined) => (joined ? commit(drafts) : commitShared(drafts)))
}
