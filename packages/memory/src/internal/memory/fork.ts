/**
 * Copying a memory.
 */
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import type { ForkResult } from "../../Memory.js"
import { InvalidInput } from "../../MemoryError.js"
import type { MemoryTransaction } from "../../MemoryTransaction.js"
import type { ResourceRef } from "../../ResourceRef.js"
import * as Ref from "../../ResourceRef.js"
import type { SemanticMemory } from "../../SemanticMemory.js"
import type { WorkingMemory } from "../../WorkingMemory.js"

/** The resource that a fork of this one makes: of the same team. */
export const childOf = (method: string, parent: ResourceRef, childResourceId: string) =>
  Effect.gen(function* () {
    const from = yield* Ref.validate(method, parent)
    const to = yield* Ref.validate(method, { ...from, resourceId: childResourceId })
    return from.resourceId === to.resourceId
      ? yield* new InvalidInput({ method, description: "a resource cannot be a fork of itself" })
      : { from, to }
  })

/** How to do something to both as one, where they are in one database. */
export const sharedTransaction = (
  working: Context.Tag.Service<WorkingMemory>,
  semantic: Context.Tag.Service<SemanticMemory>
): Option.Option<MemoryTransaction> =>
  Option.filter(semantic.transaction, (transaction) => Option.contains(working.transaction, transaction))

export const fork = (
  working: Context.Tag.Service<WorkingMemory>,
  semantic: Option.Option<Context.Tag.Service<SemanticMemory>>,
  parent: ResourceRef,
  childResourceId: string
) =>
  Effect.gen(function* () {
    const { from, to } = yield* childOf("Memory.fork", parent, childResourceId)
    const prunable = Option.flatMap(semantic, (provider) => provider.prunable)
    const transaction = Option.flatMap(semantic, (provider) => sharedTransaction(working, provider))
    const copyWorking = working.copy(from, to)
    const result = (workingKeysCopied: number, semanticFactsCopied: number): ForkResult => ({
      ref: to,
      workingKeysCopied,
      semanticFactsCopied
    })
    if (Option.isNone(prunable)) return result(yield* copyWorking, 0)
    const copyFacts = prunable.value.copy(from, to)
    if (Option.isSome(transaction)) {
      return yield* transaction.value.run(Effect.zipWith(copyWorking, copyFacts, result))
    }
    // Two stores: what the first has taken is taken back if the second fails.
    return yield* Effect.uninterruptibleMask((restore) =>
      Effect.gen(function* () {
        const facts = yield* restore(copyFacts)
        const keys = yield* Effect.onExit(restore(copyWorking), (exit) =>
          Exit.isSuccess(exit) || facts === 0
            ? Effect.void
            : Effect.catchAllCause(prunable.value.clear(to), (cause) =>
                Effect.logError(
                  `the facts that were copied to ${JSON.stringify(to.resourceId)} could not be removed`,
                  cause
                )
              )
        )
        return result(keys, facts)
      })
    )
  })
