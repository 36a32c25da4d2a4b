/**
 * Any text and any JSON in a database, and back, without losing a character.
 *
 * Databases cannot hold NUL and lone surrogates in text, and Postgres refuses them in JSONB: they are escaped, reversibly,
 * and only where needed, so that all ordinary text is stored as it is.
 *
 * @since 0.1.0
 */
import * as Either from "effect/Either"
import * as Codec from "./internal/ledger/codec.js"
import type { Json } from "./LedgerEvent.js"

/**
 * The text as a column of any database can hold it.
 *
 * @since 0.1.0
 * @category conversions
 */
export const encode: (text: string) => string = Codec.encodeText

/**
 * Undoes {@link encode}, and leaves everything alone that it cannot have written.
 *
 * @since 0.1.0
 * @category conversions
 */
export const decode: (stored: string) => string = Codec.decodeText

/**
 * A value as it will be read back, and the JSON text that a database can hold.
 *
 * @since 0.1.0
 * @category models
 */
export interface EncodedJson {
  readonly value: Json
  readonly text: string
}

/**
 * @since 0.1.0
 * @category models
 */
export interface JsonOptions {
  /** What the value is called where it is refused, e.g. `metadata`. */
  readonly name: string
  /** True for a column that refuses NUL and lone surrogates inside JSON, as JSONB does. */
  readonly restricted: boolean
}

/**
 * The JSON text of a value, or why it has none. A key whose value is `undefined` counts as absent; anything else that
 * JSON would change in silence is refused.
 *
 * @example
 * ```ts
 * import { StoredText } from "@sandglass/core"
 * import { Either } from "effect"
 *
 * const options = { name: "metadata", restricted: true }
 * Either.getOrThrow(StoredText.encodeJson({ a: 1, b: undefined }, options)).text // {"a":1}
 * StoredText.encodeJson({ at: new Date(0) }, options) // left: metadata.at is [object Date], which is not JSON
 * ```
 *
 * @since 0.1.0
 * @category conversions
 */
export const encodeJson = (value: unknown, { name, restricted }: JsonOptions): Either.Either<EncodedJson, string> => {
  const json = Codec.jsonify(value, name)
  if (typeof json === "string") {
    return Either.left(json)
  }
  const text = Codec.encodePayload(json.value, json.text, restricted)
  return text === undefined ? Either.left(`${name} is nested too deeply`) : Either.right({ value: json.value, text })
}

/**
 * Undoes {@link encodeJson}. Text that is no JSON at all is read as a string, and an object or array that another program
 * stored as JSON inside a JSON string as that object or array.
 *
 * @since 0.1.0
 * @category conversions
 */
export const decodeJson: (stored: string) => Json = Codec.decodePayload
