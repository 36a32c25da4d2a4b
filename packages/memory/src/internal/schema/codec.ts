/**
 * Effect schemas and Standard Schemas as one thing.
 */
import type { Json } from "@sandglass/core/LedgerEvent"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type { StandardSchema, StandardSchemaResult } from "../../SchemaWorkingMemory.js"

/** Why a value does not fit. */
export interface Misfit {
  readonly description: string
  readonly cause: unknown
}

export interface Codec<A> {
  /** `base` is what a patch is applied to. */
  readonly decode: (stored: Json) => Effect.Effect<{ readonly value: A; readonly base: unknown }, Misfit>
  /** What to store of a value; whether that is JSON is left to working memory. */
  readonly encode: (value: unknown) => Effect.Effect<unknown, Misfit>
}

const misfit = (cause: unknown): Misfit => ({
  description: cause instanceof Error ? cause.message : String(cause),
  cause
})

/** Fields that the schema does not know stay: another version of the program may know them. */
export const fromEffect = <A, I>(schema: Schema.Schema<A, I>): Codec<A> => {
  const decode = Schema.decodeUnknown(schema, { onExcessProperty: "preserve" })
  const encode = Schema.encodeUnknown(schema, { onExcessProperty: "preserve" })
  return {
    decode: (stored) =>
      decode(stored).pipe(
        Effect.map((value) => ({ value, base: value })),
        Effect.mapError(misfit)
      ),
    encode: (value) => Effect.mapError(encode(value), misfit)
  }
}

type Issue = NonNullable<StandardSchemaResult<unknown>["issues"]>[number]

const describeIssue = ({ message, path = [] }: Issue): string =>
  path.length === 0
    ? message
    : `${path.map((part) => String(typeof part === "object" ? part.key : part)).join(".")}: ${message}`

/** What goes in is what is stored: there is no way back from what comes out. */
export const fromStandard = <Input, Output>(schema: StandardSchema<Input, Output>): Codec<Output> => {
  const validate = (value: unknown): Effect.Effect<Output, Misfit> =>
    Effect.tryPromise({ try: async () => schema["~standard"].validate(value), catch: misfit }).pipe(
      Effect.flatMap((result) =>
        result.issues === undefined
          ? Effect.succeed(result.value)
          : Effect.fail({ description: result.issues.map(describeIssue).join("; "), cause: result.issues })
      )
    )
  return {
    decode: (stored) => Effect.map(validate(stored), (value) => ({ value, base: stored })),
    encode: (value) => Effect.as(validate(value), value)
  }
}
