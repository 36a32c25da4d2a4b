/**
 * Whom a memory is about: a user, an account, a project. It outlives every sandbox.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Equivalence from "effect/Equivalence"
import * as Schema from "effect/Schema"
import { InvalidResourceRef } from "./MemoryError.js"

const Id = Schema.String.pipe(Schema.filter((id) => id.trim() !== "", { message: () => "must not be empty or blank" }))

/**
 * A resource, and the team it belongs to. Both ids are texts that are not blank; otherwise they are the application's
 * own, and are compared as they are. `teamId` is part of the key: the same `resourceId` in another team, or in none, is
 * another resource.
 *
 * @since 0.1.0
 * @category schemas
 */
export const ResourceRef = Schema.Struct({
  resourceId: Id,
  teamId: Schema.optional(Id)
}).annotations({ identifier: "ResourceRef" })

/**
 * @since 0.1.0
 * @category models
 */
export interface ResourceRef extends Schema.Schema.Type<typeof ResourceRef> {}

const problem = (name: string, id: unknown): string | undefined =>
  typeof id !== "string"
    ? `${name} is no text`
    : id.trim() === ""
      ? `${name} is empty or blank: it would be nobody, or everybody`
      : undefined

/**
 * The ref with nothing but its two fields, or `InvalidResourceRef`. Every operation of a memory does this first.
 *
 * @since 0.1.0
 * @category validation
 */
export const validate = (method: string, ref: ResourceRef): Effect.Effect<ResourceRef, InvalidResourceRef> =>
  Effect.suspend(() => {
    // Callers without types get an error as well, and not a crash.
    const { resourceId, teamId }: ResourceRef = Object(ref)
    const description =
      problem("resourceId", resourceId) ??
      (teamId === undefined || teamId === null ? undefined : problem("teamId", teamId))
    return description === undefined
      ? Effect.succeed(teamId === undefined || teamId === null ? { resourceId } : { resourceId, teamId })
      : Effect.fail(new InvalidResourceRef({ method, description }))
  })

/**
 * A ref from its ids.
 *
 * @example
 * ```ts
 * import { ResourceRef } from "@sandglass/memory"
 *
 * const user = ResourceRef.make("user-7", "team-a") // Effect<ResourceRef, InvalidResourceRef>
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (resourceId: string, teamId?: string | undefined): Effect.Effect<ResourceRef, InvalidResourceRef> =>
  validate("ResourceRef.make", { resourceId, teamId })

/**
 * One text for a ref, different for different refs.
 *
 * @since 0.1.0
 * @category combinators
 */
export const key = (ref: ResourceRef): string => JSON.stringify([ref.resourceId, ref.teamId ?? null])

/**
 * @since 0.1.0
 * @category instances
 */
export const Equal: Equivalence.Equivalence<ResourceRef> = Equivalence.make(
  (a, b) => a.resourceId === b.resourceId && (a.teamId ?? undefined) === (b.teamId ?? undefined)
)
