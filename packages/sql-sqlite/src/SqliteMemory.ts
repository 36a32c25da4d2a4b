/**
 * Memory in a SQLite file, through Bun's driver: working memory, semantic memory with a vector index, and the ledger that
 * episodic memory is read from, over one connection.
 *
 * @since 0.1.0
 */
import * as SqlClient from "@effect/sql/SqlClient"
import * as SqliteClient from "@effect/sql-sqlite-bun/SqliteClient"
import * as Ledger from "@sandglass/core/Ledger"
import { LedgerError } from "@sandglass/core/LedgerError"
import * as SqlLedger from "@sandglass/core/SqlLedger"
import type { SqlFailure } from "@sandglass/core/SqlStore"
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
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import * as Client from "./internal/client.js"
import * as SqliteVectorIndex from "./SqliteVectorIndex.js"

/**
 * @since 0.1.0
 * @category models
 */
export interface MemoryOptions extends Memory.Options {
  /** How long a write waits for a database that others keep locked. Default: 30 seconds. */
  readonly contentionTimeout?: Duration.DurationInput | undefined
  /** Fails where the database is not the right one any more. Runs before every commit and after every query. */
  readonly verify?: Effect.Effect<void, SqlFailure> | undefined
  /**
   * The vector index. `false` for none: facts are compared one by one. Default: that of the npm package `sqlite-vec`,
   * where it can be loaded.
   */
  readonly vectorIndex?: SqliteVectorIndex.Options | false | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Options extends Omit<MemoryOptions, "verify"> {
  /**
   * The file; missing folders are created. `:memory:` is a database of its own that ends with the layer. Where the file is
   * deleted or replaced while it is open, everything fails with `Connection` from then on.
   */
  readonly filename: string
  /**
   * How long the driver itself waits for another process to finish writing; it stops the whole process meanwhile. Writes
   * are tried again beyond that, without stopping anything. Default: a quarter of a second.
   */
  readonly busyTimeout?: Duration.DurationInput | undefined
  /** How often `Ledger.tail` looks for what other processes appended. Default: half a second. */
  readonly pollInterval?: Duration.DurationInput | undefined
}

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
 * Memory over a client and a ledger that are there already. Shares one connection with the ledger where they come from
 * the same layer.
 *
 * @example
 * ```ts
 * import { SqliteLedger, SqliteMemory } from "@sandglass/sql-sqlite"
 * import { EmbeddingModel } from "@sandglass/memory"
 * import { Layer } from "effect"
 *
 * const storage = SqliteMemory.layerFromClient({ autoCompact: { maxFacts: 1_000 } }).pipe(
 *   Layer.provideMerge(SqliteLedger.layer({ filename: "./data/agent.db" })),
 *   Layer.provide(EmbeddingModel.layerLexical())
 * )
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layerFromClient = (
  options: MemoryOptions = {}
): Layer.Layer<
  Services,
  MemoryStoreError | InvalidInput,
  SqliteClient.SqliteClient | Ledger.Ledger | EmbeddingModel
> => {
  const client = Layer.effect(SqlClient.SqlClient, SqliteClient.SqliteClient)
  const semantic = Layer.unwrapEffect(
    Effect.map(
      options.vectorIndex === false ? Effect.succeedNone : SqliteVectorIndex.make(options.vectorIndex),
      (vectorIndex) => SqlSemanticMemory.layerWith({ ...options, vectorIndex: Option.getOrUndefined(vectorIndex) })
    )
  )
  return Layer.merge(Memory.layerWith(options), EpisodicMemory.layer).pipe(
    Layer.provideMerge(Layer.merge(SqlWorkingMemory.layerWith(options), semantic)),
    Layer.provide(client)
  )
}

const cannotOpen = (filename: string, cause: unknown): MemoryStoreError => {
  const { reason, description, cause: inner } = Client.openFailure(filename)(cause)
  return new MemoryStoreError({ method: "layer", reason, description, cause: inner })
}

const toLedgerError = ({ cause, description, reason }: SqlFailure): LedgerError =>
  new LedgerError({ method: "verify", reason, description, cause })

/**
 * Opens the file, brings its tables up to date, and closes it with the scope.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (
  options: Options
): Effect.Effect<
  Context.Context<Services | Ledger.Ledger | SqlClient.SqlClient | SqliteClient.SqliteClient>,
  MemoryStoreError | InvalidInput,
  EmbeddingModel | Scope.Scope
> =>
  Effect.gen(function* () {
    const { client, verify } = yield* Effect.mapError(
      Client.open(options),
      ({ cause, description, reason }) => new MemoryStoreError({ method: "layer", reason, description, cause })
    )
    const ledger = yield* SqlLedger.make({ ...options, verify: Effect.mapError(verify, toLedgerError) }).pipe(
      Effect.provideService(SqlClient.SqlClient, client),
      Effect.mapError(({ cause }) => cannotOpen(options.filename, cause))
    )
    const base = Context.make(Ledger.Ledger, ledger).pipe(
      Context.add(SqlClient.SqlClient, client),
      Context.add(SqliteClient.SqliteClient, client)
    )
    const memory = yield* Layer.build(layerFromClient({ ...options, verify })).pipe(
      Effect.provide(base),
      Effect.mapError((error) =>
        error._tag === "MemoryStoreError" && error.isRetryable ? cannotOpen(options.filename, error.cause) : error
      )
    )
    return Context.merge(base, memory)
  })

/**
 * Everything that an agent remembers in one SQLite file: the ledger, working memory, semantic memory, and the client of
 * the file. What an application writes through that client inside `sql.withTransaction` commits together with what it
 * remembers there.
 *
 * @example
 * ```ts
 * import { EmbeddingModel, Memory } from "@sandglass/memory"
 * import { SqliteMemory } from "@sandglass/sql-sqlite"
 * import { Effect } from "effect"
 *
 * const program = Effect.gen(function*() {
 *   const memory = yield* Memory.FullMemory
 *   const user = { resourceId: "user-7" }
 *   yield* memory.working.set(user, "timezone", "Europe/Vienna")
 *   yield* memory.remember(user, { content: "Prefers the window seat on night trains" })
 *   return yield* memory.recall(user, "which seat on the train?", { topK: 3 })
 * })
 *
 * program.pipe(
 *   Effect.provide(SqliteMemory.layer({ filename: "./data/agent.db" })),
 *   Effect.provide(EmbeddingModel.layerLexical())
 * )
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (
  options: Options
): Layer.Layer<
  Services | Ledger.Ledger | SqlClient.SqlClient | SqliteClient.SqliteClient,
  MemoryStoreError | InvalidInput,
  EmbeddingModel
> => Layer.scopedContext(make(options))

/**
 * The file that {@link layerConfig} opens when it is given nothing else: `SANDGLASS_MEMORY_FILE`, by default
 * `./sandglass.db`.
 *
 * @since 0.1.0
 * @category config
 */
export const config: Config.Config<Options> = Config.all({
  filename: Config.nonEmptyString("SANDGLASS_MEMORY_FILE").pipe(
    Config.withDefault("./sandglass.db"),
    Config.withDescription("The SQLite file of the memory")
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
  Services | Ledger.Ledger | SqlClient.SqlClient | SqliteClient.SqliteClient,
  MemoryStoreError | InvalidInput | ConfigError,
  EmbeddingModel
> => Layer.scopedContext(Effect.flatMap(Config.unwrap(options), make))
