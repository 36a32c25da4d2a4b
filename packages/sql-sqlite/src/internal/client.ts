/**
 * The driver's client for one file, with failures to open it as errors instead of defects.
 */
import { statSync } from "node:fs"
import { mkdir } from "node:fs/promises"
import { dirname, resolve } from "node:path"
import { SqlError } from "@effect/sql/SqlError"
import * as SqliteClient from "@effect/sql-sqlite-bun/SqliteClient"
import { SqlFailure } from "@sandglass/core/SqlStore"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Predicate from "effect/Predicate"
import * as Schedule from "effect/Schedule"
import type * as Scope from "effect/Scope"

export interface Options {
  readonly filename: string
  readonly busyTimeout?: Duration.DurationInput | undefined
}

export interface Opened {
  readonly client: SqliteClient.SqliteClient
  /**
   * Fails when the file that was opened is not at its path any more: the database would go on without a word, in a file
   * that nobody can open. A look at the inode, a microsecond or two; while the file is open, no other one gets its number.
   */
  readonly verify: Effect.Effect<void, SqlFailure>
}

const driverError = (cause: unknown): unknown => (cause instanceof SqlError ? cause.cause : cause)

const codeOf = (cause: unknown): string | undefined =>
  Predicate.hasProperty(cause, "code") && typeof cause.code === "string" ? cause.code : undefined

const isBusy = (cause: unknown): boolean => /^SQLITE_(?:BUSY|LOCKED)/.test(codeOf(driverError(cause)) ?? "")

/** What it means that the file cannot be opened. */
export const openFailure =
  (filename: string) =>
  (cause: unknown): SqlFailure => {
    const inner = driverError(cause)
    return new SqlFailure({
      reason: isBusy(cause) ? "Contention" : "Connection",
      code: codeOf(inner),
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

/** The driver opens the file in the layer; what goes wrong there is a defect. */
const connect = (
  config: SqliteClient.SqliteClientConfig
): Effect.Effect<SqliteClient.SqliteClient, SqlFailure, Scope.Scope> =>
  Layer.build(SqliteClient.layer(config)).pipe(
    Effect.map(Context.get(SqliteClient.SqliteClient)),
    Effect.mapError(openFailure(config.filename)),
    Effect.catchAllDefect((defect) => Effect.fail(openFailure(config.filename)(defect)))
  )

const makeVerify = (filename: string): Effect.Effect<Effect.Effect<void, SqlFailure>, SqlFailure> => {
  const path = resolve(filename)
  const lost = (description: string, cause?: unknown) =>
    new SqlFailure({ reason: "Connection", description, cause: cause ?? new Error(description) })
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

/** Opens a file for reading and writing; missing folders are created. */
export const open = ({ busyTimeout, filename }: Options): Effect.Effect<Opened, SqlFailure, Scope.Scope> =>
  Effect.gen(function* () {
    if (!isMemory(filename)) {
      yield* Effect.tryPromise({
        try: () => mkdir(dirname(filename), { recursive: true }),
        catch: openFailure(filename)
      })
    }
    // It would switch to WAL before a busy timeout can be set.
    const client = yield* connect({ filename, disableWAL: true })
    yield* client
      .unsafe(`PRAGMA busy_timeout = ${Math.trunc(Duration.toMillis(busyTimeout ?? "250 millis"))}`)
      .pipe(
        Effect.zipRight(Effect.retry(client.unsafe("PRAGMA journal_mode = WAL"), { schedule: locked, while: isBusy })),
        Effect.mapError(openFailure(filename))
      )
    return { client, verify: isMemory(filename) ? Effect.void : yield* makeVerify(filename) }
  })

/** Opens a file that another program writes, and changes nothing in it. */
export const openReadOnly = (filename: string): Effect.Effect<SqliteClient.SqliteClient, SqlFailure, Scope.Scope> =>
  Effect.gen(function* () {
    const client = yield* connect({ filename, readonly: true, readwrite: false, create: false, disableWAL: true })
    yield* Effect.mapError(client.unsafe("SELECT count(*) FROM sqlite_master"), openFailure(filename))
    return client
  })
