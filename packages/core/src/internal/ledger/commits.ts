/**
 * Storing rows: all that the database accepts, in order, with a `ts` that never goes backwards.
 */
import * as Arr from "effect/Array"
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import type { LedgerError } from "../../LedgerError.js"
import type { LedgerStore, NewRow } from "../../LedgerStore.js"
import type { Draft } from "./prepare.js"
import type { Append, Stored } from "./queue.js"

/** Whether the rows have nothing to do with it, so that trying others would not help. */
const isOfStore = ({ reason }: LedgerError): boolean => reason === "Connection" || reason === "Contention"

export const make = (store: LedgerStore) => {
  let lastTs = 0

  const now = Effect.map(Effect.clock, (clock) => {
    lastTs = Math.max(lastTs, Math.trunc(clock.unsafeCurrentTimeMillis()))
    return lastTs
  })

  const rowsOf = (drafts: ReadonlyArray<Draft>, ts: number): ReadonlyArray<NewRow> => {
    for (const draft of drafts) {
      draft.ts = ts
    }
    return drafts
  }

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
      const rows = rowsOf(drafts, ts)
      return Arr.isNonEmptyReadonlyArray(rows) ? insert(rows) : Effect.succeed<Stored>([])
    })

  const draftsOf = ({ prepared }: Append): ReadonlyArray<Draft> => prepared?.drafts ?? []

  /** What one caller's rows are refused for, or break, never becomes another's failure: then the group is divided. */
  const commitGroup = (
    group: ReadonlyArray<Append>,
    settle: (append: Append, exit: Exit.Exit<Stored, LedgerError>) => void
  ): Effect.Effect<void> => {
    const [only] = group
    if (only !== undefined && group.length === 1) {
      return Effect.map(Effect.exit(commit(draftsOf(only))), (exit) => settle(only, exit))
    }
    const shared = Effect.flatMap(now, (ts) => {
      const rows = rowsOf(group.flatMap(draftsOf), ts)
      return Arr.isNonEmptyReadonlyArray(rows) ? store.append(rows) : Effect.succeed([])
    })
    return Effect.flatMap(Effect.exit(shared), (exit) => {
      if (Exit.isFailure(exit) && !Option.exists(Cause.failureOption(exit.cause), isOfStore)) {
        const middle = group.length >>> 1
        return Effect.zipRight(commitGroup(group.slice(0, middle), settle), commitGroup(group.slice(middle), settle))
      }
      let position = 0
      for (const append of group) {
        const from = position
        position += draftsOf(append).length
        const to = position
        settle(
          append,
          Exit.map(exit, (stored) => stored.slice(from, to))
        )
      }
      return Effect.void
    })
  }

  return { commit, commitGroup }
}
