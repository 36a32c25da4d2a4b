/**
 * Services with a checker before them.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import type { EpisodicMemory } from "../../EpisodicMemory.js"
import type { FactService, FullService, Service, WorkingService } from "../../Memory.js"
import type { InvalidResourceRef } from "../../MemoryError.js"
import { MemoryAccessDenied } from "../../MemoryError.js"
import type { ResourceRef } from "../../ResourceRef.js"
import * as Ref from "../../ResourceRef.js"
import type { Prunable, SemanticMemory } from "../../SemanticMemory.js"
import type { Checker } from "../../TeamAccess.js"
import type { WorkingMemory } from "../../WorkingMemory.js"

type Working = Context.Tag.Service<WorkingMemory>
type Semantic = Context.Tag.Service<SemanticMemory>
type Episodic = Context.Tag.Service<EpisodicMemory>

type Denied = InvalidResourceRef | MemoryAccessDenied

/** A service of a context, guarded; nothing where the context has none. */
export const replaced = <I, S>(context: Context.Context<never>, tag: Context.Tag<I, S>, guard: (service: S) => S) =>
  Option.match(Context.getOption(context, tag), {
    onNone: () => Context.empty(),
    onSome: (service): Context.Context<never> => Context.make(tag, guard(service))
  })

export const make = <E>(checker: Checker<E>) => {
  /** The ref that was asked for is the one that is used, whatever becomes of the caller's object meanwhile. */
  const ask = (method: string, ref: ResourceRef): Effect.Effect<ResourceRef, Denied> =>
    Effect.gen(function* () {
      const owner = yield* Ref.validate(method, ref)
      const { resourceId, teamId } = owner
      if (teamId === undefined) {
        return owner
      }
      const allowed = yield* Effect.mapError(
        checker({ teamId, resourceId, method }),
        (cause) =>
          new MemoryAccessDenied({ method, teamId, resourceId, description: "the check of access failed", cause })
      )
      return allowed === true ? owner : yield* new MemoryAccessDenied({ method, teamId, resourceId })
    })

  /** What takes a ref first and gives an effect. */
  const guard =
    (module: string) =>
    <Rest extends ReadonlyArray<unknown>, A, E2, R>(
      operation: string,
      use: (ref: ResourceRef, ...rest: Rest) => Effect.Effect<A, E2, R>
    ) =>
    (ref: ResourceRef, ...rest: Rest): Effect.Effect<A, E2 | Denied, R> =>
      Effect.flatMap(ask(`${module}.${operation}`, ref), (owner) => use(owner, ...rest))

  const guardStream =
    (module: string) =>
    <Rest extends ReadonlyArray<unknown>, A, E2, R>(
      operation: string,
      use: (ref: ResourceRef, ...rest: Rest) => Stream.Stream<A, E2, R>
    ) =>
    (ref: ResourceRef, ...rest: Rest): Stream.Stream<A, E2 | Denied, R> =>
      Stream.unwrap(Effect.map(ask(`${module}.${operation}`, ref), (owner) => use(owner, ...rest)))

  /** Both ends of a copy. */
  const guardCopy =
    <A, E2>(method: string, use: (from: ResourceRef, to: ResourceRef) => Effect.Effect<A, E2>) =>
    (from: ResourceRef, to: ResourceRef): Effect.Effect<A, E2 | Denied> =>
      Effect.flatMap(Effect.all([ask(method, from), ask(method, to)]), ([source, target]) => use(source, target))

  const working = (service: Working): Working => {
    const one = guard("WorkingMemory")
    return {
      get: one("get", service.get),
      set: one("set", service.set),
      delete: one("delete", service.delete),
      list: one("list", service.list),
      modify: (ref, key, f) =>
        Effect.flatMap(ask("WorkingMemory.modify", ref), (owner) => service.modify(owner, key, f)),
      clear: one("clear", service.clear),
      copy: guardCopy("WorkingMemory.copy", service.copy),
      transaction: service.transaction
    }
  }

  const prunable = (service: Prunable): Prunable => {
    const one = guard("SemanticMemory")
    const many = guardStream("SemanticMemory")
    return {
      listAll: many("listAll", service.listAll),
      listOldest: many("listOldest", service.listOldest),
      count: one("count", service.count),
      forget: one("forget", service.forget),
      clear: one("clear", service.clear),
      copy: guardCopy("SemanticMemory.copy", service.copy)
    }
  }

  const semantic = (service: Semantic): Semantic => {
    const one = guard("SemanticMemory")
    return {
      remember: one("remember", service.remember),
      rememberAll: one("rememberAll", service.rememberAll),
      recall: one("recall", service.recall),
      reembed: one("reembed", service.reembed),
      prunable: Option.map(service.prunable, prunable),
      hasVectorIndex: service.hasVectorIndex,
      model: service.model,
      transaction: service.transaction
    }
  }

  const episodicMethods = (
    module: string,
    service: Pick<Episodic, "episodicRecall" | "episodicTree">
  ): Pick<Episodic, "episodicRecall" | "episodicTree"> => ({
    episodicRecall: (ref, options) =>
      Stream.unwrap(
        Effect.map(ask(`${module}.episodicRecall`, ref), (owner) => service.episodicRecall(owner, options))
      ),
    episodicTree: (ref, options) =>
      Effect.flatMap(ask(`${module}.episodicTree`, ref), (owner) => service.episodicTree(owner, options))
  })

  const episodic = (service: Episodic): Episodic => ({
    ...episodicMethods("EpisodicMemory", service),
    sourceRef: service.sourceRef
  })

  const base = (service: WorkingService): WorkingService => {
    const one = guard("Memory")
    return {
      working: working(service.working),
      episodic: episodic(service.episodic),
      hasSemanticMemory: service.hasSemanticMemory,
      ...episodicMethods("Memory", service),
      buildContextSnippet: one("buildContextSnippet", service.buildContextSnippet),
      fork: (parent, childResourceId) =>
        Effect.gen(function* () {
          const owner = yield* ask("Memory.fork", parent)
          const child = yield* ask("Memory.fork", { ...owner, resourceId: childResourceId })
          return yield* service.fork(owner, child.resourceId)
        }),
      clear: one("clear", service.clear)
    }
  }

  const facts = <E2>(service: FactService<E2>): FactService<E2> => {
    const one = guard("Memory")
    return {
      remember: one("remember", service.remember),
      rememberAll: one("rememberAll", service.rememberAll),
      recall: one("recall", service.recall),
      reembed: one("reembed", service.reembed),
      listAll: guardStream("Memory")("listAll", service.listAll),
      forget: one("forget", service.forget),
      compactSemanticMemory: (ref, options) =>
        Effect.flatMap(ask("Memory.compactSemanticMemory", ref), (owner) =>
          service.compactSemanticMemory(owner, options)
        )
    }
  }

  return {
    working,
    semantic,
    episodic,
    memory: (service: Service): Service => ({ ...base(service), ...facts(service) }),
    full: (service: FullService): FullService => ({ ...base(service), ...facts(service), hasSemanticMemory: true })
  }
}
