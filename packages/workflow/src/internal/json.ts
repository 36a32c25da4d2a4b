import type { Json } from "@sandglass/core/LedgerEvent"

export type JsonObject = { readonly [key: string]: Json }

/** A JSON object of the fields that are there. */
export const jsonObject = (fields: { readonly [key: string]: Json | undefined }): JsonObject =>
  Object.fromEntries(Object.entries(fields).filter((field): field is [string, Json] => field[1] !== undefined))

export const isObject = (value: Json | undefined): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** A field of a JSON object; undefined where there is none, or no object. */
export const field = (value: Json | undefined, name: string): Json | undefined =>
  isObject(value) ? value[name] : undefined

export const stringField = (value: Json | undefined, name: string): string | undefined => {
  const found = field(value, name)
  return typeof found === "string" ? found : undefined
}

export const numberField = (value: Json | undefined, name: string): number | undefined => {
  const found = field(value, name)
  return typeof found === "number" ? found : undefined
}
