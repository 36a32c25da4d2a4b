/**
 * Texts and JSON.
 */
import type { Json } from "@sandglass/core/LedgerEvent"
import * as StoredText from "@sandglass/core/StoredText"

export const isObject = (value: unknown): value is { readonly [key: string]: Json } =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** By UTF-16 code units. */
export const compareText = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0)

/** A JSON object as it was stored. */
export const decodeObject = (text: string): { readonly [key: string]: Json } | undefined => {
  const value = StoredText.decodeJson(text)
  return isObject(value) ? value : undefined
}
