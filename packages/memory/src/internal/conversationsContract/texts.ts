/**
 * Any text and any JSON comes back as it was.
 */
import { assert } from "@effect/vitest"
import type { Json } from "@sandglass/core/LedgerEvent"
import * as Effect from "effect/Effect"
import * as FastCheck from "effect/FastCheck"
import * as Option from "effect/Option"
import { Conversations } from "../../Conversations.js"
import type { It } from "./support.js"
import { created, history, message, store } from "./support.js"

const awkwardTexts = [
  "a\0b",
  "\0",
  "\ud83d",
  "\ude00",
  "x\ud83dy\ude00z",
  "😀👩‍👩‍👧é漢",
  "\\u0000",
  'back\\slash\n\r\t"quoted"',
  "$sandglass.escaped:x\\u0000",
  "\u2028\u2029\ufeff\uffff",
  "'; DROP TABLE sandglass_messages; --",
  "?1 $1 :a @b %s",
  " ",
  "null",
  "0",
  '{"a":1}',
  "__proto__"
]

const awkwardObjects: ReadonlyArray<{ readonly [key: string]: Json }> = [
  {},
  { "": "", a: [], b: {}, c: null, d: false, e: 0, f: "" },
  { numbers: [0, -1.5, 1e21, 5e-324, 1.7976931348623157e308, 2 ** 53 - 1, 0.1] },
  { snake_case: 1, camelCase: 2, "a.b": { $: [] }, "10": 1, "9": 2 },
  // Written as text: a literal would set the prototype.
  JSON.parse('{"__proto__":{"x":1},"constructor":2,"toJSON":3}'),
  { "$sandglass.escaped": "object", a: "\\u0000" },
  { "$sandglass.escaped": { "$sandglass.escaped": "\0" } },
  ...awkwardTexts.map((text) => ({ [text]: text, nested: [text, { [text]: [text] }] }))
]

/** Any code unit: halves of pairs and NUL are frequent. */
export const arbitraryText: FastCheck.Arbitrary<string> = FastCheck.oneof(
  FastCheck.string(),
  FastCheck.string({ unit: "binary" }),
  FastCheck.array(FastCheck.constantFrom("\0", "\\", "\ud83d", "\ude00", "u0000", "a", '"', "{", "'", "%"), {
    maxLength: 8
  }).map((units) => units.join("")),
  FastCheck.constantFrom(...awkwardTexts)
)

const arbitraryJson: FastCheck.Arbitrary<Json> = FastCheck.letrec<{ readonly json: Json }>((tie) => ({
  json: FastCheck.oneof(
    { depthSize: "small", withCrossShrink: true },
    FastCheck.constant(null),
    FastCheck.boolean(),
    FastCheck.integer(),
    FastCheck.double({ noNaN: true, noDefaultInfinity: true }).map((value) => value + 0),
    arbitraryText,
    FastCheck.array(tie("json"), { maxLength: 4 }),
    FastCheck.array(FastCheck.tuple(arbitraryText, tie("json")), { maxLength: 4 }).map(Object.fromEntries)
  )
})).json

export const arbitraryMetadata: FastCheck.Arbitrary<{ readonly [key: string]: Json }> = FastCheck.array(
  FastCheck.tuple(arbitraryText, arbitraryJson),
  { maxLength: 4 }
).map(Object.fromEntries)

export const arbitraryToolCalls: FastCheck.Arbitrary<ReadonlyArray<Json>> = FastCheck.array(arbitraryJson, {
  maxLength: 4
})

export const roundTrip = (it: It): void => {
  it.effect("any text survives in every field, ids included", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      for (const text of [...awkwardTexts, ...FastCheck.sample(arbitraryText, 30)]) {
        const base = yield* created()
        const conversation = yield* created({
          id: `${base.id}.${text}`,
          userId: `${base.userId}.${text}`,
          agentId: `agent${text}`,
          title: text
        })
        assert.deepStrictEqual(yield* conversations.getConversation(conversation.id), Option.some(conversation))
        assert.deepStrictEqual(
          yield* conversations.listConversations(conversation.userId, { agentId: `agent${text}` }),
          [conversation]
        )
        const stored = message(conversation, text, { content: text, model: text, toolCallId: text, name: text })
        yield* store([stored])
        assert.deepStrictEqual(yield* conversations.getMessage(stored.id), Option.some(stored))
        assert.deepStrictEqual(yield* history(conversation), [stored])
        assert.strictEqual(yield* conversations.getMessageCount(base.id), 0)
        const patched = yield* conversations.updateConversation(conversation.id, { title: `${text}${text}` })
        assert.strictEqual(patched.title, `${text}${text}`)
        assert.isTrue(yield* conversations.deleteMessage(stored.id))
        assert.isTrue(yield* conversations.deleteConversation(conversation.id))
      }
    })
  )

  it.effect("any metadata and any tool calls survive", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const conversation = yield* created()
      const objects = [...awkwardObjects, ...FastCheck.sample(arbitraryMetadata, 200)]
      const calls = [
        ...awkwardObjects.map((object) => [object, [object]]),
        ...FastCheck.sample(arbitraryToolCalls, 200)
      ]
      const messages = objects.map((metadata, n) => message(conversation, n, { metadata, toolCalls: calls[n] }))
      assert.deepStrictEqual(yield* store(messages), messages)
      assert.deepStrictEqual(yield* history(conversation), messages)
      for (const metadata of objects.slice(0, 40)) {
        assert.deepStrictEqual(
          (yield* conversations.updateConversation(conversation.id, { metadata })).metadata,
          metadata
        )
        const found = yield* conversations.getConversation(conversation.id)
        assert.deepStrictEqual(Option.getOrThrow(found).metadata, metadata)
      }
    })
  )

  it.effect("the error of an awkward id names it as it was given", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations
      const conversation = yield* created({ id: `${(yield* created()).id}\0\ud83d` })
      const exists = yield* Effect.flip(conversations.createConversation(conversation))
      assert.deepInclude(exists, { _tag: "ConversationExists", conversationId: conversation.id })
      const stored = message(conversation, "\0")
      yield* store([stored])
      assert.deepInclude(yield* Effect.flip(store([stored])), { _tag: "MessageExists", messageId: stored.id })
      const missing = `${conversation.id}\0`
      assert.deepInclude(yield* Effect.flip(conversations.updateConversation(missing, {})), {
        _tag: "ConversationNotFound",
        conversationId: missing
      })
    })
  )
}
