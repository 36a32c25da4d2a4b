/**
 * The ledger on top of a store: checks, one span per operation, and the name of the operation in its errors.
 */
import * as Arr from "effect/Array"
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import type { EntryFilter, Ledger } from "../../Ledger.js"
import { LedgerError } from "../../LedgerError.js"
import type { LedgerStore } from "../../LedgerStore.js"
import * as Appending from "./appending.js"
import { encodeText } from "./codec.js"
import { decodeEnvironment, encodeEnvironment, toDetails } from "./entries.js"
import * as Exporting from "./exporting.js"
import * as Importing from "./importing.js"
import { inMethod } from "./inMethod.js"
import { checkCursor, checkIndex, checkPrune, checkRead, checkSandboxes, checkTail } from "./queries.js"
import * as Reading from "./reading.js"
import * as Removing from "./removing.js"
import * as Tailing from "./tailing.js"

type Attributes = Readonly<Record<string, unknown>>

const span =
  (method: string, attributes: Attributes) =>
  <A>(self: Effect.Effect<A, LedgerError>): Effect.Effect<A, LedgerError> =>
    self.pipe(
      Effect.mapError(inMethod(method)),
      Effect.withSpan(`Ledger.${method}`, { captureStackTrace: false, attributes })
    )

const streamSpan =
  (method: string, attributes: Attributes) =>
  <A>(self: Stream.Stream<A, LedgerError>): Stream.Stream<A, LedgerError> =>
    self.pipe(
      Stream.mapError(inMethod(method)),
      Stream.withSpan(`Ledger.${method}`, { captureStackTrace: false, attributes })
    )

const ofSandbox = (sandboxId: string | undefined): Attributes => ({ "sandbox.id": sandboxId })

const ofEnvironment = (name: string): Attributes => ({ "sandglass.environment": name })

const ofFilter = (filter: EntryFilter): Attributes => ({
  ...ofSandbox(filter.sandboxId),
  "sandbox.name": filter.name,
  "sandglass.step": filter.stepIdx
})

const checked = <A>(
  check: Effect.Effect<void, LedgerError>,
  stream: () => Stream.Stream<A, LedgerError>
): Stream.Stream<A, LedgerError> => Stream.unwrap(Effect.map(check, stream))

const checkBuiltAt = (builtAt: number): Effect.Effect<void, LedgerError> =>
  Number.isSafeInteger(builtAt)
    ? Effect.void
    : Effect.fail(
        new LedgerError({
          method: "putEnvironment",
          reason: "InvalidEvent",
          description: "builtAt is no whole number of milliseconds"
        })
      )

/** Has state of its own: not to be called twice for one ledger. */
export const make = (store: LedgerStore): Context.Tag.Service<Ledger> => {
  const tails = Tailing.make(store)
  const appendAll = Appending.make(store, tails.poke)
  const importSandboxes = Importing.make(store, tails.poke)
  return {
    append: (event) =>
      Effect.suspend(() => appendAll([event])).pipe(
        Effect.flatMap((stored) => Arr.head(stored)),
        Effect.catchTag("NoSuchElementException", Effect.die),
        span("append", { ...ofSandbox(event.sandboxId), "sandglass.event": event.event })
      ),
    appendAll: (events) =>
      events.length === 0
        ? Effect.succeed([])
        : Effect.suspend(() => appendAll(events)).pipe(
            span("appendAll", { ...ofSandbox(events[0]?.sandboxId), "sandglass.event.count": events.length })
          ),
    read: (options = {}) =>
      checked(checkRead(options), () => Reading.entries(store, options)).pipe(streamSpan("read", ofFilter(options))),
    entryAt: (sandboxId, index) =>
      checkIndex(index).pipe(
        Effect.zipRight(Reading.entryAt(store, encodeText(sandboxId), index)),
        span("entryAt", ofSandbox(sandboxId))
      ),
    indexOf: (sandboxId, cursor) =>
      checkCursor("cursor", cursor).pipe(
        Effect.zipRight(store.countBefore(encodeText(sandboxId), cursor)),
        span("indexOf", ofSandbox(sandboxId))
      ),
    tail: (options = {}) =>
      checked(checkTail(options), () => tails.follow(options)).pipe(streamSpan("tail", ofFilter(options))),
    lastCheckpoint: (sandboxId, { tag, until } = {}) =>
      checkCursor("until", until).pipe(
        Effect.zipRight(
          // Newest first, and one that stands at `until` itself is included.
          Reading.checkpoints(store, sandboxId, {
            order: "desc",
            after: until === undefined ? undefined : { ts: until.ts, id: until.id + 1 }
          }).pipe(
            Stream.filter((checkpoint) => tag === undefined || checkpoint.tag === tag),
            Stream.runHead
          )
        ),
        span("lastCheckpoint", ofSandbox(sandboxId))
      ),
    checkpoints: (sandboxId) =>
      Reading.checkpoints(store, sandboxId, {}).pipe(streamSpan("checkpoints", ofSandbox(sandboxId))),
    sandboxes: (filter = {}) =>
      checked(checkSandboxes(filter), () => Reading.sandboxes(store, filter)).pipe(
        streamSpan("sandboxes", {
          "sandbox.name": filter.name,
          "sandbox.status": filter.status,
          "sandglass.run.id": filter.runId,
          "sandglass.resource.id": filter.resourceId
        })
      ),
    sandbox: (sandboxId) =>
      store.sessions({ sandboxId: encodeText(sandboxId), before: undefined, limit: 1 }).pipe(
        Effect.map(({ rows }) => Option.map(Arr.head(rows), toDetails)),
        span("sandbox", ofSandbox(sandboxId))
      ),
    deleteSandbox: (sandboxId, { force = false } = {}) =>
      Removing.deleteSandbox(store, encodeText(sandboxId), force).pipe(span("deleteSandbox", ofSandbox(sandboxId))),
    prune: (options) =>
      checkPrune(options).pipe(
        Effect.zipRight(Removing.prune(store, options)),
        span("prune", { "sandbox.name": options.name })
      ),
    exportSandbox: (sandboxId) =>
      Exporting.exportSandbox(store, sandboxId).pipe(streamSpan("exportSandbox", ofSandbox(sandboxId))),
    importSandboxes: <E, R>(ndjson: Stream.Stream<string | Uint8Array, E, R>) =>
      Effect.withSpan(importSandboxes(ndjson), "Ledger.importSandboxes", { captureStackTrace: false }),
    environment: (name) =>
      store
        .environment(encodeText(name))
        .pipe(Effect.map(Option.map(decodeEnvironment)), span("environment", ofEnvironment(name))),
    environments: store.environments.pipe(
      // Sorted here: databases sort text by rules of their own.
      Effect.map((records) =>
        records.map(decodeEnvironment).sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0))
      ),
      span("environments", {})
    ),
    putEnvironment: (record) =>
      checkBuiltAt(record.builtAt).pipe(
        Effect.zipRight(store.putEnvironment(encodeEnvironment(record))),
        span("putEnvironment", ofEnvironment(record.name))
      ),
    deleteEnvironment: (name) =>
      store.deleteEnvironment(encodeText(name)).pipe(span("deleteEnvironment", ofEnvironment(name)))
  }
}
