/**
 * What the cases of the contract suites have in common.
 */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Random from "effect/Random"
import type { ResourceRef } from "../ResourceRef.js"

/** A text that no other case has used, in this run or an earlier one. */
export const fresh = (prefix: string) =>
  Effect.map(
    Effect.all([Random.nextIntBetween(0, 2 ** 31), Random.nextIntBetween(0, 2 ** 31)]),
    (parts) => `${prefix}-${parts.map((part) => part.toString(36)).join("")}`
  )

export const freshRef: Effect.Effect<ResourceRef> = Effect.map(fresh("resource"), (resourceId) => ({ resourceId }))

/** Refs that an id joined of two parts would confuse. All of them are different resources. */
export const confusable = Effect.map(
  fresh("r"),
  (id): ReadonlyArray<ResourceRef> => [
    { resourceId: id },
    { resourceId: `${id}:1` },
    { resourceId: `2:${id}`, teamId: "t:1" },
    { resourceId: `1:2:${id}`, teamId: "t" },
    { resourceId: id, teamId: "t" },
    { resourceId: id, teamId: "t:1" },
    { resourceId: "t", teamId: id },
    { resourceId: id, teamId: "null" },
    { resourceId: `${id}\0`, teamId: "t" },
    { resourceId: id, teamId: "t\0" },
    { resourceId: `["${id}"`, teamId: "null]" },
    { resourceId: `["${id}",null]` },
    { resourceId: ` ${id}` },
    { resourceId: id.toUpperCase() },
    { resourceId: `${id}\ud83d` },
    { resourceId: `${id}\ufffd` },
    { resourceId: `${id}\\ud83d` }
  ]
)

/** Refs that name nobody. */
export const invalidRefs: ReadonlyArray<ResourceRef> = [
  { resourceId: "" },
  { resourceId: " " },
  { resourceId: "\t\n\u00a0" },
  { resourceId: "r", teamId: "" },
  { resourceId: "r", teamId: "  " },
  // What a program without types may do.
  JSON.parse("{}"),
  JSON.parse(`{"resourceId":7}`),
  JSON.parse("null")
]

export const awkwardTexts: ReadonlyArray<string> = [
  "__proto__",
  "constructor",
  "toString",
  "hasOwnProperty",
  "a.b",
  "a b",
  "%_'\"\\",
  "Ä",
  "ä",
  "a\0b",
  "\0",
  "\ud83d",
  "\ude00",
  "\ufffd",
  "😀",
  "\\u0000",
  "$sandglass.escaped:x",
  "'; DROP TABLE sandglass_facts; --",
  "x".repeat(10_000)
]

/** Fails the test unless the effect fails with this tag. */
export const failsWith = <Tag extends string, A, E extends { readonly _tag: string }, R>(
  tag: Tag,
  self: Effect.Effect<A, E, R>
): Effect.Effect<Extract<E, { readonly _tag: Tag }>, A, R> =>
  Effect.map(Effect.flip(self), (error) => {
    assert.strictEqual(error._tag, tag)
    // The tag was compared just now.
    return error as Extract<E, { readonly _tag: Tag }>
  })
