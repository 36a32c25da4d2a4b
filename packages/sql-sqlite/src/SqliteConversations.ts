/**
 * Conversations in a SQLite file, through Bun's driver.
 *
 * @since 0.1.0
 */
import * as SqlClient from "@effect/sql/SqlClient"
import * as SqliteClient from "@effect/sql-sqlite-bun/SqliteClient"
import type { SqlFailure } from "@sandglass/core/SqlStore"
import * as AgentOsImport from "@sandglass/memory/AgentOsImport"
import { ConversationStoreError } from "@sandglass/memory/ConversationError"
import * as Conversations from "@sandglass/memory/Conversations"
import type { InvalidInput } from "@sandglass/memory/MemoryError"
import * as SqlConversations from "@sandglass/memory/SqlConversations"
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
   * The file; missing folders are created. `:memory:` is a database of its own that ends with the layer. A file that is
   * deleted or replaced while it is open is a `Connection` failure from then on.
   */
  readonly filename: string
  /**
   * How long the driver itself waits for another process to finish writing; it stops the whole process meanwhile. What is
   * read and written here is tried again beyond that, without stopping anything. Default: a quarter of a second.
   */
  readonly busyTimeout?: Duration.DurationInput | undefined
  /** How long a statement waits for a database that others keep locked. Default: 30 seconds. */
  readonly contentionTimeout?: Duration.DurationInput | undefined
}

const fail = ({ cause, description, reason }: SqlFailure): ConversationStoreError =>
  new ConversationStoreError({ method: "layer", reason, description, cause })

/**
 * Opens the file, brings its tables up to date, and closes it with the scope.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (
  options: Options
): Effect.Effect<
  Context.Context<Conversations.Conversations | SqlClient.SqlClient | SqliteClient.SqliteClient>,
  ConversationStoreError,
  Scope.Scope
> =>
  Effect.gen(function* () {
    const { client, verify } = yield* Effect.mapError(Client.open(options), fail)
    const conversations = yield* SqlConversations.make({
      contentionTimeout: options.contentionTimeout,
      verify: Effect.mapError(verify, fail)
    }).pipe(
      Effect.provideService(SqlClient.SqlClient, client),
      Effect.mapError((error) => (error.isRetryable ? fail(Client.openFailure(options.filename)(error.cause)) : error))
    )
    return Context.make(Conversations.Conversations, conversations).pipe(
      Context.add(SqlClient.SqlClient, client),
      Context.add(SqliteClient.SqliteClient, client)
    )
  })

/**
 * Conversations in a SQLite file, and the client of that file: what an application writes through it inside
 * `sql.withTransaction` commits together with the messages that it stores there.
 *
 * With a client of your own, or with that of `SqliteLedger.layer`, there is `SqlConversations.layer`.
 *
 * @example
 * ```ts
 * import { Conversations } from "@sandglass/memory"
 * import { SqliteConversations } from "@sandglass/sql-sqlite"
 * import { Effect } from "effect"
 *
 * const program = Effect.gen(function* () {
 *   const conversations = yield* Conversations.Conversations
 *   return yield* conversations.listConversations("ada", { limit: 20 })
 * })
 *
 * program.pipe(Effect.provide(SqliteConversations.layer({ filename: "./data/conversations.db" })))
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (
  options: Options
): Layer.Layer<Conversations.Conversations | SqlClient.SqlClient | SqliteClient.SqliteClient, ConversationStoreError> =>
  Layer.scopedContext(make(options))

/**
 * The file that {@link layerConfig} opens when it is given nothing else: `SANDGLASS_CONVERSATIONS_FILE`, by default
 * `./sandglass.db`.
 *
 * @since 0.1.0
 * @category config
 */
export const config: Config.Config<Options> = Config.all({
  filename: Config.nonEmptyString("SANDGLASS_CONVERSATIONS_FILE").pipe(
    Config.withDefault("./sandglass.db"),
    Config.withDescription("The SQLite file of the conversations")
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
): Layer.Layer<
  Conversations.Conversations | SqlClient.SqlClient | SqliteClient.SqliteClient,
  ConversationStoreError | ConfigError
> => Layer.scopedContext(Effect.flatMap(Config.unwrap(options), make))

/**
 * Imports a SQLite file of AgentOS into the conversations at hand; the file is opened for reading only. See
 * `AgentOsImport.run` of `@sandglass/memory`.
 *
 * @example
 * ```ts
 * import { SqliteConversations } from "@sandglass/sql-sqlite"
 * import { Effect } from "effect"
 *
 * const program = Effect.gen(function* () {
 *   const report = yield* SqliteConversations.importAgentOs("./agentos.sqlite3")
 *   yield* Effect.log(`${report.conversations} conversations, ${report.messages} messages`)
 *   for (const { description, id, kind } of report.problems) {
 *     yield* Effect.logWarning(`${kind} ${id}: ${description}`)
 *   }
 * })
 *
 * program.pipe(Effect.provide(SqliteConversations.layer({ filename: "./conversations.db" })))
 * ```
 *
 * @since 0.1.0
 * @category import
 */
export const importAgentOs = <E = never, R = never>(
  filename: string,
  options: AgentOsImport.Options<E, R> = {}
): Effect.Effect<AgentOsImport.Report, E | ConversationStoreError | InvalidInput, R | Conversations.Conversations> =>
  Effect.scoped(
    Effect.flatMap(
      Effect.mapError(
        Client.openReadOnly(filename),
        ({ cause, description, reason }) =>
          new ConversationStoreError({ method: "SqliteConversations.importAgentOs", reason, description, cause })
      ),
      (source) => AgentOsImport.run(source, options)
    )
  )
