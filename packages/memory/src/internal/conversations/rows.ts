/**
 * From stored rows to what they stand for. Absent fields are left out; assigned one by one, because this runs for every
 * row.
 */
import type { Json } from "@sandglass/core/LedgerEvent"
import * as StoredText from "@sandglass/core/StoredText"
import type { Conversation, ConversationMessage, TokenUsage } from "../../Conversation.js"
import type { ConversationRow, MessageRow, UsageRow } from "../../ConversationStore.js"

type Mutable<A> = { -readonly [K in keyof A]: A[K] }

type Object = { readonly [key: string]: Json }

const isObject = (value: Json): value is Object => typeof value === "object" && value !== null && !isArray(value)

const isArray = (value: Json): value is ReadonlyArray<Json> => Array.isArray(value)

/** What another program put there in the place of an object, or of an array, is kept in one. */
const decodeObject = (stored: string): Object => {
  const value = StoredText.decodeJson(stored)
  return isObject(value) ? value : { value }
}

const decodeArray = (stored: string): ReadonlyArray<Json> => {
  const value = StoredText.decodeJson(stored)
  return isArray(value) ? value : [value]
}

/** `metadata` is given where its value is at hand, and otherwise read from the row. */
export const toConversation = (row: ConversationRow, metadata?: Object): Conversation => {
  const conversation: Mutable<Conversation> = {
    id: StoredText.decode(row.id),
    userId: StoredText.decode(row.userId),
    createdAt: row.createdAt,
    lastActivity: row.lastActivity
  }
  if (row.agentId !== null) {
    conversation.agentId = StoredText.decode(row.agentId)
  }
  if (row.title !== null) {
    conversation.title = StoredText.decode(row.title)
  }
  if (row.metadata !== null) {
    conversation.metadata = metadata ?? decodeObject(row.metadata)
  }
  return conversation
}

const withCache = (usage: Mutable<TokenUsage>, row: Pick<UsageRow, "cacheReadTokens" | "cacheCreationTokens">) => {
  if (row.cacheReadTokens !== null) {
    usage.cacheReadTokens = row.cacheReadTokens
  }
  if (row.cacheCreationTokens !== null) {
    usage.cacheCreationTokens = row.cacheCreationTokens
  }
  return usage
}

export const toUsage = (row: UsageRow): TokenUsage =>
  withCache(
    {
      promptTokens: row.promptTokens,
      completionTokens: row.completionTokens,
      totalTokens: row.totalTokens
    },
    row
  )

/** `toolCalls` and `metadata` are given where their values are at hand, and otherwise read from the row. */
export const toMessage = (row: MessageRow, toolCalls?: ReadonlyArray<Json>, metadata?: Object): ConversationMessage => {
  const message: Mutable<ConversationMessage> = {
    id: StoredText.decode(row.id),
    conversationId: StoredText.decode(row.conversationId),
    role: row.role,
    content: StoredText.decode(row.content),
    timestamp: row.timestamp
  }
  if (row.model !== null) {
    message.model = StoredText.decode(row.model)
  }
  if (row.totalTokens !== null) {
    message.usage = withCache(
      {
        promptTokens: row.promptTokens ?? 0,
        completionTokens: row.completionTokens ?? 0,
        totalTokens: row.totalTokens
      },
      row
    )
  }
  if (row.toolCalls !== null) {
    message.toolCalls = toolCalls ?? decodeArray(row.toolCalls)
  }
  if (row.toolCallId !== null) {
    message.toolCallId = StoredText.decode(row.toolCallId)
  }
  if (row.name !== null) {
    message.name = StoredText.decode(row.name)
  }
  if (row.metadata !== null) {
    message.metadata = metadata ?? decodeObject(row.metadata)
  }
  return message
}
