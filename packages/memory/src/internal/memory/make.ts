/**
 * The composition of the capabilities.
 */
import type { Ledger } from "@sandglass/core/Ledger"
import * as Chunk from "effect/Chunk"
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import type { EpisodicMemory } from "../../EpisodicMemory.js"
import type {
  AutoCompactOptions,
  ContextOptions,
  FactError,
  FactService,
  FullService,
  NewFact,
  RecalledFact,
  Service,
  WorkingService
} from "../../Memory.js"
import { InvalidInput, MemoryCapabilityError } from "../../MemoryError.js"
import type { ResourceRef } from "../../ResourceRef.js"
import * as Ref from "../../ResourceRef.js"
import type { Prunable, SemanticMemory, NewFact as StoredNewFact } from "../../SemanticMemory.js"
import type { WorkingMemory } from "../../WorkingMemory.js"
import * as AutoCompact from "./autoCompact.js"
import { clear } from "./clear.js"
import * as Compaction from "./compaction.js"
import { fork } from "./fork.js"
import * as Snippet from "./snippet.js"
import * as Sources from "./sources.js"

type SemanticService = Context.Tag.Service<SemanticMemory>

const named = (operation: string) => `Memory.${operation}`

const spanned =
  (operation: string) =>
  <A, E, R>(self: Effect.Effect<A, E, R>) =>
    Effect.withSpan(self, named(operation), { captureStackTrace: false })

type Recall = (
  ref: ResourceRef,
  query: string,
  options: ContextOptions
) => Effect.Effect<ReadonlyArray<RecalledFact>, FactError>

const makeBase = (
  working: Context.Tag.Service<WorkingMemory>,
  episodic: Context.Tag.Service<EpisodicMemory>,
  semantic: Option.Option<SemanticService>,
  recall: Recall
): Omit<WorkingService, "hasSemanticMemory"> => ({
  working,
  episodic,
  episodicRecall: episodic.episodicRecall,
  episodicTree: episodic.episodicTree,
  buildContextSnippet: (ref, options = {}) =>
    Effect.gen(function* () {
      const { maxChars = Number.POSITIVE_INFINITY, query } = options
      if (!(maxChars >= 0)) {
        return yield* new InvalidInput({
          method: named("buildContextSnippet"),
          description: `maxChars must be a number of 0 or more, not ${String(maxChars)}`
        })
      }
      const values = yield* working.list(ref)
      const facts = query === undefined ? [] : yield* recall(ref, query, options)
      return Snippet.build(values, facts, maxChars)
    }).pipe(spanned("buildContextSnippet")),
  clear: (ref) => clear(working, semantic, ref).pipe(spanned("clear")),
  fork: (parent, childResourceId) => fork(working, semantic, parent, childResourceId).pipe(spanned("fork"))
})

export const makeWorking = (
  working: Context.Tag.Service<WorkingMemory>,
  episodic: Context.Tag.Service<EpisodicMemory>
): WorkingService => ({
  ...makeBase(working, episodic, Option.none(), () => Effect.succeed([])),
  hasSemanticMemory: false
})

export const withoutFacts = (base: WorkingService): Service => {
  const unavailable = (operation: string) => (): Effect.Effect<never, MemoryCapabilityError> =>
    Effect.fail(
      new MemoryCapabilityError({
        method: named(operation),
        capability: "SemanticMemory",
        description: "this memory has no semantic memory"
      })
    )
  return {
    ...base,
    remember: unavailable("remember"),
    rememberAll: unavailable("rememberAll"),
    recall: unavailable("recall"),
    reembed: unavailable("reembed"),
    listAll: () => Stream.fromEffect(unavailable("listAll")()),
    forget: unavailable("forget"),
    compactSemanticMemory: unavailable("compactSemanticMemory")
  }
}

const withPrunable = (operation: string, semantic: SemanticService): Effect.Effect<Prunable, MemoryCapabilityError> =>
  Effect.mapError(
    semantic.prunable,
    () =>
      new MemoryCapabilityError({
        method: named(operation),
        capability: "Prunable",
        description: "this semantic memory cannot list and forget its facts"
      })
  )

/** Runs after so many facts were remembered for a resource. */
type AfterRemember = (ref: ResourceRef, facts: number) => Effect.Effect<void, FactError>

const makeFacts = (
  semantic: SemanticService,
  ledger: Context.Tag.Service<Ledger>,
  afterRemember: AfterRemember
): FactService<never> => {
  /** What callers give as a digest counts for nothing. */
  const withDigest = (ref: ResourceRef, fact: NewFact): Effect.Effect<StoredNewFact, FactError> => {
    const { content, metadata, sourceRef }: NewFact = Object(fact)
    const plain = { content, metadata, sourceRef }
    return sourceRef === undefined || !Sources.isSourceRef(sourceRef)
      ? Effect.succeed(plain)
      : Effect.map(Sources.digest(ledger, ref, sourceRef), (sourceDigest) => ({ ...plain, sourceDigest }))
  }

  const rememberAll = (ref: ResourceRef, facts: ReadonlyArray<NewFact>) =>
    Effect.forEach(facts, (fact) => withDigest(ref, fact), { concurrency: 8 }).pipe(
      Effect.flatMap((all) => semantic.rememberAll(ref, all))
    )

  const compact: FactService<never>["compactSemanticMemory"] = (ref, options = {}) =>
    Effect.gen(function* () {
      const owner = yield* Ref.validate(named("compactSemanticMemory"), ref)
      const limits = yield* Compaction.checkLimits(named("compactSemanticMemory"), options)
      return yield* Compaction.compact(owner, limits, {
        prunable: yield* withPrunable("compactSemanticMemory", semantic),
        verify: (facts) => Sources.verify(ledger, owner, facts),
        remember: (facts) => Effect.map(rememberAll(owner, facts), (written) => written.map(({ id }) => id)),
        summarize: options.summarize
      })
    })

  return {
    remember: (ref, fact) =>
      Effect.gen(function* () {
        const owner = yield* Ref.validate(named("remember"), ref)
        const stored = yield* Effect.flatMap(withDigest(owner, fact), (one) => semantic.remember(owner, one))
        yield* afterRemember(owner, 1)
        const [verified] = yield* Sources.verify(ledger, owner, [stored])
        return verified ?? (yield* Effect.dieMessage("one fact in, one fact out"))
      }).pipe(spanned("remember")),
    rememberAll: (ref, facts) =>
      Effect.gen(function* () {
        const owner = yield* Ref.validate(named("rememberAll"), ref)
        const stored = yield* rememberAll(owner, facts)
        yield* afterRemember(owner, facts.length)
        return yield* Sources.verify(ledger, owner, stored)
      }).pipe(spanned("rememberAll")),
    recall: (ref, query, options) =>
      Effect.gen(function* () {
        const owner = yield* Ref.validate(named("recall"), ref)
        return yield* Effect.flatMap(semantic.recall(owner, query, options), (found) =>
          Sources.verify(ledger, owner, found)
        )
      }).pipe(spanned("recall")),
    reembed: (ref) => semantic.reembed(ref),
    listAll: (ref) =>
      Stream.unwrap(
        Effect.gen(function* () {
          const owner = yield* Ref.validate(named("listAll"), ref)
          const { listAll } = yield* withPrunable("listAll", semantic)
          return Stream.mapChunksEffect(listAll(owner), (facts) =>
            Effect.map(Sources.verify(ledger, owner, Array.from(facts)), Chunk.unsafeFromArray)
          )
        })
      ),
    forget: (ref, ids) =>
      withPrunable("forget", semantic).pipe(
        Effect.flatMap(({ forget }) => forget(ref, ids)),
        spanned("forget")
      ),
    compactSemanticMemory: (ref, options) => compact(ref, options).pipe(spanned("compactSemanticMemory"))
  }
}

const autoCompactMethod = named("autoCompact")

const makeAutoCompact = (
  semantic: SemanticService,
  { checkEvery = 1, ...given }: AutoCompactOptions,
  compact: (ref: ResourceRef, prunable: Prunable, limits: Compaction.Limits) => Effect.Effect<unknown, FactError>
): Effect.Effect<AfterRemember, InvalidInput> =>
  Effect.gen(function* () {
    const limits = yield* Compaction.checkLimits(autoCompactMethod, given)
    if (!Number.isSafeInteger(checkEvery) || checkEvery < 1) {
      return yield* new InvalidInput({
        method: autoCompactMethod,
        description: `checkEvery must be a positive whole number, not ${String(checkEvery)}`
      })
    }
    const due = AutoCompact.makeCounter(checkEvery)
    return Option.match(semantic.prunable, {
      onNone: (): AfterRemember => () => Effect.void,
      onSome:
        (prunable): AfterRemember =>
        (ref, facts) =>
          Effect.whenEffect(compact(ref, prunable, limits), due(Ref.key(ref), facts))
    })
  })

export const makeFull = (
  base: WorkingService,
  semantic: SemanticService,
  ledger: Context.Tag.Service<Ledger>,
  autoCompact: AutoCompactOptions | undefined
): Effect.Effect<FullService, InvalidInput> =>
  Effect.gen(function* () {
    const afterRemember =
      autoCompact === undefined
        ? () => Effect.void
        : yield* makeAutoCompact(semantic, autoCompact, (ref, prunable, limits) =>
            Compaction.compact(ref, limits, {
              prunable,
              verify: (facts) => Sources.verify(ledger, ref, facts),
              remember: () => Effect.succeed([]),
              summarize: undefined
            })
          )
    const facts = makeFacts(semantic, ledger, afterRemember)
    return {
      ...makeBase(base.working, base.episodic, Option.some(semantic), facts.recall),
      ...facts,
      hasSemanticMemory: true
    }
  })
