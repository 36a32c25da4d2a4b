/**
 * Whether facts are verified: what the ledger says today of the entries that they came from.
 */
import { createHash } from "node:crypto"
import type { Ledger } from "@sandglass/core/Ledger"
import type { LedgerError } from "@sandglass/core/LedgerError"
import type { Cursor, Json, LedgerEntry } from "@sandglass/core/LedgerEvent"
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import type { ResourceRef } from "../../ResourceRef.js"
import type { Fact, SourceRef } from "../../SemanticMemory.js"
import { belongsTo } from "../episodic/sessions.js"
import { compareText, isObject } from "../json.js"

type LedgerService = Context.Tag.Service<Ledger>

/** The same text for the same value: a database may keep the keys of an object in an order of its own. */
const canonical = (value: Json): Json =>
  Array.isArray(value)
    ? value.map((item: Json) => canonical(item))
    : isObject(value)
      ? [
          "object",
          Object.entries(value)
            .sort(([a], [b]) => compareText(a, b))
            .map(([key, item]) => [key, canonical(item)])
        ]
      : value

/**
 * The id is left out: a ledger that was moved to another database has the same entries under other ids. A foreign payload
 * that is nested too deeply to be walked through has none.
 */
const hashOf = (entry: LedgerEntry): string | undefined => {
  const { branch = null, error = null, event, name, payload, sandboxId, stepIdx, ts } = entry
  try {
    const content = payload === undefined ? [] : [canonical(payload)]
    const text = JSON.stringify([sandboxId, name, stepIdx, branch, event, error, ts, content])
    return createHash("sha256").update(text).digest("hex")
  } catch {
    return undefined
  }
}

/** What is kept of an entry: where it stands, and its digest. */
const toDigest = (entry: LedgerEntry): string | undefined => {
  const hash = hashOf(entry)
  return hash === undefined ? undefined : `${entry.ts}.${entry.id}.${hash}`
}

const fromDigest = (text: string): { readonly cursor: Cursor; readonly hash: string } | undefined => {
  const [, ts, id, hash] = /^(-?\d{1,16})\.(-?\d{1,16})\.([0-9a-f]{64})$/.exec(text) ?? []
  return hash === undefined ? undefined : { cursor: { ts: Number(ts), id: Number(id) }, hash }
}

const ownSession = (ledger: LedgerService, ref: ResourceRef, sandboxId: string): Effect.Effect<boolean, LedgerError> =>
  Effect.map(
    ledger.sandbox(sandboxId),
    Option.exists((session) => belongsTo(ref, session))
  )

export const isSourceRef = (value: unknown): value is SourceRef => {
  const { entryIndex, sandboxId }: Partial<SourceRef> = Object(value)
  return (
    typeof sandboxId === "string" && sandboxId !== "" && Number.isSafeInteger(entryIndex) && Number(entryIndex) >= 0
  )
}

/** What to keep of the source of a fact; nothing where there is no such entry in a session of the resource. */
export const digest = (
  ledger: LedgerService,
  ref: ResourceRef,
  { entryIndex, sandboxId }: SourceRef
): Effect.Effect<string | undefined, LedgerError> =>
  Effect.flatMap(ownSession(ledger, ref, sandboxId), (own) =>
    own
      ? Effect.map(ledger.entryAt(sandboxId, entryIndex), Option.match({ onNone: () => undefined, onSome: toDigest }))
      : Effect.succeed(undefined)
  )

const entryWith = (ledger: LedgerService, sandboxId: string, { id, ts }: Cursor) =>
  Stream.runHead(ledger.read({ sandboxId, after: { ts, id: id - 1 }, until: { ts, id }, limit: 1 }))

const isUnchanged = (
  ledger: LedgerService,
  { entryIndex, sandboxId }: SourceRef,
  sourceDigest: string | undefined
): Effect.Effect<boolean, LedgerError> => {
  const kept = sourceDigest === undefined ? undefined : fromDigest(sourceDigest)
  if (kept === undefined) return Effect.succeed(false)
  const same = (found: Option.Option<LedgerEntry>) => Option.exists(found, (entry) => hashOf(entry) === kept.hash)
  return Effect.flatMap(entryWith(ledger, sandboxId, kept.cursor), (found) =>
    same(found) ? Effect.succeed(true) : Effect.map(ledger.entryAt(sandboxId, entryIndex), same)
  )
}

/** The facts, each with whether its source can be verified. Sessions are looked up once. */
export const verify = <A extends Fact>(
  ledger: LedgerService,
  ref: ResourceRef,
  facts: ReadonlyArray<A>
): Effect.Effect<ReadonlyArray<Omit<A, "sourceDigest"> & { readonly verified: boolean }>, LedgerError> =>
  Effect.gen(function* () {
    const sandboxes = new Set<string>()
    for (const { sourceDigest, sourceRef } of facts) {
      if (sourceRef !== undefined && sourceDigest !== undefined) sandboxes.add(sourceRef.sandboxId)
    }
    const own = new Set(
      yield* Effect.filter(sandboxes, (sandboxId) => ownSession(ledger, ref, sandboxId), { concurrency: 8 })
    )
    return yield* Effect.forEach(
      facts,
      ({ sourceDigest, ...fact }) =>
        Effect.map(
          fact.sourceRef !== undefined && own.has(fact.sourceRef.sandboxId)
            ? isUnchanged(ledger, fact.sourceRef, sourceDigest)
            : Effect.succeed(false),
          (verified) => ({ ...fact, verified })
        ),
      { concurrency: 8 }
    )
  })
