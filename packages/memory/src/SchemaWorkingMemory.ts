/**
 * Working memory with a schema: one value of a known shape for each resource.
 *
 * @since 0.1.0
 */
import type { Json } from "@sandglass/core/LedgerEvent"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type { Misfit } from "./internal/schema/codec.js"
import * as Codec from "./internal/schema/codec.js"
import { merge } from "./internal/schema/merge.js"
import { InvalidInput, InvalidStoredValue } from "./MemoryError.js"
import type { ResourceRef } from "./ResourceRef.js"
import type { WorkingMemoryError } from "./WorkingMemory.js"
import { WorkingMemory } from "./WorkingMemory.js"

/**
 * What validating with a Standard Schema answers: a value, or issues.
 *
 * @since 0.1.0
 * @category models
 */
export type StandardSchemaResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | {
      readonly issues: ReadonlyArray<{
        readonly message: string
        readonly path?: ReadonlyArray<PropertyKey | { readonly key: PropertyKey }> | undefined
      }>
    }

/**
 * A schema of any library that implements Standard Schema, such as Zod and Valibot.
 *
 * @since 0.1.0
 * @category models
 */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1
    readonly vendor: string
    readonly validate: (value: unknown) => StandardSchemaResult<Output> | Promise<StandardSchemaResult<Output>>
    readonly types?: { readonly input: Input; readonly output: Output } | undefined
  }
}

type Whole = string | number | boolean | bigint | symbol | null | undefined | Date | ReadonlyArray<unknown>

/**
 * What may change of a value: any fields of it, at any depth. `undefined` removes a field. Arrays are replaced.
 *
 * @since 0.1.0
 * @category models
 */
export type Patch<A> = A extends Whole
  ? A
  : A extends (...args: ReadonlyArray<never>) => unknown
    ? A
    : { readonly [K in keyof A]?: Patch<A[K]> | undefined }

/**
 * What reading fails with: `InvalidStoredValue` where what is stored does not fit the schema. It stays as it is.
 *
 * @since 0.1.0
 * @category errors
 */
export type SchemaWorkingMemoryError = WorkingMemoryError | InvalidStoredValue

/**
 * One value for each resource. `A` is what is read, `In` is what is written.
 *
 * @since 0.1.0
 * @category models
 */
export interface SchemaWorkingMemory<A, In = A> {
  /** The key of working memory that holds it. */
  readonly key: string
  readonly get: (ref: ResourceRef) => Effect.Effect<Option.Option<A>, SchemaWorkingMemoryError>
  /** Validates and writes. A value that does not fit is `InvalidInput`, and nothing was written. */
  readonly set: (ref: ResourceRef, value: In) => Effect.Effect<A, WorkingMemoryError>
  /**
   * Changes fields of the value (of an empty object, where there is none), validates the whole and writes it. Atomic:
   * of two updates at once neither is lost. A result that does not fit is `InvalidInput`, and nothing was written.
   */
  readonly update: (ref: ResourceRef, patch: Patch<In>) => Effect.Effect<A, SchemaWorkingMemoryError>
  /** Whether there was one. */
  readonly clear: (ref: ResourceRef) => Effect.Effect<boolean, WorkingMemoryError>
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** The key of working memory that holds it. Default `state`. Two schemas need two keys. */
  readonly key?: string | undefined
}

const isEffectSchema = <A, I>(schema: Schema.Schema<A, I> | StandardSchema<I, A>): schema is Schema.Schema<A, I> =>
  Schema.isSchema(schema)

const build = <A, In>(
  codec: Codec.Codec<A>,
  key: string
): Effect.Effect<SchemaWorkingMemory<A, In>, never, WorkingMemory> =>
  Effect.map(WorkingMemory, (working) => {
    const named = (operation: string) => `SchemaWorkingMemory.${operation}`

    const refused =
      (operation: string) =>
      ({ cause, description }: Misfit) =>
        new InvalidInput({ method: named(operation), description, cause })

    const decodeStored = (operation: string, stored: Json) =>
      Effect.mapError(
        codec.decode(stored),
        ({ cause, description }) => new InvalidStoredValue({ method: named(operation), key, description, cause })
      )

    /** What is stored of a value, and what will be read of that. */
    const encode = (operation: string, value: unknown) =>
      codec.encode(value).pipe(
        Effect.flatMap((encoded) =>
          // Whether it is JSON is found out by working memory, which refuses it otherwise.
          Effect.map(codec.decode(encoded as Json), (decoded) => [decoded.value, encoded as Json] as const)
        ),
        Effect.mapError(refused(operation))
      )

    const spanned =
      (operation: string) =>
      <A, E, R>(self: Effect.Effect<A, E, R>) =>
        Effect.withSpan(self, named(operation), { captureStackTrace: false })

    return {
      key,
      get: (ref) =>
        working
          .get(ref, key)
          .pipe(
            Effect.flatMap(
              Effect.transposeMapOption((stored) => Effect.map(decodeStored("get", stored), ({ value }) => value))
            ),
            spanned("get")
          ),
      set: (ref, value) =>
        encode("set", value).pipe(
          Effect.flatMap(([decoded, encoded]) => Effect.as(working.set(ref, key, encoded), decoded)),
          spanned("set")
        ),
      update: (ref, patch) =>
        working
          .modify(ref, key, (current) =>
            Effect.gen(function* () {
              const base = Option.isNone(current) ? {} : (yield* decodeStored("update", current.value)).base
              const [decoded, encoded] = yield* encode("update", merge(base, patch))
              return [decoded, Option.some(encoded)] as const
            })
          )
          .pipe(spanned("update")),
      clear: (ref) => working.delete(ref, key).pipe(spanned("clear"))
    }
  })

/**
 * Working memory with an Effect schema, whose encoded side must be JSON and is what is stored; or with a Standard
 * Schema, of which the input is stored and validated again whenever it is read.
 *
 * @example
 * ```ts
 * import { SchemaWorkingMemory, WorkingMemory } from "@sandglass/memory"
 * import { Effect, Schema } from "effect"
 *
 * const Profile = Schema.Struct({ name: Schema.String, languages: Schema.optional(Schema.Array(Schema.String)) })
 *
 * const program = Effect.gen(function*() {
 *   const profile = yield* SchemaWorkingMemory.make(Profile, { key: "profile" })
 *   const user = { resourceId: "user-7" }
 *   yield* profile.set(user, { name: "Ada" })
 *   return yield* profile.update(user, { languages: ["en"] }) // { name: "Ada", languages: ["en"] }
 * })
 *
 * program.pipe(Effect.provide(WorkingMemory.layerMemory))
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const make: {
  <A, I>(schema: Schema.Schema<A, I>, options?: Options): Effect.Effect<SchemaWorkingMemory<A>, never, WorkingMemory>
  <Input, Output>(
    schema: StandardSchema<Input, Output>,
    options?: Options
  ): Effect.Effect<SchemaWorkingMemory<Output, Input>, never, WorkingMemory>
} = <A, In>(schema: Schema.Schema<A, In> | StandardSchema<In, A>, { key = "state" }: Options = {}) =>
  // Of an Effect schema what is written is what is read.
  isEffectSchema(schema) ? build<A, A>(Codec.fromEffect(schema), key) : build<A, In>(Codec.fromStandard(schema), key)
