/**
 * From an event to the row that stores it.
 */
import type { EventInput } from "../../Ledger.js"
import type { Json } from "../../LedgerEvent.js"
import type { NewRow } from "../../LedgerStore.js"
import * as Codec from "./codec.js"

/** Postgres stores `step_idx` and `branch` in 32 bits, so every backend refuses what it would. */
export const isInt32 = (value: number): boolean => Number.isInteger(value) && Math.abs(value) <= 2147483647

/** A row that has no time yet. */
export type Draft = Omit<NewRow, "ts">

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
      error: error === undefined || error === null ? null : Codec.encodeText(error)
    },
    payload: json?.value
  }
}
