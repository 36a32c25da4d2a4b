/**
 * Removing a memory.
 */
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { ClearResult } from "../../Memory.js"
import { MemoryCapabilityError } from "../../MemoryError.js"
import type { ResourceRef } from "../../ResourceRef.js"
import * as Ref from "../../ResourceRef.js"
import type { SemanticMemory } from "../../SemanticMemory.js"
import type { WorkingMemory } from "../../WorkingMemory.js"
import { sharedTransaction } from "./fork.js"

const method = "Memory.clear"

export const clear = (
  working: Context.Tag.Service<WorkingMemory>,
  semantic: Option.Option<Context.Tag.Service<SemanticMemory>>,
  given: ResourceRef
) =>
  Effect.gen(function* () {
    const ref = yield* Ref.validate(method, given)
    const result = (semanticFacts: number, workingKeys: number): ClearResult => ({ workingKeys, semanticFacts })
    if (Option.isNone(semantic)) return result(0, yield* working.clear(ref))
    const { prunable } = semantic.value
    if (Option.isNone(prunable)) {
      return yield* new MemoryCapabilityError({
        method,
        capability: "Prunable",
        description: "this semantic memory cannot forget its facts"
      })
    }
    const both = Effect.zipWith(prunable.value.clear(ref), working.clear(ref), result)
    return yield* Option.match(sharedTransaction(working, semantic.value), {
      onNone: () => both,
      onSome: ({ run }) => run(both)
    })
  })
