/**
 * The ledger in a Postgres database.
 *
 * @since 0.1.0
 */
import type * as SqlClient from "@effect/sql/SqlClient"
import * as PgClient from "@effect/sql-pg/PgClient"
import * as Ledger from "@sandglass/core/Ledger"
import { LedgerError } from "@sandglass/core/LedgerError"
import * as SqlLedger from "@sandglass/core/SqlLedger"
import * as Config from "effect/Config"
import type { ConfigError } from "effect/ConfigError"
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Scope from "effect/Scope"
import * as Client from "./internal/client.js"
import * as Notifications from "./internal/notifications.js"
import * as PgConnection from "./PgConnection.js"

/**
 * @since 0.1.0
 * @category models
 */
export interface LedgerOptions {
  /**
   * How often `tail` looks for what other processes appended. It is told of most of it at once, by notifications; this is
   * for when they do not arrive. Default: 2 seconds.
   */
  readonly pollInterval?: Duration.DurationInput | undefined
  /** How long an append goes on trying when others are in its way. Default: 30 seconds. */
  readonly contentionTimeout?: Duration.DurationInput | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Options extends PgConnection.Options, LedgerOptions {}

const atStart = (error: LedgerError): LedgerError =>
  new LedgerError({
    method: "layer",
    reason: error.reason,
    description: error.description,
    cause: error.cause
  })

/**
 * A ledger in the database of the client at hand; creates the tables and indexes that are missing. Not to be called inside
 * a transaction. While anybody follows the ledger, one connection of the client's pool is taken for that.
 *
 * @since 0.1.0
 * @category constructors
 */
export const fromClient = (
  options: LedgerOptions = {}
): Effect.Effect<Context.Tag.Service<Ledger.Ledger>, LedgerError, PgClient.PgClient | Scope.Scope> =>
  Effect.gen(function* () {
    const client = yield* PgClient.PgClient
    const announce = yield* Notifications.announcer(client, SqlLedger.channel)
    const changes = yield* Notifications.listen(client, SqlLedger.channel)
    return yield* SqlLedger.make({
      pollInterval: options.pollInterval ?? "2 seconds",
      contentionTimeout: options.contentionTimeout,
      changes,
      committed: announce
    }).pipe(Effect.mapError(atStart), Effect.provide(Client.toContext(client)))
  })

/**
 * Connects, brings the tables up to date, and closes all connections with the scope.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (
  options: Options
): Effect.Effect<Context.Context<Ledger.Ledger | SqlClient.SqlClient | PgClient.PgClient>, LedgerError, Scope.Scope> =>
  Effect.gen(function* () {
    const client = yield* Effect.mapError(
      Client.make(options),
      ({ cause, description }) => new LedgerError({ method: "layer", reason: "Connection", description, cause })
    )
    const ledger = yield* Effect.provideService(fromClient(options), PgClient.PgClient, client)
    return Context.add(Client.toContext(client), Ledger.Ledger, ledger)
  })

/**
 * The ledger in a Postgres database, and the client of that database: what an application writes through it inside
 * `sql.withTransaction` commits together with the events that it appends there.
 *
 * @example
 * ```ts
 * import { Ledger } from "@sandglass/core"
 * import { PgLedger } from "@sandglass/sql-pg"
 * import { Effect, Redacted } from "effect"
 *
 * const program = Effect.gen(function*() {
 *   const ledger = yield* Ledger.Ledger
 *   return yield* ledger.append({ sandboxId: "sbx-1", name: "ci", event: "deploy.approved", payload: { by: "ada" } })
 * })
 *
 * const url = Redacted.make("postgres://ada:secret@localhost:5432/sandglass")
 *
 * program.pipe(Effect.provide(PgLedger.layer({ url, maxConnections: 20 })))
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (
  options: Options
): Layer.Layer<Ledger.Ledger | SqlClient.SqlClient | PgClient.PgClient, LedgerError> =>
  Layer.scopedContext(make(options))

/**
 * As {@link layer}, from the configuration: by default from `DATABASE_URL`, or `PGHOST`, `PGPORT`, `PGUSER`, `PGPASSWORD`
 * and `PGDATABASE`.
 *
 * @since 0.1.0
 * @category layers
 */
export const layerConfig = (
  options: Config.Config.Wrap<Options> = PgConnection.config
): Layer.Layer<Ledger.Ledger | SqlClient.SqlClient | PgClient.PgClient, LedgerError | ConfigError> =>
  Layer.scopedContext(Effect.flatMap(Config.unwrap(options), make))

/**
 * The ledger in the database of the `PgClient` that the application has. For any other `SqlClient` of a Postgres database
 * there is `SqlLedger.layer`, which finds what other processes append by looking.
 *
 * @example
 * ```ts
 * import { PgClient } from "@effect/sql-pg"
 * import { PgLedger } from "@sandglass/sql-pg"
 * import { Config, Layer } from "effect"
 *
 * const client = PgClient.layerConfig({ url: Config.redacted("DATABASE_URL") })
 *
 * export const ledger = Layer.provideMerge(PgLedger.layerFromClient(), client)
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layerFromClient = (
  options: LedgerOptions = {}
): Layer.Layer<Ledger.Ledger, LedgerError, PgClient.PgClient> => Layer.scoped(Ledger.Ledger, fromClient(options))
