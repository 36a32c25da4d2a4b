/**
 * Memory in a Postgres database: working memory, semantic memory with a vector index, and the ledger that episodic memory
 * is read from, over one pool of connections.
 *
 * @since 0.1.0
 */
import * as SqlClient from "@effect/sql/SqlClient"
import * as PgClient from "@effect/sql-pg/PgClient"
import * as Ledger from "@sandglass/core/Ledger"
import type { LedgerError } from "@sandglass/core/LedgerError"
import type { EmbeddingModel } from "@sandglass/memory/EmbeddingModel"
import * as EpisodicMemory from "@sandglass/memory/EpisodicMemory"
import * as Memory from "@sandglass/memory/Memory"
import type { InvalidInput } from "@sandglass/memory/MemoryError"
import { MemoryStoreError } from "@sandglass/memory/MemoryError"
import type { SemanticMemory } from "@sandglass/memory/SemanticMemory"
import * as SqlSemanticMemory from "@sandglass/memory/SqlSemanticMemory"
import * as SqlWorkingMemory from "@sandglass/memory/SqlWorkingMemory"
import type { WorkingMemory } from "@sandglass/memory/WorkingMemory"
import * as Config from "effect/Config"
import type { ConfigError } from "effect/ConfigError"
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Scope from "effect/Scope"
import * as Client from "./internal/client.js"
import * as PgConnection from "./PgConnection.js"
import * as PgLedger from "./PgLedger.js"
import * as PgVectorIndex from "./PgVectorIndex.js"

/**
 * @since 0.1.0
 * @category models
 */
export interface MemoryOptions extends Memory.Options {
  /** How long a write goes on trying when others are in its way. Default: 30 seconds. */
  readonly contentionTimeout?: Duration.DurationInput | undefined
  /**
   * The vector index. `false` for none: facts are compared one by one. Default: that of `pgvector`, where the database has
   * the extension or can create it.
   */
  readonly vectorIndex?: PgVectorIndex.Options | false | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Options extends PgConnection.Options, PgLedger.LedgerOptions, MemoryOptions {}

/**
 * The services of a memory.
 *
 * @since 0.1.0
 * @category models
 */
export type Services =
  | Memory.Memory
  | Memory.FullMemory
  | WorkingMemory
  | SemanticMemory
  | EpisodicMemory.EpisodicMemory

/**
 * Memory over a client and a ledger that are there already. Shares the pool with the ledger where they come from the same
 * layer.
 *
 * @example
 * ```ts
 * import { EmbeddingModel } from "@sandglass/memory"
 * import { PgLedger, PgMemory } from "@sandglass/sql-pg"
 * import { Layer } from "effect"
 *
 * const storage = PgMemory.layerFromClient({ autoCompact: { maxFacts: 1_000 } }).pipe(
 *   Layer.provideMerge(PgLedger.layerConfig()),
 *   Layer.provide(EmbeddingModel.layerLexical())
 * )
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layerFromClient = (
  options: MemoryOptions = {}
): Layer.Layer<Services, MemoryStoreError | InvalidInput, PgClient.PgClient | Ledger.Ledger | EmbeddingModel> => {
  const vectorIndex = options.vectorIndex === false ? undefined : PgVectorIndex.make(options.vectorIndex)
  return Layer.merge(Memory.layerWith(options), EpisodicMemory.layer).pipe(
    Layer.provideMerge(
      Layer.merge(SqlWorkingMemory.layerWith(options), SqlSemanticMemory.layerWith({ ...options, vectorIndex }))
    ),
    Layer.provide(Layer.effect(SqlClient.SqlClient, PgClient.PgClient))
  )
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
  Context.Context<Services | Ledger.Ledger | SqlClient.SqlClient | PgClient.PgClient>,
  MemoryStoreError | InvalidInput | LedgerError,
  EmbeddingModel | Scope.Scope
> =>
  Effect.gen(function* () {
    const client = yield* Effect.mapError(
      Client.make(options),
      ({ cause, description }) => new MemoryStoreError({ method: "layer", reason: "Connection", description, cause })
    )
    const ledger = yield* Effect.provideService(PgLedger.fromClient(options), PgClient.PgClient, client)
    const base = Context.add(Client.toContext(client), Ledger.Ledger, ledger)
    const memory = yield* Effect.provide(Layer.build(layerFromClient(options)), base)
    return Context.merge(base, memory)
  })

/**
 * Everything that an agent remembers in one Postgres database: the ledger, working memory, semantic memory, and the client
 * of the database. What an application writes through that client inside `sql.withTransaction` commits together with what
 * it remembers there.
 *
 * @example
 * ```ts
 * import { EmbeddingModel, Memory } from "@sandglass/memory"
 * import { PgMemory } from "@sandglass/sql-pg"
 * import { Effect, Redacted } from "effect"
 *
 * const program = Effect.gen(function*() {
 *   const memory = yield* Memory.FullMemory
 *   const user = { resourceId: "user-7", teamId: "team-a" }
 *   yield* memory.working.set(user, "timezone", "Europe/Vienna")
 *   yield* memory.remember(user, { content: "Prefers the window seat on night trains" })
 *   return yield* memory.recall(user, "which seat on the train?", { topK: 3 })
 * })
 *
 * const url = Redacted.make("postgres://ada:secret@localhost:5432/agents")
 *
 * program.pipe(Effect.provide(PgMemory.layer({ url })), Effect.provide(EmbeddingModel.layerLexical()))
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (
  options: Options
): Layer.Layer<
  Services | Ledger.Ledger | SqlClient.SqlClient | PgClient.PgClient,
  MemoryStoreError | InvalidInput | LedgerError,
  EmbeddingModel
> => Layer.scopedContext(make(options))

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
  Services | Ledger.Ledger | SqlClient.SqlClient | PgClient.PgClient,
  MemoryStoreError | InvalidInput | LedgerError | ConfigError,
  EmbeddingModel
> => Layer.scopedContext(Effect.flatMap(Config.unwrap(options), make))
