/**
 * Which sessions of the ledger are those of a resource, and what they came from.
 */
import type { Ledger, SandboxDetails } from "@sandglass/core/Ledger"
import type { LedgerError } from "@sandglass/core/LedgerError"
import type { Cursor } from "@sandglass/core/LedgerEvent"
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import { identity } from "effect/Function"
import * as Option from "effect/Option"
import * as Order from "effect/Order"
import * as Stream from "effect/Stream"
import type { ResourceRef } from "../../ResourceRef.js"

type LedgerService = Context.Tag.Service<Ledger>

export const byCursor: Order.Order<Cursor> = Order.combine(
  Order.mapInput(Order.number, ({ ts }: Cursor) => ts),
  Order.mapInput(Order.number, ({ id }: Cursor) => id)
)

/** A session that says nothing of whom it is for is that of the resource, in no team, that is called like it. */
export const belongsTo = (ref: ResourceRef, session: SandboxDetails): boolean =>
  session.resourceId === undefined
    ? session.teamId === undefined && ref.teamId === undefined && session.name === ref.resourceId
    : session.resourceId === ref.resourceId && session.teamId === ref.teamId

const distinct = <E, R>(sessions: Stream.Stream<SandboxDetails, E, R>): Stream.Stream<SandboxDetails, E, R> =>
  Stream.suspend(() => {
    const seen = new Set<string>()
    return Stream.filter(sessions, ({ sandboxId }) => {
      const fresh = !seen.has(sandboxId)
      seen.add(sandboxId)
      return fresh
    })
  })

const keyed = <E, R>(sessions: Stream.Stream<SandboxDetails, E, R>) =>
  Stream.map(sessions, (session) => [session.cursor, session] as const)

/** The sessions of a resource, newest first. */
export const ofResource = (ledger: LedgerService, ref: ResourceRef): Stream.Stream<SandboxDetails, LedgerError> => {
  const named = ledger
    .sandboxes({ resourceId: ref.resourceId })
    .pipe(Stream.filter((session) => belongsTo(ref, session)))
  if (ref.teamId !== undefined) return distinct(named)
  const older = ledger
    .sandboxes({ name: ref.resourceId })
    .pipe(Stream.filter((session) => session.resourceId === undefined && belongsTo(ref, session)))
  return keyed(named).pipe(
    Stream.zipAllSortedByKeyWith({
      other: keyed(older),
      onSelf: identity<SandboxDetails>,
      onOther: identity<SandboxDetails>,
      onBoth: (session) => session,
      order: Order.reverse(byCursor)
    }),
    Stream.map(([, session]) => session),
    distinct
  )
}

/** The sessions of these ids that the ledger has, newest first. */
export const ofIds = (
  ledger: LedgerService,
  ids: Iterable<string>
): Effect.Effect<ReadonlyArray<SandboxDetails>, LedgerError> =>
  Effect.forEach(new Set(ids), (id) => ledger.sandbox(id), { concurrency: 8 }).pipe(
    Effect.map((found) => found.flatMap(Option.toArray).sort((a, b) => byCursor(b.cursor, a.cursor)))
  )

/** What a session is a copy of, or goes on with. */
export const parentOf = (session: SandboxDetails): string | undefined => session.parentSandboxId ?? session.resumedFrom

/** Sessions by id. */
export type Sessions = ReadonlyMap<string, SandboxDetails>

/**
 * What these sessions came from, and what that came from, where the ledger still has it; without the sessions
 * themselves.
 */
export const ancestorsOf = (ledger: LedgerService, sessions: Sessions): Effect.Effect<Sessions, LedgerError> =>
  Effect.gen(function* () {
    const ancestors = new Map<string, SandboxDetails>()
    const asked = new Set<string>()
    for (let generation: Iterable<SandboxDetails> = sessions.values(); ; ) {
      const wanted = new Set<string>()
      for (const session of generation) {
        const parent = parentOf(session)
        if (parent !== undefined && !sessions.has(parent) && !asked.has(parent)) wanted.add(parent)
      }
      if (wanted.size === 0) return ancestors
      const found = yield* ofIds(ledger, wanted)
      for (const id of wanted) asked.add(id)
      for (const session of found) ancestors.set(session.sandboxId, session)
      generation = found
    }
  })

/** The place in the parent at which a session branched off: its snapshot's, or that of the session's beginning. */
const branchedAt = (
  ledger: LedgerService,
  parent: string,
  session: SandboxDetails
): Effect.Effect<Cursor, LedgerError> =>
  ledger.checkpoints(parent).pipe(
    Stream.filter(({ snapshotId }) => snapshotId === session.snapshotId),
    Stream.runHead,
    Effect.map(Option.match({ onNone: () => session.cursor, onSome: ({ cursor }) => cursor }))
  )

/** A session, and up to where it counts; `undefined` where all of it does. */
export interface Part {
  readonly session: SandboxDetails
  readonly until: Cursor | undefined
}

/** Sessions with what they came from, each ancestor up to where the last of them branched off. In no order. */
export const withLineage = (
  ledger: LedgerService,
  sessions: Sessions
): Effect.Effect<ReadonlyArray<Part>, LedgerError> =>
  Effect.gen(function* () {
    const ancestors = yield* ancestorsOf(ledger, sessions)
    const until = new Map<string, Cursor>()
    for (const session of [...sessions.values(), ...ancestors.values()]) {
      const parent = parentOf(session)
      if (parent === undefined || !ancestors.has(parent)) continue
      const place = yield* branchedAt(ledger, parent, session)
      const before = until.get(parent)
      if (before === undefined || byCursor(before, place) < 0) until.set(parent, place)
    }
    return [
      ...Array.from(sessions.values(), (session) => ({ session, until: undefined })),
      ...Array.from(ancestors.values(), (session) => ({ session, until: until.get(session.sandboxId) }))
    ]
  })
