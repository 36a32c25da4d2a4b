/**
 * Episodic memory: what happened, as the ledger recorded it. It keeps nothing itself.
 *
 * @since 0.1.0
 */
import type { SandboxDetails } from "@sandglass/core/Ledger"
import { Ledger } from "@sandglass/core/Ledger"
import type { LedgerError } from "@sandglass/core/LedgerError"
import type { LedgerEntry } from "@sandglass/core/LedgerEvent"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Stream from "effect/Stream"
import { recall } from "./internal/episodic/recall.js"
import { ancestorsOf, ofIds, ofResource } from "./internal/episodic/sessions.js"
import * as Tree from "./internal/episodic/tree.js"
import type { InvalidResourceRef, MemoryAccessDenied } from "./MemoryError.js"
import { InvalidInput } from "./MemoryError.js"
import type { ResourceRef } from "./ResourceRef.js"
import * as Ref from "./ResourceRef.js"
import type { SourceRef } from "./SemanticMemory.js"

/**
 * What an operation of episodic memory fails with.
 *
 * @since 0.1.0
 * @category errors
 */
export type EpisodicMemoryError = InvalidResourceRef | InvalidInput | MemoryAccessDenied | LedgerError

/**
 * @since 0.1.0
 * @category models
 */
export interface ResolveOptions<E = never, R = never> {
  /**
   * The ids of the sandboxes whose sessions are meant; ids that the ledger does not know are left out. Default: the
   * sessions that were created for this `resourceId` (and `teamId`), and those that say nothing of whom they are for
   * (rows that are older than the field) and whose `name` is the `resourceId`, where there is no `teamId`.
   */
  readonly resolveSessions?: ((ref: ResourceRef) => Effect.Effect<Iterable<string>, E, R>) | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface EpisodicRecallOptions<E = never, R = never> extends ResolveOptions<E, R> {
  /** So many entries: the newest, in the given order. Default: all. */
  readonly limit?: number | undefined
  /** `asc` (default): oldest first. Sessions follow each other in the order in which they were created. */
  readonly order?: "asc" | "desc" | undefined
  /**
   * `self` (default): the sessions of the resource. `lineage`: also those that they were forked or resumed from, up to
   * where they branched off, whomever they are for.
   */
  readonly branch?: "self" | "lineage" | undefined
  /** Only events of these names, in today's spelling. */
  readonly events?: ReadonlyArray<string> | undefined
  /** True leaves out what commands printed. Default false. */
  readonly withoutOutput?: boolean | undefined
}

/**
 * A session in the tree of sessions: below it are those that were forked or resumed from it.
 *
 * @since 0.1.0
 * @category models
 */
export interface EpisodicNode {
  readonly session: SandboxDetails
  /** False for one that is only here because a session of the resource came from it. */
  readonly own: boolean
  /** All its entries, oldest first, read when this is run. */
  readonly entries: Stream.Stream<LedgerEntry, LedgerError>
  /** In the order in which they were created. */
  readonly children: ReadonlyArray<EpisodicNode>
}

/**
 * What happened to a resource, over all its sandboxes, gone or not.
 *
 * @example
 * ```ts
 * import { Ledger } from "@sandglass/core"
 * import { EpisodicMemory } from "@sandglass/memory"
 * import { Effect, Layer, Stream } from "effect"
 *
 * const program = Effect.gen(function*() {
 *   const episodic = yield* EpisodicMemory.EpisodicMemory
 *   return yield* episodic
 *     .episodicRecall({ resourceId: "user-7" }, { limit: 20, withoutOutput: true })
 *     .pipe(Stream.runCollect)
 * })
 *
 * program.pipe(Effect.provide(EpisodicMemory.layer.pipe(Layer.provide(Ledger.layerMemory))))
 * ```
 *
 * @since 0.1.0
 * @category tags
 */
export class EpisodicMemory extends Context.Tag("@sandglass/memory/EpisodicMemory")<
  EpisodicMemory,
  {
    /** Entries of the ledger, one session after another; read page by page. */
    readonly episodicRecall: <E = never, R = never>(
      ref: ResourceRef,
      options?: EpisodicRecallOptions<E, R>
    ) => Stream.Stream<LedgerEntry, EpisodicMemoryError | E, R>
    /**
     * The sessions of the resource and all that they came from, as the trees that forks and resumptions made of them;
     * the roots in the order in which they were created. One whose parent the ledger no longer has is a root. Of
     * sessions that are each other's ancestors, which no fork makes, the oldest is a root.
     */
    readonly episodicTree: <E = never, R = never>(
      ref: ResourceRef,
      options?: ResolveOptions<E, R>
    ) => Effect.Effect<ReadonlyArray<EpisodicNode>, EpisodicMemoryError | E, R>
    /** Names an entry, as the source of a fact. */
    readonly sourceRef: (entry: LedgerEntry) => Effect.Effect<SourceRef, LedgerError>
  }
>() {}

const checkRecall = ({ branch, limit, order }: EpisodicRecallOptions<unknown, unknown>) => {
  const description =
    limit !== undefined && !(Number.isSafeInteger(limit) && limit >= 0)
      ? `limit must be a whole number of 0 or more, not ${String(limit)}`
      : branch !== undefined && branch !== "self" && branch !== "lineage"
        ? `branch must be self or lineage, not ${String(branch)}`
        : order !== undefined && order !== "asc" && order !== "desc"
          ? `order must be asc or desc, not ${String(order)}`
          : undefined
  return description === undefined
    ? Effect.void
    : Effect.fail(new InvalidInput({ method: "EpisodicMemory.episodicRecall", description }))
}

/**
 * @since 0.1.0
 * @category constructors
 */
export const make: Effect.Effect<Context.Tag.Service<EpisodicMemory>, never, Ledger> = Effect.map(Ledger, (ledger) => {
  /** Newest first. */
  const sessions = <E, R>(ref: ResourceRef, { resolveSessions }: ResolveOptions<E, R>) =>
    resolveSessions === undefined
      ? ofResource(ledger, ref)
      : Stream.unwrap(
          Effect.suspend(() => resolveSessions(ref)).pipe(
            Effect.flatMap((ids) => ofIds(ledger, ids)),
            Effect.map(Stream.fromIterable)
          )
        )

  return EpisodicMemory.of({
    episodicRecall: (ref, options = {}) =>
      Stream.unwrap(
        Effect.gen(function* () {
          const owner = yield* Ref.validate("EpisodicMemory.episodicRecall", ref)
          yield* checkRecall(options)
          const { branch = "self", events, limit, order = "asc", withoutOutput } = options
          return recall(ledger, sessions(owner, options), { branch, events, limit, order, withoutOutput })
        })
      ).pipe(Stream.withSpan("EpisodicMemory.episodicRecall", { captureStackTrace: false })),
    episodicTree: (ref, options = {}) =>
      Effect.gen(function* () {
        const owner = yield* Ref.validate("EpisodicMemory.episodicTree", ref)
        const own = new Map<string, SandboxDetails>()
        yield* Stream.runForEachChunk(sessions(owner, options), (chunk) =>
          Effect.sync(() => {
            for (const session of chunk) own.set(session.sandboxId, session)
          })
        )
        return Tree.make(ledger, own, yield* ancestorsOf(ledger, own))
      }).pipe(Effect.withSpan("EpisodicMemory.episodicTree", { captureStackTrace: false })),
    sourceRef: (entry) =>
      Effect.map(ledger.indexOf(entry.sandboxId, { ts: entry.ts, id: entry.id }), (entryIndex) => ({
        sandboxId: entry.sandboxId,
        entryIndex
      }))
  })
})

/**
 * Episodic memory of the ledger at hand.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer: Layer.Layer<EpisodicMemory, never, Ledger> = Layer.effect(EpisodicMemory, make)
