/**
 * A store of conversations and their messages.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Option from "effect/Option"
import type * as Stream from "effect/Stream"
import type { Conversation, ConversationMessage, ConversationPatch, Role, TokenUsage } from "./Conversation.js"
import type {
  ConversationExists,
  ConversationNotFound,
  ConversationStoreError,
  MessageExists
} from "./ConversationError.js"
import { makeConversations } from "./ConversationStore.js"
import * as Memory from "./internal/conversations/memory.js"
import type { InvalidInput } from "./MemoryError.js"

/**
 * @since 0.1.0
 * @category models
 */
export interface ListOptions {
  /** Only those with this agent. */
  readonly agentId?: string | undefined
  /** At most so many; `0` is an empty page. Default: all. */
  readonly limit?: number | undefined
  /** How many to leave out at the beginning. Default: 0. */
  readonly offset?: number | undefined
}

/**
 * Which messages: those that match `since`, `until` and `roles`, sorted, then without the first `offset`, then at most
 * `limit`.
 *
 * @since 0.1.0
 * @category models
 */
export interface MessageOptions {
  /** At most so many; `0` is an empty page. Default: all. */
  readonly limit?: number | undefined
  /** How many to leave out at the beginning. Default: 0. */
  readonly offset?: number | undefined
  /** From this time on, in epoch milliseconds, it included. */
  readonly since?: number | undefined
  /** Up to this time, in epoch milliseconds, it included. */
  readonly until?: number | undefined
  /** Only of these roles. None given, or an empty list: of all. */
  readonly roles?: ReadonlyArray<Role> | undefined
  /** `asc` (default): oldest first, those of one `timestamp` in the order they were stored in. `desc`: its mirror. */
  readonly order?: "asc" | "desc" | undefined
}

/**
 * Conversations and their messages. What is stored reads back equal; fields that are absent stay absent.
 *
 * A method does not look at whose conversation it is given: `userId` is a field to list by, not an access check.
 *
 * @example
 * ```ts
 * import { Conversations } from "@sandglass/memory"
 * import { Effect } from "effect"
 *
 * const program = Effect.gen(function* () {
 *   const conversations = yield* Conversations.Conversations
 *   yield* conversations.createConversation({ id: "c-1", userId: "ada", createdAt: 1000, lastActivity: 1000 })
 *   yield* conversations.storeMessages([
 *     { id: "m-1", conversationId: "c-1", role: "user", content: "What is 6 × 7?", timestamp: 1000 },
 *     {
 *       id: "m-2",
 *       conversationId: "c-1",
 *       role: "assistant",
 *       content: "42",
 *       timestamp: 2000,
 *       usage: { promptTokens: 12, completionTokens: 1, totalTokens: 13 }
 *     }
 *   ])
 *   const newest = yield* conversations.getMessages("c-1", { order: "desc", limit: 1 })
 *   const usage = yield* conversations.getConversationTokenUsage("c-1")
 *   return { newest, usage }
 * }).pipe(Effect.provide(Conversations.layerMemory))
 * ```
 *
 * @since 0.1.0
 * @category services
 */
export class Conversations extends Context.Tag("@sandglass/memory/Conversations")<
  Conversations,
  {
    /** Stores a new conversation and returns it. A taken id is `ConversationExists`; what is stored there stays. */
    readonly createConversation: (
      conversation: Conversation
    ) => Effect.Effect<Conversation, ConversationExists | InvalidInput | ConversationStoreError>
    readonly getConversation: (
      id: string
    ) => Effect.Effect<Option.Option<Conversation>, InvalidInput | ConversationStoreError>
    /**
     * Changes the fields that are given, in one step, and returns the whole conversation: of two patches of different
     * fields at once both stand. The `id` cannot be changed.
     */
    readonly updateConversation: (
      id: string,
      patch: ConversationPatch
    ) => Effect.Effect<Conversation, ConversationNotFound | InvalidInput | ConversationStoreError>
    /** Deletes a conversation and its messages, together or not at all; true if there was one. */
    readonly deleteConversation: (id: string) => Effect.Effect<boolean, InvalidInput | ConversationStoreError>
    /** A user's, newest `lastActivity` first; where that is equal, the newest created first. */
    readonly listConversations: (
      userId: string,
      options?: ListOptions
    ) => Effect.Effect<ReadonlyArray<Conversation>, InvalidInput | ConversationStoreError>
    /**
     * Stores a new message and returns it, and moves its conversation's `lastActivity` to its `timestamp` where that is
     * later. A missing conversation is told before a taken id. Where it fails nothing is changed.
     */
    readonly storeMessage: (
      message: ConversationMessage
    ) => Effect.Effect<
      ConversationMessage,
      ConversationNotFound | MessageExists | InvalidInput | ConversationStoreError
    >
    /** The same for many, of one conversation or of several: all of them, or none. */
    readonly storeMessages: (
      messages: ReadonlyArray<ConversationMessage>
    ) => Effect.Effect<
      ReadonlyArray<ConversationMessage>,
      ConversationNotFound | MessageExists | InvalidInput | ConversationStoreError
    >
    readonly getMessage: (
      id: string
    ) => Effect.Effect<Option.Option<ConversationMessage>, InvalidInput | ConversationStoreError>
    /** As they are at one moment. Of an unknown conversation there are none. For very many, `streamMessages`. */
    readonly getMessages: (
      conversationId: string,
      options?: MessageOptions
    ) => Effect.Effect<ReadonlyArray<ConversationMessage>, InvalidInput | ConversationStoreError>
    /** The same as a stream, read page by page as it is consumed: a conversation need not fit in memory. */
    readonly streamMessages: (
      conversationId: string,
      options?: MessageOptions
    ) => Stream.Stream<ConversationMessage, InvalidInput | ConversationStoreError>
    /** True if there was one. `lastActivity` stays. */
    readonly deleteMessage: (id: string) => Effect.Effect<boolean, InvalidInput | ConversationStoreError>
    /** Deletes the messages and returns how many there were. The conversation stays, and its `lastActivity`. */
    readonly deleteMessagesForConversation: (id: string) => Effect.Effect<number, InvalidInput | ConversationStoreError>
    /** 0 for an unknown conversation. */
    readonly getMessageCount: (id: string) => Effect.Effect<number, InvalidInput | ConversationStoreError>
    /**
     * The sums over a conversation's messages, computed by the database. A cache field is present where some message
     * reported it.
     */
    readonly getConversationTokenUsage: (id: string) => Effect.Effect<TokenUsage, InvalidInput | ConversationStoreError>
  }
>() {}

/**
 * Conversations in memory, gone with the Layer: for tests.
 *
 * @since 0.1.0
 * @category layers
 */
export const layerMemory: Layer.Layer<Conversations> = Layer.sync(Conversations, () => makeConversations(Memory.make()))
