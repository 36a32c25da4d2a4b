/**
 * The messages of a conversation, filtered, sorted, cut.
 */
import { assert } from "@effect/vitest"
import * as Arr from "effect/Array"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import type { Role } from "../../Conversation.js"
import type { MessageOptions } from "../../Conversations.js"
import { Conversations } from "../../Conversations.js"
import type { It } from "./support.js"
import { created, fresh, history, message, names, store } from "./support.js"

const timeline: ReadonlyArray<readonly [name: string, timestamp: number, role: Role]> = [
  ["c", 30, "assistant"],
  ["a", 10, "system"],
  ["d", 30, "tool"],
  ["b", 20, "user"],
  ["e", 30, "assistant"],
  ["f", 40, "user"]
]

const cases: ReadonlyArray<readonly [options: MessageOptions | undefined, expected: string]> = [
  [undefined, "abcdef"],
  [{}, "abcdef"],
  [{ order: "asc" }, "abcdef"],
  [{ order: "desc" }, "fedcba"],
  [{ limit: 2 }, "ab"],
  [{ limit: 0 }, ""],
  [{ limit: 100 }, "abcdef"],
  [{ limit: Number.MAX_SAFE_INTEGER, offset: 1 }, "bcdef"],
  [{ offset: 4 }, "ef"],
  [{ offset: 0, limit: 1 }, "a"],
  [{ offset: 6 }, ""],
  [{ offset: Number.MAX_SAFE_INTEGER }, ""],
  [{ offset: 2, limit: 2 }, "cd"],
  [{ order: "desc", limit: 2 }, "fe"],
  [{ order: "desc", offset: 1, limit: 3 }, "edc"],
  [{ since: 30 }, "cdef"],
  [{ until: 30 }, "abcde"],
  [{ since: 30, until: 30 }, "cde"],
  [{ since: 31, until: 29 }, ""],
  [{ since: 29.5, until: 30.5 }, "cde"],
  [{ since: -1e300, until: 1e300 }, "abcdef"],
  [{ since: 30, until: 30, order: "desc" }, "edc"],
  [{ roles: [] }, "abcdef"],
  [{ roles: ["user"] }, "bf"],
  [{ roles: ["assistant", "tool"] }, "cde"],
  [{ roles: ["user", "user"] }, "bf"],
  [{ roles: ["user", "assistant", "system", "tool"] }, "abcdef"],
  [{ roles: ["assistant", "tool"], order: "desc", offset: 1 }, "dc"],
  [{ roles: ["assistant"], since: 31 }, ""],
  // Filters first, then the order, then the offset, then the limit.
  [{ roles: ["assistant", "user"], since: 20, until: 30, order: "desc", offset: 1, limit: 1 }, "c"]
]

export const reading = (it: It): void => {
  it.effect("getMessages and streamMessages filter, then sort, then skip, then limit", () =>
    Effect.gen(function* () {
      const conversation = yield* created()
      const other = yield* created()
      yield* store([message(other, "x", { timestamp: 30 })])
      yield* store(timeline.map(([name, timestamp, role]) => message(conversation, name, { timestamp, role })))
      for (const [options, expected] of cases) {
        const found = yield* history(conversation, options)
        assert.strictEqual(names(found).join(""), expected, JSON.stringify(options))
      }
      assert.deepStrictEqual(yield* history({ id: yield* fresh("unknown") }), [])
      assert.deepStrictEqual(yield* history({ id: "" }), [])
    })
  )

  it.effect("messages of one time stand in the order in which they were stored, whoever stored them", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const conversation = yield* created()
      yield* store(Arr.makeBy(300, (n) => message(conversation, `a${n}`)))
      yield* conversations.storeMessage(message(conversation, "b"))
      yield* conversations.storeMessage(message(conversation, "early", { timestamp: 1 }))
      yield* store(Arr.makeBy(30, (n) => message(conversation, `c${n}`)))
      const expected = ["early", ...Arr.makeBy(300, (n) => `a${n}`), "b", ...Arr.makeBy(30, (n) => `c${n}`)]
      assert.deepStrictEqual(names(yield* history(conversation)), expected)
      assert.deepStrictEqual(names(yield* history(conversation, { order: "desc" })), expected.toReversed())
    })
  )

  it.effect("a stream goes over many pages, in both directions, among messages of one time too", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const conversation = yield* created()
      const roles = ["user", "assistant"] as const
      const messages = Arr.makeBy(2_600, (n) =>
        message(conversation, n, {
          timestamp: n < 500 ? n : n < 2_000 ? 500 : n - 1_500,
          role: roles[n % 3 === 0 ? 0 : 1]
        })
      )
      yield* store(messages)
      assert.deepStrictEqual(yield* history(conversation), messages)
      assert.deepStrictEqual(yield* history(conversation, { order: "desc" }), messages.toReversed())
      const ofUsers = messages.filter(({ role }) => role === "user")
      assert.deepStrictEqual(yield* history(conversation, { roles: ["user"] }), ofUsers)
      assert.deepStrictEqual(
        yield* history(conversation, { roles: ["user"], order: "desc", offset: 7, limit: 801 }),
        ofUsers.toReversed().slice(7, 808)
      )
      assert.deepStrictEqual(
        yield* history(conversation, { since: 500, until: 500, offset: 3, limit: 1_400 }),
        messages.slice(503, 1_903)
      )
      const pages = yield* conversations.streamMessages(conversation.id).pipe(Stream.chunks, Stream.runCollect)
      assert.isAbove(Chunk.size(pages), 2)
    })
  )

  it.effect("a stream reads no more than is asked of it, and goes on while messages come and go", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const conversation = yield* created()
      yield* store(Arr.makeBy(1_000, (n) => message(conversation, n)))
      const head = yield* conversations.streamMessages(conversation.id).pipe(Stream.take(3), Stream.runCollect)
      assert.deepStrictEqual(names(Chunk.toReadonlyArray(head)), ["0", "1", "2"])
      // With each page the messages before it go, and one comes at the end.
      let added = 0
      const seen = yield* conversations.streamMessages(conversation.id).pipe(
        Stream.chunks,
        Stream.mapEffect((page) =>
          Effect.gen(function* () {
            for (const { id } of page) {
              yield* conversations.deleteMessage(id)
            }
            if (added < 3) {
              yield* conversations.storeMessage(message(conversation, 5_000 + added++))
            }
            return names(Chunk.toReadonlyArray(page))
          })
        ),
        Stream.runCollect
      )
      const [there, later] = Arr.splitAt(Chunk.toReadonlyArray(seen).flat(), 1_000)
      assert.deepStrictEqual(there, Arr.makeBy(1_000, String))
      assert.deepStrictEqual(later, ["5000", "5001", "5002"].slice(0, later.length))
      assert.strictEqual(yield* conversations.getMessageCount(conversation.id), added - later.length)
    })
  )

  it.effect("a stream is the conversation at the time when it is run, each time", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const conversation = yield* created()
      const count = Stream.runCount(conversations.streamMessages(conversation.id))
      assert.strictEqual(yield* count, 0)
      yield* store([message(conversation, 1)])
      assert.strictEqual(yield* count, 1)
      assert.isTrue(Option.isSome(yield* conversations.getMessage(message(conversation, 1).id)))
    })
  )
}
