/**
 * Appending many events: the good ones are stored whatever becomes of the others. Appends that are under way at the same
 * time share commits.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import type { EventInput } from "../../Ledger.js"
import { isLedgerError, LedgerError } from "../../LedgerError.js"
import type { LedgerEntry } from "../../LedgerEvent.js"
import type { LedgerStore } from "../../LedgerStore.js"
import * as Commits from "./commits.js"
import { toEntry } from "./entries.js"
import type { PreparedAll, Rejected } from "./prepare.js"
import { prepareAll } from "./prepare.js"
import type { Append, Stored } from "./queue.js"
import { Queue } from "./queue.js"

/** What may wait for a commit, and how much of it shares one. */
const waitingLimits = { rows: 4_096, characters: 32 * 1024 * 1024 }
const groupLimits = { rows: 512, characters: 8 * 1024 * 1024 }

const listed = (rejected: ReadonlyArray<Rejected>): string =>
  rejected
    .slice(0, 3)
    .map((_) => `[${_.index}] ${_.description}`)
    .join("; ") + (rejected.length > 3 ? `; and ${rejected.length - 3} more` : "")

const failure = (rejected: ReadonlyArray<Rejected>, cause: LedgerError | undefined): LedgerError =>
  new LedgerError({
    method: "appendAll",
    reason: cause === undefined || cause.reason === "Constraint" ? "InvalidEvent" : cause.reason,
    description: listed(rejected),
    rejected,
    ...(cause === undefined ? undefined : { cause })
  })

/** The entries, or the failure that names those which there are none of. */
const toEntries = (
  events: ReadonlyArray<EventInput>,
  { indexes, payloads, rejected }: PreparedAll,
  stored: Stored
): Effect.Effect<ReadonlyArray<LedgerEntry>, LedgerError> => {
  const entries: Array<LedgerEntry> = []
  const missing = [...rejected]
  let cause: LedgerError | undefined
  for (let position = 0; position < payloads.length; position++) {
    const index = indexes === undefined ? position : (indexes[position] ?? 0)
    const input = events[index]
    const result = stored[position]
    if (result === undefined || input === undefined || isLedgerError(result)) {
      const error = isLedgerError(result) ? result : undefined
      // That the database was lost on the way is more than that it refused some.
      cause = cause === undefined || cause.reason === "Constraint" ? (error ?? cause) : cause
      missing.push({ index, description: error?.description ?? "refused by the database" })
    } else {
      entries.push(toEntry(input, payloads[position], result))
    }
  }
  return missing.length === 0
    ? Effect.succeed(entries)
    : Effect.fail(
        failure(
          missing.sort((a, b) => a.index - b.index),
          cause
        )
      )
}

/** Without the caller's context: its span, and whatever transaction it may be or have been in. */
const bare = <A, E>(self: Effect.Effect<A, E>): Effect.Effect<A, E> =>
  Effect.mapInputContext(self, () => Context.empty())

/** `appended` runs after rows were stored. */
export const make = (store: LedgerStore, appended: Effect.Effect<void>) => {
  const { commit, commitGroup } = Commits.make(store)
  const prepare = (events: ReadonlyArray<EventInput>) => prepareAll(events, store.restrictedJson)
  const queue = new Queue(prepare, waitingLimits, groupLimits)
  let draining = false

  const drain = Effect.gen(function* () {
    while (true) {
      const group = queue.take()
      if (group.length === 0) {
        draining = false
        return
      }
      yield* commitGroup(group, (append, exit) => queue.settle(append, exit))
      yield* appended
    }
  })

  const start = Effect.suspend(() => {
    draining = true
    return Effect.forkDaemon(Effect.interruptible(bare(drain)))
  })

  const settled = (append: Append): Effect.Effect<Stored, LedgerError> =>
    Effect.async<Stored, LedgerError>((resume) => {
      if (append.exit !== undefined) {
        resume(append.exit)
        return
      }
      append.resume = resume
      return Effect.sync(() => queue.withdraw(append))
    })

  /**
   * Appends wait in one queue, and whatever has gathered while a commit was under way shares the next one. The work is
   * done by a fiber of its own, which has nothing of the context of the caller that happens to start it: interrupting a
   * caller takes its rows out of the queue, or lets them be written whole, and never disturbs the rows of others.
   */
  const appendShared = (events: ReadonlyArray<EventInput>) =>
    // Whoever finds that nobody empties the queue must come to see to it.
    Effect.uninterruptibleMask((restore) => {
      const append = queue.add(events)
      const stored = Effect.flatMap(append.exit ?? restore(settled(append)), (stored) =>
        append.prepared === undefined ? Effect.succeed([]) : toEntries(append.events, append.prepared, stored)
      )
      return draining || append.exit !== undefined ? stored : Effect.zipRight(start, stored)
    })

  const appendJoined = (events: ReadonlyArray<EventInput>) => {
    const prepared = prepare(events)
    return Effect.flatMap(
      prepared.drafts.length === 0 ? Effect.succeed<Stored>([]) : Effect.zipLeft(commit(prepared.drafts), appended),
      (stored) => toEntries(events, prepared, stored)
    )
  }

  return (events: ReadonlyArray<EventInput>): Effect.Effect<ReadonlyArray<LedgerEntry>, LedgerError> =>
    Effect.flatMap(store.joined, (joined) => (joined ? appendJoined(events) : appendShared(events)))
}
