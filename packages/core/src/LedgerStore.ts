/**
 * For those who write a backend: where a ledger keeps its rows.
 *
 * A {@link LedgerStore} takes rows in and gives rows out, all of them text and numbers. {@link makeLedger} makes a
 * ledger of it: it checks events and queries, stamps the time, encodes payloads, lets concurrent appends share a
 * commit, reads the older spellings of events, pages, and follows.
 *
 * `LedgerContract.suite` of `@sandglass/core/testing` proves a store through the ledger that is made of it.
 *
 * @since 0.1.0
 */
import type { NonEmptyReadonlyArray } from "effect/Array"
import type * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Option from "effect/Option"
import type * as Stream from "effect/Stream"
import * as internal from "./internal/ledger/make.js"
import type { EnvironmentRecord, Ledger, SandboxStatus } from "./Ledger.js"
import type { LedgerError } from "./LedgerError.js"
import type { Cursor } from "./LedgerEvent.js"

/**
 * A row as a backend stores it: text and numbers only. `payload` is JSON text, `event` is spelled as it was written.
 *
 * @since 0.1.0
 * @category models
 */
export interface Row {
  readonly id: number
  readonly sandboxId: string
  readonly name: string
  readonly stepIdx: number
  readonly branch: number | null
  readonly event: string
  readonly payload: string | null
  readonly error: string | null
  /** Epoch milliseconds. */
  readonly ts: number
}

/**
 * @since 0.1.0
 * @category models
 */
export interface NewRow extends Omit<Row, "id"> {}

/**
 * Which rows a backend is asked for. `events` are spelled as they are stored.
 *
 * @since 0.1.0
 * @category models
 */
export interface RowFilter {
  readonly sandboxId?: string | undefined
  readonly name?: string | undefined
  readonly stepIdx?: number | undefined
  readonly events?: ReadonlyArray<string> | undefined
  readonly withoutOutput?: boolean | undefined
}

/**
 * One page, and where the next one begins. A page may be short, or even empty, and still have a `next`: a backend
 * bounds what a single query looks at.
 *
 * @since 0.1.0
 * @category models
 */
export interface Page<A, C> {
  readonly rows: ReadonlyArray<A>
  readonly next: C | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface PageQuery extends RowFilter {
  readonly order: "asc" | "desc"
  readonly after: Cursor | undefined
  readonly until: Cursor | undefined
  readonly limit: number
}

/**
 * @since 0.1.0
 * @category models
 */
export interface TailQuery extends RowFilter {
  /** Rows with a greater id ... */
  readonly after: number
  /** ... up to and including this one. */
  readonly upTo: number
  readonly limit: number
}

/**
 * @since 0.1.0
 * @category models
 */
export interface SessionQuery {
  readonly sandboxId?: string | undefined
  readonly name?: string | undefined
  readonly status?: SandboxStatus | undefined
  /** Compared with `runId` in the payload of the created row. */
  readonly runId?: string | undefined
  /** Compared with `resourceId` in the payload of the created row. */
  readonly resourceId?: string | undefined
  readonly before: Cursor | undefined
  readonly limit: number
}

/**
 * A session: the row that created it, and what its lifecycle rows say.
 *
 * @since 0.1.0
 * @category models
 */
export interface SessionRow {
  readonly created: Row
  readonly status: SandboxStatus
  readonly closedAt: number | null
}

/**
 * What a backend implements. Rows are complete and valid, queries were checked, text is text that any database can
 * hold. Errors are `LedgerError`s whose `method` does not matter: the operation that failed is filled in.
 *
 * @since 0.1.0
 * @category models
 */
export interface LedgerStore {
  /** True for a database that refuses NUL and lone surrogates inside JSON. */
  readonly restrictedJson: boolean
  /**
   * All rows or none, in order; returns where each of them stands. The `ts` of a row is the earliest it may get: a store
   * that other processes append to raises it to that of the latest row, so that nothing sorts before what was there.
   * Fails with `Constraint` where the database refuses the data: the rows are then tried in smaller groups until only
   * the refused ones are left. Any other failure but `Connection` and `Contention` says that nothing was written, too,
   * and that it may be the fault of some of the rows: those of other callers are then tried without them.
   */
  readonly append: (rows: NonEmptyReadonlyArray<NewRow>) => Effect.Effect<ReadonlyArray<Cursor>, LedgerError>
  /** As `append`, but rows keep their `ts`, whatever is there already: those of a session that was exported elsewhere. */
  readonly restore: (rows: NonEmptyReadonlyArray<NewRow>) => Effect.Effect<ReadonlyArray<Cursor>, LedgerError>
  /**
   * Whether the calling fiber is in a transaction of its own that `append` joins. Its rows are then not merged with
   * those of other fibers into one commit.
   */
  readonly joined: Effect.Effect<boolean>
  /** Rows in `(ts, id)` order. */
  readonly page: (query: PageQuery) => Effect.Effect<Page<Row, Cursor>, LedgerError>
  /** The row at a place in a session's `(ts, id)` order, counted from 0. */
  readonly rowAt: (sandboxId: string, index: number) => Effect.Effect<Option.Option<Row>, LedgerError>
  /** How many rows of a session come before a cursor. */
  readonly countBefore: (sandboxId: string, cursor: Cursor) => Effect.Effect<number, LedgerError>
  /** Rows in `id` order. */
  readonly tail: (query: TailQuery) => Effect.Effect<Page<Row, number>, LedgerError>
  /** An id up to which nothing can appear any more that is not there yet; 0 for an empty ledger. */
  readonly settledId: Effect.Effect<number, LedgerError>
  /** Sessions, newest first. */
  readonly sessions: (query: SessionQuery) => Effect.Effect<Page<SessionRow, Cursor>, LedgerError>
  /**
   * Removes so many rows of one session at most, all of them or none, and returns how many; fewer than `limit` says that
   * none are left. Rows that tell of a checkpoint go first, and those that tell of the session's beginning and end last:
   * a session that is removed in part is listed until it is gone, and cannot be resumed. A store that nobody waits for
   * meanwhile may remove all rows at once.
   */
  readonly remove: (sandboxId: string, limit: number) => Effect.Effect<number, LedgerError>
  readonly environment: (name: string) => Effect.Effect<Option.Option<EnvironmentRecord>, LedgerError>
  /** In any order. */
  readonly environments: Effect.Effect<ReadonlyArray<EnvironmentRecord>, LedgerError>
  readonly putEnvironment: (record: EnvironmentRecord) => Effect.Effect<void, LedgerError>
  readonly deleteEnvironment: (name: string) => Effect.Effect<boolean, LedgerError>
  /** How often a tail looks for what other processes appended; left out where there are none. */
  readonly pollInterval?: Duration.DurationInput | undefined
  /** Emits when another process may have appended something. A hint: losing one costs no more than a poll. */
  readonly changes?: Stream.Stream<unknown, LedgerError> | undefined
}

/**
 * The ledger that keeps its rows in this store. A store belongs to one ledger only.
 *
 * @example
 * ```ts
 * import { Ledger, LedgerError, LedgerStore } from "@sandglass/core"
 * import { Config, Effect, Layer, Scope } from "effect"
 *
 * // Connects, and implements the interface.
 * declare const open: (
 *   url: string
 * ) => Effect.Effect<LedgerStore.LedgerStore, LedgerError.LedgerError, Scope.Scope>
 *
 * export const layer = Layer.scoped(
 *   Ledger.Ledger,
 *   Config.string("LEDGER_URL").pipe(Effect.flatMap(open), Effect.flatMap(LedgerStore.makeLedger))
 * )
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const makeLedger = (store: LedgerStore): Effect.Effect<Context.Tag.Service<Ledger>> =>
  Effect.sync(() => internal.make(store))
