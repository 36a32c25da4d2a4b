/**
 * How the values of an event become the text of a row, and back, without losing a character on any backend.
 *
 * JSON text itself carries every string: `JSON.stringify` writes NUL and lone surrogates as `\uXXXX`. Postgres refuses
 * exactly these escapes in JSONB, and databases in general cannot hold the two in a text column, so they are escaped
 * once more, in a form that is ordinary text. What was escaped says so by a marker that nobody else writes.
 */
import type { Json } from "../../LedgerEvent.js"
import { isJsonObject } from "../json.js"

/** Marks an escaped payload: as an additional key of an object, or as the key of a wrapper around anything else. */
export const payloadMarker = "$sandglass.escaped"

const wrapped = "value"
const escapedObject = "object"

/** Marks an escaped text column. */
export const textMarker = "$sandglass.escaped:"

// With the `u` flag `\p{Cs}` matches only surrogates that are not part of a pair.
const loneSurrogates = /\p{Cs}/gu
const unsafeEscape = /^u(?:0000|d[89a-f])/
const characterEscapes = /\\u[0-9a-f]{4}/g
const characterEscape = /^u[0-9a-f]{4}$/

/**
 * Goes through the backslashes of a text, each with what follows it up to the end of an escape: one regular expression for
 * the whole of a text gives up where there are millions. Stops where `accept` says no, and tells whether it never did.
 */
const everyEscape = (text: string, accept: (escape: string) => boolean): boolean => {
  for (let at = text.indexOf("\\"); at !== -1; ) {
    const escape = text[at + 1] === "u" ? text.slice(at + 1, at + 6) : text.slice(at + 1, at + 2)
    if (!accept(escape)) {
      return false
    }
    at = text.indexOf("\\", at + 1 + escape.length)
  }
  return true
}

const isWellEscaped = (text: string): boolean =>
  everyEscape(text, (escape) => escape === "\\" || characterEscape.test(escape))

/** Whether JSON text has an escape of NUL or of half a pair in it. */
const isUnsafeJson = (text: string): boolean =>
  text.includes("\\u") && !everyEscape(text, (escape) => !unsafeEscape.test(escape))

/** Every runtime of today has it, the types of ES2023 have not; it is many times faster than a regular expression. */
interface WellFormed {
  readonly isWellFormed: () => boolean
}

const isWellFormed = (text: string): boolean => (text as unknown as WellFormed).isWellFormed()

/** Whether a text is ordinary: free of NUL and of lone surrogates. */
export const isPlainText = (text: string): boolean => isWellFormed(text) && !text.includes("\0")

const hex = (character: string): string => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`

const escapeText = (text: string): string => {
  const escaped = text.replaceAll("\\", "\\\\").replaceAll("\0", "\\u0000")
  return isWellFormed(escaped) ? escaped : escaped.replace(loneSurrogates, hex)
}

/** Two backslashes that follow each other are always the escape of one, wherever the search for them begins a run. */
const unescapeText = (text: string): string =>
  text.includes("\\")
    ? text
        .split("\\\\")
        .map((part) =>
          part.includes("\\")
            ? part
                .replaceAll("\\u0000", "\0")
                .replace(characterEscapes, (escape) => String.fromCharCode(Number.parseInt(escape.slice(2), 16)))
            : part
        )
        .join("\\")
    : text

/** The text as a column of any database can hold it. */
export const encodeText = (text: string): string =>
  isPlainText(text) && !text.startsWith(textMarker) ? text : textMarker + escapeText(text)

/** Undoes {@link encodeText}, and leaves everything alone that it cannot have written. */
export const decodeText = (stored: string): string => {
  if (!stored.startsWith(textMarker)) {
    return stored
  }
  const body = stored.slice(textMarker.length)
  if (!isWellEscaped(body)) {
    return stored
  }
  const text = unescapeText(body)
  return encodeText(text) === stored ? text : stored
}

const escapeKey = (key: string): string => (key === payloadMarker ? hex("$") + key.slice(1) : escapeText(key))

/** `Object.fromEntries` and not assignment: a key may be `__proto__`. */
const mapStrings = (value: Json, key: (key: string) => string, text: (text: string) => string): Json =>
  typeof value === "string"
    ? text(value)
    : Array.isArray(value)
      ? value.map((item: Json) => mapStrings(item, key, text))
      : isJsonObject(value)
        ? Object.fromEntries(Object.entries(value).map(([name, item]) => [key(name), mapStrings(item, key, text)]))
        : value

const everyString = (value: Json, predicate: (text: string) => boolean): boolean =>
  typeof value === "string"
    ? predicate(value)
    : Array.isArray(value)
      ? value.every((item: Json) => everyString(item, predicate))
      : isJsonObject(value)
        ? Object.entries(value).every(([name, item]) => predicate(name) && everyString(item, predicate))
        : true

const escapePayload = (value: Json): Json => {
  const escaped = mapStrings(value, escapeKey, escapeText)
  return isJsonObject(escaped)
    ? Object.fromEntries([...Object.entries(escaped), [payloadMarker, escapedObject]])
    : { [payloadMarker]: wrapped, value: escaped }
}

const hasMarker = (value: { readonly [key: string]: Json }): boolean => Object.hasOwn(value, payloadMarker)

/** Another program may have nested it so deeply that it cannot be walked through: then it stays as it is. */
const unescapePayload = (value: { readonly [key: string]: Json }): Json => {
  try {
    return unescapeMarked(value)
  } catch {
    return value
  }
}

const unescapeMarked = (value: { readonly [key: string]: Json }): Json => {
  const kind = value[payloadMarker]
  const rest =
    kind === wrapped && Object.hasOwn(value, "value") && Object.keys(value).length === 2
      ? value["value"]
      : kind === escapedObject
        ? Object.fromEntries(Object.entries(value).filter(([key]) => key !== payloadMarker))
        : undefined
  return rest === undefined || !everyString(rest, isWellEscaped) ? value : mapStrings(rest, unescapeText, unescapeText)
}

const parse = (text: string): Json | undefined => {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** Other programs stored objects as JSON inside a JSON string. */
const unwrapDoubleEncoded = (text: string): Json | undefined => {
  const first = text.trimStart()[0]
  if (first !== "{" && first !== "[") {
    return undefined
  }
  return parse(text)
}

/**
 * The JSON text of a payload, or nothing where it is nested too deeply for that. `restricted` is for databases that refuse NUL and lone surrogates inside JSON; elsewhere
 * only what would otherwise be taken for something else is escaped.
 */
export const encodePayload = (value: Json, text: string, restricted: boolean): string | undefined => {
  const ambiguous =
    typeof value === "string" ? unwrapDoubleEncoded(value) !== undefined : isJsonObject(value) && hasMarker(value)
  if (!ambiguous && !(restricted && isUnsafeJson(text))) {
    return text
  }
  try {
    return JSON.stringify(escapePayload(value))
  } catch {
    return undefined
  }
}

/** Undoes {@link encodePayload}; text that is no JSON at all is read as a string. */
export const decodePayload = (stored: string): Json => {
  const parsed = parse(stored)
  if (parsed === undefined) {
    return stored
  }
  const value = typeof parsed === "string" ? (unwrapDoubleEncoded(parsed) ?? parsed) : parsed
  return isJsonObject(value) && hasMarker(value) ? unescapePayload(value) : value
}

/** A payload that can be stored: its value as it will be read back, and its JSON text. */
export interface Jsonified {
  readonly value: Json
  readonly text: string
}

const describe = (value: unknown): string =>
  typeof value === "number" || typeof value === "undefined"
    ? String(value)
    : typeof value === "object"
      ? Object.prototype.toString.call(value)
      : `a ${typeof value}`

const isPlainObject = (value: object): value is { readonly [key: string]: unknown } => {
  const prototype: unknown = Object.getPrototypeOf(value)
  return (
    (prototype === Object.prototype ||
      prototype === null ||
      Object.prototype.toString.call(value) === "[object Object]") &&
    !("toJSON" in value && typeof value.toJSON === "function")
  )
}

/**
 * Finds what JSON would silently change or drop, and says where; `""` when the value is exact, `undefined` when it is
 * normalised.
 */
const findFlaw = (value: unknown): string | undefined => {
  switch (typeof value) {
    case "string":
    case "boolean":
      return ""
    case "number":
      return Object.is(value, -0) ? undefined : Number.isFinite(value) ? "" : ` is ${describe(value)}`
    case "object": {
      if (value === null) {
        return ""
      }
      let exact = true
      if (Array.isArray(value)) {
        for (let index = 0; index < value.length; index++) {
          const flaw = findFlaw(value[index])
          if (flaw === undefined) {
            exact = false
          } else if (flaw !== "") {
            return `[${index}]${flaw}`
          }
        }
        return exact ? "" : undefined
      }
      if (!isPlainObject(value)) {
        return ` is ${describe(value)}`
      }
      for (const key of Object.keys(value)) {
        const item = value[key]
        const flaw = item === undefined ? undefined : findFlaw(item)
        if (flaw === undefined) {
          exact = false
        } else if (flaw !== "") {
          return `.${key}${flaw}`
        }
      }
      return exact ? "" : undefined
    }
    default:
      return ` is ${describe(value)}`
  }
}

/**
 * The JSON text of any value, or why it has none. A key whose value is `undefined` counts as absent, as it does for
 * the optional fields it usually comes from; anything else that JSON would change in silence is refused.
 */
export const jsonify = (value: unknown, name = "payload"): Jsonified | string => {
  let text: string | undefined
  try {
    // First, because it finds cycles: the walk below would never end on one.
    text = JSON.stringify(value)
    const flaw = findFlaw(value)
    if (text !== undefined && flaw === "") {
      // Every part of the value has just been found to be JSON.
      return { value: value as Json, text }
    }
    if (text !== undefined && flaw === undefined) {
      return { value: JSON.parse(text), text }
    }
    return `${name}${flaw === undefined || flaw === "" ? ` is ${describe(value)}` : flaw}, which is not JSON`
  } catch (cause) {
    return `${name} is not JSON: ${cause instanceof Error ? cause.message : String(cause)}`
  }
}

/** Text that every writer of JSON spells in the same way: it can be looked for in the stored text. */
export const isPlainJson = (text: string): boolean => /^[\x20-\x7e]*$/.test(text) && !/["\\/]/.test(text)
