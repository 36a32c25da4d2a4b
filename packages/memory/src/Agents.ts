/**
 * Agents: sandboxes with a memory that outlives them.
 *
 * @since 0.1.0
 */
import type { SandboxDetails } from "@sandglass/core/Ledger"
import type { LedgerError } from "@sandglass/core/LedgerError"
import type { Json, LedgerEntry } from "@sandglass/core/LedgerEvent"
import type { ForkOptions, Sandbox } from "@sandglass/core/Sandbox"
import type { SandboxFailure } from "@sandglass/core/SandboxError"
import type { ConnectOptions, CreateOptions, ResumeOptions } from "@sandglass/core/Sandboxes"
import { Sandboxes } from "@sandglass/core/Sandboxes"
import type { SandboxHooks } from "@sandglass/core/SandboxHooks"
import { composeHooks } from "@sandglass/core/SandboxHooks"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import type * as Stream from "effect/Stream"
import type { EpisodicMemoryError, EpisodicNode, EpisodicRecallOptions, ResolveOptions } from "./EpisodicMemory.js"
import { bind } from "./internal/agents/bind.js"
import { spawn } from "./internal/agents/spawn.js"
import * as Memory from "./Memory.js"
import type {
  InvalidInput,
  InvalidResourceRef,
  MemoryAccessDenied,
  MemoryCapabilityError,
  MemoryStoreError
} from "./MemoryError.js"
import { makeHooks } from "./MemoryHooks.js"
import type { ResourceRef } from "./ResourceRef.js"
import * as Ref from "./ResourceRef.js"
import type { RecallOptions, SourceRef } from "./SemanticMemory.js"
import type { WorkingMemoryError } from "./WorkingMemory.js"

/**
 * What beginning a session of an agent fails with.
 *
 * @since 0.1.0
 * @category errors
 */
export type AgentError = SandboxFailure | InvalidResourceRef | InvalidInput

/**
 * What making a child fails with.
 *
 * @since 0.1.0
 * @category errors
 */
export type SpawnError = AgentError | MemoryAccessDenied | MemoryStoreError

/**
 * What a new agent needs. Its name is also whom its memory is about, unless there is a `resourceId`.
 *
 * @since 0.1.0
 * @category models
 */
export interface LoadOptions extends CreateOptions {
  readonly name: string
}

/**
 * @since 0.1.0
 * @category models
 */
export interface SpawnOptions extends ForkOptions {
  readonly name: string
  /** Whom the child's memory is about, in the same team. Default: its name. Nobody may have a memory there yet. */
  readonly resourceId?: string | undefined
}

/**
 * The memory of one resource: as `Memory`, without the `ref`. Without a semantic memory what has to do with facts fails
 * with `MemoryCapabilityError`.
 *
 * @since 0.1.0
 * @category models
 */
export interface AgentMemory {
  readonly hasSemanticMemory: boolean
  readonly get: (key: string) => Effect.Effect<Option.Option<Json>, WorkingMemoryError>
  readonly set: (key: string, value: Json) => Effect.Effect<void, WorkingMemoryError>
  readonly delete: (key: string) => Effect.Effect<boolean, WorkingMemoryError>
  readonly list: Effect.Effect<ReadonlyMap<string, Json>, WorkingMemoryError>
  readonly modify: <A, E = never, R = never>(
    key: string,
    f: (current: Option.Option<Json>) => Effect.Effect<readonly [result: A, next: Option.Option<Json>], E, R>
  ) => Effect.Effect<A, E | WorkingMemoryError, R>
  readonly remember: (fact: Memory.NewFact) => Effect.Effect<Memory.Fact, Memory.FactError | MemoryCapabilityError>
  readonly recall: (
    query: string,
    options?: RecallOptions
  ) => Effect.Effect<ReadonlyArray<Memory.RecalledFact>, Memory.FactError | MemoryCapabilityError>
  readonly listAll: Stream.Stream<Memory.Fact, Memory.FactError | MemoryCapabilityError>
  readonly forget: (ids: ReadonlyArray<string>) => Effect.Effect<number, Memory.FactError | MemoryCapabilityError>
  readonly compactSemanticMemory: <E = never, R = never>(
    options?: Memory.CompactionOptions<E, R>
  ) => Effect.Effect<Memory.CompactionResult, Memory.FactError | MemoryCapabilityError | E, R>
  readonly buildContextSnippet: (options?: Memory.ContextOptions) => Effect.Effect<string, Memory.FactError>
  readonly episodicRecall: <E = never, R = never>(
    options?: EpisodicRecallOptions<E, R>
  ) => Stream.Stream<LedgerEntry, EpisodicMemoryError | E, R>
  readonly episodicTree: <E = never, R = never>(
    options?: ResolveOptions<E, R>
  ) => Effect.Effect<ReadonlyArray<EpisodicNode>, EpisodicMemoryError | E, R>
  /** Names an entry, as the source of a fact. */
  readonly sourceRef: (entry: LedgerEntry) => Effect.Effect<SourceRef, LedgerError>
}

/**
 * A session of an agent: a sandbox, which ends with its scope, and a memory, which does not.
 *
 * @since 0.1.0
 * @category models
 */
export interface AgentSession {
  readonly name: string
  /** Whom the memory is about. */
  readonly ref: ResourceRef
  readonly sandbox: Sandbox
  readonly memory: AgentMemory
  /**
   * A child, with a copy of the sandbox and a copy of the memory: both, or, where that fails or is interrupted, neither.
   * What the one does later is not seen by the other.
   */
  readonly spawn: (options: SpawnOptions) => Effect.Effect<AgentSession, SpawnError, Scope.Scope>
}

/**
 * Begins sessions of agents. The sandboxes are recorded for the agent's resource, so that its episodes are found again,
 * and the most recent one is noted in its working memory (`MemoryHooks.lastSession`).
 *
 * @example
 * ```ts
 * import { Agents } from "@sandglass/memory"
 * import { Effect } from "effect"
 *
 * const program = Effect.gen(function*() {
 *   const agents = yield* Agents.Agents
 *   const agent = yield* agents.load({ name: "researcher", image: "node:22" })
 *   const { stdout } = yield* agent.sandbox.exec("node --version")
 *   yield* agent.memory.set("node", stdout.trim())
 *   const child = yield* agent.spawn({ name: "researcher-2" })
 *   return yield* child.memory.get("node") // a copy
 * }).pipe(Effect.scoped)
 * ```
 *
 * @since 0.1.0
 * @category tags
 */
export class Agents extends Context.Tag("@sandglass/memory/Agents")<
  Agents,
  {
    /** A new sandbox, with the memory that the agent has. */
    readonly load: (options: LoadOptions) => Effect.Effect<AgentSession, AgentError, Scope.Scope>
    /**
     * A new sandbox from a checkpoint of an earlier one, as `Sandboxes.resume`. The memory is what it is now: it does not
     * go back with the sandbox.
     */
    readonly resume: (
      sandboxId: string,
      options?: ResumeOptions
    ) => Effect.Effect<AgentSession, AgentError, Scope.Scope>
    /** A sandbox that runs already, as `Sandboxes.connect`. */
    readonly attach: (
      sandboxId: string,
      options?: ConnectOptions
    ) => Effect.Effect<AgentSession, AgentError, Scope.Scope>
  }
>() {}

const spanned =
  (operation: string) =>
  <A, E, R>(self: Effect.Effect<A, E, R>) =>
    Effect.withSpan(self, `Agents.${operation}`, { captureStackTrace: false })

/**
 * @since 0.1.0
 * @category constructors
 */
export const make: Effect.Effect<Context.Tag.Service<Agents>, never, Sandboxes | Memory.Memory> = Effect.gen(
  function* () {
    const sandboxes = yield* Sandboxes
    const memory = yield* Memory.Memory

    const sessionOf = (ref: ResourceRef, sandbox: Sandbox): AgentSession => ({
      name: sandbox.name,
      ref,
      sandbox,
      memory: bind(memory, ref),
      spawn: (options) =>
        spawn(memory, { ref, sandbox }, options).pipe(
          Effect.map((child) => sessionOf(child.ref, child.sandbox)),
          spanned("spawn")
        )
    })

    const hooksOf = (ref: ResourceRef, own: SandboxHooks | undefined) =>
      composeHooks(makeHooks(memory.working, ref), own)

    /** Whom the session of the ledger is for, unless the options say otherwise. */
    const refOf = (
      operation: string,
      details: SandboxDetails | undefined,
      { name = "sandbox", resourceId, teamId }: Pick<ResumeOptions, "name" | "resourceId" | "teamId">
    ) =>
      Ref.validate(`Agents.${operation}`, {
        resourceId: resourceId ?? details?.resourceId ?? details?.name ?? name,
        teamId: teamId ?? details?.teamId
      })

    const known = (sandboxId: string) => Effect.map(sandboxes.get(sandboxId), Option.getOrUndefined)

    return Agents.of({
      load: (options) =>
        Effect.gen(function* () {
          const ref = yield* refOf("load", undefined, options)
          const sandbox = yield* sandboxes.create({ ...options, ...ref, hooks: hooksOf(ref, options.hooks) })
          return sessionOf(ref, sandbox)
        }).pipe(spanned("load")),
      resume: (sandboxId, options = {}) =>
        Effect.gen(function* () {
          const ref = yield* refOf("resume", yield* known(sandboxId), options)
          const sandbox = yield* sandboxes.resume(sandboxId, {
            ...options,
            ...ref,
            hooks: hooksOf(ref, options.hooks)
          })
          return sessionOf(ref, sandbox)
        }).pipe(spanned("resume")),
      attach: (sandboxId, options = {}) =>
        Effect.gen(function* () {
          const details = yield* known(sandboxId)
          const ref = yield* refOf("attach", details, details === undefined ? options : {})
          const hooks = makeHooks(memory.working, ref)
          const sandbox = yield* sandboxes.connect(sandboxId, {
            ...options,
            ...ref,
            hooks: composeHooks(hooks, options.hooks)
          })
          // Attaching creates nothing, so no hook tells of it.
          yield* composeHooks(hooks).onCreated(sandbox)
          return sessionOf(ref, sandbox)
        }).pipe(spanned("attach"))
    })
  }
)

/**
 * @since 0.1.0
 * @category layers
 */
export const layer: Layer.Layer<Agents, never, Sandboxes | Memory.Memory> = Layer.effect(Agents, make)
