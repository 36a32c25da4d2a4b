/**
 * The older spellings of events, and what rows in them look like in today's.
 */
import type { Json, LedgerEntry } from "../../LedgerEvent.js"
import { EventName } from "../../LedgerEvent.js"
import { isJsonObject } from "../json.js"

const today: ReadonlyMap<string, string> = new Map([
  ["sandbox_created", EventName.sandboxCreated],
  ["sandbox_closed", EventName.sandboxClosed],
  ["sandbox_paused", EventName.sandboxPaused],
  ["sandbox_resumed", EventName.sandboxResumed],
  ["checkpoint_created", EventName.checkpointCreated],
  ["exec_start", EventName.execStarted],
  ["exec_complete", EventName.execCompleted]
])

/** Raw execd events; those that carry output are `exec.output` today, the others have no other name. */
export const execEvent = "exec_event"

const older: ReadonlyMap<string, ReadonlyArray<string>> = new Map([
  ...Array.from(today, ([old, name]) => [name, [old]] as const),
  [EventName.execOutput, [execEvent]]
])

/** Today's spelling of an event's name. */
export const canonical = (event: string): string => today.get(event) ?? event

/** Every spelling under which an event may be stored. */
export const spellings = (event: string): ReadonlyArray<string> => [event, ...(older.get(event) ?? [])]

/** All spellings of the events that say what became of a sandbox as a whole. */
export const milestones: ReadonlyArray<string> = [
  EventName.sandboxCreated,
  EventName.sandboxClosed,
  EventName.sandboxPaused,
  EventName.sandboxResumed,
  EventName.checkpointCreated
].flatMap(spellings)

/** The rows that carry output, in every spelling. */
export const outputEvents: ReadonlyArray<string> = [EventName.execOutput, execEvent]

/** Whether a row is output in the older spelling, whose line ends may have been removed. */
export const isLegacyOutput = (event: string, payload: Json | undefined): boolean =>
  event === execEvent &&
  isJsonObject(payload) &&
  (payload["type"] === "stdout" || payload["type"] === "stderr" || payload["type"] === "stdin")

/** Whether the output of the exec that this event started was stored as it arrived, line ends included. */
export const isRawStart = (payload: Json | undefined): boolean =>
  isJsonObject(payload) && (payload["interactive"] === true || payload["code"] !== undefined)

const withoutEnvValues = (payload: { readonly [key: string]: Json }): Json => {
  const { env, ...rest } = payload
  if (env === undefined) {
    return payload
  }
  const names = Array.isArray(env)
    ? env.flatMap((item: Json) => (typeof item === "string" ? [item.split("=", 1)[0] ?? ""] : []))
    : isJsonObject(env)
      ? Object.keys(env)
      : []
  return { ...rest, envNames: names }
}

/** An entry in today's spelling. `raw` says whether the output of its exec was stored with its line ends. */
export const normalize = (entry: LedgerEntry, raw: boolean): LedgerEntry => {
  if (isLegacyOutput(entry.event, entry.payload) && isJsonObject(entry.payload)) {
    const text = entry.payload["text"]
    return {
      ...entry,
      event: EventName.execOutput,
      payload:
        typeof text !== "string" || raw || entry.payload["type"] === "stdin" || text.endsWith("\n")
          ? entry.payload
          : { ...entry.payload, text: `${text}\n` }
    }
  }
  const event = today.get(entry.event)
  if (event === undefined) {
    return entry
  }
  return entry.event === "exec_start" && isJsonObject(entry.payload)
    ? { ...entry, event, payload: withoutEnvValues(entry.payload) }
    : { ...entry, event }
}
