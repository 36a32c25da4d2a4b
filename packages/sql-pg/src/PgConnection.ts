/**
 * Where a Postgres database is, and how to connect to it.
 *
 * @since 0.1.0
 */
import type { ConnectionOptions } from "node:tls"
import * as Config from "effect/Config"
import type * as Duration from "effect/Duration"
import type * as Redacted from "effect/Redacted"

/**
 * A `url`, or its parts. What neither says is what the driver takes otherwise: libpq's environment variables (`PGHOST`,
 * `PGUSER`, ...), and then `localhost`, port 5432, the name of the operating system's user, and a database of the name of
 * the user.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** `postgres://user:password@host:port/database`. What it says wins over the parts below. */
  readonly url?: Redacted.Redacted<string> | undefined
  /** A name, an address, or the folder of a Unix socket. */
  readonly host?: string | undefined
  readonly port?: number | undefined
  readonly database?: string | undefined
  readonly username?: string | undefined
  readonly password?: Redacted.Redacted<string> | undefined
  /**
   * TLS: `true` checks the server's certificate against the authorities that the runtime knows; options name others.
   * Default: what `sslmode` in the URL says, else none.
   */
  readonly ssl?: boolean | ConnectionOptions | undefined
  /** Connections at most. Default: 10. One that waits for others' work is taken while somebody follows a ledger. */
  readonly maxConnections?: number | undefined
  /** Connections that are kept though nobody needs them. Default: 0. */
  readonly minConnections?: number | undefined
  /**
   * How long to wait for a connection: for the database to accept one, or for one of the pool to be free. Default: 10
   * seconds.
   */
  readonly connectTimeout?: Duration.DurationInput | undefined
  /** When a connection that nobody needs is closed. Default: after 10 seconds. */
  readonly idleTimeout?: Duration.DurationInput | undefined
  /** How old a connection gets before it is replaced. Default: any age. */
  readonly connectionTTL?: Duration.DurationInput | undefined
  /** What the database calls the connections in `pg_stat_activity`. Default: `sandglass`. */
  readonly applicationName?: string | undefined
}

const parts: Config.Config<Options> = Config.all({
  host: Config.nonEmptyString("PGHOST").pipe(Config.withDescription("The host of the Postgres database")),
  port: Config.withDefault(Config.port("PGPORT"), undefined),
  username: Config.withDefault(Config.nonEmptyString("PGUSER"), undefined),
  password: Config.withDefault(Config.redacted(Config.nonEmptyString("PGPASSWORD")), undefined),
  database: Config.withDefault(Config.nonEmptyString("PGDATABASE"), undefined)
})

const url: Config.Config<Options> = Config.all({
  url: Config.redacted(Config.nonEmptyString("DATABASE_URL")).pipe(
    Config.withDescription("postgres://user:password@host:port/database")
  )
})

/**
 * `DATABASE_URL`, or `PGHOST` with `PGPORT`, `PGUSER`, `PGPASSWORD` and `PGDATABASE`.
 *
 * @since 0.1.0
 * @category config
 */
export const config: Config.Config<Options> = Config.orElse(url, () => parts)
