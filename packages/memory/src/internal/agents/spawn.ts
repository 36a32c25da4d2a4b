/**
 * A child of an agent: a copy of its sandbox and of its memory, or neither.
 */
import type { Sandbox } from "@sandglass/core/Sandbox"
import type { SandboxHooks } from "@sandglass/core/SandboxHooks"
import { composeHooks } from "@sandglass/core/SandboxHooks"
import * as Effect from "effect/Effect"
import * as ExecutionStrategy from "effect/ExecutionStrategy"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as Scope from "effect/Scope"
import type { SpawnOptions } from "../../Agents.js"
import type { Service } from "../../Memory.js"
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
      let made: Option.Option<Sandbox> = Option.none()
      return yield* Effect.gen(function* () {
        const sandbox = yield* restore(
          Scope.extend(
            parent.sandbox.fork({ name, resourceId: to.resourceId, detached, hooks: composeHooks(own.hooks, hooks) }),
            scope
          )
        )
        made = Option.some(sandbox)
        // Last, because it is done as a whole or not at all, and not to be interrupted, because then nobody would know.
        yield* memory.fork(parent.ref, to.resourceId)
        yield* own.begin(sandbox)
        return { ref: to, sandbox }
      }).pipe(
        Effect.onExit((exit) =>
          Exit.isSuccess(exit)
            ? Effect.void
            : // A detached one does not end with its scope.
              Effect.zipRight(
                Option.match(made, { onNone: () => Effect.void, onSome: ({ close }) => close }),
                Scope.close(scope, exit)
              )
        )
      )
    })
  )
