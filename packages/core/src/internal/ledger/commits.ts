/**
 * Rows of concurrent appends share commits.
 */
import * as Arr from "effect/Array"
import * as Cause from "effect/Cause"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import type { LedgerError } from "../../LedgerError.js"
import type { Cursor } from "../../LedgerEvent.js"
import type { LedgerStore, NewRow } from "../../LedgerStore.js"
import type { Draft } from "./prepare.js"

/** Rows of several callers share a commit up to this many, and up to so many characters. */
const sharedCommitRows = 512
const sharedCommitCharacters = 8 * 1024 * 1024

/** By position: where the row stands, or why it was not stored. */
export type Stored = ReadonlyArray<Cursor | LedgerError>

/** Rows that are to be stored together. */
export interface Batch {
  readonly drafts: ReadonlyArray<Draft>
  readonly characters: number
}

interface Waiting extends Batch {
  readonly done: Deferred.Deferred<Stored, LedgerError>
}

/** Whether the rows have nothing to do with it, so that trying others would not help. */
const isOfStore = ({ reason }: LedgerError): boolean => reason === "Connection" || reason === "Contention"

/** Without the caller's context: its span, and whatever transaction it may be or have been in. */
const bare = <A, E>(self: Effect.Effect<A, E>): Effect.Effect<A, E> =>
  Effect.mapInputContext(self, () => Context.empty())

/** What stores rows: all that the database accepts, in order, with a `ts` that never goes backwards. */
export const make = (store: LedgerStore) => {
  const waiting = new Set<Waiting>()
  let draining = false
  let lastTs = 0

  const now = Effect.map(Effect.clock, (clock) => {
    lastTs = Math.max(lastTs, Math.trunc(clock.unsafeCurrentTimeMillis()))
    return lastTs
  })

  /** Once it is cut in pieces nothing interrupts it, and what was stored is told of however the rest ends. */
  const insert = (rows: Arr.NonEmptyReadonlyArray<NewRow>): Effect.Effect<Stored, LedgerError> =>
    Effect.catchIf(
      store.append(rows),
      (error) => error.reason === "Constraint",
      (error) => {
        const middle = rows.length >>> 1
        const [left, right] = [rows.slice(0, middle), rows.slice(middle)]
        if (!Arr.isNonEmptyReadonlyArray(left) || !Arr.isNonEmptyReadonlyArray(right)) {
          return Effect.succeed<Stored>([error])
        }
        return Effect.uninterruptible(
          Effect.flatMap(insert(left), (stored) =>
            Effect.map(
              Effect.catchAll(insert(right), (failure) => Effect.succeed<Stored>(right.map(() => failure))),
              (others) => [...stored, ...others]
            )
          )
        )
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
    let rows = 0
    let characters = 0
    for (const next of waiting) {
      rows += next.drafts.length
      characters += next.characters
      if (group.length > 0 && (rows > sharedCommitRows || characters > sharedCommitCharacters)) {
        break
      }
      waiting.delete(next)
      group.push(next)
    }
    return group
  }

  /** What one caller's rows are refused for, or break, never becomes another's failure: then the group is divided. */
  const commitGroup = (group: ReadonlyArray<Waiting>): Effect.Effect<void> => {
    const [only] = group
    if (only !== undefined && group.length === 1) {
      return Effect.map(Effect.exit(commit(only.drafts)), (exit) => Deferred.unsafeDone(only.done, exit))
    }
    const shared = Effect.flatMap(now, (ts) => {
      const rows = group.flatMap(({ drafts }) => drafts.map((draft): NewRow => ({ ...draft, ts })))
      return Arr.isNonEmptyReadonlyArray(rows) ? store.append(rows) : Effect.succeed([])
    })
    return Effect.flatMap(Effect.exit(shared), (exit) => {
      if (Exit.isFailure(exit) && !Option.exists(Cause.failureOption(exit.cause), isOfStore)) {
        const middle = group.length >>> 1
        return Effect.zipRight(commitGroup(group.slice(0, middle)), commitGroup(group.slice(middle)))
      }
      let position = 0
      for (const { done, drafts } of group) {
        const from = position
        position += drafts.length
        Deferred.unsafeDone(
          done,
          Exit.map(exit, (stored) => stored.slice(from, from + drafts.length))
        )
      }
      return Effect.void
    })
  }

  const drain = Effect.gen(function* () {
    while (true) {
      const group = takeGroup()
      if (group.length === 0) {
        draining = false
        return
      }
      yield* commitGroup(group)
    }
  })

  /**
   * Rows wait in one queue, and whatever has gathered while a commit was under way shares the next one. The work is
   * done by a fiber of its own, which has nothing of the context of the caller that happens to start it: interrupting a
   * caller takes its rows out of the queue, or lets them be written whole, and never disturbs the rows of others.
   */
  const commitShared = (batch: Batch): Effect.Effect<Stored, LedgerError> =>
    Effect.flatMap(Deferred.make<Stored, LedgerError>(), (done) => {
      const entry: Waiting = { ...batch, done }
      const withdraw = Effect.sync(() => waiting.delete(entry))
      // Whoever says that the queue is being emptied must come to start it.
      return Effect.uninterruptibleMask((restore) =>
        Effect.suspend(() => {
          waiting.add(entry)
          const stored = Effect.onInterrupt(restore(Deferred.await(done)), () => withdraw)
          if (draining) {
            return stored
          }
          draining = true
          return Effect.zipRight(Effect.forkDaemon(Effect.interruptible(bare(drain))), stored)
        })
      )
    })

  return { commit, commitShared }
}
