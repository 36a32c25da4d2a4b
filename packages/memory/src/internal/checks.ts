/**
 * What every memory checks first.
 */
import * as StoredText from "@sandglass/core/StoredText"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import { InvalidInput } from "../MemoryError.js"
import * as ResourceRef from "../ResourceRef.js"

const invalid = (method: string, description: string) => Effect.fail(new InvalidInput({ method, description }))

export const checkKey = (method: string, key: string): Effect.Effect<void, InvalidInput> =>
  typeof key === "string" ? Effect.void : invalid(method, "a key must be a text")

/** The JSON text of a value. All of it is text that any database can hold: NUL and half characters are escaped. */
export const encode = (method: string, value: unknown, name = "value"): Effect.Effect<string, InvalidInput> =>
  Either.match(StoredText.encodeJson(value, { name, restricted: false }), {
    onLeft: (description) => invalid(method, description),
    onRight: ({ text }) => Effect.succeed(text)
  })

/** The two ends of a copy. */
export const checkCopy = (method: string, from: ResourceRef.ResourceRef, to: ResourceRef.ResourceRef) =>
  Effect.all([ResourceRef.validate(method, from), ResourceRef.validate(method, to)]).pipe(
    Effect.filterOrFail(
      ([a, b]) => a.teamId === b.teamId && a.resourceId !== b.resourceId,
      ([a, b]) =>
        new InvalidInput({
          method,
          description:
            a.teamId === b.teamId ? "a resource cannot be copied to itself" : "a copy stays in the team of its original"
        })
    )
  )

/** The receiving end of a copy has something already. */
export const notEmpty = (method: string, to: ResourceRef.ResourceRef): InvalidInput =>
  new InvalidInput({ method, description: `the memory of ${JSON.stringify(to.resourceId)} is not empty` })
