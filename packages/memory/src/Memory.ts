/**
 * Memory as a whole: working memory, what happened, and, where there is one, semantic memory whose facts are checked
 * against the ledger.
 *
 * @since 0.1.0
 */
import { Ledger } from "@sandglass/core/Ledger"
import type { LedgerError } from "@sandglass/core/LedgerError"
import type { Json } from "@sandglass/core/LedgerEvent"
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Stream from "effect/Stream"
import type { EmbeddingModel } from "./EmbeddingModel.js"
import * as EpisodicMemory from "./EpisodicMemory.js"
import * as internal from "./internal/memory/make.js"
import type {
  InvalidInput,
  InvalidResourceRef,
  MemoryAccessDenied,
  MemoryCapabilityError,
  MemoryStoreError
} from "./MemoryError.js"
import type { ResourceRef } from "./ResourceRef.js"
import * as SemanticMemory from "./SemanticMemory.js"
import * as WorkingMemory from "./WorkingMemory.js"

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
  /** The entry of the ledger that proves it: what an `EpisodicMemory.sourceRef` names. */
  readonly sourceRef?: SemanticMemory.SourceRef | undefined
}

/**
 * A fact, and whether the ledger proves it.
 *
 * @since 0.1.0
 * @category models
 */
export interface Fact extends Omit<SemanticMemory.Fact, "sourceDigest"> {
  /**
   * Found out when it is read: true if it has a `sourceRef` that named, when the fact was last remembered with it, an
   * entry of a session of the same resource, and that entry is still there and is what it was.
   */
  readonly verified: boolean
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
 * What an operation on the facts of a memory fails with.
 *
 * @since 0.1.0
 * @category errors
 */
export type FactError = SemanticMemory.SemanticMemoryError | LedgerError

/**
 * @since 0.1.0
 * @category models
 */
export interface CompactionLimits {
  /** So many facts are kept at most: those that were remembered last. A whole number of 0 or more. Default: any number. */
  readonly maxFacts?: number | undefined
  /** Facts that were last remembered longer ago than this go. Default: any age. */
  readonly maxAge?: Duration.DurationInput | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface CompactionOptions<E = never, R = never> extends CompactionLimits {
  /**
   * Gets the facts that are about to go, oldest first, and returns what to remember in their place. It is written
   * before they go. Where this fails, or returns nothing that can be remembered, none of them goes.
   */
  readonly summarize?: ((facts: ReadonlyArray<Fact>) => Effect.Effect<ReadonlyArray<NewFact>, E, R>) | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface CompactionResult {
  /** How many facts have gone. */
  readonly forgotten: number
  /** How many were remembered in their place. */
  readonly written: number
  /** True where `summarize` returned nothing that can be remembered, and therefore nothing has gone. */
  readonly refused: boolean
}

/**
 * @since 0.1.0
 * @category models
 */
export interface AutoCompactOptions extends CompactionLimits {
  /** After so many calls of `remember` for one resource; a call of `rememberAll` counts once for each fact. Default 1. */
  readonly checkEvery?: number | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface ContextOptions {
  /** What the facts are to be about. Default: no facts. */
  readonly query?: string | undefined
  /** How many facts at most. Default 10. */
  readonly topK?: number | undefined
  /** Only facts with this score or a higher one. */
  readonly minScore?: number | undefined
  /** How long the text may be, in UTF-16 code units. What does not fit is left out, whole entries at a time. Default: any length. */
  readonly maxChars?: number | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface ForkResult {
  readonly ref: ResourceRef
  readonly workingKeysCopied: number
  /** 0 where there is no semantic memory, or one that cannot list its facts. */
  readonly semanticFactsCopied: number
}

/**
 * How much there was.
 *
 * @since 0.1.0
 * @category models
 */
export interface ClearResult {
  readonly workingKeys: number
  readonly semanticFacts: number
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** Compacts the facts of a resource while they are remembered; left out where the provider cannot list and forget. */
  readonly autoCompact?: AutoCompactOptions | undefined
}

/**
 * What every memory can do.
 *
 * @since 0.1.0
 * @category models
 */
export interface WorkingService {
  readonly working: Context.Tag.Service<WorkingMemory.WorkingMemory>
  readonly episodic: Context.Tag.Service<EpisodicMemory.EpisodicMemory>
  readonly hasSemanticMemory: boolean
  /** As in `EpisodicMemory`. */
  readonly episodicRecall: Context.Tag.Service<EpisodicMemory.EpisodicMemory>["episodicRecall"]
  /** As in `EpisodicMemory`. */
  readonly episodicTree: Context.Tag.Service<EpisodicMemory.EpisodicMemory>["episodicTree"]
  /**
   * Plain text to put before a prompt: what is in working memory and, with a query and a semantic memory, the facts
   * that are closest to it. Each entry is one line, quoted as JSON, with `<` and `>` escaped: nothing that is
   * remembered can look like the end of the section. Empty where there is nothing to tell. Keys that begin with
   * `sandglass.` are left out.
   */
  readonly buildContextSnippet: (ref: ResourceRef, options?: ContextOptions) => Effect.Effect<string, FactError>
  /**
   * Copies the memory to a new resource of the same team, which must have none: working memory in full, and facts with
   * their vectors. All or nothing; later writes to the one do not reach the other.
   */
  readonly fork: (
    parent: ResourceRef,
    childResourceId: string
  ) => Effect.Effect<ForkResult, InvalidResourceRef | InvalidInput | MemoryAccessDenied | MemoryStoreError>
  /**
   * Removes all that the resource has in working and semantic memory. What happened stays in the ledger. Fails with
   * `MemoryCapabilityError`, having removed nothing, where facts cannot be forgotten.
   */
  readonly clear: (
    ref: ResourceRef
  ) => Effect.Effect<
    ClearResult,
    InvalidResourceRef | InvalidInput | MemoryAccessDenied | MemoryStoreError | MemoryCapabilityError
  >
}

/**
 * What a memory does with facts. `E` is what all of it fails with where there is no semantic memory; what needs a
 * provider that can list and forget fails with `MemoryCapabilityError` in any case.
 *
 * @since 0.1.0
 * @category models
 */
export interface FactService<E> {
  /**
   * Remembers a fact. The same content is the same fact: what is given anew replaces what was. Where `autoCompact`
   * fails, this fails, though the fact is remembered; remembering it again is harmless.
   */
  readonly remember: (ref: ResourceRef, fact: NewFact) => Effect.Effect<Fact, FactError | E>
  /** Remembers many, all or nothing; returns one fact for each, in order. */
  readonly rememberAll: (
    ref: ResourceRef,
    facts: ReadonlyArray<NewFact>
  ) => Effect.Effect<ReadonlyArray<Fact>, FactError | E>
  /** The facts of the resource that are closest to the query, best first. */
  readonly recall: (
    ref: ResourceRef,
    query: string,
    options?: SemanticMemory.RecallOptions
  ) => Effect.Effect<ReadonlyArray<RecalledFact>, FactError | E>
  /** Embeds facts that were embedded with another model again; returns how many. */
  readonly reembed: (ref: ResourceRef) => Effect.Effect<number, FactError | E>
  /** Every fact, in the order in which they were first remembered. */
  readonly listAll: (ref: ResourceRef) => Stream.Stream<Fact, FactError | MemoryCapabilityError>
  /** Removes facts by id; returns how many there were. */
  readonly forget: (
    ref: ResourceRef,
    ids: ReadonlyArray<string>
  ) => Effect.Effect<number, FactError | MemoryCapabilityError>
  /** Makes old facts go: first those that are too old, then, of what is left, those that are too many. */
  readonly compactSemanticMemory: <E2 = never, R = never>(
    ref: ResourceRef,
    options?: CompactionOptions<E2, R>
  ) => Effect.Effect<CompactionResult, FactError | MemoryCapabilityError | E2, R>
}

/**
 * A memory whose Layer decides at run time whether there is a semantic memory: `hasSemanticMemory` tells, and without
 * one everything about facts fails with `MemoryCapabilityError`.
 *
 * @since 0.1.0
 * @category models
 */
export interface Service extends WorkingService, FactService<MemoryCapabilityError> {}

/**
 * A memory that has a semantic memory.
 *
 * @since 0.1.0
 * @category models
 */
export interface FullService extends WorkingService, FactService<never> {
  readonly hasSemanticMemory: true
}

/**
 * The memory at hand, with or without a semantic memory.
 *
 * @example
 * ```ts
 * import { Ledger } from "@sandglass/core"
 * import { EmbeddingModel, Memory } from "@sandglass/memory"
 * import { Effect, Layer } from "effect"
 *
 * const program = Effect.gen(function*() {
 *   const memory = yield* Memory.Memory
 *   const user = { resourceId: "user-7" }
 *   yield* memory.working.set(user, "timezone", "Europe/Vienna")
 *   if (memory.hasSemanticMemory) {
 *     yield* memory.remember(user, { content: "Prefers the window seat on night trains" })
 *   }
 *   return yield* memory.buildContextSnippet(user, { query: "book a night train" })
 * })
 *
 * program.pipe(
 *   Effect.provide(Memory.layerMemory),
 *   Effect.provide(Layer.merge(EmbeddingModel.layerLexical(), Ledger.layerMemory))
 * )
 * ```
 *
 * @since 0.1.0
 * @category tags
 */
export class Memory extends Context.Tag("@sandglass/memory/Memory")<Memory, Service>() {}

/**
 * A memory with a semantic memory, for programs that need one: without it they do not compile.
 *
 * @since 0.1.0
 * @category tags
 */
export class FullMemory extends Context.Tag("@sandglass/memory/FullMemory")<FullMemory, FullService>() {}

/**
 * @since 0.1.0
 * @category constructors
 */
export const makeFull = (
  options: Options = {}
): Effect.Effect<FullService, InvalidInput, WorkingMemory.WorkingMemory | SemanticMemory.SemanticMemory | Ledger> =>
  Effect.gen(function* () {
    const base = yield* makeWorking
    const semantic = yield* SemanticMemory.SemanticMemory
    return yield* internal.makeFull(base, semantic, yield* Ledger, options.autoCompact)
  })

/**
 * A memory without a semantic memory: by its type it has nothing to do with facts.
 *
 * @since 0.1.0
 * @category constructors
 */
export const makeWorking: Effect.Effect<WorkingService, never, WorkingMemory.WorkingMemory | Ledger> = Effect.gen(
  function* () {
    return internal.makeWorking(yield* WorkingMemory.WorkingMemory, yield* EpisodicMemory.make)
  }
)

/**
 * The memory of the services at hand, with options; `InvalidInput` for options that make no sense.
 *
 * @since 0.1.0
 * @category layers
 */
export const layerWith = (
  options: Options
): Layer.Layer<
  Memory | FullMemory,
  InvalidInput,
  WorkingMemory.WorkingMemory | SemanticMemory.SemanticMemory | Ledger
> =>
  Layer.effectContext(
    Effect.map(makeFull(options), (full) => Context.make(FullMemory, full).pipe(Context.add(Memory, full)))
  )

/**
 * The memory of the services at hand.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer: Layer.Layer<
  Memory | FullMemory,
  never,
  WorkingMemory.WorkingMemory | SemanticMemory.SemanticMemory | Ledger
> =
  // Without options there are none to be wrong.
  Layer.orDie(layerWith({}))

/**
 * A memory without a semantic memory: `FullMemory` is not provided, and what has to do with facts fails with
 * `MemoryCapabilityError`.
 *
 * @since 0.1.0
 * @category layers
 */
export const layerWorking: Layer.Layer<Memory, never, WorkingMemory.WorkingMemory | Ledger> = Layer.effect(
  Memory,
  Effect.map(makeWorking, internal.withoutFacts)
)

/**
 * Every capability in memory, over the ledger at hand: it ends with the layer.
 *
 * @since 0.1.0
 * @category layers
 */
export const layerMemory: Layer.Layer<
  Memory | FullMemory | WorkingMemory.WorkingMemory | SemanticMemory.SemanticMemory | EpisodicMemory.EpisodicMemory,
  never,
  EmbeddingModel | Ledger
> = Layer.provideMerge(
  Layer.merge(layer, EpisodicMemory.layer),
  Layer.merge(WorkingMemory.layerMemory, SemanticMemory.layerMemory)
)
