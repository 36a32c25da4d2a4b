/**
 * The ledger in a SQLite file, through Bun's driver.
 *
 * @since 0.1.0
 */

import { statSync } from "node:fs"
import { mkdir } from "node:fs/promises"
import { dirname, resolve } from "node:path"
import * as SqlClient from "@effect/sql/SqlClient"
import { SqlError } from "@effect/sql/SqlError"
import * as SqliteClient from "@effect/sql-sqlite-bun/SqliteClient"
import * as Ledger from "@sandglass/core/Ledger"
import { LedgerError } from "@sandglass/core/LedgerError"
import * as SqlLedger from "@sandglass/core/SqlLedger"
import * as Config from "effect/Config"
import type { ConfigError } from "effect/ConfigError"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Predicate from "effect/Predicate"
import * as Schedule from "effect/Schedule"
import type * as Scope from "effect/Scope"

/**
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /**
   * The file; missing folders are created. `:memory:` is a database of its own that ends with the layer. A ledger whose
   * file is deleted or replaced while it is open fails with `Connection` from then on.
   */
  readonly filename: string
  /**
   * How long the driver itself waits for another process to finish writing; it stops the whole process meanwhile. The
   * ledger's own statements are tried again beyond that, without stopping anything. Default: a quarter of a second.
   */
  readonly busyTimeout?: Duration.DurationInput | undefined
  /** How long an append waits for a database that others keep locked. Default: 30 seconds. */
  readonly contentionTimeout?: Duration.DurationInput | undefined
  /** How often `tail` looks for what other processes appended. Default: half a second. */
  readonly pollInterval?: Duration.DurationInput | undefined
}

const codeOf = (cause: unknown): string =>
  Predicate.hasProperty(cause, "code") && typeof cause.code === "string" ? cause.code : ""

const driverError = (cause: unknown): unknown => (cause instanceof SqlError ? cause.cause : cause)

const isBusy = (cause: unknown): boolean => /^SQLITE_(?:BUSY|LOCKED)/.test(codeOf(driverError(cause)))

const openError =
  (filename: string) =>
  (cause: unknown): LedgerError => {
    const inner = driverError(cause)
    return new LedgerError({
      method: "layer",
      reason: isBusy(cause) ? "Contention" : "Connection",
      description: `cannot open ${filename}: ${inner instanceof Error ? inner.message : String(inner)}`,
      cause: inner
    })
  }

const isMemory = (filename: string): boolean =>
  filename === "" || filename === ":memory:" || filename.startsWith("file:")

const locked = Schedule.exponential("5 millis", 1.5).pipe(
  Schedule.union(Schedule.spaced("100 millis")),
  Schedule.jittered,
  Schedule.upTo("30 seconds")
)

/**
 * The driver's client for one file, with failures to open it as errors instead of defects.
 */
const makeClient = (options: Options): Effect.Effect<SqliteClient.SqliteClient, LedgerError, Scope.Scope> => {
  const { filename } = options
  const busyTimeout = Math.trunc(Duration.toMillis(options.busyTimeout ?? "250 millis"))
  const folder = isMemory(filename)
    ? Effect.void
    : Effect.tryPromise({
        try: () => mkdir(dirname(filename), { recursive: true }),
        catch: openError(filename)
      })
  return Effect.gen(function* () {
    yield* folder
    // The driver opens the file and would switch to WAL before a busy timeout can be set; what goes wrong is a defect.
    const client = yield* Layer.build(SqliteClient.layer({ filename, disableWAL: true })).pipe(
      Effect.map(Context.get(SqliteClient.SqliteClient)),
      Effect.mapError(openError(filename)),
      Effect.catchAllDefect((defect) => Effect.fail(openError(filename)(defect)))
    )
    yield* client
      .unsafe(`PRAGMA busy_timeout = ${busyTimeout}`)
      .pipe(
        Effect.zipRight(Effect.retry(client.unsafe("PRAGMA journal_mode = WAL"), { schedule: locked, while: isBusy })),
        Effect.mapError(openError(filename))
      )
    return client
  })
}

/**
 * Fails when the file that was opened is not at its path any more: the database would go on without a word, in a file
 * that nobody can open. A look at the inode, a microsecond or two; while the file is open, no other one gets its number.
 */
const makeVerify = (filename: string): Effect.Effect<Effect.Effect<void, LedgerError>, LedgerError> => {
  const path = resolve(filename)
  const lost = (description: string, cause?: unknown) =>
    new LedgerError({ method: "verify", reason: "Connection", description, cause })
  const identity = Effect.try({
    try: () => {
      const stats = statSync(path, { bigint: true, throwIfNoEntry: false })
      return stats === undefined ? "" : `${stats.dev} ${stats.ino}`
    },
    catch: (cause) => lost(`cannot look at ${filename}`, cause)
  })
  return Effect.map(identity, (opened) =>
    Effect.flatMap(identity, (now) =>
      now === opened
        ? Effect.void
        : Effect.fail(lost(`${filename} was ${now === "" ? "deleted" : "replaced by another file"} while it was open`))
    )
  )
}

/**
 * Opens the file, brings its tables up to date, and closes it with the scope.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (
  options: Options
): Effect.Effect<
  Context.Context<Ledger.Ledger | SqlClient.SqlClient | SqliteClient.SqliteClient>,
  LedgerError,
  Scope.Scope
> =>
  Effect.gen(function* () {
    const client = yield* makeClient(options)
    const verify = isMemory(options.filename) ? Effect.void : yield* makeVerify(options.filename)
    const ledger = yield* SqlLedger.make({ ...options, verify }).pipe(
      Effect.provideService(SqlClient.SqlClient, client),
      Effect.mapError((error) =>
        error.reason === "Contention" || error.reason === "Connection"
          ? openError(options.filename)(error.cause)
          : error
      )
    )
    return Context.make(Ledger.Ledger, ledger).pipe(
      Context.add(SqlClient.SqlClient, client),
      Context.add(SqliteClient.SqliteClient, client)
    )
  })

/**
 * The ledger in a SQLite file, and the client of that file: what an application writes through it inside
 * `sql.withTransaction` commits together with the events that it appends there.
 *
 * @example
 * ```ts
 * import { Ledger } from "@sandglass/core"
 * import { SqliteLedger } from "@sandglass/sql-sqlite"
 * import { Effect } from "effect"
 *
 * const program = Effect.gen(function*() {
 *   const ledger = yield* Ledger.Ledger
 *   return yield* ledger.append({ sandboxId: "sbx-1", name: "ci", event: "deploy.approved", payload: { by: "ada" } })
 * })
 *
 * program.pipe(Effect.provide(SqliteLedger.layer({ filename: "./data/ledger.db" })))
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (
  options: Options
): Layer.Layer<Ledger.Ledger | SqlClient.SqlClient | SqliteClient.SqliteClient, LedgerError> =>
  Layer.scopedContext(make(options))

/**
 * The file that {@link layerConfig} opens when it is given nothing else: `SANDGLASS_LEDGER_FILE`, by default
 * `./sandglass.db`.
 *
 * @since 0.1.0
 * @category config
 */
export const config: Config.Config<Options> = Config.all({
  filename: Config.nonEmptyString("SANDGLASS_LEDGER_FILE").pipe(
    Config.withDefault("./sandglass.db"),
    Config.withDescription("The SQLite file of the ledger")
  )
})

/**
 * As {@link layer}, from the configuration.
 *
 * @since 0.1.0
 * @category layers
 */
export const layerConfig = (
  options: Config.Config.Wrap<Options> = config
): Layer.Layer<Ledger.Ledger | SqlClient.SqlClient | SqliteClient.SqliteClient, LedgerError | ConfigError> =>
  Layer.scopedContext(Effect.flatMap(Config.unwrap(options), make))
