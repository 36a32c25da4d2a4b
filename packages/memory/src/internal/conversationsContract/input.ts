/**
 * What makes no sense is refused, and nothing is written.
 */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import type { Conversation, ConversationMessage } from "../../Conversation.js"
import { maxIdBytes, maxJsonDepth } from "../../Conversation.js"
import type { ConversationError } from "../../ConversationError.js"
import type { ListOptions, MessageOptions } from "../../Conversations.js"
import { Conversations } from "../../Conversations.js"
import type { It } from "./support.js"
import { created, failsWith, fresh, history, message, store } from "./support.js"

const cycle: Array<unknown> = []
cycle.push(cycle)

const nested = (levels: number): unknown => {
  let value: unknown = 1
  for (let level = 0; level < levels; level++) {
    value = level % 2 === 0 ? [value] : { value }
  }
  return value
}

const noTexts: ReadonlyArray<unknown> = [null, 1, {}, [], true]
const noIds: ReadonlyArray<unknown> = ["", "x".repeat(maxIdBytes + 1), "ü".repeat(maxIdBytes / 2 + 1), ...noTexts]
const noTimes: ReadonlyArray<unknown> = [null, Number.NaN, Infinity, -Infinity, 1.5, 2 ** 53, "1", new Date(0), 1n]
const noCounts: ReadonlyArray<unknown> = [null, Number.NaN, Infinity, -1, 0.5, 2 ** 53, "1"]
const noObjects: ReadonlyArray<unknown> = [
  null,
  [],
  "{}",
  { at: new Date(0) },
  { nan: Number.NaN },
  { big: 1n },
  { f: () => 1 },
  { list: [undefined] },
  { map: new Map() },
  { cycle },
  { deep: nested(maxJsonDepth) }
]

const badConversations: ReadonlyArray<readonly [field: string, values: ReadonlyArray<unknown>]> = [
  ["id", [undefined, ...noIds]],
  ["userId", [undefined, ...noIds]],
  ["agentId", noIds],
  ["title", noTexts],
  ["createdAt", [undefined, ...noTimes]],
  ["lastActivity", [undefined, ...noTimes]],
  ["metadata", noObjects],
  ["unknown", [1]]
]

const badMessages: ReadonlyArray<readonly [field: string, values: ReadonlyArray<unknown>]> = [
  ["id", [undefined, ...noIds]],
  ["conversationId", [undefined, ...noIds]],
  ["role", [undefined, null, "", "User", "developer", "constructor", 1]],
  ["content", [undefined, ...noTexts]],
  ["timestamp", [undefined, ...noTimes]],
  ["model", noTexts],
  ["toolCallId", noTexts],
  ["name", noTexts],
  ["toolCalls", [null, {}, "[]", [undefined], [Number.NaN], [new Date(0)], cycle, [nested(maxJsonDepth)]]],
  ["metadata", noObjects],
  [
    "usage",
    [
      null,
      1,
      {},
      { promptTokens: 1, completionTokens: 1 },
      ...["promptTokens", "completionTokens", "totalTokens", "cacheReadTokens", "cacheCreationTokens"].flatMap(
        (field) => noCounts.map((value) => ({ promptTokens: 1, completionTokens: 1, totalTokens: 1, [field]: value }))
      ),
      { promptTokens: 1, completionTokens: 1, totalTokens: 1, cachedTokens: 1 }
    ]
  ],
  ["unknown", [1]]
]

/** What the types forbid, as it comes from plain JavaScript. */
const forced = <A>(value: unknown): A => value as A

const refused = <A, E extends ConversationError, R>(method: string, self: Effect.Effect<A, E, R>, what: unknown) =>
  Effect.map(failsWith("InvalidInput", self), (error) =>
    assert.match(String(error), new RegExp(`Conversations\\.${method}: .`), String(what))
  )

export const input = (it: It): void => {
  it.effect("a conversation that makes no sense is InvalidInput", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const id = yield* fresh("conversation")
      const valid = { id, userId: "u", createdAt: 1, lastActivity: 1 }
      for (const [field, values] of badConversations) {
        for (const value of values) {
          const bad = forced<Conversation>({ ...valid, [field]: value })
          yield* refused("createConversation", conversations.createConversation(bad), `${field}: ${String(value)}`)
        }
      }
      for (const bad of [undefined, null, 1, "x", []]) {
        yield* refused("createConversation", conversations.createConversation(forced(bad)), bad)
      }
      assert.deepStrictEqual(yield* conversations.getConversation(id), Option.none())
    })
  )

  it.effect("a patch that makes no sense is InvalidInput", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const stored = yield* created({ title: "t" })
      for (const [field, values] of badConversations) {
        for (const value of values) {
          // Without an `id` a patch is none of another one, and an `agentId` may be cleared.
          if (field === "id" && value === undefined) continue
          const bad = forced<Conversation>({ title: "u", [field]: value })
          const self = conversations.updateConversation(stored.id, bad)
          yield* refused("updateConversation", self, `${field}: ${String(value)}`)
        }
      }
      for (const bad of [undefined, null, 1, "x", []]) {
        yield* refused("updateConversation", conversations.updateConversation(stored.id, forced(bad)), bad)
      }
      assert.deepStrictEqual(yield* conversations.getConversation(stored.id), Option.some(stored))
    })
  )

  it.effect("a message that makes no sense is InvalidInput, and takes its batch along", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const conversation = yield* created()
      const good = message(conversation, "good")
      const valid = message(conversation, "bad", { timestamp: 9_000 })
      for (const [field, values] of badMessages) {
        for (const value of values) {
          const bad = forced<ConversationMessage>({ ...valid, [field]: value })
          yield* refused("storeMessage", conversations.storeMessage(bad), `${field}: ${String(value)}`)
          const error = yield* failsWith("InvalidInput", conversations.storeMessages([good, bad, good]))
          assert.include(String(error), "messages[1]")
        }
      }
      for (const bad of [undefined, null, 1, "x", []]) {
        yield* refused("storeMessage", conversations.storeMessage(forced(bad)), bad)
        yield* refused("storeMessages", conversations.storeMessages(forced([bad])), bad)
      }
      for (const bad of [undefined, null, 1, "x", good]) {
        yield* refused("storeMessages", conversations.storeMessages(forced(bad)), bad)
      }
      assert.deepStrictEqual(yield* history(conversation), [])
      assert.deepStrictEqual(yield* conversations.getConversation(conversation.id), Option.some(conversation))
    })
  )

  it.effect("options that make no sense are InvalidInput", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const { id, userId } = yield* created()
      const noPlaces = [...noCounts, {}, [], true]
      const badOptions = [null, 1, "x", []]
      const pages: ReadonlyArray<unknown> = [
        ...badOptions,
        ...noPlaces.flatMap((value) => [{ limit: value }, { offset: value }])
      ]
      const bounds = [null, Number.NaN, Infinity, -Infinity, "1", new Date(0)]
      const filters: ReadonlyArray<unknown> = [
        ...bounds.flatMap((value) => [{ since: value }, { until: value }]),
        ...[null, "user", ["developer"], ["user", null], {}].map((roles) => ({ roles })),
        ...[null, "ASC", "newest", 1].map((order) => ({ order }))
      ]
      for (const options of [...pages, ...filters]) {
        const bad = forced<MessageOptions>(options)
        yield* refused("getMessages", conversations.getMessages(id, bad), JSON.stringify(options))
        yield* refused("streamMessages", Stream.runDrain(conversations.streamMessages(id, bad)), options)
      }
      for (const options of [...pages, { agentId: null }, { agentId: 1 }]) {
        const bad = forced<ListOptions>(options)
        yield* refused("listConversations", conversations.listConversations(userId, bad), JSON.stringify(options))
      }
    })
  )

  it.effect("an id that is no text is InvalidInput", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      for (const value of [undefined, ...noTexts]) {
        const id = forced<string>(value)
        yield* refused("getConversation", conversations.getConversation(id), value)
        yield* refused("updateConversation", conversations.updateConversation(id, {}), value)
        yield* refused("deleteConversation", conversations.deleteConversation(id), value)
        yield* refused("listConversations", conversations.listConversations(id), value)
        yield* refused("getMessage", conversations.getMessage(id), value)
        yield* refused("getMessages", conversations.getMessages(id), value)
        yield* refused("streamMessages", Stream.runDrain(conversations.streamMessages(id)), value)
        yield* refused("deleteMessage", conversations.deleteMessage(id), value)
        yield* refused("deleteMessagesForConversation", conversations.deleteMessagesForConversation(id), value)
        yield* refused("getMessageCount", conversations.getMessageCount(id), value)
        yield* refused("getConversationTokenUsage", conversations.getConversationTokenUsage(id), value)
      }
    })
  )

  it.effect("what is as long and as deep as it may be is stored", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const prefix = yield* fresh("long")
      const long = (unit: string, bytes: number) =>
        prefix + unit.repeat(Math.floor((maxIdBytes - prefix.length) / bytes))
      const conversation = yield* created({ id: long("x", 1), userId: long("ü", 2), agentId: long("漢", 3) })
      const found = yield* conversations.listConversations(conversation.userId, { agentId: long("漢", 3) })
      assert.deepStrictEqual(found, [conversation])
      const deep = forced<ConversationMessage["metadata"]>({ deep: nested(maxJsonDepth - 1) })
      const stored = message(conversation, "", { id: long("😀", 4), content: "x".repeat(1_000_000), metadata: deep })
      yield* store([stored])
      assert.deepStrictEqual(yield* history(conversation), [stored])
    })
  )
}
