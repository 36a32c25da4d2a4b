/**
 * A store in memory.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { ConversationExists, ConversationNotFound, MessageExists } from "../../ConversationError.js"
import type {
  ConversationRow,
  ConversationStore,
  MessageQuery,
  MessageRow,
  Place,
  StoredMessage,
  UsageRow
} from "../../ConversationStore.js"

interface Entry {
  row: ConversationRow
  /** Grows with every conversation that is created. */
  readonly seq: number
  /** In `(timestamp, seq)` order. */
  readonly messages: Array<StoredMessage>
}

/** How many messages come before the first for which `reached` holds. */
const countBefore = (messages: ReadonlyArray<StoredMessage>, reached: (message: StoredMessage) => boolean): number => {
  let low = 0
  let high = messages.length
  while (low < high) {
    const middle = (low + high) >>> 1
    const message = messages[middle]
    if (message !== undefined && !reached(message)) {
      low = middle + 1
    } else {
      high = middle
    }
  }
  return low
}

const compare = (a: Place, b: Place): number => a.timestamp - b.timestamp || a.seq - b.seq

/** As many as are wanted of what a query matches, from an index on in steps of 1 or -1. */
const select = (messages: ReadonlyArray<StoredMessage>, query: MessageQuery): ReadonlyArray<StoredMessage> => {
  const { after, limit = Number.POSITIVE_INFINITY, offset, order, roles, since, until } = query
  const from = Math.max(
    since === undefined ? 0 : countBefore(messages, ({ timestamp }) => timestamp >= since),
    after === undefined || order === "desc" ? 0 : countBefore(messages, (message) => compare(message, after) > 0)
  )
  const to = Math.min(
    until === undefined ? messages.length : countBefore(messages, ({ timestamp }) => timestamp > until),
    after === undefined || order === "asc" ? messages.length : countBefore(messages, (it) => compare(it, after) >= 0)
  )
  const selected: Array<StoredMessage> = []
  let skip = offset
  const step = order === "asc" ? 1 : -1
  for (let at = order === "asc" ? from : to - 1; at >= from && at < to && selected.length < limit; at += step) {
    const message = messages[at]
    if (message === undefined || (roles !== undefined && !roles.includes(message.role))) {
      continue
    }
    if (skip > 0) {
      skip -= 1
    } else {
      selected.push(message)
    }
  }
  return selected
}

type Tokens = keyof UsageRow

/** Exact, however large the counts are; rounded once. */
const sum = (messages: ReadonlyArray<MessageRow>, field: Tokens): number | null => {
  let total: bigint | null = null
  for (const { [field]: tokens } of messages) {
    if (tokens !== null) {
      total = (total ?? 0n) + BigInt(tokens)
    }
  }
  return total === null ? null : Number(total)
}

export const make = (): ConversationStore => {
  let lastConversation = 0
  let lastMessage = 0
  const conversations = new Map<string, Entry>()
  const byUser = new Map<string, Set<Entry>>()
  const byMessage = new Map<string, StoredMessage>()

  const addToUser = (entry: Entry): void => {
    const { userId } = entry.row
    const entries = byUser.get(userId)
    if (entries === undefined) {
      byUser.set(userId, new Set([entry]))
    } else {
      entries.add(entry)
    }
  }

  const removeFromUser = (entry: Entry): void => {
    const { userId } = entry.row
    const entries = byUser.get(userId)
    entries?.delete(entry)
    if (entries?.size === 0) {
      byUser.delete(userId)
    }
  }

  const messagesOf = (conversationId: string): ReadonlyArray<StoredMessage> =>
    conversations.get(conversationId)?.messages ?? []

  const insert = (entry: Entry, row: MessageRow): void => {
    const stored: StoredMessage = { ...row, seq: ++lastMessage }
    byMessage.set(stored.id, stored)
    const { messages } = entry
    const last = messages[messages.length - 1]
    if (last === undefined || last.timestamp <= stored.timestamp) {
      messages.push(stored)
    } else {
      messages.splice(
        countBefore(messages, ({ timestamp }) => timestamp > stored.timestamp),
        0,
        stored
      )
    }
    if (stored.timestamp > entry.row.lastActivity) {
      entry.row = { ...entry.row, lastActivity: stored.timestamp }
    }
  }

  return {
    restrictedJson: false,
    insertConversation: (row) =>
      Effect.suspend(() => {
        if (conversations.has(row.id)) {
          return Effect.fail(new ConversationExists({ conversationId: row.id }))
        }
        const entry: Entry = { row, seq: ++lastConversation, messages: [] }
        conversations.set(row.id, entry)
        addToUser(entry)
        return Effect.void
      }),
    conversation: (id) => Effect.sync(() => Option.map(Option.fromNullable(conversations.get(id)), ({ row }) => row)),
    updateConversation: (id, changes) =>
      Effect.sync(() => {
        const entry = conversations.get(id)
        if (entry === undefined) {
          return Option.none()
        }
        removeFromUser(entry)
        entry.row = { ...entry.row, ...changes }
        addToUser(entry)
        return Option.some(entry.row)
      }),
    deleteConversation: (id) =>
      Effect.sync(() => {
        const entry = conversations.get(id)
        if (entry === undefined) {
          return false
        }
        for (const message of entry.messages) {
          byMessage.delete(message.id)
        }
        conversations.delete(id)
        removeFromUser(entry)
        return true
      }),
    conversations: ({ agentId, limit = Number.POSITIVE_INFINITY, offset, userId }) =>
      Effect.sync(() =>
        Array.from(byUser.get(userId) ?? [])
          .filter(({ row }) => agentId === undefined || row.agentId === agentId)
          .sort((a, b) => b.row.lastActivity - a.row.lastActivity || b.row.createdAt - a.row.createdAt || b.seq - a.seq)
          .slice(offset, offset + limit)
          .map(({ row }) => row)
      ),
    insertMessages: (rows) =>
      Effect.suspend((): Effect.Effect<void, ConversationNotFound | MessageExists> => {
        for (const { conversationId } of rows) {
          if (!conversations.has(conversationId)) {
            return Effect.fail(new ConversationNotFound({ conversationId }))
          }
        }
        const ids = new Set<string>()
        for (const { id } of rows) {
          if (ids.has(id) || byMessage.has(id)) {
            return Effect.fail(new MessageExists({ messageId: id }))
          }
          ids.add(id)
        }
        for (const row of rows) {
          const entry = conversations.get(row.conversationId)
          if (entry !== undefined) {
            insert(entry, row)
          }
        }
        return Effect.void
      }),
    message: (id) => Effect.sync(() => Option.fromNullable(byMessage.get(id))),
    messages: (query) => Effect.sync(() => select(messagesOf(query.conversationId), query)),
    deleteMessage: (id) =>
      Effect.sync(() => {
        const stored = byMessage.get(id)
        if (stored === undefined) {
          return false
        }
        const messages = conversations.get(stored.conversationId)?.messages
        messages?.splice(
          countBefore(messages, (message) => compare(message, stored) >= 0),
          1
        )
        return byMessage.delete(id)
      }),
    deleteMessages: (conversationId) =>
      Effect.sync(() => {
        const removed = conversations.get(conversationId)?.messages.splice(0) ?? []
        for (const { id } of removed) {
          byMessage.delete(id)
        }
        return removed.length
      }),
    countMessages: (conversationId) => Effect.sync(() => messagesOf(conversationId).length),
    usage: (conversationId) =>
      Effect.sync(() => {
        const messages = messagesOf(conversationId)
        return {
          promptTokens: sum(messages, "promptTokens") ?? 0,
          completionTokens: sum(messages, "completionTokens") ?? 0,
          totalTokens: sum(messages, "totalTokens") ?? 0,
          cacheReadTokens: sum(messages, "cacheReadTokens"),
          cacheCreationTokens: sum(messages, "cacheCreationTokens")
        }
      })
  }
}
