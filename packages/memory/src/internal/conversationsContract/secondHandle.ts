/**
 * Two handles to one store.
 */
import { assert } from "@effect/vitest"
import * as Arr from "effect/Array"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { Conversations } from "../../Conversations.js"
import type { It } from "./support.js"
import { created, history, message } from "./support.js"

export const secondHandle = <E>(it: It, second: Layer.Layer<Conversations, E>): void => {
  it.scoped("a second handle sees what the first one does, and both may write at once", () =>
    Effect.gen(function* () {
      const ours = yield* Conversations
      const theirs = Context.get(yield* Layer.build(Layer.fresh(second)), Conversations)
      const conversation = yield* created()
      assert.deepStrictEqual(yield* theirs.getConversation(conversation.id), Option.some(conversation))
      yield* Effect.all(
        [
          Effect.forEach(Arr.range(1, 50), (n) => ours.storeMessage(message(conversation, `a${n}`, { timestamp: n }))),
          Effect.forEach(Arr.range(1, 50), (n) =>
            theirs.storeMessage(message(conversation, `b${n}`, { timestamp: n }))
          ),
          Effect.forEach(Arr.range(1, 20), (n) => ours.updateConversation(conversation.id, { title: `${n}` })),
          Effect.forEach(Arr.range(1, 20), (n) => theirs.updateConversation(conversation.id, { metadata: { n } }))
        ],
        { concurrency: "unbounded" }
      )
      assert.strictEqual(yield* ours.getMessageCount(conversation.id), 100)
      const messages = yield* history(conversation)
      assert.deepStrictEqual(yield* theirs.getMessages(conversation.id), messages)
      for (const side of ["a", "b"]) {
        assert.deepStrictEqual(
          messages.filter(({ id }) => id.includes(`/${side}`)).map(({ timestamp }) => timestamp),
          Arr.range(1, 50)
        )
      }
      assert.deepStrictEqual(
        yield* ours.getConversation(conversation.id),
        Option.some({ ...conversation, title: "20", metadata: { n: 20 } })
      )
      assert.isTrue(yield* theirs.deleteConversation(conversation.id))
      assert.strictEqual(yield* ours.getMessageCount(conversation.id), 0)
    })
  )
}
