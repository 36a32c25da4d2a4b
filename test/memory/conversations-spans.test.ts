import { assert, it } from "@effect/vitest"
import { Conversations } from "@sandglass/memory"
import { SqliteConversations } from "@sandglass/sql-sqlite"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import * as Spans from "../support/Spans.js"

it.effect("each operation opens one span, with the conversation's id and without what is said in it", () =>
  Effect.gen(function* () {
    const conversations = yield* Conversations.Conversations
    const id = "c-1"
    const message = {
      id: "m-1",
      conversationId: id,
      role: "user" as const,
      content: "a secret",
      timestamp: 1,
      metadata: { also: "a secret" }
    }
    const { spans, text } = yield* Spans.record(
      Effect.gen(function* () {
        yield* conversations.createConversation({ id, userId: "u-1", title: "a secret", createdAt: 1, lastActivity: 1 })
        yield* conversations.getConversation(id)
        yield* conversations.updateConversation(id, { metadata: { more: "a secret" } })
        yield* conversations.listConversations("u-1")
        yield* conversations.storeMessage(message)
        yield* Effect.flip(conversations.storeMessages([{ ...message, id: "m-2" }, message]))
        yield* conversations.getMessage("m-1")
        yield* conversations.getMessages(id)
        yield* Stream.runDrain(conversations.streamMessages(id))
        yield* conversations.getMessageCount(id)
        yield* conversations.getConversationTokenUsage(id)
        yield* conversations.deleteMessage("m-1")
        yield* conversations.deleteMessagesForConversation(id)
        yield* conversations.deleteConversation(id)
      })
    )
    const ours = spans.filter(({ name }) => name.startsWith("Conversations."))
    assert.deepStrictEqual(
      ours.map(({ attributes, name }) => [name.slice("Conversations.".length), ...attributes.values()]),
      [
        ["createConversation", id],
        ["getConversation", id],
        ["updateConversation", id],
        ["listConversations"],
        ["storeMessage", id],
        ["storeMessages", 2],
        ["getMessage"],
        ["getMessages", id],
        ["streamMessages", id],
        ["getMessageCount", id],
        ["getConversationTokenUsage", id],
        ["deleteMessage"],
        ["deleteMessagesForConversation", id],
        ["deleteConversation", id]
      ]
    )
    assert.notInclude(text, "a secret")
  }).pipe(Effect.provide(SqliteConversations.layer({ filename: ":memory:" })))
)
