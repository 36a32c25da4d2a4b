/**
 * Conversations and their messages, as they are stored and read back.
 *
 * Times are epoch milliseconds, whole numbers. Ids are the caller's: any text that is not empty and, as UTF-8, not longer
 * than {@link maxIdBytes}.
 *
 * @since 0.1.0
 */
import { Json } from "@sandglass/core/LedgerEvent"
import * as Schema from "effect/Schema"

/**
 * How long the id of a conversation, a message, a user or an agent may be, in bytes of UTF-8: an index of Postgres holds
 * no more.
 *
 * @since 0.1.0
 * @category constants
 */
export const maxIdBytes = 800

/**
 * How deeply `metadata` and `toolCalls` may be nested: databases refuse what is nested more deeply by thousands.
 *
 * @since 0.1.0
 * @category constants
 */
export const maxJsonDepth = 500

/**
 * Who says something: a user, the model, the one who instructs it, or a tool that it called.
 *
 * @since 0.1.0
 * @category schemas
 */
export const Role = Schema.Literal("user", "assistant", "system", "tool").annotations({ identifier: "Role" })

/**
 * @since 0.1.0
 * @category models
 */
export type Role = typeof Role.Type

/**
 * What a message cost, as it was reported: nothing is recomputed. A cache field that is absent and one that is `0` are two
 * statements.
 *
 * @since 0.1.0
 * @category schemas
 */
export const TokenUsage = Schema.Struct({
  promptTokens: Schema.NonNegativeInt,
  completionTokens: Schema.NonNegativeInt,
  totalTokens: Schema.NonNegativeInt,
  /** Of the prompt, what came from the provider's cache. */
  cacheReadTokens: Schema.optional(Schema.NonNegativeInt),
  /** Of the prompt, what was put into the provider's cache. */
  cacheCreationTokens: Schema.optional(Schema.NonNegativeInt)
}).annotations({ identifier: "TokenUsage" })

/**
 * @since 0.1.0
 * @category models
 */
export interface TokenUsage extends Schema.Schema.Type<typeof TokenUsage> {}

const Metadata = Schema.Record({ key: Schema.String, value: Json })

/**
 * @since 0.1.0
 * @category schemas
 */
export const Conversation = Schema.Struct({
  id: Schema.NonEmptyString,
  userId: Schema.NonEmptyString,
  agentId: Schema.optional(Schema.NonEmptyString),
  title: Schema.optional(Schema.String),
  createdAt: Schema.Int,
  /** The latest of its messages' times that were stored so far, or what it was set to. */
  lastActivity: Schema.Int,
  metadata: Schema.optional(Metadata)
}).annotations({ identifier: "Conversation" })

/**
 * @since 0.1.0
 * @category models
 */
export interface Conversation extends Schema.Schema.Type<typeof Conversation> {}

/**
 * @since 0.1.0
 * @category schemas
 */
export const ConversationMessage = Schema.Struct({
  /** Unique over all conversations. */
  id: Schema.NonEmptyString,
  conversationId: Schema.NonEmptyString,
  role: Role,
  /** May be empty. */
  content: Schema.String,
  /** What messages are sorted by. */
  timestamp: Schema.Int,
  model: Schema.optional(Schema.String),
  usage: Schema.optional(TokenUsage),
  toolCalls: Schema.optional(Schema.Array(Json)),
  /** Of a `tool` message: the call that it answers. */
  toolCallId: Schema.optional(Schema.String),
  name: Schema.optional(Schema.String),
  metadata: Schema.optional(Metadata)
}).annotations({ identifier: "ConversationMessage" })

/**
 * @since 0.1.0
 * @category models
 */
export interface ConversationMessage extends Schema.Schema.Type<typeof ConversationMessage> {}

/**
 * What to change of a conversation: the fields that are given, and no others. `undefined` clears an optional field.
 *
 * @since 0.1.0
 * @category models
 */
export interface ConversationPatch {
  readonly userId?: string
  readonly agentId?: string | undefined
  readonly title?: string | undefined
  readonly createdAt?: number
  readonly lastActivity?: number
  /** Replaced whole. */
  readonly metadata?: Conversation["metadata"]
}
