/**
 * Working memory: JSON values by key, for each resource.
 *
 * @since 0.1.0
 */
import type { Json } from "@sandglass/core/LedgerEvent"
import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Option from "effect/Option"
import * as internal from "./internal/working/memory.js"
import type { InvalidInput, InvalidResourceRef, MemoryAccessDenied, MemoryStoreError } from "./MemoryError.js"
import type { MemoryTransaction } from "./MemoryTransaction.js"
import type { ResourceRef } from "./ResourceRef.js"

/**
 * What an operation of working memory fails with.
 *
 * @since 0.1.0
 * @category errors
 */
export type WorkingMemoryError = InvalidResourceRef | InvalidInput | MemoryAccessDenied | MemoryStoreError

/**
 * JSON values by key, for each resource. Keys are any texts and are compared as they are; `__proto__` is one like any
 * other. What is read was copied: nobody changes a stored value but through `set` and `modify`.
 *
 * @example
 * ```ts
 * import { WorkingMemory } from "@sandglass/memory"
 * import { Effect } from "effect"
 *
 * const program = Effect.gen(function*() {
 *   const working = yield* WorkingMemory.WorkingMemory
 *   const user = { resourceId: "user-7" }
 *   yield* working.set(user, "timezone", "Europe/Vienna")
 *   return yield* working.get(user, "timezone") // Option.some("Europe/Vienna")
 * })
 *
 * program.pipe(Effect.provide(WorkingMemory.layerMemory))
 * ```
 *
 * @since 0.1.0
 * @category tags
 */
export class WorkingMemory extends Context.Tag("@sandglass/memory/WorkingMemory")<
  WorkingMemory,
  {
    /** `None` where there is no such key; a stored `null` is `Some(null)`. */
    readonly get: (ref: ResourceRef, key: string) => Effect.Effect<Option.Option<Json>, WorkingMemoryError>
    /** Inserts or replaces. A value that JSON would change in silence (`NaN`, a `Date`, a function) is `InvalidInput`. */
    readonly set: (ref: ResourceRef, key: string, value: Json) => Effect.Effect<void, WorkingMemoryError>
    /** Whether it was there. */
    readonly delete: (ref: ResourceRef, key: string) => Effect.Effect<boolean, WorkingMemoryError>
    /** Everything, in the order of the keys (by UTF-16 code units). */
    readonly list: (ref: ResourceRef) => Effect.Effect<ReadonlyMap<string, Json>, WorkingMemoryError>
    /**
     * Replaces a value by one that is computed from it: `f` gets the present value and gives the result and the next
     * value, `None` to remove the key (or to leave it absent). No write of others comes in between: where one does, `f`
     * runs again with what it left, so it must bear being run several times. Where `f` fails nothing is written. Fails
     * with `MemoryStoreError` of reason `Contention` if others keep coming in between for too long.
     */
    readonly modify: <A, E = never, R = never>(
      ref: ResourceRef,
      key: string,
      f: (current: Option.Option<Json>) => Effect.Effect<readonly [result: A, next: Option.Option<Json>], E, R>
    ) => Effect.Effect<A, E | WorkingMemoryError, R>
    /** Removes every key of the resource; returns how many there were. */
    readonly clear: (ref: ResourceRef) => Effect.Effect<number, WorkingMemoryError>
    /**
     * Copies every key to another resource of the same team, which must have none, else it is `InvalidInput`. All or
     * nothing; returns how many. Later writes to the one do not reach the other.
     */
    readonly copy: (from: ResourceRef, to: ResourceRef) => Effect.Effect<number, WorkingMemoryError>
    /** How to do several operations as one; `None` where that is not possible. */
    readonly transaction: Option.Option<MemoryTransaction>
  }
>() {}

/**
 * Working memory in memory, with the behaviour of one in a database.
 *
 * @since 0.1.0
 * @category constructors
 */
export const makeMemory: Effect.Effect<Context.Tag.Service<WorkingMemory>> = internal.make

/**
 * Working memory in memory: it ends with the layer.
 *
 * @since 0.1.0
 * @category layers
 */
export const layerMemory: Layer.Layer<WorkingMemory> = Layer.effect(WorkingMemory, makeMemory)
