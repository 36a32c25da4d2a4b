/**
 * Sessions out of the lines that an export wrote. See exporting.ts for what they are.
 */
import * as Arr from "effect/Array"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Stream from "effect/Stream"
import type { Imported } from "../../Ledger.js"
import { LedgerError } from "../../LedgerError.js"
import type { Json } from "../../LedgerEvent.js"
import type { LedgerStore, NewRow } from "../../LedgerStore.js"
import { bounded } from "../bounded.js"
import { isJsonObject, stringField } from "../json.js"
import { encodeText } from "./codec.js"
import { format, placeOf, version, withPlace } from "./exporting.js"
import { inMethod } from "./inMethod.js"
import type { Lines } from "./lines.js"
import { make as makeLines } from "./lines.js"
import { prepare } from "./prepare.js"
import { removeRows } from "./removing.js"

/** How much is stored in one commit. */
const commitRows = 512
const commitCharacters = 8 * 1024 * 1024

/** How long an import that is interrupted takes to remove what it has stored. */
const cleanupTimeout = "10 seconds"

/** No date is beyond it. */
const endOfTime = 8_640_000_000_000_000

type JsonObject = { readonly [key: string]: Json }

type Failed = Effect.Effect<never, LedgerError>

const failure = (
  reason: LedgerError["reason"],
  description: string,
  more: { readonly line?: number; readonly cause?: unknown } = {}
): LedgerError => new LedgerError({ method: "importSandboxes", reason, description, ...more })

const named = inMethod("importSandboxes")

/** Lines are counted from 1. */
const badLine = (line: number, description: string, cause?: unknown): LedgerError =>
  failure("InvalidImport", `line ${line}: ${description}`, { line, ...(cause === undefined ? undefined : { cause }) })

/** The ids that the entries of a session were given, by their number, as runs of ids that follow each other. */
class Ids {
  private readonly runs: Array<{ readonly number: number; readonly id: number }> = []
  private count = 0
  private last = Number.NaN

  add(id: number): void {
    this.count += 1
    if (id !== this.last + 1) {
      this.runs.push({ number: this.count, id })
    }
    this.last = id
  }

  /** Of the number 0, which stands before the first, the one below. */
  of(number: number): number | undefined {
    const run = number === 0 ? this.runs[0] : this.runs.findLast((some) => some.number <= number)
    return run === undefined || number > this.count ? undefined : run.id + number - run.number
  }
}

/** A session that is being read. */
interface Session {
  readonly sandboxId: string
  readonly ids: Ids
  entries: number
  /** The `ts` of the last entry. */
  latest: number
  /** Whether there may be rows in the store. */
  touched: boolean
  /** What is not stored yet, and the line of the first of it. */
  rows: Array<NewRow>
  characters: number
  line: number
}

const entryFields = new Set(["ts", "sandboxId", "name", "stepIdx", "branch", "event", "payload", "error"])

const sandboxOf = (json: JsonObject): string | undefined => {
  const sandboxId = stringField(json, "sandboxId")
  return sandboxId === "" ? undefined : sandboxId
}

/** What is wrong with the first line of a session. */
const flawOfHeader = (json: JsonObject): string | undefined =>
  json["format"] !== format
    ? `is not the first line of an export: its format is not ${format}`
    : json["version"] !== version
      ? `version ${JSON.stringify(json["version"])} of the format is not known`
      : sandboxOf(json) === undefined
        ? "has no sandboxId"
        : undefined

const flawOfEnd = (json: JsonObject, { entries, sandboxId }: Session): string | undefined =>
  json["end"] !== sandboxId
    ? `ends ${JSON.stringify(json["end"])}, not ${JSON.stringify(sandboxId)}`
    : json["entries"] !== entries
      ? `${entries} entries came before it, not ${JSON.stringify(json["entries"])}`
      : undefined

const flawOfEntry = (json: JsonObject, { latest, sandboxId }: Session): string | undefined => {
  const unknown = Object.keys(json).find((field) => !entryFields.has(field))
  const ts = json["ts"]
  return unknown !== undefined
    ? `has a field that is not known: ${JSON.stringify(unknown)}`
    : json["sandboxId"] !== sandboxId
      ? `is not of ${JSON.stringify(sandboxId)}`
      : typeof ts !== "number" || !Number.isInteger(ts) || Math.abs(ts) > endOfTime
        ? "ts is not a time in milliseconds"
        : ts < latest
          ? "ts is before that of the line before"
          : undefined
}

/** `appended` runs after rows were stored. */
export const make = (store: LedgerStore, appended: Effect.Effect<void>) => {
  /** What is being imported: two imports of one session do not meet. */
  const running = new Set<string>()

  const begin = (sandboxId: string, number: number): Effect.Effect<Session, LedgerError> =>
    store.page({ sandboxId: encodeText(sandboxId), order: "asc", after: undefined, until: undefined, limit: 1 }).pipe(
      Effect.mapError(named),
      Effect.flatMap(({ rows }) => {
        if (rows.length > 0 || running.has(sandboxId)) {
          const description = `line ${number}: the ledger has entries of ${JSON.stringify(sandboxId)} already`
          return Effect.fail(failure("AlreadyExists", description, { line: number }))
        }
        running.add(sandboxId)
        return Effect.succeed<Session>({
          sandboxId,
          ids: new Ids(),
          entries: 0,
          latest: Number.NEGATIVE_INFINITY,
          touched: false,
          rows: [],
          characters: 0,
          line: number
        })
      })
    )

  const flush = (session: Session): Effect.Effect<void, LedgerError> =>
    Effect.suspend(() => {
      const { line, rows } = session
      if (!Arr.isNonEmptyReadonlyArray(rows)) {
        return Effect.void
      }
      session.rows = []
      session.characters = 0
      session.touched = true
      return store.restore(rows).pipe(
        Effect.mapError((error) =>
          error.reason === "Constraint"
            ? badLine(line, `the database refuses it, or one of the ${rows.length - 1} after it`, error)
            : named(error)
        ),
        Effect.flatMap((places) =>
          Effect.sync(() => {
            for (const { id } of places) {
              session.ids.add(id)
            }
          })
        ),
        Effect.zipRight(appended)
      )
    })

  const isFull = ({ characters, rows }: Session): boolean => rows.length >= commitRows || characters >= commitCharacters

  /** What is wrong with the entry; where nothing is, it waits to be stored. */
  const add = (session: Session, number: number, json: JsonObject, payload: Json | undefined): string | undefined => {
    // `prepare` looks at fields of any type: it is for events that come from plain JavaScript.
    const prepared = prepare({ ...json, payload } as unknown as Parameters<typeof prepare>[0], store.restrictedJson)
    if (typeof prepared === "string") {
      return prepared
    }
    if (session.rows.length === 0) {
      session.line = number
    }
    session.latest = Number(json["ts"])
    session.rows.push({ ...prepared.row, ts: session.latest })
    session.characters += prepared.row.payload?.length ?? 0
    session.entries += 1
    return undefined
  }

  /** A place in an entry is the number of an entry before it, whose id is known when that is stored. */
  const addWithPlace = (session: Session, number: number, json: JsonObject, place: number) =>
    Effect.flatMap(flush(session), () => {
      const id = session.ids.of(place)
      const flaw =
        id === undefined
          ? `completedUntil is not the number of an entry before it: ${place}`
          : add(session, number, json, withPlace(json["payload"], id))
      return flaw === undefined ? Effect.void : Effect.fail(badLine(number, flaw))
    })

  return <E, R>(
    input: Stream.Stream<string | Uint8Array, E, R>
  ): Effect.Effect<ReadonlyArray<Imported>, LedgerError | E, R> =>
    Effect.suspend(() => {
      const lines = makeLines()
      const done: Array<Imported> = []
      let session: Session | undefined
      let number = 0

      const finish = (ended: Session): Effect.Effect<void, LedgerError> =>
        Effect.map(flush(ended), () => {
          done.push({ sandboxId: ended.sandboxId, entries: ended.entries })
          running.delete(ended.sandboxId)
          session = undefined
        })

      /** Takes a line in; what is left to do before the next one, if anything. */
      const take = (text: string): Effect.Effect<void, LedgerError> | undefined => {
        number += 1
        if (text === "") {
          return undefined
        }
        const bad = (description: string): Failed => Effect.fail(badLine(number, description))
        let json: Json
        try {
          json = JSON.parse(text)
        } catch (cause) {
          return bad(`is not JSON: ${cause instanceof Error ? cause.message : String(cause)}`)
        }
        if (!isJsonObject(json)) {
          return bad("is not a JSON object")
        }
        if (session === undefined) {
          const flaw = flawOfHeader(json)
          return flaw !== undefined
            ? bad(flaw)
            : Effect.map(begin(sandboxOf(json) ?? "", number), (begun) => {
                session = begun
              })
        }
        if (json["end"] !== undefined) {
          const flaw = flawOfEnd(json, session)
          return flaw === undefined ? finish(session) : bad(flaw)
        }
        const flaw = flawOfEntry(json, session)
        if (flaw !== undefined) {
          return bad(flaw)
        }
        const place = placeOf(stringField(json, "event") ?? "", json["payload"])
        if (place !== undefined) {
          return addWithPlace(session, number, json, place.id)
        }
        const refused = add(session, number, json, json["payload"])
        return refused !== undefined ? bad(refused) : isFull(session) ? flush(session) : undefined
      }

      const takeAll = ({ fault, lines }: Lines): Effect.Effect<void, LedgerError> => {
        let next = 0
        const loop: Effect.Effect<void, LedgerError> = Effect.suspend(() => {
          while (next < lines.length) {
            const todo = take(lines[next++] ?? "")
            if (todo !== undefined) {
              return Effect.zipRight(todo, loop)
            }
          }
          return fault === undefined ? Effect.void : Effect.fail(badLine(number + 1, fault))
        })
        return loop
      }

      const complete = Effect.suspend(() =>
        session === undefined
          ? Effect.succeed<ReadonlyArray<Imported>>(done)
          : Effect.fail(
              badLine(
                number + 1,
                `is missing: ${JSON.stringify(session.sandboxId)} has no end, after ${session.entries} entries`
              )
            )
      )

      /** Nothing stays of a session that is not whole. */
      const cleanUp = Effect.suspend(() => {
        if (session === undefined) {
          return Effect.void
        }
        const { sandboxId, touched } = session
        return Effect.ensuring(
          touched
            ? bounded("removing a part of an import", cleanupTimeout, removeRows(store, encodeText(sandboxId)))
            : Effect.void,
          Effect.sync(() => running.delete(sandboxId))
        )
      })

      return Stream.runForEach(input, (piece) => takeAll(lines.push(piece))).pipe(
        Effect.zipRight(Effect.suspend(() => takeAll(lines.end()))),
        Effect.zipRight(complete),
        Effect.onExit((exit) => (Exit.isSuccess(exit) ? Effect.void : cleanUp))
      )
    })
}
