/**
 * Who may use the memory of a team.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { EpisodicMemory } from "./EpisodicMemory.js"
import * as internal from "./internal/access/guards.js"
import { FullMemory, Memory } from "./Memory.js"
import { SemanticMemory } from "./SemanticMemory.js"
import { WorkingMemory } from "./WorkingMemory.js"

/**
 * What is about to be done.
 *
 * @since 0.1.0
 * @category models
 */
export interface AccessRequest {
  readonly teamId: string
  readonly resourceId: string
  /** The operation, e.g. `WorkingMemory.set`. */
  readonly method: string
}

/**
 * Says whether the caller may do it. A checker that fails says no.
 *
 * @since 0.1.0
 * @category models
 */
export type Checker<E = never, R = never> = (request: AccessRequest) => Effect.Effect<boolean, E, R>

/**
 * The services of a layer, with a checker before them: every call on a ref with a `teamId` asks it first, and fails with
 * `MemoryAccessDenied`, before anything is read or written, unless the answer is yes. Calls on a ref without a team pass.
 *
 * It stands before working, semantic and episodic memory and before `Memory` itself, as far as the layer provides them.
 * What the checker needs is taken where the layer is built; what depends on the request of the moment it finds in a
 * `FiberRef` or a `Context.Reference`.
 *
 * @example
 * ```ts
 * import { TeamAccess, WorkingMemory } from "@sandglass/memory"
 * import { Context, Effect } from "effect"
 *
 * class CurrentTeams extends Context.Reference<CurrentTeams>()("CurrentTeams", {
 *   defaultValue: (): ReadonlyArray<string> => []
 * }) {}
 *
 * const memory = TeamAccess.withTeamAccessControl(WorkingMemory.layerMemory, ({ teamId }) =>
 *   Effect.map(CurrentTeams, (teams) => teams.includes(teamId))
 * )
 *
 * const program = Effect.flatMap(WorkingMemory.WorkingMemory, (working) =>
 *   working.set({ resourceId: "user-7", teamId: "team-a" }, "timezone", "Europe/Vienna")
 * )
 *
 * program.pipe(Effect.provideService(CurrentTeams, ["team-a"]), Effect.provide(memory))
 * ```
 *
 * @since 0.1.0
 * @category combinators
 */
export const withTeamAccessControl = <ROut, E, RIn, CE = never, CR = never>(
  layer: Layer.Layer<ROut, E, RIn>,
  checker: Checker<CE, CR>
): Layer.Layer<ROut, E, RIn | CR> =>
  Layer.flatMap(layer, (provided) =>
    Layer.effectContext(
      Effect.map(Effect.context<CR>(), (context) => {
        const guards = internal.make((request) =>
          Effect.mapInputContext(checker(request), (current: Context.Context<never>) => Context.merge(context, current))
        )
        const replacements: ReadonlyArray<Context.Context<never>> = [
          internal.replaced(provided, WorkingMemory, guards.working),
          internal.replaced(provided, SemanticMemory, guards.semantic),
          internal.replaced(provided, EpisodicMemory, guards.episodic),
          internal.replaced(provided, Memory, guards.memory),
          internal.replaced(provided, FullMemory, guards.full)
        ]
        return replacements.reduce<Context.Context<ROut>>((all, one) => Context.merge(all, one), provided)
      })
    )
  )
