/**
 * From an event to the row that stores it.
 */
import type { EventInput } from "../../Ledger.js"
import type { Json } from "../../LedgerEvent.js"
import type { NewRow } from "../../LedgerStore.js"
import * as Codec from "./codec.js"

/** Postgres stores `step_idx` and `branch` in 32 bits, so every backend refuses what it would. */
export const isInt32 = (value: number): boolean => Number.isInteger(value) && Math.abs(value) <= 2147483647

/** A row whose time is not known before it is committed. */
export type Draft = Omit<NewRow, "ts"> & { ts: number }

export interface Prepared {
  readonly row: Draft
  /** The payload as it will be read back. */
  readonly payload: Json | undefined
}

/** The row of an event, or why there is none. Checks what the types promise, too: events come from plain JavaScript. */
export const prepare = (event: EventInput, restrictedJson: boolean): Prepared | string => {
  if (typeof event !== "object" || event === null) {
    return "not an event"
  }
  const { branch, error, event: kind, name, payload, sandboxId, stepIdx = -1 } = event
  if (typeof sandboxId !== "string" || sandboxId === "") {
    return "sandboxId is empty"
  }
  if (typeof kind !== "string" || kind === "") {
    return "event is empty"
  }
  if (typeof name !== "string") {
    return "name is no text"
  }
  if (!isInt32(stepIdx)) {
    return "stepIdx is no 32-bit integer"
  }
  if (branch !== undefined && branch !== null && !isInt32(branch)) {
    return "branch is no 32-bit integer"
  }
  if (error !== undefined && error !== null && typeof error !== "string") {
    return "error is no text"
  }
  const json = payload === undefined ? undefined : Codec.jsonify(payload)
  if (typeof json === "string") {
    return json
  }
  const stored = json === undefined ? null : Codec.encodePayload(json.value, json.text, restrictedJson)
  if (stored === undefined) {
    return "payload is nested too deeply"
  }
  return {
    row: {
      sandboxId: Codec.encodeText(sandboxId),
      name: Codec.encodeText(name),
      stepIdx,
      branch: branch ?? null,
      event: Codec.encodeText(kind),
      payload: stored,
      error: error === undefined || error === null ? null : Codec.encodeText(error),
      ts: 0
    },
    payload: json?.value
  }
}

export interface Rejected {
  readonly index: number
  readonly description: string
}

/** What can be stored of some events, and what cannot. */
export interface PreparedAll {
  readonly drafts: ReadonlyArray<Draft>
  /** The payload of each of the drafts as it will be read back. */
  readonly payloads: ReadonlyArray<Json | undefined>
  /** Which event each of the drafts is; left out where they are all. */
  readonly indexes: ReadonlyArray<number> | undefined
  readonly rejected: ReadonlyArray<Rejected>
  /** How many characters are in the drafts, but for short ones. */
  readonly characters: number
}

export const prepareAll = (events: ReadonlyArray<EventInput>, restrictedJson: boolean): PreparedAll => {
  const drafts: Array<Draft> = []
  const payloads: Array<Json | undefined> = []
  const indexes: Array<number> = []
  const rejected: Array<Rejected> = []
  let characters = 0
  for (let index = 0; index < events.length; index++) {
    // A hole in the array is no event, either.
    const prepared = prepare(events[index] as EventInput, restrictedJson)
    if (typeof prepared === "string") {
      rejected.push({ index, description: prepared })
    } else {
      const { payload, row } = prepared
      drafts.push(row)
      payloads.push(payload)
      indexes.push(index)
      characters += (row.payload?.length ?? 0) + (row.error?.length ?? 0)
    }
  }
  return { drafts, payloads, indexes: rejected.length === 0 ? undefined : indexes, rejected, characters }
}
