/**
 * Appending many events: the good ones are stored whatever becomes of the others.
 */
import * as Effect from "effect/Effect"
import type { EventInput } from "../../Ledger.js"
import { isLedgerError, LedgerError } from "../../LedgerError.js"
import type { LedgerEntry } from "../../LedgerEvent.js"
import type { LedgerStore } from "../../LedgerStore.js"
import type { Stored } from "./commits.js"
import * as Commits from "./commits.js"
import { toEntry } from "./entries.js"
import type { Prepared } from "./prepare.js"
import { prepare } from "./prepare.js"

interface Rejected {
  readonly index: number
  readonly description: string
}

const invalidEvents = (rejected: ReadonlyArray<Rejected>, cause: LedgerError | undefined): LedgerError =>
  new LedgerError({
    method: "appendAll",
    reason: "InvalidEvent",
    description:
      rejected
        .slice(0, 3)
        .map((_) => `[${_.index}] ${_.description}`)
        .join("; ") + (rejected.length > 3 ? `; and ${rejected.length - 3} more` : ""),
    rejected,
    ...(cause === undefined ? undefined : { cause })
  })

/** `appended` runs after rows were stored. */
export const make = (store: LedgerStore, appended: Effect.Effect<void>) => {
  const commit = Commits.make(store)

  return (events: ReadonlyArray<EventInput>): Effect.Effect<ReadonlyArray<LedgerEntry>, LedgerError> => {
    const rejected: Array<Rejected> = []
    const good: Array<Prepared & { readonly index: number; readonly input: EventInput }> = []
    for (const [index, input] of events.entries()) {
      const prepared = prepare(input, store.restrictedJson)
      if (typeof prepared === "string") {
        rejected.push({ index, description: prepared })
      } else {
        good.push({ ...prepared, index, input })
      }
    }
    const stored =
      good.length === 0 ? Effect.succeed<Stored>([]) : Effect.zipLeft(commit(good.map(({ row }) => row)), appended)
    return Effect.flatMap(stored, (results) => {
      const entries: Array<LedgerEntry> = []
      let cause: LedgerError | undefined
      for (const [position, { index, input, payload }] of good.entries()) {
        const result = results[position]
        if (result === undefined || isLedgerError(result)) {
          cause = result
          rejected.push({ index, description: result?.description ?? "refused by the database" })
        } else {
          entries.push(toEntry(input, payload, result))
        }
      }
      if (rejected.length === 0) {
        return Effect.succeed(entries)
      }
      rejected.sort((a, b) => a.index - b.index)
      return Effect.fail(invalidEvents(rejected, cause))
    })
  }
}
