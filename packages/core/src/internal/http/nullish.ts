/** @internal */
import * as Schema from "effect/Schema"

/**
 * A field that may be absent or `null`, which mean the same.
 *
 * @internal
 */
export const nullish = <A, I, R>(schema: Schema.Schema<A, I, R>) => Schema.optional(Schema.NullOr(schema))

/**
 * Epoch milliseconds of an RFC 3339 date; `undefined` for what is none, and for the zero value that Go writes when there is no date.
 *
 * @internal
 */
export const instant = (text: unknown): number | undefined => {
  if (typeof text !== "string") return undefined
  const match = /^(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2}:\d{2})(\.\d+)?\s*(Z|[+-]\d{2}:?\d{2})?$/i.exec(text.trim())
  if (match === null) return undefined
  const [, day, time, fraction = "", zone = "Z"] = match
  const offset = zone.length === 5 ? `${zone.slice(0, 3)}:${zone.slice(3)}` : zone.toUpperCase()
  const millis = Date.parse(`${day}T${time}${fraction.slice(0, 4)}${offset}`)
  return Number.isNaN(millis) || day === undefined || day.startsWith("0001") ? undefined : millis
}
