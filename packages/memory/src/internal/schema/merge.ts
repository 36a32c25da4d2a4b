/**
 * A value, changed by a patch of it.
 */

const isPlain = (value: unknown): value is { readonly [key: string]: unknown } => {
  if (typeof value !== "object" || value === null) return false
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === Object.prototype || prototype === null
}

const fieldsOf = (value: unknown): Iterable<readonly [string, unknown]> =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? Object.entries(value) : []

/**
 * A patch that is a plain object changes fields: those that are `undefined` in it go, those that are plain objects change
 * fields in turn, others replace what was there. A patch that is anything else replaces the value.
 */
export const merge = (value: unknown, patch: unknown): unknown => {
  if (!isPlain(patch)) return patch
  const merged = new Map<string, unknown>(fieldsOf(value))
  for (const [key, change] of Object.entries(patch)) {
    if (change === undefined) merged.delete(key)
    else merged.set(key, merge(merged.get(key), change))
  }
  return Object.fromEntries(merged)
}
