/**
 * What may be asked for, and how a store is asked.
 */
import * as Arr from "effect/Array"
import * as Effect from "effect/Effect"
import type { EntryFilter, PruneOptions, ReadOptions, SandboxFilter, TailOptions } from "../../Ledger.js"
import { LedgerError } from "../../LedgerError.js"
import type { Cursor } from "../../LedgerEvent.js"
import type { RowFilter, SessionQuery } from "../../LedgerStore.js"
import * as Codec from "./codec.js"
import * as Legacy from "./legacy.js"
import { isInt32 } from "./prepare.js"

type Check = Effect.Effect<void, LedgerError>

/** The operation that fails is filled in where its span is opened. */
const demand = (condition: boolean, description: () => string): Check =>
  condition
    ? Effect.void
    : Effect.fail(new LedgerError({ method: "query", reason: "InvalidQuery", description: description() }))

const checkCount = (name: string, value: number | undefined): Check =>
  demand(
    value === undefined || (Number.isSafeInteger(value) && value >= 0),
    () => `${name} is ${value}, not a whole number of 0 or more`
  )

export const checkIndex = (index: number): Check => checkCount("index", index)

export const checkCursor = (name: string, value: Cursor | undefined): Check =>
  demand(
    value === undefined || (Number.isSafeInteger(value.ts) && Number.isSafeInteger(value.id)),
    () => `${name} is no cursor`
  )

const checkFilter = (filter: EntryFilter): Check =>
  demand(filter.stepIdx === undefined || isInt32(filter.stepIdx), () => "stepIdx is no 32-bit integer")

const all = (...checks: ReadonlyArray<Check>): Check => Effect.all(checks, { discard: true })

export const checkRead = (options: ReadOptions): Check =>
  all(
    checkFilter(options),
    checkCount("limit", options.limit),
    checkCursor("after", options.after),
    checkCursor("until", options.until)
  )

export const checkTail = (options: TailOptions): Check =>
  all(checkFilter(options), checkCount("afterId", options.afterId))

export const checkSandboxes = ({ before, limit, status }: SandboxFilter): Check =>
  all(
    checkCount("limit", limit),
    typeof before === "number"
      ? demand(Number.isFinite(before), () => `before is ${before}`)
      : checkCursor("before", before),
    demand(
      status === undefined || ["running", "paused", "closed"].includes(status),
      () => `status is ${String(status)}`
    )
  )

export const checkPrune = ({ before }: PruneOptions): Check =>
  demand(Number.isFinite(before), () => `before is ${before}, not a time in milliseconds`)

export const encodeOptional = (text: string | undefined): string | undefined =>
  text === undefined ? undefined : Codec.encodeText(text)

/** The older spellings of the wanted events are wanted too. */
export const toRowFilter = (filter: EntryFilter): RowFilter => {
  const events =
    filter.events === undefined
      ? undefined
      : Arr.dedupe(filter.events.flatMap((event) => Legacy.spellings(Legacy.canonical(event)))).map(Codec.encodeText)
  return {
    sandboxId: encodeOptional(filter.sandboxId),
    name: encodeOptional(filter.name),
    stepIdx: filter.stepIdx,
    events,
    withoutOutput:
      filter.withoutOutput === true ||
      (events !== undefined && !events.some((event) => Legacy.outputEvents.includes(event)))
  }
}

const plainOnly = (text: string | undefined): string | undefined =>
  text !== undefined && Codec.isPlainText(text) ? text : undefined

/** An id that a store may hold in another form is left to whoever reads the answer. */
export const toSessionFilter = (filter: SandboxFilter): Omit<SessionQuery, "before" | "limit"> => ({
  name: encodeOptional(filter.name),
  status: filter.status,
  runId: plainOnly(filter.runId),
  resourceId: plainOnly(filter.resourceId)
})
