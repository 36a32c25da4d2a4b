/**
 * Values as JSON text.
 */
import type { Json } from "@sandglass/core/LedgerEvent"

const describe = (value: unknown): string =>
  typeof value === "number" || typeof value === "undefined"
    ? String(value)
    : typeof value === "object"
      ? Object.prototype.toString.call(value)
      : `a ${typeof value}`

/** Finds what JSON would silently change or drop. A key whose value is `undefined` counts as absent. */
const findFlaw = (value: unknown, path: string): string | undefined => {
  switch (typeof value) {
    case "string":
    case "boolean":
      return undefined
    case "number":
      return Number.isFinite(value) ? undefined : `${path} is ${describe(value)}`
    case "object": {
      if (value === null) {
        return undefined
      }
      if (Array.isArray(value)) {
        for (let index = 0; index < value.length; index++) {
          const flaw = findFlaw(value[index], `${path}[${index}]`)
          if (flaw !== undefined) {
            return flaw
          }
        }
        return undefined
      }
      if (
        Object.prototype.toString.call(value) !== "[object Object]" ||
        ("toJSON" in value && typeof value.toJSON === "function")
      ) {
        return `${path} is ${describe(value)}`
      }
      for (const [key, item] of Object.entries(value)) {
        const flaw = item === undefined ? undefined : findFlaw(item, `${path}.${key}`)
        if (flaw !== undefined) {
          return flaw
        }
      }
      return undefined
    }
    default:
      return `${path} is ${describe(value)}`
  }
}

/** The JSON text of a value, or why it has none. Plain ASCII where it matters: NUL and lone surrogates are escaped. */
export const encode = (value: unknown, name: string): { readonly text: string } | { readonly problem: string } => {
  try {
    // First, because it finds cycles: the walk would never end on one.
    const text = JSON.stringify(value)
    const flaw = findFlaw(value, name)
    return flaw === undefined && text !== undefined
      ? { text }
      : { problem: `${flaw ?? `${name} is ${describe(value)}`}, which is not JSON` }
  } catch (cause) {
    return { problem: `${name} is not JSON: ${cause instanceof Error ? cause.message : String(cause)}` }
  }
}

export const isObject = (value: unknown): value is { readonly [key: string]: Json } =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** By UTF-16 code units. */
export const compareText = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0)
