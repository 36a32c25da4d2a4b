/**
 * Memory as toolkits of `@effect/ai`.
 *
 * @since 0.1.0
 */
import * as Tool from "@effect/ai/Tool"
import * as Toolkit from "@effect/ai/Toolkit"
import { LedgerError } from "@sandglass/core/LedgerError"
import * as Effect from "effect/Effect"
import type * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as Definitions from "../internal/tools/definitions.js"
import { FullMemory, Memory } from "../Memory.js"
import * as MemoryError from "../MemoryError.js"
import type { ResourceRef } from "../ResourceRef.js"
import * as Ref from "../ResourceRef.js"

/**
 * What a call of a tool fails with. What the model can do better is no failure, but an answer of the form `{ error }`.
 *
 * @since 0.1.0
 * @category schemas
 */
export const Failure = Schema.Union(
  MemoryError.InvalidResourceRef,
  MemoryError.InvalidInput,
  MemoryError.MemoryAccessDenied,
  MemoryError.MemoryStoreError,
  MemoryError.EmbeddingError,
  MemoryError.EmbeddingMismatch,
  LedgerError
)

const SetWorkingMemory = Tool.make(Definitions.setWorkingMemory.name, {
  description: Definitions.setWorkingMemory.description,
  parameters: Definitions.setWorkingMemory.parameters.fields,
  success: Definitions.setWorkingMemory.success,
  failure: Failure
})

const GetWorkingMemory = Tool.make(Definitions.getWorkingMemory.name, {
  description: Definitions.getWorkingMemory.description,
  parameters: Definitions.getWorkingMemory.parameters.fields,
  success: Definitions.getWorkingMemory.success,
  failure: Failure
})

const RememberFact = Tool.make(Definitions.rememberFact.name, {
  description: Definitions.rememberFact.description,
  parameters: Definitions.rememberFact.parameters.fields,
  success: Definitions.rememberFact.success,
  failure: Failure
})

const RecallFacts = Tool.make(Definitions.recallFacts.name, {
  description: Definitions.recallFacts.description,
  parameters: Definitions.recallFacts.parameters.fields,
  success: Definitions.recallFacts.success,
  failure: Failure
})

/**
 * `set_working_memory` and `get_working_memory`: for a memory of any kind.
 *
 * @since 0.1.0
 * @category toolkits
 */
export const workingToolkit = Toolkit.make(SetWorkingMemory, GetWorkingMemory)

/**
 * Also `remember_fact` and `recall_facts`: for a memory with a semantic memory.
 *
 * @example
 * ```ts
 * import { LanguageModel } from "@effect/ai"
 * import { MemoryToolkit } from "@sandglass/memory/ai"
 * import { Effect } from "effect"
 *
 * const program = LanguageModel.generateText({
 *   prompt: "My trains are the night trains to Vienna. Remember that.",
 *   toolkit: MemoryToolkit.toolkit
 * }).pipe(Effect.provide(MemoryToolkit.layer({ resourceId: "user-7" })))
 * ```
 *
 * @since 0.1.0
 * @category toolkits
 */
export const toolkit = Toolkit.make(SetWorkingMemory, GetWorkingMemory, RememberFact, RecallFacts)

/**
 * The handlers of {@link workingToolkit}, for a resource.
 *
 * @since 0.1.0
 * @category layers
 */
export const layerWorking = (
  ref: ResourceRef
): Layer.Layer<
  Tool.Handler<"set_working_memory"> | Tool.Handler<"get_working_memory">,
  MemoryError.InvalidResourceRef,
  Memory
> =>
  workingToolkit.toLayer(
    Effect.gen(function* () {
      const owner = yield* Ref.validate("MemoryToolkit.layerWorking", ref)
      return Definitions.workingHandlers(yield* Memory, owner)
    })
  )

/**
 * The handlers of {@link toolkit}, for a resource.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (
  ref: ResourceRef
): Layer.Layer<
  | Tool.Handler<"set_working_memory">
  | Tool.Handler<"get_working_memory">
  | Tool.Handler<"remember_fact">
  | Tool.Handler<"recall_facts">,
  MemoryError.InvalidResourceRef,
  FullMemory
> =>
  toolkit.toLayer(
    Effect.gen(function* () {
      const owner = yield* Ref.validate("MemoryToolkit.layer", ref)
      const memory = yield* FullMemory
      return { ...Definitions.workingHandlers(memory, owner), ...Definitions.factHandlers(memory, owner) }
    })
  )
