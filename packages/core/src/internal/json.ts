import type { Json } from "../LedgerEvent.js"

/** A JSON object of the fields that are there. */
export const jsonObject = (fields: { readonly [key: string]: Json | undefined }): { readonly [key: string]: Json } => {
  const object: { [key: string]: Json } = {}
  for (const [key, value] of Object.entries(fields)) {
    if (value !== undefined) object[key] = value
  }
  return object
}

export const isJsonObject = (value: Json | undefined): value is { readonly [key: string]: Json } =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** A field of a JSON object; undefined where there is none, or no object. */
export const jsonField = (value: Json | undefined, name: string): Json | undefined =>
  isJsonObject(value) ? value[name] : undefined

export const stringField = (value: Json | undefined, name: string): string | undefined => {
  const field = jsonField(value, name)
  return typeof field === "string" ? field : undefined
}
