/**
 * What of a prompt or a response a message has no field for. It is kept in the message's metadata, and only where there is
 * something to keep: what is usual is a message like any other.
 */
import type { Json } from "@sandglass/core/LedgerEvent"
import * as StoredText from "@sandglass/core/StoredText"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type { ConversationMessage } from "../../Conversation.js"

/** The field of the metadata. */
export const key = "@effect/ai"

/** Fields of a part beside its text, its call or its result. */
export type Extra = { readonly [key: string]: Json }

export const isObject = (value: unknown): value is Extra =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** Not rebuilt field by field: one may be called `__proto__`. */
const Extra = Schema.declare(isObject)

/**
 * One part, in its place: so many characters of the content, the next tool call, the next tool message, or a part of
 * another kind, whole.
 */
export const Piece = Schema.Union(
  Schema.Struct({ text: Schema.NonNegativeInt, extra: Schema.optional(Extra) }),
  Schema.Struct({ call: Schema.Literal(true), extra: Schema.optional(Extra) }),
  Schema.Struct({ result: Schema.Literal(true) }),
  Schema.Struct({ part: Extra })
)

export type Piece = typeof Piece.Type

export const Mark = Schema.Struct({
  /** Of a message with parts. */
  pieces: Schema.optional(Schema.Array(Piece)),
  /** The pieces are those of a response. */
  response: Schema.optional(Schema.Literal(true)),
  /** The options of the message as a whole. */
  options: Schema.optional(Extra),
  /** Of a tool's result. */
  result: Schema.optional(
    Schema.Struct({
      /** How to read the content. */
      as: Schema.optional(Schema.Literal("text", "json", "nothing")),
      isFailure: Schema.optional(Schema.Literal(true)),
      extra: Schema.optional(Extra)
    })
  ),
  /** Not one of the same message of a prompt as the tool message before it. */
  separate: Schema.optional(Schema.Literal(true)),
  /** A tool message of a prompt that has no result in it. */
  empty: Schema.optional(Schema.Literal(true))
})

export interface Mark extends Schema.Schema.Type<typeof Mark> {}

const decode = Schema.decodeUnknownOption(Mark)

/** What somebody else wrote there says nothing. */
export const markOf = ({ metadata }: Pick<ConversationMessage, "metadata">): Mark =>
  Option.getOrElse(decode(metadata?.[key]), (): Mark => ({}))

/** What makes no sense, and why. */
export class Refusal {
  constructor(readonly description: string) {}
}

export const refuse = (description: string): never => {
  throw new Refusal(description)
}

/** A value as JSON, and its text. */
export const json = (value: unknown, name: string): StoredText.EncodedJson => {
  const encoded = Either.getOrElse(StoredText.encodeJson(value, { name, restricted: false }), refuse)
  return { value: encoded.value, text: JSON.stringify(encoded.value) }
}

/** An object of JSON; nothing where it has no fields. */
export const extraOf = (value: object, name: string): Extra | undefined => {
  const encoded = json(value, name).value
  return isObject(encoded) && Object.keys(encoded).length > 0 ? encoded : undefined
}

/** The fields that are there. */
export const compact = <A extends object>(fields: A): { readonly [K in keyof A]?: Exclude<A[K], undefined> } =>
  // Without what is undefined.
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as {
    readonly [K in keyof A]?: Exclude<A[K], undefined>
  }

/** A message without what is given to all of them. */
export interface Draft extends Omit<ConversationMessage, "id" | "conversationId" | "timestamp"> {}

export const withMark = (draft: Draft, mark: Mark): Draft => {
  const fields = compact(mark)
  return Object.keys(fields).length === 0
    ? draft
    : // A mark is made of JSON.
      { ...draft, metadata: { ...draft.metadata, [key]: json(fields, "metadata").value } }
}
