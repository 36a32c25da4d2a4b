/**
 * What the cases of the contract have in common.
 */
import type { Vitest } from "@effect/vitest"
import { assert } from "@effect/vitest"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Random from "effect/Random"
import * as Stream from "effect/Stream"
import type { Conversation, ConversationMessage } from "../../Conversation.js"
import type { ConversationError } from "../../ConversationError.js"
import type { MessageOptions } from "../../Conversations.js"
import { Conversations } from "../../Conversations.js"

/** How a case is added to the suite that is being defined. */
export type It = Vitest.MethodsNonLive<Conversations, true>

export const fresh = (prefix: string) =>
  Effect.map(
    Effect.all([Random.nextIntBetween(0, 2 ** 31), Random.nextIntBetween(0, 2 ** 31)]),
    (parts) => `${prefix}-${parts.map((part) => part.toString(36)).join("")}`
  )

/** A conversation that was created, of a user of its own. */
export const created = (fields: Partial<Conversation> = {}) =>
  Effect.gen(function* () {
    const conversations = yield* Conversations
    return yield* conversations.createConversation({
      id: yield* fresh("conversation"),
      userId: yield* fresh("user"),
      createdAt: 1_000,
      lastActivity: 1_000,
      ...fields
    })
  })

/** A message that is not stored yet. */
export const message = (
  conversation: Pick<Conversation, "id">,
  name: string | number,
  fields: Partial<ConversationMessage> = {}
): ConversationMessage => ({
  id: `${conversation.id}/${name}`,
  conversationId: conversation.id,
  role: "user",
  content: `content of ${name}`,
  timestamp: typeof name === "number" ? name : 1_000,
  ...fields
})

/** The names that `message` was given. */
export const names = (messages: ReadonlyArray<ConversationMessage>): ReadonlyArray<string> =>
  messages.map(({ id }) => id.slice(id.indexOf("/") + 1))

export const store = (messages: ReadonlyArray<ConversationMessage>) =>
  Effect.flatMap(Conversations, (conversations) => conversations.storeMessages(messages))

export const collect = <A, E, R>(stream: Stream.Stream<A, E, R>) =>
  Effect.map(Stream.runCollect(stream), Chunk.toReadonlyArray)

/** What `getMessages` answers; `streamMessages` must answer the same. */
export const history = (conversation: Pick<Conversation, "id">, options?: MessageOptions) =>
  Effect.gen(function* () {
    const conversations = yield* Conversations
    const messages = yield* conversations.getMessages(conversation.id, options)
    assert.deepStrictEqual(yield* collect(conversations.streamMessages(conversation.id, options)), messages)
    return messages
  })

export const failsWith = <A, R>(tag: ConversationError["_tag"], self: Effect.Effect<A, ConversationError, R>) =>
  Effect.map(Effect.flip(self), (error) => {
    assert.strictEqual(error._tag, tag)
    return error
  })
