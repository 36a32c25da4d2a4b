/**
 * For those who write a backend: where conversations are kept.
 *
 * A {@link ConversationStore} takes rows in and gives rows out, all of them text and numbers. {@link makeConversations}
 * makes the service of it: it checks what is given, encodes text and JSON, pages, and opens the spans.
 *
 * `ConversationsContract.suite` of `@sandglass/memory/testing` proves a store through the service that is made of it.
 *
 * @since 0.1.0
 */
import type { NonEmptyReadonlyArray } from "effect/Array"
import type * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import type * as Option from "effect/Option"
import type { Role } from "./Conversation.js"
import type {
  ConversationExists,
  ConversationNotFound,
  ConversationStoreError,
  MessageExists
} from "./ConversationError.js"
import type { Conversations } from "./Conversations.js"
import * as internal from "./internal/conversations/make.js"

/**
 * A conversation as a backend stores it; `metadata` is JSON text.
 *
 * @since 0.1.0
 * @category models
 */
export interface ConversationRow {
  readonly id: string
  readonly userId: string
  readonly agentId: string | null
  readonly title: string | null
  /** Epoch milliseconds. */
  readonly createdAt: number
  readonly lastActivity: number
  readonly metadata: string | null
}

/**
 * The columns to change, and no others.
 *
 * @since 0.1.0
 * @category models
 */
export interface ConversationChanges extends Partial<Omit<ConversationRow, "id">> {}

/**
 * A message as a backend stores it; `toolCalls` and `metadata` are JSON text. One without usage has no `totalTokens`.
 *
 * @since 0.1.0
 * @category models
 */
export interface MessageRow {
  readonly id: string
  readonly conversationId: string
  readonly role: Role
  readonly content: string
  /** Epoch milliseconds. */
  readonly timestamp: number
  readonly model: string | null
  readonly toolCallId: string | null
  readonly name: string | null
  readonly promptTokens: number | null
  readonly completionTokens: number | null
  readonly totalTokens: number | null
  readonly cacheReadTokens: number | null
  readonly cacheCreationTokens: number | null
  readonly toolCalls: string | null
  readonly metadata: string | null
}

/**
 * A place in a conversation's order, which is `(timestamp, seq)`.
 *
 * @since 0.1.0
 * @category models
 */
export interface Place {
  readonly timestamp: number
  /** Grows with every message that is stored in a conversation. */
  readonly seq: number
}

/**
 * @since 0.1.0
 * @category models
 */
export interface StoredMessage extends MessageRow, Place {}

/**
 * @since 0.1.0
 * @category models
 */
export interface ConversationQuery {
  readonly userId: string
  readonly agentId: string | undefined
  readonly offset: number
  /** `undefined`: all of them. */
  readonly limit: number | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface MessageQuery {
  readonly conversationId: string
  readonly order: "asc" | "desc"
  /** Not earlier than this. */
  readonly since: number | undefined
  /** Not later than this. */
  readonly until: number | undefined
  /** `undefined`: every role. */
  readonly roles: NonEmptyReadonlyArray<Role> | undefined
  /** Only what follows this place, in the given order; the offset is then 0. */
  readonly after: Place | undefined
  readonly offset: number
  /** `undefined`: all of them. */
  readonly limit: number | undefined
}

/**
 * Sums over the messages that have a usage. A cache field is `null` where no message has it.
 *
 * @since 0.1.0
 * @category models
 */
export interface UsageRow {
  readonly promptTokens: number
  readonly completionTokens: number
  readonly totalTokens: number
  readonly cacheReadTokens: number | null
  readonly cacheCreationTokens: number | null
}

/**
 * What a backend implements. What it is given was checked, and text is text that any database can hold. The ids in its
 * errors are as it was given them; the `method` of a `ConversationStoreError` does not matter: the operation that failed
 * is filled in.
 *
 * @since 0.1.0
 * @category models
 */
export interface ConversationStore {
  /** True for a database that refuses NUL and lone surrogates inside JSON. */
  readonly restrictedJson: boolean
  readonly insertConversation: (
    row: ConversationRow
  ) => Effect.Effect<void, ConversationExists | ConversationStoreError>
  readonly conversation: (id: string) => Effect.Effect<Option.Option<ConversationRow>, ConversationStoreError>
  /** Changes the columns in one step and returns what is stored then; nothing where there is no such conversation. */
  readonly updateConversation: (
    id: string,
    changes: ConversationChanges
  ) => Effect.Effect<Option.Option<ConversationRow>, ConversationStoreError>
  /** With its messages, in one step; false where there was none. */
  readonly deleteConversation: (id: string) => Effect.Effect<boolean, ConversationStoreError>
  /** By `lastActivity`, then `createdAt`, then the order in which they were created, the newest of each first. */
  readonly conversations: (
    query: ConversationQuery
  ) => Effect.Effect<ReadonlyArray<ConversationRow>, ConversationStoreError>
  /**
   * All of them or none, in order, and moves `lastActivity` of their conversations to the latest `timestamp` where that is
   * later. A conversation that does not exist is found before an id that is taken, by a stored message or by an earlier
   * one of the same rows; of several the first one is told.
   */
  readonly insertMessages: (
    rows: NonEmptyReadonlyArray<MessageRow>
  ) => Effect.Effect<void, ConversationNotFound | MessageExists | ConversationStoreError>
  readonly message: (id: string) => Effect.Effect<Option.Option<MessageRow>, ConversationStoreError>
  readonly messages: (query: MessageQuery) => Effect.Effect<ReadonlyArray<StoredMessage>, ConversationStoreError>
  /** False where there was none. */
  readonly deleteMessage: (id: string) => Effect.Effect<boolean, ConversationStoreError>
  /** How many there were. */
  readonly deleteMessages: (conversationId: string) => Effect.Effect<number, ConversationStoreError>
  readonly countMessages: (conversationId: string) => Effect.Effect<number, ConversationStoreError>
  readonly usage: (conversationId: string) => Effect.Effect<UsageRow, ConversationStoreError>
}

/**
 * The conversations that are kept in this store.
 *
 * @since 0.1.0
 * @category constructors
 */
export const makeConversations: (store: ConversationStore) => Context.Tag.Service<Conversations> = internal.make
