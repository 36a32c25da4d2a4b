/**
 * A child of an agent: a copy of its sandbox and of its memory, or neither.
 */
import type { Sandbox } from "@sandglass/core/Sandbox"
import type { SandboxHooks } from "@sandglass/core/SandboxHooks"
import { composeHooks } from "@sandglass/core/SandboxHooks"
import type * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as ExecutionStrategy from "effect/ExecutionStrategy"
import * as Exit from "effect/Exit"
import * as Scope from "effect/Scope"
import type { SpawnOptions } from "../../Agents.js"
import type { ForkResult, Service } from "../../Memory.js"
import { makeHooks } from "../../MemoryHooks.js"
import type { ResourceRef } from "../../ResourceRef.js"
import { notEmpty } from "../checks.js"
import { childOf } from "../memory/fork.js"

const method = "Agents.spawn"

/** The child's hooks. Until it has a memory of its own there is nothing to note anything in. */
const makeChildHooks = (memory: Service, ref: ResourceRef) => {
  let open = false
  const hooks = makeHooks(memory.working, ref)
  return {
    hooks: {
      onCheckpoint: (...args: Parameters<typeof hooks.onCheckpoint>) =>
        open ? hooks.onCheckpoint(...args) : Effect.void
    } satisfies SandboxHooks,
    begin: (sandbox: Sandbox) =>
      Effect.suspend(() => {
        open = true
        return composeHooks({ onCreated: hooks.onCreated }).onCreated(sandbox)
      })
  }
}

const logged = (what: string) =>
  Effect.catchAllCause((cause: Cause.Cause<unknown>) => Effect.logError(`${what} could not be removed`, cause))

/** Takes back the copy of a memory, of which nobody knows yet. */
const takeBack = (memory: Service, { ref, semanticFactsCopied }: ForkResult) =>
  (semanticFactsCopied > 0 ? Effect.asVoid(memory.clear(ref)) : Effect.asVoid(memory.working.clear(ref))).pipe(
    logged(`the memory that was copied to ${JSON.stringify(ref.resourceId)}`)
  )

export const spawn = (
  memory: Service,
  parent: { readonly ref: ResourceRef; readonly sandbox: Sandbox },
  { detached, hooks, name, resourceId = name }: SpawnOptions
) =>
  Effect.uninterruptibleMask((restore) =>
    Effect.gen(function* () {
      const { to } = yield* childOf(method, parent.ref, resourceId)
      // Found out here, in most cases, before a container is made for nothing.
      if ((yield* restore(memory.working.list(to))).size > 0) return yield* notEmpty(method, to)
      const scope = yield* Effect.flatMap(Effect.scope, (outer) => Scope.fork(outer, ExecutionStrategy.sequential))
      const own = makeChildHooks(memory, to)
      /** What is to be taken back if it does not come to an end. */
      const undo: Array<Effect.Effect<void>> = [Scope.close(scope, Exit.void)]
      return yield* Effect.gen(function* () {
        const sandbox = yield* parent.sandbox
          .fork({ name, resourceId: to.resourceId, detached, hooks: composeHooks(own.hooks, hooks) })
          .pipe(
            Scope.extend(scope),
            // A detached one does not end with its scope.
            Effect.tap(({ close }) => Effect.sync(() => undo.push(close))),
            restore
          )
        // Not to be interrupted, because then nobody would know whether it was done.
        const copied = yield* memory.fork(parent.ref, to.resourceId)
        undo.push(takeBack(memory, copied))
        yield* own.begin(sandbox)
        // Whoever was interrupted meanwhile gets no child.
        yield* restore(Effect.void)
        return { ref: to, sandbox }
      }).pipe(Effect.onError(() => Effect.all(undo.toReversed(), { discard: true })))
    })
  )
