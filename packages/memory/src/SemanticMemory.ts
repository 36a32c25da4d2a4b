/**
 * Semantic memory: facts in plain text, found again by their meaning.
 *
 * @since 0.1.0
 */
import type { Json } from "@sandglass/core/LedgerEvent"
import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type * as Stream from "effect/Stream"
import type { EmbeddingModel } from "./EmbeddingModel.js"
import * as internal from "./internal/semantic/layers.js"
import type {
  EmbeddingError,
  EmbeddingMismatch,
  InvalidInput,
  InvalidResourceRef,
  MemoryAccessDenied,
  MemoryStoreError,
  ModelRef
} from "./MemoryError.js"
import type { MemoryTransaction } from "./MemoryTransaction.js"
import type { ResourceRef } from "./ResourceRef.js"

/**
 * Where a fact comes from: an entry of a sandbox's history in the ledger.
 *
 * @since 0.1.0
 * @category schemas
 */
export const SourceRef = Schema.Struct({
  sandboxId: Schema.NonEmptyString,
  /** Which of the sandbox's entries. */
  entryIndex: Schema.NonNegativeInt
}).annotations({ identifier: "SourceRef" })

/**
 * @since 0.1.0
 * @category models
 */
export interface SourceRef extends Schema.Schema.Type<typeof SourceRef> {}

/**
 * What to remember.
 *
 * @since 0.1.0
 * @category models
 */
export interface NewFact {
  /** Plain text, not blank. Kept and compared as it is. */
  readonly content: string
  /** Anything that belongs to it. Returned as it is: no key of it means anything here. */
  readonly metadata?: { readonly [key: string]: Json } | undefined
  readonly sourceRef?: SourceRef | undefined
  /** What the source was when the fact was remembered, kept to tell whether it has changed since. */
  readonly sourceDigest?: string | undefined
}

/**
 * A fact as it is remembered.
 *
 * @since 0.1.0
 * @category models
 */
export interface Fact {
  /** Unique among all facts of all resources. */
  readonly id: string
  readonly content: string
  readonly metadata?: { readonly [key: string]: Json } | undefined
  readonly sourceRef?: SourceRef | undefined
  readonly sourceDigest?: string | undefined
  /** Epoch milliseconds: when it was first remembered. */
  readonly createdAt: number
  /** Epoch milliseconds: when it was last remembered. */
  readonly updatedAt: number
  /** What it was embedded with. */
  readonly model: ModelRef
}

/**
 * A fact that a query found. `score` is the cosine similarity of the two vectors, between -1 and 1.
 *
 * @since 0.1.0
 * @category models
 */
export interface RecalledFact extends Fact {
  readonly score: number
}

/**
 * @since 0.1.0
 * @category models
 */
export interface RecallOptions {
  /** How many at most. A positive whole number, default 10. */
  readonly topK?: number | undefined
  /** Only facts with this score or a higher one. */
  readonly minScore?: number | undefined
}

/**
 * What an operation of semantic memory fails with.
 *
 * @since 0.1.0
 * @category errors
 */
export type SemanticMemoryError =
  | InvalidResourceRef
  | InvalidInput
  | MemoryAccessDenied
  | EmbeddingError
  | EmbeddingMismatch
  | MemoryStoreError

/**
 * What the operations fail with that embed nothing.
 *
 * @since 0.1.0
 * @category errors
 */
export type PrunableError = InvalidResourceRef | InvalidInput | MemoryAccessDenied | MemoryStoreError

/**
 * What a provider can do that knows all the facts of a resource. One that only searches cannot.
 *
 * @since 0.1.0
 * @category models
 */
export interface Prunable {
  /** Every fact, in the order in which they were first remembered, page by page. */
  readonly listAll: (ref: ResourceRef) => Stream.Stream<Fact, PrunableError>
  /** Those first that were last remembered longest ago; of these only those that were so before a time in epoch milliseconds. */
  readonly listOldest: (
    ref: ResourceRef,
    options?: { readonly before?: number | undefined }
  ) => Stream.Stream<Fact, PrunableError>
  readonly count: (ref: ResourceRef) => Effect.Effect<number, PrunableError>
  /** Removes facts of this resource by id, all or nothing; ids of others are ignored. Returns how many there were. */
  readonly forget: (ref: ResourceRef, ids: ReadonlyArray<string>) => Effect.Effect<number, PrunableError>
  /** Removes every fact of the resource; returns how many there were. */
  readonly clear: (ref: ResourceRef) => Effect.Effect<number, PrunableError>
  /**
   * Copies every fact to another resource of the same team, which must have none, else it is `InvalidInput`. Vectors,
   * times, metadata and sources are copied as they are; ids are new. All or nothing; returns how many.
   */
  readonly copy: (from: ResourceRef, to: ResourceRef) => Effect.Effect<number, PrunableError>
}

/**
 * Facts in plain text, for each resource, found again by their meaning.
 *
 * What a query is compared with are the facts of its resource only: those of others neither appear nor take a place
 * among the best.
 *
 * @example
 * ```ts
 * import { EmbeddingModel, SemanticMemory } from "@sandglass/memory"
 * import { Effect, Layer } from "effect"
 *
 * const program = Effect.gen(function*() {
 *   const semantic = yield* SemanticMemory.SemanticMemory
 *   const user = { resourceId: "user-7" }
 *   yield* semantic.remember(user, { content: "Prefers the window seat on night trains" })
 *   return yield* semantic.recall(user, "which seat on the train?", { topK: 3 })
 * })
 *
 * program.pipe(Effect.provide(SemanticMemory.layerMemory.pipe(Layer.provide(EmbeddingModel.layerLexical()))))
 * ```
 *
 * @since 0.1.0
 * @category tags
 */
export class SemanticMemory extends Context.Tag("@sandglass/memory/SemanticMemory")<
  SemanticMemory,
  {
    /**
     * Remembers a fact. The same content remembered again is the same fact: it keeps its id and its place; `metadata`
     * and `sourceRef` (with `sourceDigest`) replace those of before where they are given. Known content is not embedded again.
     */
    readonly remember: (ref: ResourceRef, fact: NewFact) => Effect.Effect<Fact, SemanticMemoryError>
    /** Remembers many, all or nothing; returns one fact for each, in order. */
    readonly rememberAll: (
      ref: ResourceRef,
      facts: ReadonlyArray<NewFact>
    ) => Effect.Effect<ReadonlyArray<Fact>, SemanticMemoryError>
    /**
     * The facts of the resource that are closest to the query, best first, the older first among equals. Fails with
     * `EmbeddingMismatch` as long as the resource has facts of another embedding model.
     */
    readonly recall: (
      ref: ResourceRef,
      query: string,
      options?: RecallOptions
    ) => Effect.Effect<ReadonlyArray<RecalledFact>, SemanticMemoryError>
    /**
     * Embeds the facts of the resource that were embedded with another model again, with the present one. Returns how
     * many. It goes on where it was stopped when it is called again. Where there is a vector index, it has all facts of
     * the resource afterwards, also those that were remembered without it.
     */
    readonly reembed: (ref: ResourceRef) => Effect.Effect<number, SemanticMemoryError>
    /** `None` where the provider cannot list and forget. */
    readonly prunable: Option.Option<Prunable>
    /** Whether recall uses a vector index where that is faster than comparing with every fact. */
    readonly hasVectorIndex: boolean
    /** The present embedding model. */
    readonly model: ModelRef
    /** How to do several operations as one; `None` where that is not possible. */
    readonly transaction: Option.Option<MemoryTransaction>
  }
>() {}

/**
 * Semantic memory in memory, with the behaviour of one in a database: every fact of the resource is compared, exactly.
 *
 * @since 0.1.0
 * @category constructors
 */
export const makeMemory: Effect.Effect<Context.Tag.Service<SemanticMemory>, never, EmbeddingModel> = internal.makeMemory

/**
 * Semantic memory in memory: it ends with the layer.
 *
 * @since 0.1.0
 * @category layers
 */
export const layerMemory: Layer.Layer<SemanticMemory, never, EmbeddingModel> = Layer.effect(SemanticMemory, makeMemory)

/**
 * Facts in memory that outlive a layer: for tests of a program that starts again, perhaps with another embedding model.
 *
 * @since 0.1.0
 * @category models
 */
export interface MemoryStore extends internal.MemoryStore {}

/**
 * @since 0.1.0
 * @category constructors
 */
export const makeMemoryStore: Effect.Effect<MemoryStore> = internal.makeMemoryStore

/**
 * Semantic memory in memory, over facts that may be there already.
 *
 * @example
 * ```ts
 * import { EmbeddingModel, SemanticMemory } from "@sandglass/memory"
 * import { Effect, Layer } from "effect"
 *
 * const program = Effect.gen(function*() {
 *   const store = yield* SemanticMemory.makeMemoryStore
 *   const memory = (dimensions: number) =>
 *     Layer.provide(SemanticMemory.layerMemoryIn(store), EmbeddingModel.layerLexical({ dimensions }))
 *   const semantic = SemanticMemory.SemanticMemory
 *   const user = { resourceId: "user-7" }
 *   yield* Effect.provide(Effect.flatMap(semantic, (_) => _.remember(user, { content: "Lives in Vienna" })), memory(384))
 *   // EmbeddingMismatch
 *   yield* Effect.provide(Effect.flatMap(semantic, (_) => _.recall(user, "city")), memory(128))
 * })
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layerMemoryIn = (store: MemoryStore): Layer.Layer<SemanticMemory, never, EmbeddingModel> =>
  Layer.effect(SemanticMemory, internal.makeMemoryIn(store))
