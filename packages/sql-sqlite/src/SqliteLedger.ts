/**
 * The ledger in a SQLite file, through Bun's driver.
 *
 * @since 0.1.0
 */
import * as SqlClient from "@effect/sql/SqlClient"
import * as SqliteClient from "@effect/sql-sqlite-bun/SqliteClient"
import * as Ledger from "@sandglass/core/Ledger"
import { LedgerError } from "@sandglass/core/LedgerError"
import * as SqlLedger from "@sandglass/core/SqlLedger"
import type { SqlFailure } from "@sandglass/core/SqlStore"
import * as Config from "effect/Config"
import type { ConfigError } from "effect/ConfigError"
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Scope from "effect/Scope"
import * as Client from "./internal/client.js"

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

const toLedgerError =
  (method: string) =>
  ({ cause, description, reason }: SqlFailure) =>
    new LedgerError({ method, reason, description, cause })

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
    const { client, verify } = yield* Effect.mapError(Client.open(options), toLedgerError("layer"))
    const ledger = yield* SqlLedger.make({ ...options, verify: Effect.mapError(verify, toLedgerError("verify")) }).pipe(
      Effect.provideService(SqlClient.SqlClient, client),
      Effect.mapError((error) =>
        error.reason === "Contention" || error.reason === "Connection"
          ? toLedgerError("layer")(Client.openFailure(options.filename)(error.cause))
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
