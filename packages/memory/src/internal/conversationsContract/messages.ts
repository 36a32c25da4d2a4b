/**
 * Messages: storing, deleting, counting, and what they cost.
 */
import { assert } from "@effect/vitest"
import * as Arr from "effect/Array"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import type { Conversation, ConversationMessage } from "../../Conversation.js"
import { Conversations } from "../../Conversations.js"
import type { It } from "./support.js"
import { created, failsWith, fresh, history, message, names, store } from "./support.js"

const lastActivity = ({ id }: Conversation) =>
  Effect.flatMap(Conversations, (conversations) =>
    Effect.map(conversations.getConversation(id), (found) => Option.getOrThrow(found).lastActivity)
  )

export const storing = (it: It): void => {
  it.effect("storeMessage returns what getMessage finds; absent fields stay absent", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const conversation = yield* created()
      const bare = message(conversation, "bare")
      assert.deepStrictEqual(
        yield* conversations.storeMessage({
          ...bare,
          model: undefined,
          usage: undefined,
          toolCalls: undefined,
          toolCallId: undefined,
          name: undefined,
          metadata: undefined
        }),
        bare
      )
      assert.deepStrictEqual(yield* conversations.getMessage(bare.id), Option.some(bare))
      const full: ConversationMessage = {
        ...message(conversation, "full"),
        role: "assistant",
        content: "",
        model: "m",
        usage: { promptTokens: 1, completionTokens: 2, totalTokens: 4, cacheReadTokens: 0, cacheCreationTokens: 5 },
        toolCalls: [{ id: "call-1", function: { name: "search", arguments: '{"q":"x"}' } }, "text", null, 1, []],
        toolCallId: "call-0",
        name: "search",
        metadata: { finish: "stop", nested: { list: [1, { a: null }] } }
      }
      assert.deepStrictEqual(yield* conversations.storeMessage(full), full)
      assert.deepStrictEqual(yield* conversations.getMessage(full.id), Option.some(full))
      assert.deepStrictEqual(yield* history(conversation), [bare, full])
    })
  )

  it.effect("empty values are values", () =>
    Effect.gen(function* () {
      const conversation = yield* created()
      const zero = { promptTokens: 0, completionTokens: 0, totalTokens: 0 }
      const variants: ReadonlyArray<Partial<ConversationMessage>> = [
        { content: "", model: "", toolCallId: "", name: "" },
        { toolCalls: [], metadata: {} },
        { usage: zero },
        { usage: { ...zero, cacheReadTokens: 0 } },
        { usage: { ...zero, cacheCreationTokens: 0 } },
        { usage: { ...zero, cacheReadTokens: 7, cacheCreationTokens: 0 } }
      ]
      const messages = variants.map((fields, n) => message(conversation, n, fields))
      assert.deepStrictEqual(yield* store(messages), messages)
      assert.deepStrictEqual(yield* history(conversation), messages)
    })
  )

  it.effect("every role, and any time", () =>
    Effect.gen(function* () {
      const conversation = yield* created()
      const times = [
        Number.MIN_SAFE_INTEGER,
        -1,
        0,
        1,
        1_767_225_600_000,
        8_640_000_000_000_000,
        Number.MAX_SAFE_INTEGER
      ]
      const roles = ["user", "assistant", "system", "tool"] as const
      const messages = times.map((timestamp, n) =>
        message(conversation, n, { timestamp, role: roles[n % roles.length] ?? "user" })
      )
      yield* store([...messages].reverse())
      assert.deepStrictEqual(yield* history(conversation), messages)
      assert.strictEqual(yield* lastActivity(conversation), Number.MAX_SAFE_INTEGER)
    })
  )

  it.effect("lastActivity becomes the later of its own and the message's", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const conversation = yield* created({ lastActivity: 1_000 })
      for (const [timestamp, expected] of [
        [500, 1_000],
        [1_000, 1_000],
        [3_000, 3_000],
        [2_000, 3_000]
      ] as const) {
        yield* conversations.storeMessage(message(conversation, timestamp))
        assert.strictEqual(yield* lastActivity(conversation), expected)
      }
      yield* store([message(conversation, 4_000), message(conversation, 9_000), message(conversation, 5_000)])
      assert.strictEqual(yield* lastActivity(conversation), 9_000)
    })
  )

  it.effect("a missing conversation is told before a taken id, and nothing is changed", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const conversation = yield* created()
      const other = yield* created()
      const stored = message(conversation, 2_000)
      yield* conversations.storeMessage(stored)
      const missing = { id: yield* fresh("unknown") }
      const nowhere = yield* failsWith(
        "ConversationNotFound",
        conversations.storeMessage({ ...stored, conversationId: missing.id })
      )
      assert.deepInclude(nowhere, { conversationId: missing.id })
      // Ids are unique over all conversations.
      for (const { id } of [conversation, other]) {
        const taken = yield* failsWith(
          "MessageExists",
          conversations.storeMessage({ ...stored, conversationId: id, content: "another", timestamp: 9_000 })
        )
        assert.deepInclude(taken, { messageId: stored.id })
      }
      assert.deepStrictEqual(yield* conversations.getMessage(stored.id), Option.some(stored))
      assert.deepStrictEqual(yield* history(conversation), [stored])
      assert.deepStrictEqual(yield* history(other), [])
      assert.strictEqual(yield* lastActivity(conversation), 2_000)
      assert.strictEqual(yield* lastActivity(other), 1_000)
    })
  )

  it.effect("storeMessages stores all or nothing, over several conversations", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const a = yield* created()
      const b = yield* created()
      assert.deepStrictEqual(yield* store([]), [])
      const messages = Arr.makeBy(700, (n) => message(n % 3 === 0 ? a : b, n))
      assert.deepStrictEqual(yield* store(messages), messages)
      assert.strictEqual(yield* conversations.getMessageCount(a.id), 234)
      assert.strictEqual(yield* conversations.getMessageCount(b.id), 466)
      assert.strictEqual(yield* lastActivity(a), 1_000)

      const more = Arr.makeBy(400, (n) => message(a, 5_000 + n))
      const missing = { id: yield* fresh("unknown") }
      const repeated = message(a, 5_300)
      for (const [batch, tag, id] of [
        [[...more, message(missing, 1), message(b, 1)], "ConversationNotFound", missing.id],
        [[message(b, 1), message(missing, 1)], "ConversationNotFound", missing.id],
        [[...more, message(b, 1), message(b, 2)], "MessageExists", message(b, 1).id],
        [[...more, repeated], "MessageExists", repeated.id],
        [[message(a, "x"), message(b, "y"), message(b, "y"), message(b, 2)], "MessageExists", message(b, "y").id]
      ] as const) {
        const error = yield* failsWith(tag, store(batch))
        assert.strictEqual(
          "messageId" in error ? error.messageId : "conversationId" in error ? error.conversationId : "",
          id
        )
        assert.strictEqual(yield* conversations.getMessageCount(a.id), 234)
        assert.strictEqual(yield* conversations.getMessageCount(b.id), 466)
        assert.strictEqual(yield* lastActivity(a), 1_000)
        assert.deepStrictEqual(yield* conversations.getMessage(message(a, "x").id), Option.none())
      }
      yield* store(more)
      assert.strictEqual(yield* lastActivity(a), 5_399)
    })
  )

  it.effect("of concurrent stores of one id exactly one succeeds; no message is lost", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const conversation = yield* created()
      const results = yield* Effect.forEach(
        Arr.range(1, 12),
        (n) =>
          Effect.either(conversations.storeMessages([message(conversation, 5_000 + n), message(conversation, n % 4)])),
        { concurrency: "unbounded" }
      )
      assert.strictEqual(results.filter(Either.isRight).length, 4)
      const messages = yield* history(conversation)
      assert.strictEqual(messages.length, 8)
      assert.strictEqual(yield* conversations.getMessageCount(conversation.id), 8)
      assert.strictEqual(yield* lastActivity(conversation), Math.max(...messages.map(({ timestamp }) => timestamp)))
    })
  )

  it.effect("what is read is a copy", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const conversation = yield* created()
      const toolCalls: Array<string> = ["a"]
      const { id } = yield* conversations.storeMessage(message(conversation, 1, { toolCalls }))
      toolCalls.push("b")
      const found = Option.getOrThrow(yield* conversations.getMessage(id))
      assert.deepStrictEqual(found.toolCalls, ["a"])
      Reflect.set(Object(found.toolCalls), 0, "changed")
      assert.deepStrictEqual(Option.getOrThrow(yield* conversations.getMessage(id)).toolCalls, ["a"])
    })
  )
}

export const removing = (it: It): void => {
  it.effect("deleteMessage removes one; lastActivity stays, and the id is free again", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const conversation = yield* created()
      yield* store(Arr.makeBy(3, (n) => message(conversation, 2_000 + n)))
      const { id } = message(conversation, 2_002)
      assert.isTrue(yield* conversations.deleteMessage(id))
      assert.isFalse(yield* conversations.deleteMessage(id))
      assert.isFalse(yield* conversations.deleteMessage(""))
      assert.deepStrictEqual(names(yield* history(conversation)), ["2000", "2001"])
      assert.deepStrictEqual(yield* conversations.getMessage(id), Option.none())
      assert.strictEqual(yield* conversations.getMessageCount(conversation.id), 2)
      assert.strictEqual(yield* lastActivity(conversation), 2_002)
      yield* conversations.storeMessage(message(conversation, 2_002, { timestamp: 1 }))
      assert.deepStrictEqual(names(yield* history(conversation)), ["2002", "2000", "2001"])
    })
  )

  it.effect("deleteMessagesForConversation tells how many; the conversation stays, and so do others' messages", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const conversation = yield* created({ title: "t" })
      const other = yield* created()
      yield* store(Arr.makeBy(301, (n) => message(conversation, 2_000 + n)))
      yield* store([message(other, 1)])
      assert.strictEqual(yield* conversations.deleteMessagesForConversation(conversation.id), 301)
      assert.strictEqual(yield* conversations.deleteMessagesForConversation(conversation.id), 0)
      assert.strictEqual(yield* conversations.deleteMessagesForConversation(yield* fresh("unknown")), 0)
      assert.deepStrictEqual(yield* history(conversation), [])
      assert.deepStrictEqual(
        yield* conversations.getConversation(conversation.id),
        Option.some({ ...conversation, lastActivity: 2_300 })
      )
      assert.strictEqual(yield* conversations.getMessageCount(other.id), 1)
      yield* conversations.storeMessage(message(conversation, 2_000))
      assert.strictEqual(yield* conversations.getMessageCount(conversation.id), 1)
    })
  )
}

export const counting = (it: It): void => {
  const zero = { promptTokens: 0, completionTokens: 0, totalTokens: 0 }

  it.effect("getMessageCount and token sums are 0 for what is unknown or empty", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const conversation = yield* created()
      for (const id of [conversation.id, yield* fresh("unknown"), ""]) {
        assert.strictEqual(yield* conversations.getMessageCount(id), 0)
        assert.deepStrictEqual(yield* conversations.getConversationTokenUsage(id), zero)
      }
      yield* store([message(conversation, 1), message(conversation, 2)])
      assert.strictEqual(yield* conversations.getMessageCount(conversation.id), 2)
      assert.deepStrictEqual(yield* conversations.getConversationTokenUsage(conversation.id), zero)
    })
  )

  it.effect("token usage is summed field by field, as reported", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const conversation = yield* created()
      const sums = conversations.getConversationTokenUsage(conversation.id)
      // A total that is no sum stays as it is.
      yield* store([
        message(conversation, 1, { usage: { promptTokens: 100, completionTokens: 20, totalTokens: 7 } }),
        message(conversation, 2)
      ])
      assert.deepStrictEqual(yield* sums, { promptTokens: 100, completionTokens: 20, totalTokens: 7 })
      yield* store([
        message(conversation, 3, {
          usage: { promptTokens: 1, completionTokens: 0, totalTokens: 3, cacheReadTokens: 0 }
        })
      ])
      assert.deepStrictEqual(yield* sums, {
        promptTokens: 101,
        completionTokens: 20,
        totalTokens: 10,
        cacheReadTokens: 0
      })
      yield* store([
        message(conversation, 4, { usage: { ...zero, cacheReadTokens: 80, cacheCreationTokens: 15 } }),
        message(conversation, 5, { usage: { ...zero, cacheCreationTokens: 1 } })
      ])
      assert.deepStrictEqual(yield* sums, {
        promptTokens: 101,
        completionTokens: 20,
        totalTokens: 10,
        cacheReadTokens: 80,
        cacheCreationTokens: 16
      })
      yield* conversations.deleteMessage(message(conversation, 4).id)
      assert.deepInclude(yield* sums, { cacheReadTokens: 0, cacheCreationTokens: 1 })
    })
  )

  it.effect("sums may be larger than any one count", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const conversation = yield* created()
      const most = Number.MAX_SAFE_INTEGER
      yield* store(
        Arr.makeBy(1_030, (n) =>
          message(conversation, n, { usage: { promptTokens: most, completionTokens: n, totalTokens: most - n } })
        )
      )
      const half = (1_029 * 1_030) / 2
      assert.deepStrictEqual(yield* conversations.getConversationTokenUsage(conversation.id), {
        promptTokens: Number(BigInt(most) * 1_030n),
        completionTokens: half,
        totalTokens: Number(BigInt(most) * 1_030n - BigInt(half))
      })
    })
  )
}
