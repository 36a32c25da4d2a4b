/**
 * The append-only record of everything that sandboxes did.
 *
 * {@link Ledger} is the service that programs use. Those who keep it somewhere of their own write a `LedgerStore`.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Option from "effect/Option"
import type * as Stream from "effect/Stream"
import * as Memory from "./internal/ledger/memory.js"
import type { LedgerError } from "./LedgerError.js"
import type { Cursor, Json, LedgerEntry } from "./LedgerEvent.js"
import { makeLedger } from "./LedgerStore.js"

/**
 * What to append: a `LedgerEvent`, or the plain object of the same shape.
 *
 * @since 0.1.0
 * @category models
 */
export interface EventInput {
  readonly sandboxId: string
  readonly name: string
  /** Default `-1`: the sandbox as a whole. */
  readonly stepIdx?: number | undefined
  readonly branch?: number | undefined
  readonly event: string
  readonly payload?: Json | undefined
  readonly error?: string | undefined
}

/**
 * Which entries to read. All given conditions must hold; none given reads the whole ledger.
 *
 * @since 0.1.0
 * @category models
 */
export interface EntryFilter {
  readonly sandboxId?: string | undefined
  readonly name?: string | undefined
  readonly stepIdx?: number | undefined
  /** Event names in today's spelling; the older spellings of the same events are found too. */
  readonly events?: ReadonlyArray<string> | undefined
  /** True leaves out `exec.output` (and the older `exec_event`) entries: what happened, without what was printed. */
  readonly withoutOutput?: boolean | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface ReadOptions extends EntryFilter {
  readonly after?: Cursor | undefined
  /** Up to and including this entry. */
  readonly until?: Cursor | undefined
  readonly limit?: number | undefined
  /** `asc` (default) or `desc` (newest first; `after` then means older than). */
  readonly order?: "asc" | "desc" | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface TailOptions extends EntryFilter {
  /** Start behind this entry id; default: from the first entry. */
  readonly afterId?: number | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Checkpoint {
  readonly sandboxId: string
  readonly name: string
  readonly snapshotId: string
  /** The tag it was given. */
  readonly tag?: string | undefined
  readonly cursor: Cursor
  /** The event's payload, whole. */
  readonly payload: { readonly [key: string]: Json }
}

/**
 * @since 0.1.0
 * @category models
 */
export type SandboxStatus = "running" | "paused" | "closed"

/**
 * What the ledger knows of one sandbox (session).
 *
 * @since 0.1.0
 * @category models
 */
export interface SandboxDetails {
  readonly sandboxId: string
  readonly name: string
  /** By its last lifecycle event: a process that was killed leaves its sandbox `running`. */
  readonly status: SandboxStatus
  readonly runId?: string | undefined
  readonly resourceId?: string | undefined
  readonly teamId?: string | undefined
  readonly parentSandboxId?: string | undefined
  readonly resumedFrom?: string | undefined
  readonly forkedFrom?: string | undefined
  readonly fromSnapshot?: string | undefined
  readonly fromEnvironment?: string | undefined
  readonly image?: string | undefined
  readonly snapshotId?: string | undefined
  readonly resources?: { readonly [key: string]: string } | undefined
  readonly createdAt: number
  readonly closedAt?: number | undefined
  /** Where `sandbox.created` stands. */
  readonly cursor: Cursor
  /** The payload of `sandbox.created`, whole. */
  readonly payload: { readonly [key: string]: Json }
}

/**
 * @since 0.1.0
 * @category models
 */
export interface SandboxFilter {
  readonly name?: string | undefined
  readonly status?: SandboxStatus | undefined
  readonly runId?: string | undefined
  readonly resourceId?: string | undefined
  /** Created before this entry (a `SandboxDetails.cursor`), or before this time in epoch milliseconds. */
  readonly before?: Cursor | number | undefined
  readonly limit?: number | undefined
}

/**
 * What `prune` removes.
 *
 * @since 0.1.0
 * @category models
 */
export interface PruneOptions {
  /** Sessions that ended before this time, in epoch milliseconds. */
  readonly before: number
  /** True keeps the sessions that have a checkpoint, and with it what it takes to resume them. Default: false. */
  readonly keepCheckpoints?: boolean | undefined
  /** Only sessions of this name. */
  readonly name?: string | undefined
}

/**
 * What `prune` removed.
 *
 * @since 0.1.0
 * @category models
 */
export interface Pruned {
  readonly sandboxes: number
  readonly entries: number
}

/**
 * A session that was imported.
 *
 * @since 0.1.0
 * @category models
 */
export interface Imported {
  readonly sandboxId: string
  readonly entries: number
}

/**
 * A prepared environment: the snapshot that `Sandboxes.environment` built.
 *
 * @since 0.1.0
 * @category models
 */
export interface EnvironmentRecord {
  readonly name: string
  readonly snapshotId: string
  readonly image: string
  readonly builtAt: number
}

/**
 * Everything that sandboxes did, in the order in which it happened: the `ts` of an entry is the time of its append, or
 * that of the latest entry before it where that is later.
 *
 * @example
 * ```ts
 * import { Ledger } from "@sandglass/core"
 * import { Effect, Stream } from "effect"
 *
 * const program = Effect.gen(function*() {
 *   const ledger = yield* Ledger.Ledger
 *   yield* ledger.append({ sandboxId: "sbx-1", name: "ci", event: "sandbox.created", payload: { runId: "run-1" } })
 *   yield* ledger.appendAll([
 *     { sandboxId: "sbx-1", name: "ci", stepIdx: 1, event: "exec.started", payload: { seq: 1, cmd: "npm ci" } },
 *     { sandboxId: "sbx-1", name: "ci", stepIdx: 1, event: "exec.completed", payload: { seq: 1, exitCode: 0 } }
 *   ])
 *   return yield* ledger.read({ sandboxId: "sbx-1", withoutOutput: true }).pipe(Stream.runCollect)
 * })
 *
 * program.pipe(Effect.provide(Ledger.layerMemory))
 * ```
 *
 * @since 0.1.0
 * @category tags
 */
export class Ledger extends Context.Tag("@sandglass/core/Ledger")<
  Ledger,
  {
    /**
     * Appends one event. It is durable when this returns, or, in a transaction of the application, with that transaction.
     *
     * An append that is interrupted has written all of its events, or none. Events that still wait for the commit of
     * others are withdrawn; once their own commit is under way they are written, though nobody is told. In a transaction
     * of the application what was written of them is undone, unless they had all been written.
     */
    readonly append: (event: EventInput) => Effect.Effect<LedgerEntry, LedgerError>
    /**
     * Appends many, in order. The events that can be stored are stored even if others cannot; then it fails with
     * `InvalidEvent` and the `rejected` positions. Interrupted, it has stored all that can be, or nothing.
     *
     * Appends that are under way at the same time share commits, and never a failure. Some 4,000 events wait for a commit
     * at a time; what is appended beyond that stands in line.
     */
    readonly appendAll: (events: ReadonlyArray<EventInput>) => Effect.Effect<ReadonlyArray<LedgerEntry>, LedgerError>
    /** Entries in `(ts, id)` order, page by page. */
    readonly read: (options?: ReadOptions) => Stream.Stream<LedgerEntry, LedgerError>
    /** The entry at a place in a sandbox's order, counted from 0. */
    readonly entryAt: (sandboxId: string, index: number) => Effect.Effect<Option.Option<LedgerEntry>, LedgerError>
    /** How many entries a sandbox has before a cursor: the place of the entry that stands there. */
    readonly indexOf: (sandboxId: string, cursor: Cursor) => Effect.Effect<number, LedgerError>
    /** History in the order it was appended (by `id`), then what is appended from now on; never ends by itself. */
    readonly tail: (options?: TailOptions) => Stream.Stream<LedgerEntry, LedgerError>
    /** The newest checkpoint of a sandbox, or the newest with this tag. */
    readonly lastCheckpoint: (
      sandboxId: string,
      options?: { readonly tag?: string | undefined; readonly until?: Cursor | undefined }
    ) => Effect.Effect<Option.Option<Checkpoint>, LedgerError>
    /** All checkpoints of a sandbox, oldest first. */
    readonly checkpoints: (sandboxId: string) => Stream.Stream<Checkpoint, LedgerError>
    /** Sandboxes, newest first. */
    readonly sandboxes: (filter?: SandboxFilter) => Stream.Stream<SandboxDetails, LedgerError>
    readonly sandbox: (sandboxId: string) => Effect.Effect<Option.Option<SandboxDetails>, LedgerError>
    /**
     * Removes every entry of one sandbox, whatever else still refers to it; returns how many. Fails with `StillRunning`
     * where the ledger has no end of its session, unless `force` is given: a process that was killed leaves its session
     * like that.
     *
     * A long session goes in several commits. Cut off in between, it can no longer be resumed, and is removed by the next
     * call.
     */
    readonly deleteSandbox: (
      sandboxId: string,
      options?: { readonly force?: boolean | undefined }
    ) => Effect.Effect<number, LedgerError>
    /**
     * Removes the sessions that ended before a time, whole and one after the other. What stays: sessions that have not
     * ended, and all that a session which stays was resumed from, however long ago.
     *
     * Takes as long as there is to remove, in commits of some thousand entries that let others get their turn; cut off in
     * between, what was removed is gone, and the next call goes on.
     */
    readonly prune: (options: PruneOptions) => Effect.Effect<Pruned, LedgerError>
    /**
     * A session as NDJSON, as it is at this moment: a line that says what follows, one for each entry as `read` gives it,
     * and one that says that this was all. It is the same text whatever the ledger is kept in: the keys of objects are
     * sorted, ids are left out, and where a checkpoint refers to an entry it is by the entry's number. Fails with
     * `NotFound` where the ledger has nothing of the sandbox.
     */
    readonly exportSandbox: (sandboxId: string) => Stream.Stream<string, LedgerError>
    /**
     * Stores what exports wrote, one session after the other, in text or bytes cut anywhere: with the `ts` and the order
     * that the entries had, and ids of this ledger. What is read, or exported again, is the same.
     *
     * A session is imported whole or not at all. Fails with `InvalidImport` at the first line that is not right, and with
     * `AlreadyExists` where the ledger has entries of the sandbox; the sessions before that one stay. Only a process that
     * is killed leaves a part behind, for `deleteSandbox` with `force`.
     */
    readonly importSandboxes: <E, R>(
      ndjson: Stream.Stream<string | Uint8Array, E, R>
    ) => Effect.Effect<ReadonlyArray<Imported>, LedgerError | E, R>
    readonly environment: (name: string) => Effect.Effect<Option.Option<EnvironmentRecord>, LedgerError>
    /** By name. */
    readonly environments: Effect.Effect<ReadonlyArray<EnvironmentRecord>, LedgerError>
    /** Inserts or replaces by name. */
    readonly putEnvironment: (record: EnvironmentRecord) => Effect.Effect<void, LedgerError>
    readonly deleteEnvironment: (name: string) => Effect.Effect<boolean, LedgerError>
  }
>() {}

/**
 * A ledger in memory, with the behaviour of one in a database: what is read was copied through JSON.
 *
 * @since 0.1.0
 * @category constructors
 */
export const makeMemory: Effect.Effect<Context.Tag.Service<Ledger>> = Effect.suspend(() => makeLedger(Memory.make()))

/**
 * A ledger in memory, for tests and for programs that need no history.
 *
 * @since 0.1.0
 * @category layers
 */
export const layerMemory: Layer.Layer<Ledger> = Layer.effect(Ledger, makeMemory)
