/**
 * Any sequence of operations gives the answers of a model that is as simple as can be.
 */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as FastCheck from "effect/FastCheck"
import * as Option from "effect/Option"
import type { Conversation, ConversationMessage, ConversationPatch, Role, TokenUsage } from "../../Conversation.js"
import type { ConversationError } from "../../ConversationError.js"
import type { ListOptions, MessageOptions } from "../../Conversations.js"
import { Conversations } from "../../Conversations.js"
import type { It } from "./support.js"
import { collect, fresh } from "./support.js"
import { arbitraryMetadata, arbitraryText, arbitraryToolCalls } from "./texts.js"

type Operation =
  | { readonly _tag: "create"; readonly conversation: Conversation }
  | { readonly _tag: "get"; readonly id: string }
  | { readonly _tag: "update"; readonly id: string; readonly patch: ConversationPatch }
  | { readonly _tag: "delete"; readonly id: string }
  | { readonly _tag: "list"; readonly userId: string; readonly options: ListOptions }
  | { readonly _tag: "store"; readonly message: ConversationMessage }
  | { readonly _tag: "storeAll"; readonly messages: ReadonlyArray<ConversationMessage> }
  | { readonly _tag: "message"; readonly id: string }
  | { readonly _tag: "messages"; readonly id: string; readonly options: MessageOptions }
  | { readonly _tag: "stream"; readonly id: string; readonly options: MessageOptions }
  | { readonly _tag: "deleteMessage"; readonly id: string }
  | { readonly _tag: "deleteMessages"; readonly id: string }
  | { readonly _tag: "count"; readonly id: string }
  | { readonly _tag: "usage"; readonly id: string }

/** An answer, or the error and the id that it names. */
type Answer = { readonly value: unknown } | { readonly error: string; readonly id: string }

const value = (value: unknown): Answer => ({ value })

class Model {
  // In the order in which they were stored.
  conversations: ReadonlyArray<Conversation> = []
  messages: ReadonlyArray<ConversationMessage> = []

  private find(id: string): Conversation | undefined {
    return this.conversations.find((conversation) => conversation.id === id)
  }

  private replace(changed: Conversation): void {
    this.conversations = this.conversations.map((conversation) =>
      conversation.id === changed.id ? changed : conversation
    )
  }

  private store(messages: ReadonlyArray<ConversationMessage>, answer: unknown): Answer {
    for (const { conversationId } of messages) {
      if (this.find(conversationId) === undefined) {
        return { error: "ConversationNotFound", id: conversationId }
      }
    }
    const stored = [...this.messages]
    for (const message of messages) {
      if (stored.some(({ id }) => id === message.id)) {
        return { error: "MessageExists", id: message.id }
      }
      stored.push(message)
    }
    this.messages = stored
    for (const { conversationId, timestamp } of messages) {
      const conversation = this.find(conversationId)
      if (conversation !== undefined && timestamp > conversation.lastActivity) {
        this.replace({ ...conversation, lastActivity: timestamp })
      }
    }
    return value(answer)
  }

  private history(id: string, options: MessageOptions): ReadonlyArray<ConversationMessage> {
    const { limit, offset = 0, order = "asc", roles = [], since = -Infinity, until = Infinity } = options
    const matching = this.messages
      .filter(({ conversationId, role, timestamp }) => {
        const hasRole = roles.length === 0 || roles.includes(role)
        return conversationId === id && hasRole && timestamp >= since && timestamp <= until
      })
      .toSorted((a, b) => a.timestamp - b.timestamp)
    const sorted = order === "asc" ? matching : matching.toReversed()
    return sorted.slice(offset).slice(0, limit)
  }

  private usage(id: string): TokenUsage {
    const usages = this.messages.flatMap((message) =>
      message.conversationId === id && message.usage !== undefined ? [message.usage] : []
    )
    const sum = (field: keyof TokenUsage) => usages.reduce((total, usage) => total + (usage[field] ?? 0), 0)
    const reported = (field: keyof TokenUsage) =>
      usages.some((usage) => usage[field] !== undefined) ? { [field]: sum(field) } : {}
    return {
      promptTokens: sum("promptTokens"),
      completionTokens: sum("completionTokens"),
      totalTokens: sum("totalTokens"),
      ...reported("cacheReadTokens"),
      ...reported("cacheCreationTokens")
    }
  }

  apply(operation: Operation): Answer {
    switch (operation._tag) {
      case "create": {
        const { conversation } = operation
        if (this.find(conversation.id) !== undefined) {
          return { error: "ConversationExists", id: conversation.id }
        }
        this.conversations = [...this.conversations, conversation]
        return value(conversation)
      }
      case "get":
        return value(this.find(operation.id))
      case "update": {
        const found = this.find(operation.id)
        if (found === undefined) {
          return { error: "ConversationNotFound", id: operation.id }
        }
        const fields = Object.entries({ ...found, ...operation.patch }).filter(([, field]) => field !== undefined)
        // The fields of a conversation, some of them of the patch.
        const changed = Object.fromEntries(fields) as unknown as Conversation
        this.replace(changed)
        return value(changed)
      }
      case "delete": {
        const existed = this.find(operation.id) !== undefined
        this.conversations = this.conversations.filter(({ id }) => id !== operation.id)
        this.messages = this.messages.filter(({ conversationId }) => conversationId !== operation.id)
        return value(existed)
      }
      case "list": {
        const { agentId, limit, offset = 0 } = operation.options
        const listed = this.conversations
          .filter((it) => it.userId === operation.userId && (agentId === undefined || it.agentId === agentId))
          .toReversed()
          .toSorted((a, b) => b.lastActivity - a.lastActivity || b.createdAt - a.createdAt)
        return value(listed.slice(offset).slice(0, limit))
      }
      case "store":
        return this.store([operation.message], operation.message)
      case "storeAll":
        return this.store(operation.messages, operation.messages)
      case "message":
        return value(this.messages.find(({ id }) => id === operation.id))
      case "messages":
      case "stream":
        return value(this.history(operation.id, operation.options))
      case "deleteMessage": {
        const before = this.messages.length
        this.messages = this.messages.filter(({ id }) => id !== operation.id)
        return value(this.messages.length < before)
      }
      case "deleteMessages": {
        const before = this.messages.length
        this.messages = this.messages.filter(({ conversationId }) => conversationId !== operation.id)
        return value(before - this.messages.length)
      }
      case "count":
        return value(this.messages.filter(({ conversationId }) => conversationId === operation.id).length)
      case "usage":
        return value(this.usage(operation.id))
    }
  }
}

const ask = (operation: Operation): Effect.Effect<unknown, ConversationError, Conversations> =>
  Effect.flatMap(Conversations, (conversations): Effect.Effect<unknown, ConversationError> => {
    switch (operation._tag) {
      case "create":
        return conversations.createConversation(operation.conversation)
      case "get":
        return Effect.map(conversations.getConversation(operation.id), Option.getOrUndefined)
      case "update":
        return conversations.updateConversation(operation.id, operation.patch)
      case "delete":
        return conversations.deleteConversation(operation.id)
      case "list":
        return conversations.listConversations(operation.userId, operation.options)
      case "store":
        return conversations.storeMessage(operation.message)
      case "storeAll":
        return conversations.storeMessages(operation.messages)
      case "message":
        return Effect.map(conversations.getMessage(operation.id), Option.getOrUndefined)
      case "messages":
        return conversations.getMessages(operation.id, operation.options)
      case "stream":
        return collect(conversations.streamMessages(operation.id, operation.options))
      case "deleteMessage":
        return conversations.deleteMessage(operation.id)
      case "deleteMessages":
        return conversations.deleteMessagesForConversation(operation.id)
      case "count":
        return conversations.getMessageCount(operation.id)
      case "usage":
        return conversations.getConversationTokenUsage(operation.id)
    }
  })

const answerOf = (operation: Operation): Effect.Effect<Answer, ConversationError, Conversations> =>
  Effect.catchTags(Effect.map(ask(operation), value), {
    ConversationExists: (error) => Effect.succeed({ error: error._tag, id: error.conversationId }),
    ConversationNotFound: (error) => Effect.succeed({ error: error._tag, id: error.conversationId }),
    MessageExists: (error) => Effect.succeed({ error: error._tag, id: error.messageId })
  })

/** Few ids, so that operations meet; some of them awkward. */
const conversationIds = ["c1", "c2\0", "C1"] as const
const messageIds = ["m1", "m2", "m3", "m4", "\ud83d5", "m6"] as const
const userIds = ["u1", "u2"] as const
const agentIds = ["a1", "a2"] as const

const optional = <A>(arbitrary: FastCheck.Arbitrary<A>) => FastCheck.option(arbitrary, { nil: undefined, freq: 2 })

const time = FastCheck.oneof(
  { weight: 5, arbitrary: FastCheck.integer({ min: -2, max: 6 }) },
  { weight: 1, arbitrary: FastCheck.maxSafeInteger() }
)
const tokens = FastCheck.nat({ max: 1_000 })

const conversationId = FastCheck.constantFrom(...conversationIds)
const messageId = FastCheck.constantFrom(...messageIds)
const userId = FastCheck.constantFrom(...userIds)
const agentId = FastCheck.constantFrom(...agentIds)
const role = FastCheck.constantFrom<Role>("user", "assistant", "system", "tool")

/** Without the fields that are undefined: what is stored does not have them. */
const compact = <A extends object>(fields: A): A =>
  // Fewer of the same fields, all of them optional.
  Object.fromEntries(Object.entries(fields).filter(([, field]) => field !== undefined)) as A

const conversation: FastCheck.Arbitrary<Conversation> = FastCheck.record({
  id: conversationId,
  userId,
  agentId: optional(agentId),
  title: optional(arbitraryText),
  createdAt: time,
  lastActivity: time,
  metadata: optional(arbitraryMetadata)
}).map(compact)

const patch: FastCheck.Arbitrary<ConversationPatch> = FastCheck.record(
  {
    userId,
    agentId: optional(agentId),
    title: optional(arbitraryText),
    createdAt: time,
    lastActivity: time,
    metadata: optional(arbitraryMetadata)
  },
  { requiredKeys: [] }
)

const message: FastCheck.Arbitrary<ConversationMessage> = FastCheck.record({
  id: messageId,
  conversationId,
  role,
  content: arbitraryText,
  timestamp: time,
  model: optional(arbitraryText),
  usage: optional(
    FastCheck.record({
      promptTokens: tokens,
      completionTokens: tokens,
      totalTokens: tokens,
      cacheReadTokens: optional(tokens),
      cacheCreationTokens: optional(tokens)
    }).map(compact)
  ),
  toolCalls: optional(arbitraryToolCalls),
  toolCallId: optional(arbitraryText),
  name: optional(arbitraryText),
  metadata: optional(arbitraryMetadata)
}).map(compact)

const page = { limit: optional(FastCheck.nat({ max: 4 })), offset: optional(FastCheck.nat({ max: 3 })) }

const options: FastCheck.Arbitrary<MessageOptions> = FastCheck.record({
  ...page,
  since: optional(FastCheck.oneof(time, FastCheck.constant(2.5))),
  until: optional(FastCheck.oneof(time, FastCheck.constant(2.5))),
  roles: optional(FastCheck.array(role, { maxLength: 3 })),
  order: optional(FastCheck.constantFrom("asc", "desc"))
})

const tagged = <Tag extends string, A extends object>(
  _tag: Tag,
  fields: { [K in keyof A]: FastCheck.Arbitrary<A[K]> }
) => FastCheck.record(fields).map((given) => ({ _tag, ...given }))

const operation: FastCheck.Arbitrary<Operation> = FastCheck.oneof(
  { weight: 4, arbitrary: tagged("create", { conversation }) },
  { weight: 1, arbitrary: tagged("get", { id: conversationId }) },
  { weight: 2, arbitrary: tagged("update", { id: conversationId, patch }) },
  { weight: 1, arbitrary: tagged("delete", { id: conversationId }) },
  {
    weight: 2,
    arbitrary: tagged("list", { userId, options: FastCheck.record({ ...page, agentId: optional(agentId) }) })
  },
  { weight: 6, arbitrary: tagged("store", { message }) },
  { weight: 3, arbitrary: tagged("storeAll", { messages: FastCheck.array(message, { maxLength: 5 }) }) },
  { weight: 1, arbitrary: tagged("message", { id: messageId }) },
  { weight: 4, arbitrary: tagged("messages", { id: conversationId, options }) },
  { weight: 2, arbitrary: tagged("stream", { id: conversationId, options }) },
  { weight: 1, arbitrary: tagged("deleteMessage", { id: messageId }) },
  { weight: 1, arbitrary: tagged("deleteMessages", { id: conversationId }) },
  { weight: 1, arbitrary: tagged("count", { id: conversationId }) },
  { weight: 2, arbitrary: tagged("usage", { id: conversationId }) }
)

const ids: ReadonlySet<unknown> = new Set<unknown>([...conversationIds, ...messageIds, ...userIds, ...agentIds])

const idFields: ReadonlySet<string> = new Set(["id", "conversationId", "userId", "agentId"])

/** The same operation on ids of its own: a database may hold something already. */
const scoped = <A>(prefix: string, value: A): A => {
  if (Array.isArray(value)) {
    // Each item becomes one of the same type.
    return value.map((item) => scoped(prefix, item)) as A
  }
  if (typeof value === "object" && value !== null) {
    return Object.fromEntries(
      Object.entries(value).map(([key, field]) => [
        key,
        key === "metadata" || key === "toolCalls"
          ? field
          : idFields.has(key) && ids.has(field)
            ? prefix + String(field)
            : scoped(prefix, field)
      ])
    ) as A
  }
  return value
}

/** What an operation leaves behind, seen through every way there is to look at it. */
const everything: ReadonlyArray<Operation> = [
  ...conversationIds.flatMap(
    (id): ReadonlyArray<Operation> => [
      { _tag: "get", id },
      { _tag: "messages", id, options: {} },
      { _tag: "stream", id, options: { order: "desc" } },
      { _tag: "count", id },
      { _tag: "usage", id }
    ]
  ),
  ...userIds.map((userId): Operation => ({ _tag: "list", userId, options: {} })),
  ...messageIds.map((id): Operation => ({ _tag: "message", id }))
]

export const modelled = (it: It): void => {
  it.effect.prop(
    "any sequence of operations gives the answers of a simple model",
    [FastCheck.array(operation, { minLength: 5, maxLength: 40, size: "max" })],
    ([operations]) =>
      Effect.gen(function* () {
        const model = new Model()
        const prefix = yield* fresh("model")
        for (const given of [...operations, ...everything]) {
          const operation = scoped(prefix, given)
          assert.deepStrictEqual(yield* answerOf(operation), model.apply(operation), JSON.stringify(operation))
        }
      }),
    { timeout: 120_000, fastCheck: { numRuns: 60 } }
  )
}
