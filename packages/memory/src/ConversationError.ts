/**
 * The errors of conversations. What makes no sense as given is an `InvalidInput` of `MemoryError`.
 *
 * @since 0.1.0
 */
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"
import type { InvalidInput } from "./MemoryError.js"

/**
 * @since 0.1.0
 * @category type ids
 */
export const TypeId = "~@sandglass/memory/ConversationError"

/**
 * There is a conversation of this id already; it is as it was.
 *
 * @since 0.1.0
 * @category errors
 */
export class ConversationExists extends Schema.TaggedError<ConversationExists>("@sandglass/memory/ConversationExists")(
  "ConversationExists",
  { conversationId: Schema.String }
) {
  /**
   * @since 0.1.0
   */
  readonly [TypeId] = TypeId

  override get message(): string {
    return `there is a conversation ${JSON.stringify(this.conversationId)} already`
  }
}

/**
 * There is no conversation of this id. Nothing was written.
 *
 * @since 0.1.0
 * @category errors
 */
export class ConversationNotFound extends Schema.TaggedError<ConversationNotFound>(
  "@sandglass/memory/ConversationNotFound"
)("ConversationNotFound", { conversationId: Schema.String }) {
  /**
   * @since 0.1.0
   */
  readonly [TypeId] = TypeId

  override get message(): string {
    return `there is no conversation ${JSON.stringify(this.conversationId)}`
  }
}

/**
 * There is a message of this id already, in this conversation or in another one. Nothing was written.
 *
 * @since 0.1.0
 * @category errors
 */
export class MessageExists extends Schema.TaggedError<MessageExists>("@sandglass/memory/MessageExists")(
  "MessageExists",
  { messageId: Schema.String }
) {
  /**
   * @since 0.1.0
   */
  readonly [TypeId] = TypeId

  override get message(): string {
    return `there is a message ${JSON.stringify(this.messageId)} already`
  }
}

/**
 * Why storage failed.
 *
 * - `Connection`: the database cannot be reached or opened, or was closed
 * - `Contention`: a lock, a serialisation failure, a busy file; trying again may work
 * - `Constraint`: the database refused the row
 * - `Unknown`: anything else; look at `cause`
 *
 * @since 0.1.0
 * @category models
 */
export const ConversationStoreErrorReason = Schema.Literal("Connection", "Contention", "Constraint", "Unknown")

/**
 * @since 0.1.0
 * @category models
 */
export type ConversationStoreErrorReason = typeof ConversationStoreErrorReason.Type

/**
 * The storage behind the conversations failed. What was being written is written whole or not at all.
 *
 * @since 0.1.0
 * @category errors
 */
export class ConversationStoreError extends Schema.TaggedError<ConversationStoreError>(
  "@sandglass/memory/ConversationStoreError"
)("ConversationStoreError", {
  /** The operation, e.g. `Conversations.storeMessage`. */
  method: Schema.String,
  reason: ConversationStoreErrorReason,
  description: Schema.optional(Schema.String),
  cause: Schema.optional(Schema.Defect)
}) {
  /**
   * @since 0.1.0
   */
  readonly [TypeId] = TypeId

  /**
   * True where the same call may succeed later.
   *
   * @since 0.1.0
   */
  get isRetryable(): boolean {
    return this.reason === "Connection" || this.reason === "Contention"
  }

  override get message(): string {
    return `${this.method}: ${this.reason}${this.description === undefined ? "" : `: ${this.description}`}`
  }
}

/**
 * Any error of a conversation store.
 *
 * @since 0.1.0
 * @category errors
 */
export type ConversationError =
  | ConversationExists
  | ConversationNotFound
  | MessageExists
  | InvalidInput
  | ConversationStoreError

/**
 * Whether something is one of the errors of this module.
 *
 * @since 0.1.0
 * @category guards
 */
export const isConversationError = (u: unknown): u is Exclude<ConversationError, InvalidInput> =>
  Predicate.hasProperty(u, TypeId)
