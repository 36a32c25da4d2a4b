/** The rules of Kubernetes labels, which metadata follows. @internal */
import * as Effect from "effect/Effect"
import type { ApiError } from "./apiError.js"
import { badRequest } from "./apiError.js"

const RESERVED = "opensandbox.io/"
const name = /^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/
const prefix = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/

const invalid = (message: string) => badRequest(message, "SANDBOX::INVALID_METADATA_LABEL")

const wrongKey = (key: string): string | undefined => {
  if (key.startsWith(RESERVED)) return `metadata keys that begin with ${RESERVED} are reserved: ${key}`
  const slash = key.indexOf("/")
  const domain = slash < 0 ? undefined : key.slice(0, slash)
  const valid =
    name.test(key.slice(slash + 1)) && (domain === undefined || (domain.length <= 253 && prefix.test(domain)))
  return valid ? undefined : `not a metadata key: ${key}`
}

const wrongValue = (key: string, value: string): string | undefined =>
  value === "" || name.test(value)
    ? undefined
    : `metadata ${key} must be at most 63 characters of A-Z a-z 0-9 - _ . that begin and end with a letter or digit`

export const checkMetadata = (metadata: { readonly [key: string]: string | null }): Effect.Effect<void, ApiError> =>
  Effect.forEach(
    Object.entries(metadata),
    ([key, value]) => {
      const wrong = wrongKey(key) ?? (value === null ? undefined : wrongValue(key, value))
      return wrong === undefined ? Effect.void : Effect.fail(invalid(wrong))
    },
    { discard: true }
  )

/** A merge patch: `null` removes a key. */
export const mergeMetadata = (
  metadata: { readonly [key: string]: string },
  patch: { readonly [key: string]: string | null }
): Effect.Effect<{ readonly [key: string]: string }, ApiError> =>
  Effect.map(checkMetadata(patch), () => {
    const merged = new Map(Object.entries(metadata))
    for (const [key, value] of Object.entries(patch)) {
      if (value === null) merged.delete(key)
      else merged.set(key, value)
    }
    return Object.fromEntries(merged)
  })
