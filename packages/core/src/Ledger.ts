/**
 * The append-only record of everything that sandboxes did.
 *
 * {@link Ledger} is the port that programs use. A backend writes the much smaller {@link Encoded}, rows in and rows
 * out, and {@link makeEncoded} turns that into the port.
 *
 * @since 0.1.0
 */
import * as Arr from "effect/Array"
import * as Chunk from "effect/Chunk"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Queue from "effect/Queue"
import * as Stream from "effect/Stream"
import * as Codec from "./internal/ledgerCodec.js"
import * as Legacy from "./internal/ledgerLegacy.js"
import * as Memory from "./internal/ledgerMemory.js"
import { LedgerError } from "./LedgerError.js"
import type { Cursor, Json, LedgerEntry } from "./LedgerEvent.js"
import { EventName } from "./LedgerEvent.js"

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
  /** Created before this entry (a `SandboxDetails.cursor`), or before this time in epoch milliseconds. */
  readonly before?: Cursor | number | undefined
  readonly limit?: number | undefined
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
 * Everything that sandboxes did, in the order in which it happened.
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
    /** Appends one event. It is durable when this returns. */
    readonly append: (event: EventInput) => Effect.Effect<LedgerEntry, LedgerError>
    /**
     * Appends many, in order. The events that can be stored are stored even if others cannot; then it fails with
     * `InvalidEvent` and the `rejected` positions.
     */
    readonly appendAll: (events: ReadonlyArray<EventInput>) => Effect.Effect<ReadonlyArray<LedgerEntry>, LedgerError>
    /** Entries in `(ts, id)` order, page by page. */
    readonly read: (options?: ReadOptions) => Stream.Stream<LedgerEntry, LedgerError>
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
    /** Removes every entry of one sandbox; returns how many. */
    readonly deleteSandbox: (sandboxId: string) => Effect.Effect<number, LedgerError>
    readonly environment: (name: string) => Effect.Effect<Option.Option<EnvironmentRecord>, LedgerError>
    /** By name. */
    readonly environments: Effect.Effect<ReadonlyArray<EnvironmentRecord>, LedgerError>
    /** Inserts or replaces by name. */
    readonly putEnvironment: (record: EnvironmentRecord) => Effect.Effect<void, LedgerError>
    readonly deleteEnvironment: (name: string) => Effect.Effect<boolean, LedgerError>
  }
>() {}

/**
 * A row as a backend stores it: text and numbers only. `payload` is JSON text, `event` is spelled as it was written.
 *
 * @since 0.1.0
 * @category backends
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
 * @category backends
 */
export interface NewRow extends Omit<Row, "id"> {}

/**
 * Which rows a backend is asked for. `events` are spelled as they are stored.
 *
 * @since 0.1.0
 * @category backends
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
 * @category backends
 */
export interface Page<A, C> {
  readonly rows: ReadonlyArray<A>
  readonly next: C | undefined
}

/**
 * @since 0.1.0
 * @category backends
 */
export interface PageQuery extends RowFilter {
  readonly order: "asc" | "desc"
  readonly after: Cursor | undefined
  readonly until: Cursor | undefined
  readonly limit: number
}

/**
 * @since 0.1.0
 * @category backends
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
 * @category backends
 */
export interface SessionQuery {
  readonly sandboxId?: string | undefined
  readonly name?: string | undefined
  readonly status?: SandboxStatus | undefined
  /** Compared with `runId` in the payload of the created row. */
  readonly runId?: string | undefined
  readonly before: Cursor | undefined
  readonly limit: number
}

/**
 * A session: the row that created it, and what its lifecycle rows say.
 *
 * @since 0.1.0
 * @category backends
 */
export interface SessionRow {
  readonly created: Row
  readonly status: SandboxStatus
  readonly closedAt: number | null
}

/**
 * What a backend writes. Rows are complete and valid, queries were checked, text is text that any database can hold.
 * Errors are `LedgerError`s whose `method` does not matter: the operation that failed is filled in.
 *
 * @since 0.1.0
 * @category backends
 */
export interface Encoded {
  /** True for a database that refuses NUL and lone surrogates inside JSON. */
  readonly restrictedJson: boolean
  /**
   * All rows or none, in order; returns their ids. Fails with `Constraint` where the database refuses the data: the
   * rows are then tried in smaller groups until only the refused ones are left.
   */
  readonly append: (rows: Arr.NonEmptyReadonlyArray<NewRow>) => Effect.Effect<ReadonlyArray<number>, LedgerError>
  /**
   * Whether the calling fiber is in a transaction of its own that `append` joins. Its rows are then not merged with
   * those of other fibers into one commit.
   */
  readonly joined: Effect.Effect<boolean>
  /** Rows in `(ts, id)` order. */
  readonly page: (query: PageQuery) => Effect.Effect<Page<Row, Cursor>, LedgerError>
  /** Rows in `id` order. */
  readonly tail: (query: TailQuery) => Effect.Effect<Page<Row, number>, LedgerError>
  /** An id up to which nothing can appear any more that is not there yet; 0 for an empty ledger. */
  readonly settledId: Effect.Effect<number, LedgerError>
  /** Sessions, newest first. */
  readonly sessions: (query: SessionQuery) => Effect.Effect<Page<SessionRow, Cursor>, LedgerError>
  /** Removes the rows of one session; returns how many. */
  readonly remove: (sandboxId: string) => Effect.Effect<number, LedgerError>
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

const pageSize = 1000

/** Pages start smaller and follow the size of the rows: a row of output may be long. */
const firstPageSize = 200
const pageCharacters = 4 * 1024 * 1024

const nextPageSize = (rows: ReadonlyArray<Row>): number => {
  let characters = 0
  for (const row of rows) {
    characters += row.payload === null ? 0 : row.payload.length
  }
  return rows.length === 0
    ? pageSize
    : Math.max(16, Math.min(pageSize, Math.floor(pageCharacters / (characters / rows.length + 1))))
}

/** Rows of several callers share a commit up to this many. */
const sharedCommitRows = 512

interface Stored {
  /** By position: the id, or why the database refused the row. */
  readonly results: ReadonlyArray<number | LedgerError>
  /** The `ts` they were stored with. */
  readonly ts: number
}

interface Waiting {
  readonly rows: ReadonlyArray<Omit<NewRow, "ts">>
  readonly done: Deferred.Deferred<Stored, LedgerError>
}

const invalidQuery = (method: string, description: string) =>
  new LedgerError({ method, reason: "InvalidQuery", description })

const inMethod =
  (method: string) =>
  ({ cause, description, reason, rejected }: LedgerError): LedgerError =>
    new LedgerError({ method, reason, description, rejected, cause })

const checkCount = (method: string, name: string, value: number | undefined): Effect.Effect<void, LedgerError> =>
  value === undefined || (Number.isSafeInteger(value) && value >= 0)
    ? Effect.void
    : Effect.fail(invalidQuery(method, `${name} is ${value}, not a whole number of 0 or more`))

const checkCursor = (method: string, name: string, value: Cursor | undefined): Effect.Effect<void, LedgerError> =>
  value === undefined || (Number.isSafeInteger(value.ts) && Number.isSafeInteger(value.id))
    ? Effect.void
    : Effect.fail(invalidQuery(method, `${name} is no cursor`))

/** Postgres stores `step_idx` and `branch` in 32 bits, so every backend refuses what it would. */
const isInt32 = (value: number): boolean => Number.isInteger(value) && Math.abs(value) <= 2147483647

interface Prepared {
  readonly row: Omit<NewRow, "ts">
  readonly payload: Json | undefined
}

/** The row of an event, or why there is none. Checks what the types promise, too: events come from plain JavaScript. */
const prepare = (event: EventInput, restrictedJson: boolean): Prepared | string => {
  if (typeof event !== "object" || event === null) {
    return "not an event"
  }
  const { branch, error, event: kind, name, payload, sandboxId, stepIdx = -1 } = event
  if (typeof sandboxId !== "string" || sandboxId === "") {
    return "sandboxId is empty"
  }
  if (typeof kind !== "string" || kind === "") {
    return "event is empty"
  }
  if (typeof name !== "string") {
    return "name is no text"
  }
  if (!isInt32(stepIdx)) {
    return "stepIdx is no 32-bit integer"
  }
  if (branch !== undefined && branch !== null && !isInt32(branch)) {
    return "branch is no 32-bit integer"
  }
  if (error !== undefined && error !== null && typeof error !== "string") {
    return "error is no text"
  }
  const json = payload === undefined ? undefined : Codec.jsonify(payload)
  if (typeof json === "string") {
    return json
  }
  return {
    row: {
      sandboxId: Codec.encodeText(sandboxId),
      name: Codec.encodeText(name),
      stepIdx,
      branch: branch ?? null,
      event: Codec.encodeText(kind),
      payload: json === undefined ? null : Codec.encodePayload(json.value, json.text, restrictedJson),
      error: error === undefined || error === null ? null : Codec.encodeText(error)
    },
    payload: json?.value
  }
}

/** Absent fields are left out. Assigned one by one, because this runs for every row. */
const makeEntry = (
  id: number,
  sandboxId: string,
  name: string,
  stepIdx: number,
  branch: number | null | undefined,
  event: string,
  payload: Json | undefined,
  error: string | null | undefined,
  ts: number
): LedgerEntry => {
  const entry: { -readonly [K in keyof LedgerEntry]: LedgerEntry[K] } = { id, sandboxId, name, stepIdx, event, ts }
  if (branch !== undefined && branch !== null) {
    entry.branch = branch
  }
  if (payload !== undefined) {
    entry.payload = payload
  }
  if (error !== undefined && error !== null) {
    entry.error = error
  }
  return entry
}

const toEntry = (input: EventInput, payload: Json | undefined, id: number, ts: number): LedgerEntry =>
  makeEntry(id, input.sandboxId, input.name, input.stepIdx ?? -1, input.branch, input.event, payload, input.error, ts)

const decodeRow = (row: Row): LedgerEntry =>
  makeEntry(
    row.id,
    Codec.decodeText(row.sandboxId),
    Codec.decodeText(row.name),
    row.stepIdx,
    row.branch,
    Codec.decodeText(row.event),
    row.payload === null ? undefined : Codec.decodePayload(row.payload),
    row.error === null ? undefined : Codec.decodeText(row.error),
    row.ts
  )

const optionalText = <K extends string>(
  payload: { readonly [key: string]: Json },
  key: K
): { readonly [P in K]?: string } => {
  const value = payload[key]
  // A computed key loses its literal type.
  return (typeof value === "string" ? { [key]: value } : {}) as { readonly [P in K]?: string }
}

const toDetails = (session: SessionRow): SandboxDetails => {
  const entry = decodeRow(session.created)
  const payload = Legacy.isRecord(entry.payload) ? entry.payload : {}
  const resources = payload["resources"]
  return {
    sandboxId: entry.sandboxId,
    name: entry.name,
    status: session.status,
    ...optionalText(payload, "runId"),
    ...optionalText(payload, "resourceId"),
    ...optionalText(payload, "parentSandboxId"),
    ...optionalText(payload, "resumedFrom"),
    ...optionalText(payload, "forkedFrom"),
    ...optionalText(payload, "fromSnapshot"),
    ...optionalText(payload, "fromEnvironment"),
    ...optionalText(payload, "image"),
    ...optionalText(payload, "snapshotId"),
    ...(Legacy.isRecord(resources)
      ? {
          resources: Object.fromEntries(
            Object.entries(resources).flatMap(([key, value]) =>
              typeof value === "string" || typeof value === "number" ? [[key, String(value)]] : []
            )
          )
        }
      : undefined),
    createdAt: entry.ts,
    ...(session.closedAt === null ? undefined : { closedAt: session.closedAt }),
    cursor: { ts: entry.ts, id: entry.id },
    payload
  }
}

const toCheckpoint = (entry: LedgerEntry): Option.Option<Checkpoint> => {
  const payload = Legacy.isRecord(entry.payload) ? entry.payload : {}
  const { name: tag, snapshotId } = payload
  return typeof snapshotId === "string"
    ? Option.some({
        sandboxId: entry.sandboxId,
        name: entry.name,
        snapshotId,
        ...(typeof tag === "string" ? { tag } : undefined),
        cursor: { ts: entry.ts, id: entry.id },
        payload
      })
    : Option.none()
}

const decodeEnvironment = (record: EnvironmentRecord): EnvironmentRecord => ({
  name: Codec.decodeText(record.name),
  snapshotId: Codec.decodeText(record.snapshotId),
  image: Codec.decodeText(record.image),
  builtAt: record.builtAt
})

/**
 * The ledger on top of a backend: checks events and queries, assigns `ts`, encodes and decodes, reads the older
 * spellings, pages, lets concurrent appends share a commit, follows, and opens one span per operation.
 *
 * @since 0.1.0
 * @category backends
 */
export const makeEncoded = (encoded: Encoded): Effect.Effect<Context.Tag.Service<Ledger>> =>
  Effect.sync(() => {
    const tails = new Set<Queue.Queue<void>>()
    const waiting: Array<Waiting> = []
    let draining = false
    let lastTs = 0

    const poke = Effect.sync(() => {
      for (const queue of tails) {
        queue.unsafeOffer(undefined)
      }
    })

    const span =
      (method: string, attributes: Record<string, unknown>) =>
      <A>(self: Effect.Effect<A, LedgerError>): Effect.Effect<A, LedgerError> =>
        self.pipe(
          Effect.mapError(inMethod(method)),
          Effect.withSpan(`Ledger.${method}`, { captureStackTrace: false, attributes })
        )

    const streamSpan =
      (method: string, attributes: Record<string, unknown>) =>
      <A>(self: Stream.Stream<A, LedgerError>): Stream.Stream<A, LedgerError> =>
        self.pipe(
          Stream.mapError(inMethod(method)),
          Stream.withSpan(`Ledger.${method}`, { captureStackTrace: false, attributes })
        )

    const now = Effect.map(Effect.clock, (clock) => {
      lastTs = Math.max(lastTs, Math.trunc(clock.unsafeCurrentTimeMillis()))
      return lastTs
    })

    const store = (
      rows: Arr.NonEmptyReadonlyArray<NewRow>
    ): Effect.Effect<ReadonlyArray<number | LedgerError>, LedgerError> =>
      Effect.catchIf(
        encoded.append(rows),
        (error) => error.reason === "Constraint",
        (error) => {
          const middle = rows.length >>> 1
          const [left, right] = [rows.slice(0, middle), rows.slice(middle)]
          return Arr.isNonEmptyReadonlyArray(left) && Arr.isNonEmptyReadonlyArray(right)
            ? Effect.zipWith(store(left), store(right), (a, b) => [...a, ...b])
            : Effect.succeed([error])
        }
      )

    const storeNow = (rows: ReadonlyArray<Omit<NewRow, "ts">>): Effect.Effect<Stored, LedgerError> =>
      Effect.flatMap(now, (ts) => {
        const stamped = rows.map((row): NewRow => ({ ...row, ts }))
        return Arr.isNonEmptyReadonlyArray(stamped)
          ? Effect.map(store(stamped), (results): Stored => ({ results, ts }))
          : Effect.succeed<Stored>({ results: [], ts })
      })

    const drain = Effect.gen(function* () {
      while (true) {
        const group: Array<Waiting> = []
        let size = 0
        for (let next = waiting[0]; next !== undefined; next = waiting[0]) {
          if (group.length > 0 && size + next.rows.length > sharedCommitRows) {
            break
          }
          waiting.shift()
          group.push(next)
          size += next.rows.length
        }
        if (group.length === 0) {
          draining = false
          return
        }
        const exit = yield* Effect.exit(storeNow(group.flatMap(({ rows }) => rows)))
        let position = 0
        for (const { done, rows } of group) {
          const from = position
          position += rows.length
          Deferred.unsafeDone(
            done,
            Exit.map(exit, ({ results, ts }) => ({ results: results.slice(from, from + rows.length), ts }))
          )
        }
      }
    })

    /**
     * Rows wait in one queue, and whatever has gathered while a commit was under way shares the next one. The work is
     * done by a fiber of its own: interrupting a caller takes its rows out of the queue, or lets them be written
     * whole, and never disturbs the rows of others.
     */
    const submit = (rows: ReadonlyArray<Omit<NewRow, "ts">>): Effect.Effect<Stored, LedgerError> =>
      Effect.flatMap(Deferred.make<Stored, LedgerError>(), (done) => {
        const entry: Waiting = { rows, done }
        return Effect.suspend(() => {
          waiting.push(entry)
          if (draining) {
            return Deferred.await(done)
          }
          draining = true
          return Effect.zipRight(Effect.forkDaemon(Effect.interruptible(drain)), Deferred.await(done))
        }).pipe(
          Effect.onInterrupt(() =>
            Effect.sync(() => {
              const position = waiting.indexOf(entry)
              if (position >= 0) {
                waiting.splice(position, 1)
              }
            })
          )
        )
      })

    const appendAll = (events: ReadonlyArray<EventInput>): Effect.Effect<ReadonlyArray<LedgerEntry>, LedgerError> => {
      const rejected: Array<{ readonly index: number; readonly description: string }> = []
      const good: Array<Prepared & { readonly index: number; readonly input: EventInput }> = []
      for (const [index, input] of events.entries()) {
        const prepared = prepare(input, encoded.restrictedJson)
        if (typeof prepared === "string") {
          rejected.push({ index, description: prepared })
        } else {
          good.push({ ...prepared, index, input })
        }
      }
      const rows = good.map(({ row }) => row)
      const stored =
        rows.length === 0
          ? Effect.succeed<Stored>({ results: [], ts: 0 })
          : encoded.joined.pipe(
              Effect.flatMap((joined) => (joined ? storeNow(rows) : submit(rows))),
              Effect.zipLeft(poke)
            )
      return Effect.flatMap(stored, ({ results, ts }) => {
        const entries: Array<LedgerEntry> = []
        let cause: LedgerError | undefined
        for (const [position, { index, input, payload }] of good.entries()) {
          const result = results[position]
          if (typeof result === "number") {
            entries.push(toEntry(input, payload, result, ts))
          } else {
            cause = result
            rejected.push({ index, description: result?.description ?? "refused by the database" })
          }
        }
        if (rejected.length === 0) {
          return Effect.succeed(entries)
        }
        rejected.sort((a, b) => a.index - b.index)
        return Effect.fail(
          new LedgerError({
            method: "appendAll",
            reason: "InvalidEvent",
            description:
              rejected
                .slice(0, 3)
                .map((_) => `[${_.index}] ${_.description}`)
                .join("; ") + (rejected.length > 3 ? `; and ${rejected.length - 3} more` : ""),
            rejected,
            ...(cause === undefined ? undefined : { cause })
          })
        )
      })
    }

    const toRowFilter = (filter: EntryFilter): RowFilter => {
      const events =
        filter.events === undefined
          ? undefined
          : Arr.dedupe(filter.events.flatMap((event) => Legacy.spellings(Legacy.canonical(event)))).map(
              Codec.encodeText
            )
      return {
        sandboxId: filter.sandboxId === undefined ? undefined : Codec.encodeText(filter.sandboxId),
        name: filter.name === undefined ? undefined : Codec.encodeText(filter.name),
        stepIdx: filter.stepIdx,
        events,
        withoutOutput:
          filter.withoutOutput === true ||
          (events !== undefined && !events.some((event) => Legacy.outputEvents.includes(event)))
      }
    }

    /** Whether output in the older spelling was stored with its line ends: its exec's start says so. */
    const isRaw = (sandboxId: string, stepIdx: number): Effect.Effect<boolean, LedgerError> =>
      encoded
        .page({
          sandboxId,
          stepIdx,
          events: Legacy.spellings(EventName.execStarted),
          withoutOutput: true,
          order: "asc",
          after: undefined,
          until: undefined,
          limit: 10
        })
        .pipe(Effect.map(({ rows }) => rows.some((row) => Legacy.isRawStart(decodeRow(row).payload))))

    const decode = (
      rows: ReadonlyArray<Row>,
      events: ReadonlyArray<string> | undefined
    ): Effect.Effect<ReadonlyArray<LedgerEntry>, LedgerError> => {
      const entries = rows.map(decodeRow)
      const wanted = events === undefined ? undefined : new Set(events.map(Legacy.canonical))
      const finish = (raw: (position: number) => boolean) => {
        const normalized = entries.map((entry, position) => Legacy.normalize(entry, raw(position)))
        return wanted === undefined ? normalized : normalized.filter((entry) => wanted.has(entry.event))
      }
      const starts = new Map<string, Row>()
      const startOf = (row: Row) => `${row.stepIdx} ${row.sandboxId}`
      for (const [position, entry] of entries.entries()) {
        const row = rows[position]
        if (row !== undefined && Legacy.isLegacyOutput(entry.event, entry.payload)) {
          starts.set(startOf(row), row)
        }
      }
      if (starts.size === 0) {
        return Effect.succeed(finish(() => false))
      }
      return Effect.map(
        Effect.filter(starts, ([, row]) => isRaw(row.sandboxId, row.stepIdx)),
        (found) => {
          const raw = new Set(found.map(([key]) => key))
          return finish((position) => {
            const row = rows[position]
            return row !== undefined && raw.has(startOf(row))
          })
        }
      )
    }

    const entries = (options: ReadOptions): Stream.Stream<LedgerEntry, LedgerError> => {
      const filter = toRowFilter(options)
      const { after, limit = Infinity, order = "asc", until } = options
      if (limit === 0 || options.events?.length === 0) {
        return Stream.empty
      }
      interface State {
        readonly after: Cursor | undefined
        readonly left: number
        readonly size: number
      }
      const start: State = { after, left: limit, size: firstPageSize }
      return Stream.paginateChunkEffect(start, (state) =>
        Effect.flatMap(
          encoded.page({ ...filter, order, after: state.after, until, limit: Math.min(state.size, state.left) }),
          (page) =>
            Effect.map(decode(page.rows, options.events), (all) => {
              const some = all.length > state.left ? all.slice(0, state.left) : all
              const left = state.left - some.length
              return [
                Chunk.unsafeFromArray(some),
                page.next === undefined || left <= 0
                  ? Option.none<State>()
                  : Option.some<State>({ after: page.next, left, size: nextPageSize(page.rows) })
              ]
            })
        )
      )
    }

    const checkFilter = (method: string, filter: EntryFilter): Effect.Effect<void, LedgerError> =>
      filter.stepIdx === undefined || isInt32(filter.stepIdx)
        ? Effect.void
        : Effect.fail(invalidQuery(method, "stepIdx is no 32-bit integer"))

    const checkRead = (method: string, options: ReadOptions): Effect.Effect<void, LedgerError> =>
      Effect.all(
        [
          checkFilter(method, options),
          checkCount(method, "limit", options.limit),
          checkCursor(method, "after", options.after),
          checkCursor(method, "until", options.until)
        ],
        { discard: true }
      )

    const follow = (options: TailOptions): Stream.Stream<LedgerEntry, LedgerError> =>
      Stream.unwrapScoped(
        Effect.gen(function* () {
          const filter = toRowFilter(options)
          // One place that slides: a consumer that stands still costs an appender nothing.
          const pokes = yield* Effect.acquireRelease(
            Effect.tap(Queue.sliding<void>(1), (queue) => Effect.sync(() => tails.add(queue))),
            (queue) =>
              Effect.zipRight(
                Effect.sync(() => tails.delete(queue)),
                Queue.shutdown(queue)
              )
          )
          if (encoded.changes !== undefined) {
            yield* Effect.forkScoped(Stream.runForEach(encoded.changes, () => Queue.offer(pokes, undefined)))
          }
          const wait =
            encoded.pollInterval === undefined
              ? Queue.take(pokes)
              : Effect.raceFirst(Queue.take(pokes), Effect.sleep(encoded.pollInterval))
          let cursor = options.afterId ?? 0
          let upTo = cursor
          let size = firstPageSize
          const next: Effect.Effect<Chunk.Chunk<LedgerEntry>, LedgerError> = Effect.gen(function* () {
            while (true) {
              if (cursor >= upTo) {
                upTo = yield* Effect.withTracerEnabled(encoded.settledId, false)
              }
              if (cursor >= upTo) {
                yield* wait
                continue
              }
              const page = yield* encoded.tail({ ...filter, after: cursor, upTo, limit: size })
              const found = yield* decode(page.rows, options.events)
              cursor = page.next ?? upTo
              size = nextPageSize(page.rows)
              if (found.length > 0) {
                return Chunk.unsafeFromArray(found)
              }
            }
          })
          return Stream.repeatEffectChunk(next)
        })
      )

    const checkpoints = (sandboxId: string, order: "asc" | "desc", until: Cursor | undefined) =>
      Stream.filterMap(entries({ sandboxId, events: [EventName.checkpointCreated], order, until }), toCheckpoint)

    /** Newest first, the newest with the cursor `until` itself included. */
    const checkpointsUntil = (sandboxId: string, until: Cursor | undefined) =>
      Stream.filterMap(
        entries({
          sandboxId,
          events: [EventName.checkpointCreated],
          order: "desc",
          after: until === undefined ? undefined : { ts: until.ts, id: until.id + 1 }
        }),
        toCheckpoint
      )

    const sessions = (filter: SandboxFilter): Stream.Stream<SandboxDetails, LedgerError> => {
      const { before, limit = Infinity, runId } = filter
      if (limit === 0) {
        return Stream.empty
      }
      interface State {
        readonly before: Cursor | undefined
        readonly left: number
      }
      const start: State = {
        before: typeof before === "number" ? { ts: before, id: Number.MIN_SAFE_INTEGER } : before,
        left: limit
      }
      const query = {
        name: filter.name === undefined ? undefined : Codec.encodeText(filter.name),
        status: filter.status,
        runId: runId !== undefined && Codec.isPlainText(runId) ? runId : undefined
      }
      return Stream.paginateChunkEffect(start, (state) =>
        Effect.map(
          encoded.sessions({ ...query, before: state.before, limit: Math.min(firstPageSize, state.left) }),
          (page) => {
            const all = page.rows.map(toDetails)
            // The database compares what it can; whether it is the same text is decided here.
            const some = (runId === undefined ? all : all.filter((details) => details.runId === runId)).slice(
              0,
              Math.min(state.left, all.length)
            )
            const left = state.left - some.length
            return [
              Chunk.unsafeFromArray(some),
              page.next === undefined || left <= 0
                ? Option.none<State>()
                : Option.some<State>({ before: page.next, left })
            ]
          }
        )
      )
    }

    const checkSandboxFilter = (method: string, filter: SandboxFilter): Effect.Effect<void, LedgerError> =>
      Effect.all(
        [
          checkCount(method, "limit", filter.limit),
          typeof filter.before === "number"
            ? Number.isFinite(filter.before)
              ? Effect.void
              : Effect.fail(invalidQuery(method, `before is ${filter.before}`))
            : checkCursor(method, "before", filter.before),
          filter.status === undefined || ["running", "paused", "closed"].includes(filter.status)
            ? Effect.void
            : Effect.fail(invalidQuery(method, `status is ${String(filter.status)}`))
        ],
        { discard: true }
      )

    const checked = <A>(
      check: Effect.Effect<void, LedgerError>,
      stream: () => Stream.Stream<A, LedgerError>
    ): Stream.Stream<A, LedgerError> => Stream.unwrap(Effect.map(check, stream))

    const filterAttributes = (filter: EntryFilter): Record<string, unknown> => ({
      "sandglass.sandbox.id": filter.sandboxId,
      "sandglass.sandbox.name": filter.name,
      "sandglass.step": filter.stepIdx
    })

    return Ledger.of({
      append: (event) =>
        Effect.suspend(() => appendAll([event])).pipe(
          Effect.flatMap((stored) => Arr.head(stored)),
          Effect.catchTag("NoSuchElementException", Effect.die),
          span("append", {
            "sandglass.sandbox.id": event.sandboxId,
            "sandglass.event": event.event
          })
        ),
      appendAll: (events) =>
        events.length === 0
          ? Effect.succeed([])
          : Effect.suspend(() => appendAll(events)).pipe(
              span("appendAll", {
                "sandglass.sandbox.id": events[0]?.sandboxId,
                "sandglass.event.count": events.length
              })
            ),
      read: (options = {}) =>
        checked(checkRead("read", options), () => entries(options)).pipe(streamSpan("read", filterAttributes(options))),
      tail: (options = {}) =>
        checked(Effect.zipRight(checkFilter("tail", options), checkCount("tail", "afterId", options.afterId)), () =>
          follow(options)
        ).pipe(streamSpan("tail", filterAttributes(options))),
      lastCheckpoint: (sandboxId, options) =>
        checkCursor("lastCheckpoint", "until", options?.until).pipe(
          Effect.zipRight(
            checkpointsUntil(sandboxId, options?.until).pipe(
              Stream.filter((checkpoint) => options?.tag === undefined || checkpoint.tag === options.tag),
              Stream.runHead
            )
          ),
          span("lastCheckpoint", { "sandglass.sandbox.id": sandboxId })
        ),
      checkpoints: (sandboxId) =>
        checkpoints(sandboxId, "asc", undefined).pipe(streamSpan("checkpoints", { "sandglass.sandbox.id": sandboxId })),
      sandboxes: (filter = {}) =>
        checked(checkSandboxFilter("sandboxes", filter), () => sessions(filter)).pipe(
          streamSpan("sandboxes", {
            "sandglass.sandbox.name": filter.name,
            "sandglass.sandbox.status": filter.status,
            "sandglass.run.id": filter.runId
          })
        ),
      sandbox: (sandboxId) =>
        encoded.sessions({ sandboxId: Codec.encodeText(sandboxId), before: undefined, limit: 1 }).pipe(
          Effect.map(({ rows }) => Option.map(Arr.head(rows), toDetails)),
          span("sandbox", { "sandglass.sandbox.id": sandboxId })
        ),
      deleteSandbox: (sandboxId) =>
        encoded.remove(Codec.encodeText(sandboxId)).pipe(span("deleteSandbox", { "sandglass.sandbox.id": sandboxId })),
      environment: (name) =>
        encoded
          .environment(Codec.encodeText(name))
          .pipe(Effect.map(Option.map(decodeEnvironment)), span("environment", { "sandglass.environment": name })),
      environments: encoded.environments.pipe(
        // Sorted here: databases sort text by rules of their own.
        Effect.map((records) =>
          records.map(decodeEnvironment).sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0))
        ),
        span("environments", {})
      ),
      putEnvironment: (record) =>
        Effect.zipRight(
          Number.isSafeInteger(record.builtAt)
            ? Effect.void
            : Effect.fail(
                new LedgerError({
                  method: "putEnvironment",
                  reason: "InvalidEvent",
                  description: "builtAt is no whole number of milliseconds"
                })
              ),
          encoded.putEnvironment({
            name: Codec.encodeText(record.name),
            snapshotId: Codec.encodeText(record.snapshotId),
            image: Codec.encodeText(record.image),
            builtAt: record.builtAt
          })
        ).pipe(span("putEnvironment", { "sandglass.environment": record.name })),
      deleteEnvironment: (name) =>
        encoded
          .deleteEnvironment(Codec.encodeText(name))
          .pipe(span("deleteEnvironment", { "sandglass.environment": name }))
    })
  })

/**
 * A ledger in memory, with the behaviour of one in a database: what is read was copied through JSON.
 *
 * @since 0.1.0
 * @category constructors
 */
export const makeMemory: Effect.Effect<Context.Tag.Service<Ledger>> = Effect.suspend(() => makeEncoded(Memory.make()))

/**
 * A ledger in memory, for tests and for programs that need no history.
 *
 * @since 0.1.0
 * @category layers
 */
export const layerMemory: Layer.Layer<Ledger> = Layer.effect(Ledger, makeMemory)
