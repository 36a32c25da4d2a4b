/**
 * Removing sessions.
 */
import * as Arr from "effect/Array"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import type { Pruned, PruneOptions, SandboxDetails } from "../../Ledger.js"
import { LedgerError } from "../../LedgerError.js"
import type { Cursor } from "../../LedgerEvent.js"
import { EventName } from "../../LedgerEvent.js"
import type { LedgerStore } from "../../LedgerStore.js"
import { stringField } from "../json.js"
import { encodeText } from "./codec.js"
import { cursorOf, toDetails } from "./entries.js"
import * as Legacy from "./legacy.js"
import { paged } from "./pages.js"
import { entries } from "./reading.js"

/** How many rows are removed in one commit. On SQLite nothing else happens in the process meanwhile. */
const rowsPerCommit = 2_000

const sessionsPerPage = 200

/** `sandboxId` as it is stored. */
export const removeRows = (store: LedgerStore, sandboxId: string): Effect.Effect<number, LedgerError> =>
  Effect.gen(function* () {
    let removed = 0
    while (true) {
      const count = yield* store.remove(sandboxId, rowsPerCommit)
      removed += count
      if (count < rowsPerCommit) {
        return removed
      }
      yield* Effect.yieldNow()
    }
  })

/** `sandboxId` as it is stored. A session that has ended never begins again. */
export const deleteSandbox = (
  store: LedgerStore,
  sandboxId: string,
  force: boolean
): Effect.Effect<number, LedgerError> =>
  force
    ? removeRows(store, sandboxId)
    : Effect.flatMap(store.sessions({ sandboxId, before: undefined, limit: 1 }), ({ rows }) => {
        const session = Arr.head(rows)
        return session._tag === "Some" && session.value.status !== "closed"
          ? Effect.fail(
              new LedgerError({
                method: "deleteSandbox",
                reason: "StillRunning",
                description: `the session has not ended (${session.value.status})`
              })
            )
          : removeRows(store, sandboxId)
      })

const hasCheckpoint = (store: LedgerStore, sandboxId: string): Effect.Effect<boolean, LedgerError> =>
  store
    .page({
      sandboxId,
      events: Legacy.spellings(EventName.checkpointCreated),
      withoutOutput: true,
      order: "asc",
      after: undefined,
      until: undefined,
      limit: 1
    })
    .pipe(Effect.map(({ rows }) => rows.length > 0))

export const prune = (
  store: LedgerStore,
  { before, keepCheckpoints = false, name }: PruneOptions
): Effect.Effect<Pruned, LedgerError> =>
  Effect.gen(function* () {
    /** What a session that stays was resumed from. */
    const needed = new Set<string>()
    const keep = ({ resumedFrom }: Pick<SandboxDetails, "resumedFrom">): void => {
      if (resumedFrom !== undefined) {
        needed.add(resumedFrom)
      }
    }
    let newest: Cursor | undefined
    /** A session that has been resumed since is one to keep, too. */
    const keepNew = Effect.suspend(() =>
      Stream.runForEach(entries(store, { events: [EventName.sandboxCreated], after: newest }), (entry) =>
        Effect.sync(() => {
          newest = cursorOf(entry)
          keep({ resumedFrom: stringField(entry.payload, "resumedFrom") })
        })
      )
    )
    /** Whether it may go, as far as the session itself says. */
    const isOver = (session: SandboxDetails): Effect.Effect<boolean, LedgerError> =>
      session.closedAt === undefined ||
      session.closedAt >= before ||
      (name !== undefined && session.name !== name) ||
      needed.has(session.sandboxId)
        ? Effect.succeed(false)
        : keepCheckpoints
          ? Effect.map(hasCheckpoint(store, encodeText(session.sandboxId)), (has) => !has)
          : Effect.succeed(true)

    let sandboxes = 0
    let removed = 0
    // Newest first: what a session was resumed from comes after it.
    yield* Stream.runForEach(
      paged(undefined as Cursor | undefined, Infinity, (from, limit) =>
        Effect.map(store.sessions({ before: from, limit }), ({ next, rows }) => ({
          items: rows.map(toDetails),
          next,
          nextSize: sessionsPerPage
        }))
      ),
      (session) =>
        Effect.gen(function* () {
          newest ??= session.cursor
          if (yield* isOver(session)) {
            yield* keepNew
            if (!needed.has(session.sandboxId)) {
              const count = yield* removeRows(store, encodeText(session.sandboxId))
              removed += count
              // Of a session with two beginnings nothing is left for the second.
              sandboxes += count > 0 ? 1 : 0
              return
            }
          }
          keep(session)
        })
    )
    return { sandboxes, entries: removed }
  })
