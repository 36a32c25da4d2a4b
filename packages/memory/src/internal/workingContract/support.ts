import type { Vitest } from "@effect/vitest"
import { assert } from "@effect/vitest"
import type { Json } from "@sandglass/core/LedgerEvent"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { ResourceRef } from "../../ResourceRef.js"
import { WorkingMemory } from "../../WorkingMemory.js"

/** How a case is added to the suite that is being defined. */
export type It = Vitest.MethodsNonLive<WorkingMemory>

/** Everything that a resource has, in order. */
export const entries = (ref: ResourceRef) =>
  Effect.flatMap(WorkingMemory, (working) => Effect.map(working.list(ref), (all) => Array.from(all)))

export const has = (ref: ResourceRef, key: string, value: Json) =>
  Effect.flatMap(WorkingMemory, (working) =>
    Effect.map(working.get(ref, key), (found) => assert.deepStrictEqual(found, Option.some(value)))
  )

export const numberOf = (value: Option.Option<Json>): number =>
  Option.isSome(value) && typeof value.value === "number" ? value.value : 0

export const increment = (ref: ResourceRef, key: string) =>
  Effect.flatMap(WorkingMemory, (working) =>
    working.modify(ref, key, (current) => {
      const next = numberOf(current) + 1
      return Effect.succeed([next, Option.some<Json>(next)])
    })
  )
