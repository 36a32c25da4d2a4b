/**
 * Keeps, in working memory, which sandbox of a resource was the last, and where it can be resumed.
 *
 * @since 0.1.0
 */
import type { HookSandbox, SandboxHooks } from "@sandglass/core/SandboxHooks"
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { sessionKey } from "./internal/memory/reserved.js"
import type { InvalidResourceRef } from "./MemoryError.js"
import type { ResourceRef } from "./ResourceRef.js"
import * as Ref from "./ResourceRef.js"
import * as SchemaWorkingMemory from "./SchemaWorkingMemory.js"
import type { WorkingMemoryError } from "./WorkingMemory.js"
import { WorkingMemory } from "./WorkingMemory.js"

/**
 * What is known of the last sandbox of a resource.
 *
 * @since 0.1.0
 * @category schemas
 */
export const LastSession = Schema.Struct({
  /** The sandbox that was created last. */
  sandboxId: Schema.String,
  /** The checkpoint that was made last, which may be one of an earlier sandbox. */
  checkpoint: Schema.optionalWith(
    Schema.Struct({
      sandboxId: Schema.String,
      snapshotId: Schema.String,
      tag: Schema.optionalWith(Schema.String, { exact: true }),
      /** Epoch milliseconds. */
      createdAt: Schema.Int
    }),
    { exact: true }
  )
}).annotations({ identifier: "LastSession" })

/**
 * @since 0.1.0
 * @category models
 */
export interface LastSession extends Schema.Schema.Type<typeof LastSession> {}

const decode = Schema.decodeUnknownOption(LastSession)
const encode = Schema.encodeSync(LastSession)

/** Another's sandbox: a fork has the hooks of its parent, and may be for somebody else. */
const isOthers = (ref: ResourceRef, { resourceId, teamId }: HookSandbox): boolean =>
  resourceId !== undefined && !(resourceId === ref.resourceId && teamId === ref.teamId)

/** What cannot be read is replaced: it is only a note. */
const note = (
  working: Context.Tag.Service<WorkingMemory>,
  ref: ResourceRef,
  next: (last: LastSession | undefined) => LastSession
): Effect.Effect<void, WorkingMemoryError> =>
  working.modify(ref, sessionKey, (current) =>
    Effect.sync(() => [undefined, Option.some(encode(next(Option.getOrUndefined(Option.flatMap(current, decode)))))])
  )

/** @internal */
export const makeHooks = (working: Context.Tag.Service<WorkingMemory>, ref: ResourceRef) => ({
  onCreated: (sandbox: HookSandbox) =>
    isOthers(ref, sandbox) ? Effect.void : note(working, ref, (last) => ({ ...last, sandboxId: sandbox.id })),
  onCheckpoint: ((sandbox, { cursor, snapshotId, tag }) =>
    isOthers(ref, sandbox)
      ? Effect.void
      : note(working, ref, (last) => ({
          sandboxId: last?.sandboxId ?? sandbox.id,
          checkpoint: {
            sandboxId: sandbox.id,
            snapshotId,
            ...(tag === undefined ? {} : { tag }),
            createdAt: cursor.ts
          }
        }))) satisfies SandboxHooks["onCheckpoint"]
})

/**
 * Hooks that note the most recent sandbox and checkpoint of a resource in its working memory, for
 * {@link lastSession}. Give them to `Sandboxes.create`, alone or with others through `SandboxHooks.composeHooks`.
 * Sandboxes that are for another resource are left alone.
 *
 * @example
 * ```ts
 * import { SandboxHooks, Sandboxes } from "@sandglass/core"
 * import { MemoryHooks } from "@sandglass/memory"
 * import { Effect } from "effect"
 *
 * const program = Effect.gen(function*() {
 *   const sandboxes = yield* Sandboxes.Sandboxes
 *   const user = { resourceId: "user-7" }
 *   const hooks = yield* MemoryHooks.createMemoryLifecycleHooks(user)
 *   const mine = { onClosed: (sandbox: SandboxHooks.HookSandbox) => Effect.log(`closed ${sandbox.id}`) }
 *   return yield* sandboxes.create({ image: "node:22", ...user, hooks: SandboxHooks.composeHooks(hooks, mine) })
 * })
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const createMemoryLifecycleHooks = (
  ref: ResourceRef
): Effect.Effect<SandboxHooks, InvalidResourceRef, WorkingMemory> =>
  Effect.flatMap(Ref.validate("MemoryHooks.createMemoryLifecycleHooks", ref), (owner) =>
    Effect.map(WorkingMemory, (working) => makeHooks(working, owner))
  )

/**
 * The last sandbox and checkpoint that the hooks of this resource noted.
 *
 * @since 0.1.0
 * @category combinators
 */
export const lastSession = (
  ref: ResourceRef
): Effect.Effect<Option.Option<LastSession>, SchemaWorkingMemory.SchemaWorkingMemoryError, WorkingMemory> =>
  Effect.flatMap(SchemaWorkingMemory.make(LastSession, { key: sessionKey }), (session) => session.get(ref))
