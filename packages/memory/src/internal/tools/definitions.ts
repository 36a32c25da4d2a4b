/**
 * The tools that a model gets: what they take, what they answer, what they do.
 */
import type { Json } from "@sandglass/core/LedgerEvent"
import * as StoredText from "@sandglass/core/StoredText"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type { FactError, FactService, WorkingService } from "../../Memory.js"
import { InvalidInput } from "../../MemoryError.js"
import type { ResourceRef } from "../../ResourceRef.js"
import type { WorkingMemoryError } from "../../WorkingMemory.js"
import { isObject } from "../json.js"
import { isReserved } from "../memory/reserved.js"

/** No `$ref`, no list of types: what a provider accepts of JSON Schema differs. */
const anyJson = {
  anyOf: [
    { type: "string" },
    { type: "number" },
    { type: "boolean" },
    { type: "null" },
    { type: "array", items: {} },
    { type: "object" }
  ]
}

const isJson = (value: unknown): value is Json =>
  Either.isRight(StoredText.encodeJson(value, { name: "value", restricted: false }))

const JsonValue: Schema.Schema<Json> = Schema.declare(isJson, { description: "any JSON value", jsonSchema: anyJson })

const Key = Schema.String.pipe(
  Schema.filter((key) => key.trim() !== "" && !isReserved(key), {
    message: () => "a key is not blank and does not begin with sandglass.",
    jsonSchema: { minLength: 1 }
  })
)

const Text = (description: string) =>
  Schema.String.pipe(
    Schema.filter((text) => text.trim() !== "", { message: () => "must not be blank", jsonSchema: { minLength: 1 } })
  ).annotations({ description })

/** Not a record of JSON values: that would lose a key such as `__proto__`. */
const Metadata: Schema.Schema<{ readonly [key: string]: Json }> = Schema.declare(
  (value): value is { readonly [key: string]: Json } => isObject(value) && isJson(value),
  { jsonSchema: { type: "object" } }
)

/** What the model did wrong, for the model to read. */
const Refusal = Schema.Struct({ error: Schema.String })

export const setWorkingMemory = {
  name: "set_working_memory",
  description:
    "Saves a value under a key, for this and later conversations, replacing what was there. For what is current: preferences, " +
    "settings, the state of a task.",
  parameters: Schema.Struct({
    key: Key.annotations({ description: "a short name, such as timezone or current_task" }),
    value: JsonValue.annotations({ description: "any JSON value" })
  }),
  success: Schema.Union(Schema.Struct({ key: Schema.String, saved: Schema.Literal(true) }), Refusal)
} as const

export const getWorkingMemory = {
  name: "get_working_memory",
  description: "Reads the value that was saved under a key, or everything that was saved where no key is given.",
  parameters: Schema.Struct({
    key: Schema.optional(Schema.String).annotations({ description: "default: everything" })
  }),
  success: Schema.Union(
    Schema.Struct({
      key: Schema.String,
      found: Schema.Boolean,
      value: Schema.optionalWith(JsonValue, { exact: true })
    }),
    Schema.Struct({ values: Metadata }),
    Refusal
  )
} as const

export const rememberFact = {
  name: "remember_fact",
  description:
    "Remembers one fact for later conversations, in a sentence that can be understood by itself. To remember the same sentence again is " +
    "harmless.",
  parameters: Schema.Struct({
    content: Text("one sentence"),
    metadata: Schema.optional(Metadata).annotations({ description: "anything that belongs to it" })
  }),
  success: Schema.Union(Schema.Struct({ id: Schema.String, content: Schema.String }), Refusal)
} as const

export const recallFacts = {
  name: "recall_facts",
  description:
    "Finds the remembered facts that are closest in meaning to a query, best first. `verified` says that the fact is proved by what " +
    "happened in a sandbox.",
  parameters: Schema.Struct({
    query: Text("what to look for"),
    limit: Schema.optional(Schema.Number.pipe(Schema.int(), Schema.between(1, 50))).annotations({
      description: "how many facts at most; default 5"
    })
  }),
  success: Schema.Union(
    Schema.Struct({
      facts: Schema.Array(
        Schema.Struct({
          content: Schema.String,
          score: Schema.Number,
          verified: Schema.Boolean,
          metadata: Schema.optionalWith(Metadata, { exact: true })
        })
      )
    }),
    Refusal
  )
} as const

/** What the model can do better goes back to it; what it cannot is a failure. */
const refusing = <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A | typeof Refusal.Type, E, R> =>
  Effect.catchIf(
    self,
    (error) => error instanceof InvalidInput,
    ({ message }) => Effect.succeed({ error: message })
  )

export const workingHandlers = ({ working }: WorkingService, ref: ResourceRef) => ({
  set_working_memory: ({ key, value }: typeof setWorkingMemory.parameters.Type) =>
    refusing(Effect.as(working.set(ref, key, value), { key, saved: true as const })),
  get_working_memory: ({
    key
  }: typeof getWorkingMemory.parameters.Type): Effect.Effect<
    typeof getWorkingMemory.success.Type,
    WorkingMemoryError
  > =>
    refusing<typeof getWorkingMemory.success.Type, WorkingMemoryError, never>(
      key === undefined
        ? Effect.map(working.list(ref), (values) => ({
            values: Object.fromEntries(Array.from(values).filter(([name]) => !isReserved(name)))
          }))
        : isReserved(key)
          ? Effect.succeed({ key, found: false })
          : Effect.map(
              working.get(ref, key),
              Option.match({ onNone: () => ({ key, found: false }), onSome: (value) => ({ key, found: true, value }) })
            )
    )
})

export const factHandlers = <E>(memory: Pick<FactService<E>, "remember" | "recall">, ref: ResourceRef) => ({
  remember_fact: (
    fact: typeof rememberFact.parameters.Type
  ): Effect.Effect<typeof rememberFact.success.Type, FactError | E> =>
    refusing(Effect.map(memory.remember(ref, fact), ({ content, id }) => ({ id, content }))),
  recall_facts: ({
    limit = 5,
    query
  }: typeof recallFacts.parameters.Type): Effect.Effect<typeof recallFacts.success.Type, FactError | E> =>
    refusing(
      Effect.map(memory.recall(ref, query, { topK: limit }), (facts) => ({
        facts: facts.map(({ content, metadata, score, verified }) => ({
          content,
          score,
          verified,
          ...(metadata === undefined ? {} : { metadata })
        }))
      }))
    )
})
