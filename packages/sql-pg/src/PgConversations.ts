/**
 * Conversations in a Postgres database.
 *
 * @since 0.1.0
 */
import type * as SqlClient from "@effect/sql/SqlClient"
import type * as PgClient from "@effect/sql-pg/PgClient"
import { ConversationStoreError } from "@sandglass/memory/ConversationError"
import * as Conversations from "@sandglass/memory/Conversations"
import * as SqlConversations from "@sandglass/memory/SqlConversations"
import * as Config from "effect/Config"
import type { ConfigError } from "effect/ConfigError"
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Scope from "effect/Scope"
import * as Client from "./internal/client.js"
import * as PgConnection from "./PgConnection.js"

/**
 * @since 0.1.0
 * @category models
 */
export interface Options extends PgConnection.Options {
  /** How long a write goes on trying when others are in its way. Default: 30 seconds. */
  readonly contentionTimeout?: Duration.DurationInput | undefined
}

/**
 * Connects, brings the tables up to date, and disconnects with the scope.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (
  options: Options
): Effect.Effect<
  Context.Context<Conversations.Conversations | SqlClient.SqlClient | PgClient.PgClient>,
  ConversationStoreError,
  Scope.Scope
> =>
  Effect.gen(function* () {
    const client = yield* Effect.mapError(
      Client.make(options),
      ({ cause, description }) =>
        new ConversationStoreError({ method: "layer", reason: "Connection", description, cause })
    )
    const context = Client.toContext(client)
    const conversations = yield* Effect.provide(
      SqlConversations.make({ contentionTimeout: options.contentionTimeout }),
      context
    )
    return Context.add(context, Conversations.Conversations, conversations)
  })

/**
 * Conversations in a Postgres database, and the client of that database: what an application writes through it inside
 * `sql.withTransaction` commits together with the messages that it stores there.
 *
 * With a client of your own, or with that of `PgLedger.layer`, there is `SqlConversations.layer`.
 *
 * @example
 * ```ts
 * import { Conversations } from "@sandglass/memory"
 * import { PgConversations } from "@sandglass/sql-pg"
 * import { Effect, Redacted } from "effect"
 *
 * const program = Effect.gen(function* () {
 *   const conversations = yield* Conversations.Conversations
 *   return yield* conversations.listConversations("ada", { limit: 20 })
 * })
 *
 * const url = Redacted.make("postgres://ada:secret@localhost:5432/agents")
 *
 * program.pipe(Effect.provide(PgConversations.layer({ url })))
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (
  options: Options
): Layer.Layer<Conversations.Conversations | SqlClient.SqlClient | PgClient.PgClient, ConversationStoreError> =>
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
): Layer.Layer<
  Conversations.Conversations | SqlClient.SqlClient | PgClient.PgClient,
  ConversationStoreError | ConfigError
> => Layer.scopedContext(Effect.flatMap(Config.unwrap(options), make))
