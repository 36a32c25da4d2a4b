/**
 * Rows of concurrent appends share commits.
 */
import * as Arr from "effect/Array"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type { LedgerError } from "../../LedgerError.js"
import type { Cursor } from "../../LedgerEvent.js"
import type { LedgerStore, NewRow } from "../../LedgerStore.js"
import type { Draft } from "./prepare.js"

/** Rows of several callers share a commit up to this many. */
const sharedCommitRows = 512

/** By position: where the row stands, or why the database refused it. */
export type Stored = ReadonlyArray<Cursor | LedgerError>

interface Waiting {
  readonly drafts: ReadonlyArray<Draft>
  readonly done: Deferred.Deferred<Stored, LedgerError>
}

/** Without the caller's context: its span, and whatever transaction it may be or have been in. */
const bare = <A, E>(self: Effect.Effect<A, E>): Effect.Effect<A, E> =>
  Effect.mapInputContext(self, () => Context.empty())

/** What stores rows: all that the database accepts, in order, with a `ts` that never goes backwards. */
export const make = (store: LedgerStore) => {
  const waiting: Array<Waiting> = []
  let draining = false
  let lastTs = 0

  const now = Effect.map(Effect.clock, (clock) => {
    lastTs = Math.max(lastTs, Math.trunc(clock.unsafeCurrentTimeMillis()))
    return lastTs
  })

  /** Once it is cut in pieces nothing interrupts it: everything that can be stored is, or nothing. */
  const insert = (rows: Arr.NonEmptyReadonlyArray<NewRow>): Effect.Effect<Stored, LedgerError> =>
    Effect.catchIf(
      store.append(rows),
      (error) => error.reason === "Constraint",
      (error) => {
        const middle = rows.length >>> 1
        const [left, right] = [rows.slice(0, middle), rows.slice(middle)]
        return Arr.isNonEmptyReadonlyArray(left) && Arr.isNonEmptyReadonlyArray(right)
          ? Effect.uninterruptible(Effect.zipWith(insert(left), insert(right), (a, b) => [...a, ...b]))
          : Effect.succeed([error])
      }
    )

  const commit = (drafts: ReadonlyArray<Draft>): Effect.Effect<Stored, LedgerError> =>
    Effect.flatMap(now, (ts) => {
      const rows = drafts.map((draft): NewRow => ({ ...draft, ts }))
      return Arr.isNonEmptyReadonlyArray(rows) ? insert(rows) : Effect.succeed<Stored>([])
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
          Exit.map(exit, (stored) => stored.slice(from, from + drafts.length))
        )
      }
    }
  })

  /**
   * Rows wait in one queue, and whatever has gathered while a commit was under way shares the next one. The work is
   * done by a fiber of its own, which has nothing of the context of the caller that happens to start it: interrupting a
   * caller takes its rows out of the queue, or lets them be written whole, and never disturbs the rows of others.
   */
  const commitShared = (drafts: ReadonlyArray<Draft>): Effect.Effect<Stored, LedgerError> =>
    Effect.flatMap(Deferred.make<Stored, LedgerError>(), (done) => {
      const entry: Waiting = { drafts, done }
      const withdraw = Effect.sync(() => {
        const position = waiting.indexOf(entry)
        if (position >= 0) {
          waiting.splice(position, 1)
        }
      })
      // Whoever says that the queue is being emptied must come to start it.
      return Effect.uninterruptibleMask((restore) =>
        Effect.suspend(() => {
          waiting.push(entry)
          const stored = Effect.onInterrupt(restore(Deferred.await(done)), () => withdraw)
          if (draining) {
            return stored
          }
          draining = true
          return Effect.zipRight(Effect.forkDaemon(Effect.interruptible(bare(drain))), stored)
        })
      )
    })

  return (drafts: ReadonlyArray<Draft>): Effect.Effect<Stored, LedgerError> =>
    Effect.flatMap(store.joined, (joined) => (joined ? commit(drafts) : commitShared(drafts)))
}
