/**
 * Conversations: creating, patching, listing, deleting.
 */
import { assert } from "@effect/vitest"
import * as Arr from "effect/Array"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Conversations } from "../../Conversations.js"
import type { It } from "./support.js"
import { created, failsWith, fresh, history, message, store } from "./support.js"

export const creating = (it: It): void => {
  it.effect("createConversation returns what getConversation finds; absent fields stay absent", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const bare = {
        id: yield* fresh("conversation"),
        userId: yield* fresh("user"),
        createdAt: 1_767_225_600_000,
        lastActivity: 1_767_225_600_001
      }
      assert.deepStrictEqual(
        yield* conversations.createConversation({ ...bare, agentId: undefined, title: undefined, metadata: undefined }),
        bare
      )
      assert.deepStrictEqual(yield* conversations.getConversation(bare.id), Option.some(bare))
      const full = {
        ...bare,
        id: yield* fresh("conversation"),
        agentId: "coder",
        title: "",
        metadata: { tags: ["a", "b"], nested: { n: 1.5, none: null, empty: {} }, "": [] }
      }
      assert.deepStrictEqual(yield* conversations.createConversation(full), full)
      assert.deepStrictEqual(yield* conversations.getConversation(full.id), Option.some(full))
    })
  )

  it.effect("a taken id is ConversationExists, and the stored one stays", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const stored = yield* created({ title: "first" })
      const error = yield* failsWith(
        "ConversationExists",
        conversations.createConversation({ ...stored, userId: "somebody", title: "second" })
      )
      assert.deepInclude(error, { conversationId: stored.id })
      assert.deepStrictEqual(yield* conversations.getConversation(stored.id), Option.some(stored))
    })
  )

  it.effect("of concurrent creations with one id exactly one succeeds", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const id = yield* fresh("conversation")
      const results = yield* Effect.forEach(
        Arr.range(1, 8),
        (n) =>
          Effect.option(
            conversations.createConversation({ id, userId: "u", title: `${n}`, createdAt: n, lastActivity: n })
          ),
        { concurrency: "unbounded" }
      )
      const [winner, ...others] = Arr.getSomes(results)
      assert.deepStrictEqual(others, [])
      assert.deepStrictEqual(yield* conversations.getConversation(id), Option.fromNullable(winner))
    })
  )

  it.effect("an unknown conversation is none, and so is an empty id", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      assert.deepStrictEqual(yield* conversations.getConversation(yield* fresh("unknown")), Option.none())
      assert.deepStrictEqual(yield* conversations.getConversation(""), Option.none())
    })
  )

  it.effect("what is read is a copy", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const list = ["a"]
      const stored = yield* created({ metadata: { list } })
      list.push("b")
      const found = Option.getOrThrow(yield* conversations.getConversation(stored.id))
      assert.deepStrictEqual(found.metadata, { list: ["a"] })
      Reflect.set(Object(found.metadata), "list", "changed")
      const again = Option.getOrThrow(yield* conversations.getConversation(stored.id))
      assert.deepStrictEqual(again.metadata, { list: ["a"] })
    })
  )
}

export const patching = (it: It): void => {
  it.effect("updateConversation changes the fields that are given, and no others", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const before = yield* created({ agentId: "a", title: "t", metadata: { a: 1, b: 2 } })
      const userId = yield* fresh("user")
      for (const [patch, after] of [
        [{ title: "new" }, { ...before, title: "new" }],
        [{ metadata: { c: 3 } }, { ...before, title: "new", metadata: { c: 3 } }],
        [
          { userId, agentId: "b", createdAt: 5, lastActivity: 3 },
          { ...before, title: "new", metadata: { c: 3 }, userId, agentId: "b", createdAt: 5, lastActivity: 3 }
        ]
      ] as const) {
        assert.deepStrictEqual(yield* conversations.updateConversation(before.id, patch), after)
        assert.deepStrictEqual(yield* conversations.getConversation(before.id), Option.some(after))
      }
      assert.deepStrictEqual(yield* conversations.listConversations(before.userId), [])
      assert.strictEqual((yield* conversations.listConversations(userId, { agentId: "b" })).length, 1)
    })
  )

  it.effect("undefined clears an optional field", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const {
        agentId: _agent,
        metadata: _metadata,
        title: _title,
        ...bare
      } = yield* created({
        agentId: "a",
        title: "t",
        metadata: {}
      })
      const cleared = yield* conversations.updateConversation(bare.id, {
        agentId: undefined,
        title: undefined,
        metadata: undefined
      })
      assert.deepStrictEqual(cleared, bare)
      assert.deepStrictEqual(yield* conversations.getConversation(bare.id), Option.some(bare))
      assert.deepStrictEqual(yield* conversations.listConversations(bare.userId, { agentId: "a" }), [])
    })
  )

  it.effect("an empty patch returns the current one; the same id changes nothing, another one is refused", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const stored = yield* created({ title: "t" })
      assert.deepStrictEqual(yield* conversations.updateConversation(stored.id, {}), stored)
      const copy = { ...stored, title: "u" }
      assert.deepStrictEqual(yield* conversations.updateConversation(stored.id, copy), copy)
      const other = { id: yield* fresh("conversation"), title: "v" }
      yield* failsWith("InvalidInput", conversations.updateConversation(stored.id, other))
      assert.deepStrictEqual(yield* conversations.getConversation(stored.id), Option.some(copy))
      assert.deepStrictEqual(yield* conversations.getConversation(other.id), Option.none())
    })
  )

  it.effect("an unknown conversation is ConversationNotFound, with an empty patch too", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const conversationId = yield* fresh("unknown")
      for (const patch of [{}, { title: "t" }]) {
        const error = yield* failsWith("ConversationNotFound", conversations.updateConversation(conversationId, patch))
        assert.deepInclude(error, { conversationId })
      }
      assert.deepStrictEqual(yield* conversations.getConversation(conversationId), Option.none())
    })
  )

  it.effect("of concurrent patches of different fields all stand, and messages beside them", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const stored = yield* created()
      yield* Effect.all(
        [
          conversations.updateConversation(stored.id, { title: "t" }),
          conversations.updateConversation(stored.id, { agentId: "a" }),
          conversations.updateConversation(stored.id, { metadata: { m: 1 } }),
          conversations.updateConversation(stored.id, { createdAt: 7 }),
          ...Arr.makeBy(5, (n) => conversations.storeMessage(message(stored, 2_000 + n)))
        ],
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(
        yield* conversations.getConversation(stored.id),
        Option.some({ ...stored, title: "t", agentId: "a", metadata: { m: 1 }, createdAt: 7, lastActivity: 2_004 })
      )
    })
  )
}

export const listing = (it: It): void => {
  it.effect("listConversations: newest lastActivity first, then newest created, then created last", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const userId = yield* fresh("user")
      const times: ReadonlyArray<readonly [title: string, createdAt: number, lastActivity: number]> = [
        ["d", 1, 5],
        ["a", 1, 9],
        ["e", 1, 5],
        ["c", 2, 5],
        ["b", -3, 6]
      ]
      for (const [title, createdAt, lastActivity] of times) {
        yield* created({ userId, title, createdAt, lastActivity, agentId: title > "b" ? "agent" : undefined })
      }
      yield* created()
      const titles = (options?: Parameters<typeof conversations.listConversations>[1]) =>
        Effect.map(conversations.listConversations(userId, options), (list) => list.map(({ title }) => title).join(""))
      assert.strictEqual(yield* titles(), "abced")
      assert.strictEqual(yield* titles({ limit: 2 }), "ab")
      assert.strictEqual(yield* titles({ offset: 3 }), "ed")
      assert.strictEqual(yield* titles({ offset: 1, limit: 2 }), "bc")
      assert.strictEqual(yield* titles({ limit: 0 }), "")
      assert.strictEqual(yield* titles({ offset: 9, limit: 9 }), "")
      assert.strictEqual(yield* titles({ agentId: "agent" }), "ced")
      assert.strictEqual(yield* titles({ agentId: "agent", offset: 1, limit: 1 }), "e")
      assert.strictEqual(yield* titles({ agentId: "another" }), "")
    })
  )

  it.effect("a message moves its conversation to the top", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const userId = yield* fresh("user")
      const first = yield* created({ userId, title: "first" })
      yield* created({ userId, title: "second", lastActivity: 2_000 })
      yield* conversations.storeMessage(message(first, 3_000))
      assert.deepStrictEqual(
        (yield* conversations.listConversations(userId)).map(({ title }) => title),
        ["first", "second"]
      )
    })
  )

  it.effect("nobody else's, and nobody's", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const { userId } = yield* created()
      assert.deepStrictEqual(yield* conversations.listConversations(`${userId} `), [])
      assert.deepStrictEqual(yield* conversations.listConversations(userId.toUpperCase()), [])
      assert.deepStrictEqual(yield* conversations.listConversations(""), [])
    })
  )
}

export const deleting = (it: It): void => {
  it.effect("deleteConversation takes the messages along, and no others", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const gone = yield* created()
      const kept = yield* created({ userId: gone.userId })
      yield* store(Arr.makeBy(600, (n) => message(gone, n)))
      yield* store([message(kept, 1)])
      assert.isTrue(yield* conversations.deleteConversation(gone.id))
      assert.deepStrictEqual(yield* conversations.getConversation(gone.id), Option.none())
      assert.deepStrictEqual(yield* history(gone), [])
      assert.deepStrictEqual(yield* conversations.getMessage(message(gone, 1).id), Option.none())
      assert.strictEqual(yield* conversations.getMessageCount(gone.id), 0)
      assert.strictEqual((yield* history(kept)).length, 1)
      assert.deepStrictEqual(
        (yield* conversations.listConversations(gone.userId)).map(({ id }) => id),
        [kept.id]
      )
      assert.isFalse(yield* conversations.deleteConversation(gone.id))
      // What is created anew under the same id starts empty, and its messages may have the same ids.
      yield* conversations.createConversation(gone)
      assert.deepStrictEqual(yield* history(gone), [])
      yield* conversations.storeMessage(message(gone, 1))
      assert.strictEqual(yield* conversations.getMessageCount(gone.id), 1)
    })
  )

  it.effect("an unknown conversation is false", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      assert.isFalse(yield* conversations.deleteConversation(yield* fresh("unknown")))
      assert.isFalse(yield* conversations.deleteConversation(""))
    })
  )

  it.effect("a deletion among concurrent stores leaves nothing behind", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      for (let round = 0; round < 5; round++) {
        const conversation = yield* created()
        const stores = Arr.makeBy(10, (n) =>
          Effect.either(conversations.storeMessages([message(conversation, n), message(conversation, `${n}b`)]))
        )
        yield* Effect.all([...stores, conversations.deleteConversation(conversation.id)], { concurrency: "unbounded" })
        assert.deepStrictEqual(yield* conversations.getConversation(conversation.id), Option.none())
        assert.strictEqual(yield* conversations.getMessageCount(conversation.id), 0)
        for (let n = 0; n < 10; n++) {
          assert.deepStrictEqual(yield* conversations.getMessage(message(conversation, n).id), Option.none())
        }
      }
    })
  )
}
