/**
 * Appending many events: the good ones are stored whatever becomes of the others.
 */
import * as Effect from "effect/Effect"
import type { EventInput } from "../../Ledger.js"
import { isLedgerError, LedgerError } from "../../LedgerError.js"
import type { LedgerEntry } from "../../LedgerEvent.js"
import type { LedgerStore } from "../../LedgerStore.js"
import * as Admission from "./admission.js"
import type { Stored } from "./commits.js"
import * as Commits from "./commits.js"
import { toEntry } from "./entries.js"
import type { Draft, Prepared } from "./prepare.js"
import { prepare } from "./prepare.js"

interface Rejected {
  readonly index: number
  readonly description: string
}

const listed = (rejected: ReadonlyArray<Rejected>): string =>
  rejected
    .slice(0, 3)
    .map((_) => `[${_.index}] ${_.description}`)
    .join("; ") + (rejected.length > 3 ? `; and ${rejected.length - 3} more` : "")

/** What may wait for a commit. */
const waitingLimits = { rows: 4_096, characters: 32 * 1024 * 1024 }

/** What can be stored of some events, and what cannot. */
interface Prepare {
  readonly good: ReadonlyArray<Prepared & { readonly index: number; readonly input: EventInput }>
  readonly rejected: ReadonlyArray<Rejected>
  readonly drafts: ReadonlyArray<Draft>
  readonly characters: number
}

const prepareAll = (events: ReadonlyArray<EventInput>, restrictedJson: boolean): Prepare => {
  const rejected: Array<Rejected> = []
  const good: Array<Prepared & { readonly index: number; readonly input: EventInput }> = []
  const drafts: Array<Draft> = []
  let characters = 0
  for (const [index, input] of events.entries()) {
    const prepared = prepare(input, restrictedJson)
    if (typeof prepared === "string") {
      rejected.push({ index, description: prepared })
    } else {
      const { payload, row } = prepared
      good.push({ payload, row, index, input })
      drafts.push(row)
      characters += (row.payload?.length ?? 0) + (row.error?.length ?? 0)
    }
  }
  return { good, rejected, drafts, characters }
}

/** The entries, or the failure that names those which there are none of. */
const toEntries = (prepared: Prepare, stored: Stored): Effect.Effect<ReadonlyArray<LedgerEntry>, LedgerError> => {
  const entries: Array<LedgerEntry> = []
  const rejected = [...prepared.rejected]
  let cause: LedgerError | undefined
  for (const [position, { index, input, payload }] of prepared.good.entries()) {
    const result = stored[position]
    if (result === undefined || isLedgerError(result)) {
      // That the database was lost on the way is more than that it refused some.
      cause = cause === undefined || cause.reason === "Constraint" ? (result ?? cause) : cause
      rejected.push({ index, description: result?.description ?? "refused by the database" })
    } else {
      entries.push(toEntry(input, payload, result))
    }
  }
  if (rejected.length === 0) {
    return Effect.succeed(entries)
  }
  rejected.sort((a, b) => a.index - b.index)
  return Effect.fail(
    new LedgerError({
      method: "appendAll",
      reason: cause === undefined || cause.reason === "Constraint" ? "InvalidEvent" : cause.reason,
      description: listed(rejected),
      rejected,
      ...(cause === undefined ? undefined : { cause })
    })
  )
}

/** `appended` runs after rows were stored. */
export const make = (store: LedgerStore, appended: Effect.Effect<void>) => {
  const { commit, commitShared } = Commits.make(store)
  const whenThereIsRoom = Admission.make(waitingLimits)

  const storeAll = (prepared: Prepare, stored: Effect.Effect<Stored, LedgerError>) =>
    Effect.flatMap(
      prepared.drafts.length === 0 ? Effect.succeed<Stored>([]) : Effect.zipLeft(stored, appended),
      (results) => toEntries(prepared, results)
    )

  return (events: ReadonlyArray<EventInput>): Effect.Effect<ReadonlyArray<LedgerEntry>, LedgerError> =>
    Effect.flatMap(store.joined, (joined) => {
      if (joined) {
        const prepared = prepareAll(events, store.restrictedJson)
        return storeAll(prepared, commit(prepared.drafts))
      }
      return whenThereIsRoom(events.length, (count) => {
        const prepared = prepareAll(events, store.restrictedJson)
        count(prepared.characters)
        return storeAll(prepared, commitShared(prepared))
      })
    })
}
