/**
 * Memory as tools for a model: name, description, JSON Schema, and what to do with what the model answers.
 *
 * For `@effect/ai` there is `MemoryToolkit` in `@sandglass/memory/ai`.
 *
 * @since 0.1.0
 */
import type { Json } from "@sandglass/core/LedgerEvent"
import * as Effect from "effect/Effect"
import * as JSONSchema from "effect/JSONSchema"
import * as Schema from "effect/Schema"
import * as Definitions from "./internal/tools/definitions.js"
import type { FactError } from "./Memory.js"
import { Memory } from "./Memory.js"
import type { InvalidResourceRef, MemoryCapabilityError } from "./MemoryError.js"
import { InvalidInput } from "./MemoryError.js"
import type { ResourceRef } from "./ResourceRef.js"
import * as Ref from "./ResourceRef.js"

/**
 * A tool for a model. `name`, `description` and `parameters` are what providers ask for.
 *
 * @since 0.1.0
 * @category models
 */
export interface MemoryTool {
  readonly name: string
  readonly description: string
  /** A JSON Schema of an object. */
  readonly parameters: { readonly [key: string]: Json }
  /**
   * Runs a call. `input` is what the model gave as arguments, parsed; what does not fit `parameters` is `InvalidInput`.
   * What the memory refuses is an answer of the form `{ error }`, for the model to read.
   */
  readonly execute: (input: unknown) => Effect.Effect<Json, FactError | MemoryCapabilityError>
}

interface Definition<A, I, B, J extends Json> {
  readonly name: string
  readonly description: string
  readonly parameters: Schema.Schema<A, I>
  readonly success: Schema.Schema<B, J>
}

const parametersOf = (schema: Schema.Schema.AnyNoContext): { readonly [key: string]: Json } => {
  const { $schema: _, ...parameters } = JSONSchema.make(schema)
  // As JSON it is nothing but JSON.
  return JSON.parse(JSON.stringify(parameters))
}

/** Made once: only what a tool does is another for each resource. */
const compile = <A, I, B, J extends Json>({ description, name, parameters, success }: Definition<A, I, B, J>) => {
  const decode = Schema.decodeUnknown(parameters, { onExcessProperty: "error" })
  const encode = Schema.encode(success)
  const declared = { name, description, parameters: parametersOf(parameters) }
  return (handler: (input: A) => Effect.Effect<B, FactError | MemoryCapabilityError>): MemoryTool => ({
    ...declared,
    execute: (input) =>
      decode(input).pipe(
        Effect.mapError((cause) => new InvalidInput({ method: name, description: cause.message, cause })),
        Effect.flatMap(handler),
        Effect.flatMap((answer) => Effect.orDie(encode(answer))),
        Effect.withSpan(`MemoryTools.${name}`, { captureStackTrace: false })
      )
  })
}

const setWorkingMemory = compile(Definitions.setWorkingMemory)
const getWorkingMemory = compile(Definitions.getWorkingMemory)
const rememberFact = compile(Definitions.rememberFact)
const recallFacts = compile(Definitions.recallFacts)

/**
 * The tools of a resource: `set_working_memory`, `get_working_memory` and, where there is a semantic memory,
 * `remember_fact` and `recall_facts`. Whom they are about is not the model's to say.
 *
 * @example
 * ```ts
 * import { MemoryTools } from "@sandglass/memory"
 * import { Effect } from "effect"
 *
 * const program = Effect.gen(function*() {
 *   const tools = yield* MemoryTools.createMemoryTools({ resourceId: "user-7" })
 *   const call = { name: "set_working_memory", arguments: `{"key":"timezone","value":"Europe/Vienna"}` } // by the model
 *   const tool = tools.find(({ name }) => name === call.name)
 *   return yield* tool === undefined ? Effect.succeed(null) : tool.execute(JSON.parse(call.arguments))
 * })
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const createMemoryTools = (
  ref: ResourceRef
): Effect.Effect<ReadonlyArray<MemoryTool>, InvalidResourceRef, Memory> =>
  Effect.gen(function* () {
    const owner = yield* Ref.validate("MemoryTools.createMemoryTools", ref)
    const memory = yield* Memory
    const working = Definitions.workingHandlers(memory, owner)
    const tools = [setWorkingMemory(working.set_working_memory), getWorkingMemory(working.get_working_memory)]
    if (!memory.hasSemanticMemory) return tools
    const facts = Definitions.factHandlers(memory, owner)
    return [...tools, rememberFact(facts.remember_fact), recallFacts(facts.recall_facts)]
  })
