/**
 * The entries of sessions, one session after another.
 */
import type { Ledger, ReadOptions, SandboxDetails } from "@sandglass/core/Ledger"
import type { LedgerError } from "@sandglass/core/LedgerError"
import type { LedgerEntry } from "@sandglass/core/LedgerEvent"
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import type { Part } from "./sessions.js"
import { byCursor, withLineage } from "./sessions.js"

type LedgerService = Context.Tag.Service<Ledger>

export interface Wanted extends Pick<ReadOptions, "events" | "withoutOutput" | "limit"> {
  readonly order: "asc" | "desc"
  readonly branch: "self" | "lineage"
}

const whole = (session: SandboxDetails): Part => ({ session, until: undefined })

const entriesOf =
  (ledger: LedgerService, { events, limit, order, withoutOutput }: Wanted) =>
  ({ session: { sandboxId }, until }: Part): Stream.Stream<LedgerEntry, LedgerError> =>
    ledger.read({
      sandboxId,
      events,
      withoutOutput,
      limit,
      order,
      // Backwards a page starts before a cursor, and the entry that stands at `until` counts.
      ...(until === undefined ? {} : order === "asc" ? { until } : { after: { ts: until.ts, id: until.id + 1 } })
    })

const collected = <E, R>(sessions: Stream.Stream<SandboxDetails, E, R>) =>
  Stream.runFold(sessions, new Map<string, SandboxDetails>(), (all, session) => all.set(session.sandboxId, session))

/** `sessions` come newest first. */
export const recall = <E, R>(
  ledger: LedgerService,
  sessions: Stream.Stream<SandboxDetails, E, R>,
  wanted: Wanted
): Stream.Stream<LedgerEntry, E | LedgerError, R> => {
  const { limit } = wanted
  if (limit === 0) return Stream.empty
  if (wanted.order === "asc" && limit !== undefined) {
    // The last ones: found backwards, and then turned around.
    return Stream.unwrap(
      recall(ledger, sessions, { ...wanted, order: "desc" }).pipe(
        Stream.runCollect,
        Effect.map((entries) => Stream.fromIterable(Array.from(entries).reverse()))
      )
    )
  }
  const parts =
    wanted.branch === "lineage"
      ? Stream.unwrap(
          collected(sessions).pipe(
            Effect.flatMap((all) => withLineage(ledger, all)),
            Effect.map((all) => {
              const sorted = [...all].sort((a, b) => byCursor(a.session.cursor, b.session.cursor))
              return Stream.fromIterable(wanted.order === "asc" ? sorted : sorted.reverse())
            })
          )
        )
      : wanted.order === "desc"
        ? Stream.map(sessions, whole)
        : Stream.unwrap(
            Effect.map(collected(sessions), (all) => Stream.fromIterable(Array.from(all.values(), whole).reverse()))
          )
  const entries = Stream.flatMap(parts, entriesOf(ledger, wanted))
  return limit === undefined ? entries : Stream.take(entries, limit)
}
