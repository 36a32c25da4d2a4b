/**
 * A session as lines of JSON: one that says what follows, one for each entry, one that says that this was all.
 *
 *     {"format":"sandglass.session","version":1,"sandboxId":"sbx-1"}
 *     {"ts":1767225600000,"sandboxId":"sbx-1","name":"ci","stepIdx":-1,"event":"sandbox.created","payload":{…}}
 *     …
 *     {"end":"sbx-1","entries":1204}
 *
 * A session is the same text in every ledger: keys are sorted, and ids, which are those of a ledger, are left out. The
 * place that a checkpoint refers to is written as the number of entries up to it.
 */
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import { LedgerError } from "../../LedgerError.js"
import type { Cursor, Json, LedgerEntry } from "../../LedgerEvent.js"
import { EventName } from "../../LedgerEvent.js"
import type { LedgerStore } from "../../LedgerStore.js"
import { isJsonObject, jsonField } from "../json.js"
import { cursorOf } from "./entries.js"
import { entries } from "./reading.js"

export const format = "sandglass.session"
export const version = 1

export const headerOf = (sandboxId: string): string => `${JSON.stringify({ format, version, sandboxId })}\n`
export const endOf = (sandboxId: string, count: number): string =>
  `${JSON.stringify({ end: sandboxId, entries: count })}\n`

/** The place up to which a checkpoint certainly holds what execs did. */
export const placeOf = (event: string, payload: Json | undefined): Cursor | undefined => {
  const place = event === EventName.checkpointCreated ? jsonField(payload, "completedUntil") : undefined
  const [ts, id] = [jsonField(place, "ts"), jsonField(place, "id")]
  return typeof ts === "number" && typeof id === "number" ? { ts, id } : undefined
}

/** The payload with another id in that place. */
export const withPlace = (payload: Json | undefined, id: number): Json | undefined => {
  const place = jsonField(payload, "completedUntil")
  return isJsonObject(payload) && isJsonObject(place) ? { ...payload, completedUntil: { ...place, id } } : payload
}

const isUpTo = ({ id, ts }: LedgerEntry, place: Cursor): boolean => ts < place.ts || (ts === place.ts && id <= place.id)

/** With the keys of objects in an order of their own: Postgres does not keep the one that they were written in. */
const sorted = (value: Json): Json =>
  Array.isArray(value)
    ? value.map(sorted)
    : isJsonObject(value)
      ? Object.fromEntries(
          Object.keys(value)
            .sort()
            .map((key) => [key, sorted(value[key] ?? null)])
        )
      : value

const lineOf = ({ branch, error, event, name, payload, sandboxId, stepIdx, ts }: LedgerEntry): string =>
  `${JSON.stringify({
    ts,
    sandboxId,
    name,
    stepIdx,
    branch,
    event,
    payload: payload === undefined ? undefined : sorted(payload),
    error
  })}\n`

/** Another program may have nested a payload so deeply that it cannot be walked through. */
const written = (write: (entry: LedgerEntry) => string) => (chunk: Chunk.Chunk<LedgerEntry>) =>
  Effect.try({
    try: () => Chunk.map(chunk, write),
    catch: (cause) =>
      new LedgerError({
        method: "exportSandbox",
        reason: "Unknown",
        description: "an entry cannot be written as JSON",
        cause
      })
  })

/** The numbers of entries up to places, as the entries pass by in order. */
const countUpTo = (places: ReadonlyArray<Cursor>) => {
  const inOrder = places.toSorted((a, b) => a.ts - b.ts || a.id - b.id)
  const counts = new Map<string, number>()
  const key = ({ id, ts }: Cursor) => `${ts} ${id}`
  let next = 0
  let passed = 0
  return {
    pass: (entry: LedgerEntry): number => {
      for (let place = inOrder[next]; place !== undefined && !isUpTo(entry, place); place = inOrder[++next]) {
        counts.set(key(place), passed)
      }
      passed += 1
      return passed
    },
    /** A place that has not been reached is one that the entries so far are all before. */
    of: (place: Cursor): number => counts.get(key(place)) ?? passed
  }
}

const notFound = (sandboxId: string): LedgerError =>
  new LedgerError({
    method: "exportSandbox",
    reason: "NotFound",
    description: `the ledger has no entry of ${JSON.stringify(sandboxId)}`
  })

/** What the ledger has of it at this moment; what is appended meanwhile is left out. */
export const exportSandbox = (store: LedgerStore, sandboxId: string): Stream.Stream<string, LedgerError> =>
  Stream.unwrap(
    Effect.gen(function* () {
      const last = yield* Stream.runHead(entries(store, { sandboxId, order: "desc", limit: 1 }))
      if (Option.isNone(last)) {
        return yield* notFound(sandboxId)
      }
      const until = cursorOf(last.value)
      const places = yield* entries(store, { sandboxId, events: [EventName.checkpointCreated], until }).pipe(
        Stream.filterMap(({ event, payload }) => Option.fromNullable(placeOf(event, payload))),
        Stream.runCollect
      )
      const counting = countUpTo(Chunk.toReadonlyArray(places))
      let count = 0
      const write = (entry: LedgerEntry): string => {
        count = counting.pass(entry)
        const place = placeOf(entry.event, entry.payload)
        return lineOf(place === undefined ? entry : { ...entry, payload: withPlace(entry.payload, counting.of(place)) })
      }
      return Stream.make(headerOf(sandboxId)).pipe(
        Stream.concat(Stream.mapChunksEffect(entries(store, { sandboxId, until }), written(write))),
        Stream.concat(Stream.suspend(() => Stream.make(endOf(sandboxId, count))))
      )
    })
  )
