/**
 * Between the messages of a conversation and the prompts and responses of `@effect/ai`.
 *
 * A message has a text, tool calls and a few fields more. What a prompt or a response has beyond that, such as files,
 * reasoning, or the options of a provider, is kept in the field `@effect/ai` of the message's metadata, so that it comes
 * back as it was. An ordinary message has no such field.
 *
 * @since 0.1.0
 */
import type * as Prompt from "@effect/ai/Prompt"
import type * as Response from "@effect/ai/Response"
import { IdGenerator } from "@sandglass/core/IdGenerator"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import type { ConversationMessage } from "../Conversation.js"
import type { Draft } from "../internal/ai/mark.js"
import { Refusal } from "../internal/ai/mark.js"
import * as OfPrompt from "../internal/ai/prompt.js"
import * as OfResponse from "../internal/ai/response.js"
import { InvalidInput } from "../MemoryError.js"

/**
 * What all messages are given that are made together. Their ids come from the `IdGenerator`.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  readonly conversationId: string
  /** Epoch milliseconds; messages of one time stand in the order in which they are stored. Default: now. */
  readonly timestamp?: number | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface ResponseOptions extends Options {
  /** Default: the one that the response names. */
  readonly model?: string | undefined
}

const method = (name: string): string => `ConversationPrompt.${name}`

const attempt = <A>(name: string, convert: () => A): Effect.Effect<A, InvalidInput> =>
  Effect.suspend(() => {
    try {
      return Effect.succeed(convert())
    } catch (error) {
      if (error instanceof Refusal) {
        return Effect.fail(new InvalidInput({ method: method(name), description: error.description }))
      }
      throw error
    }
  })

const complete = (
  drafts: ReadonlyArray<Draft>,
  { conversationId, timestamp }: Options
): Effect.Effect<ReadonlyArray<ConversationMessage>> =>
  Effect.gen(function* () {
    const { next } = yield* IdGenerator
    const now = timestamp ?? (yield* Clock.currentTimeMillis)
    return yield* Effect.forEach(drafts, (draft) =>
      Effect.map(next, (id): ConversationMessage => ({ id, conversationId, timestamp: now, ...draft }))
    )
  })

/**
 * The messages of a prompt, to be stored: one for each of the prompt's, and for a tool message one for each of its results.
 * What is no JSON in a prompt, for example a tool's parameters, is an `InvalidInput`.
 *
 * @example
 * ```ts
 * import { Conversations } from "@sandglass/memory"
 * import { ConversationPrompt } from "@sandglass/memory/ai"
 * import { Effect } from "effect"
 *
 * const ask = (conversationId: string, text: string) =>
 *   Effect.gen(function* () {
 *     const conversations = yield* Conversations.Conversations
 *     return yield* conversations.storeMessages(yield* ConversationPrompt.fromPrompt(text, { conversationId }))
 *   })
 * ```
 *
 * @since 0.1.0
 * @category conversions
 */
export const fromPrompt = (
  prompt: Prompt.RawInput,
  options: Options
): Effect.Effect<ReadonlyArray<ConversationMessage>, InvalidInput> =>
  Effect.flatMap(
    attempt("fromPrompt", () => OfPrompt.fromPrompt(prompt)),
    (drafts) => complete(drafts, options)
  )

/**
 * The prompt that messages are: undoes {@link fromPrompt}, and continues what {@link fromResponse} made as
 * `Prompt.fromResponseParts` does. Messages of other programs are understood too, with tool calls of the form
 * `{ id, function: { name, arguments } }` or `{ id, name, arguments | params | input }`; tool messages that follow each other
 * are the results of one. A tool call without an id or a name, or a result of an unknown one, is an `InvalidInput`.
 *
 * Providers refuse a result whose call is not there: a prompt of the newest messages had better begin with one of a user.
 *
 * @since 0.1.0
 * @category conversions
 */
export const toPrompt = (messages: ReadonlyArray<ConversationMessage>): Effect.Effect<Prompt.Prompt, InvalidInput> =>
  attempt("toPrompt", () => OfPrompt.toPrompt(messages))

/**
 * The messages of a response, to be stored: the assistant's, with its tool calls, the model and the token usage, and one for
 * each result of a tool. Takes what `LanguageModel.generateText` answers, or the collected parts of
 * `LanguageModel.streamText`, whose texts are put together.
 *
 * Of a usage that is reported in part, what is missing counts as 0, and a missing total as the sum of the others; without
 * any of them there is no usage.
 *
 * @example
 * ```ts
 * import { LanguageModel } from "@effect/ai"
 * import { Conversations } from "@sandglass/memory"
 * import { ConversationPrompt } from "@sandglass/memory/ai"
 * import { Effect } from "effect"
 *
 * const answer = (conversationId: string) =>
 *   Effect.gen(function* () {
 *     const conversations = yield* Conversations.Conversations
 *     const history = yield* conversations.getMessages(conversationId)
 *     const response = yield* LanguageModel.generateText({ prompt: yield* ConversationPrompt.toPrompt(history) })
 *     yield* conversations.storeMessages(yield* ConversationPrompt.fromResponse(response, { conversationId }))
 *     return response.text
 *   })
 * ```
 *
 * @since 0.1.0
 * @category conversions
 */
export const fromResponse = (
  response: ReadonlyArray<Response.AnyPart> | { readonly content: ReadonlyArray<Response.AnyPart> },
  options: ResponseOptions
): Effect.Effect<ReadonlyArray<ConversationMessage>, InvalidInput> =>
  Effect.flatMap(
    attempt("fromResponse", () =>
      OfResponse.fromResponse("content" in response ? response.content : response, options.model)
    ),
    (drafts) => complete(drafts, options)
  )

/**
 * The parts of the responses among some messages, those of other roles left out: undoes {@link fromResponse}. The results of
 * tools are in their encoded form, as they were sent to the model.
 *
 * @since 0.1.0
 * @category conversions
 */
export const toResponse = (
  messages: ReadonlyArray<ConversationMessage>
): Effect.Effect<ReadonlyArray<Response.AnyPart>, InvalidInput> =>
  attempt("toResponse", () => OfResponse.toResponse(messages))
