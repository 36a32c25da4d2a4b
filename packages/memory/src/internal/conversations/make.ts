/**
 * Conversations on top of a store: checks, one span per operation, and the name of the operation in its errors.
 */
import * as StoredText from "@sandglass/core/StoredText"
import * as Arr from "effect/Array"
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import type { ConversationMessage } from "../../Conversation.js"
import {
  ConversationExists,
  ConversationNotFound,
  ConversationStoreError,
  MessageExists
} from "../../ConversationError.js"
import type { ConversationStore } from "../../ConversationStore.js"
import type { Conversations } from "../../Conversations.js"
import { InvalidInput } from "../../MemoryError.js"
import * as Check from "./check.js"
import * as Pages from "./pages.js"
import { toConversation, toMessage, toUsage } from "./rows.js"

type Attributes = Readonly<Record<string, unknown>>

type Failure = ConversationExists | ConversationNotFound | MessageExists | ConversationStoreError

/** In a store's errors ids are as they are stored, and the operation is missing. */
const inMethod =
  (method: string) =>
  <E extends Failure | InvalidInput>(error: E): E => {
    const told = (): Failure | InvalidInput => {
      switch (error._tag) {
        case "ConversationStoreError":
          return new ConversationStoreError({
            method,
            reason: error.reason,
            description: error.description,
            cause: error.cause
          })
        case "ConversationExists":
          return new ConversationExists({ conversationId: StoredText.decode(error.conversationId) })
        case "ConversationNotFound":
          return new ConversationNotFound({ conversationId: StoredText.decode(error.conversationId) })
        case "MessageExists":
          return new MessageExists({ messageId: StoredText.decode(error.messageId) })
        case "InvalidInput":
          return error
      }
    }
    // Of the same class as the one it was given.
    return told() as E
  }

const ofConversation = (id: unknown): Attributes => ({ "gen_ai.conversation.id": id })

/** What the given input is checked for, and what is then done with it. */
const operation = <A, B, E extends Failure>(
  name: string,
  attributes: Attributes,
  check: () => A,
  run: (input: A) => Effect.Effect<B, E>
): Effect.Effect<B, E | InvalidInput> => {
  const method = `Conversations.${name}`
  return Effect.suspend(
    (): Effect.Effect<B, E | InvalidInput> =>
      Either.match(Check.checked(check), {
        onLeft: ({ description }) => Effect.fail(new InvalidInput({ method, description })),
        onRight: (input) => Effect.mapError(run(input), inMethod(method))
      })
  ).pipe(Effect.withSpan(method, { captureStackTrace: false, attributes }))
}

const lookupOperation = <B, E extends Failure>(
  name: string,
  id: string,
  attributes: Attributes,
  run: (id: string) => Effect.Effect<B, E>
): Effect.Effect<B, E | InvalidInput> => operation(name, attributes, () => Check.lookup(id, "id"), run)

export const make = (store: ConversationStore): Context.Tag.Service<Conversations> => {
  const restricted = store.restrictedJson

  return {
    createConversation: (conversation) =>
      operation(
        "createConversation",
        ofConversation(conversation?.id),
        () => Check.conversation(conversation, restricted),
        ({ row, value }) => Effect.as(store.insertConversation(row), value)
      ),
    getConversation: (id) =>
      lookupOperation("getConversation", id, ofConversation(id), (stored) =>
        Effect.map(
          store.conversation(stored),
          Option.map((row) => toConversation(row))
        )
      ),
    updateConversation: (id, patch) =>
      operation(
        "updateConversation",
        ofConversation(id),
        () => ({ stored: Check.lookup(id, "id"), changes: Check.patch(patch, id, restricted) }),
        ({ changes, stored }) =>
          Effect.flatMap(
            Object.keys(changes).length === 0 ? store.conversation(stored) : store.updateConversation(stored, changes),
            Option.match({
              onNone: () => Effect.fail(new ConversationNotFound({ conversationId: stored })),
              onSome: (row) => Effect.succeed(toConversation(row))
            })
          )
      ),
    deleteConversation: (id) => lookupOperation("deleteConversation", id, ofConversation(id), store.deleteConversation),
    listConversations: (userId, options) =>
      operation(
        "listConversations",
        {},
        () => Check.listing(userId, options),
        (query) =>
          query.limit === 0
            ? Effect.succeed([])
            : Effect.map(store.conversations(query), (rows) => rows.map((row) => toConversation(row)))
      ),
    storeMessage: (message) =>
      operation(
        "storeMessage",
        ofConversation(message?.conversationId),
        () => Check.message(message, restricted),
        ({ row, value }) => Effect.as(store.insertMessages([row]), value)
      ),
    storeMessages: (messages) =>
      operation(
        "storeMessages",
        { "sandglass.message.count": messages?.length },
        () => Check.messages(messages, restricted),
        ({ rows, values }) =>
          Arr.isNonEmptyReadonlyArray(rows) ? Effect.as(store.insertMessages(rows), values) : Effect.succeed(values)
      ),
    getMessage: (id) =>
      lookupOperation("getMessage", id, {}, (stored) =>
        Effect.map(
          store.message(stored),
          Option.map((row) => toMessage(row))
        )
      ),
    getMessages: (conversationId, options) =>
      operation(
        "getMessages",
        ofConversation(conversationId),
        () => Check.history(conversationId, options),
        (query) =>
          query.limit === 0
            ? Effect.succeed([])
            : Effect.map(store.messages(query), (rows) => rows.map((row) => toMessage(row)))
      ),
    streamMessages: (conversationId, options) => {
      const method = "Conversations.streamMessages"
      return Stream.suspend(
        (): Stream.Stream<ConversationMessage, InvalidInput | ConversationStoreError> =>
          Either.match(
            Check.checked(() => Check.history(conversationId, options)),
            {
              onLeft: ({ description }) => Stream.fail(new InvalidInput({ method, description })),
              onRight: (query) => Stream.mapError(Pages.stream(store, query), inMethod(method))
            }
          )
      ).pipe(Stream.withSpan(method, { captureStackTrace: false, attributes: ofConversation(conversationId) }))
    },
    deleteMessage: (id) => lookupOperation("deleteMessage", id, {}, store.deleteMessage),
    deleteMessagesForConversation: (id) =>
      lookupOperation("deleteMessagesForConversation", id, ofConversation(id), store.deleteMessages),
    getMessageCount: (id) => lookupOperation("getMessageCount", id, ofConversation(id), store.countMessages),
    getConversationTokenUsage: (id) =>
      lookupOperation("getConversationTokenUsage", id, ofConversation(id), (stored) =>
        Effect.map(store.usage(stored), toUsage)
      )
  }
}
