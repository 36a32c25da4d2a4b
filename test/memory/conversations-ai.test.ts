import * as Prompt from "@effect/ai/Prompt"
import * as Response from "@effect/ai/Response"
import { assert, layer } from "@effect/vitest"
import type { LedgerEvent } from "@sandglass/core"
import { IdGenerator } from "@sandglass/core"
import { LedgerContract } from "@sandglass/core/testing"
import type { Conversation } from "@sandglass/memory"
import { Conversations } from "@sandglass/memory"
import { ConversationPrompt } from "@sandglass/memory/ai"
import { SqliteConversations } from "@sandglass/sql-sqlite"
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as FastCheck from "effect/FastCheck"
import * as Option from "effect/Option"
import * as TestClock from "effect/TestClock"

const options = { conversationId: "c-1", timestamp: 1 }

const json = LedgerContract.arbitraryJson
const text = FastCheck.oneof(
  FastCheck.string(),
  FastCheck.constantFrom("", "\0", "\ud83d", '{"a":1}', "[1]", "5", "null", "__proto__")
)
const providerOptions = FastCheck.oneof(
  { weight: 4, arbitrary: FastCheck.constant({}) },
  {
    weight: 1,
    arbitrary: FastCheck.dictionary(FastCheck.constantFrom("openai", "anthropic"), FastCheck.dictionary(text, json))
  }
)

const textPart = FastCheck.record({ text, options: providerOptions }).map((fields) => Prompt.makePart("text", fields))
const filePart = FastCheck.record({
  mediaType: text,
  data: FastCheck.oneof(
    text,
    FastCheck.uint8Array({ maxLength: 20 }),
    FastCheck.constant(new URL("https://example.com/a?b=c"))
  ),
  options: providerOptions
}).chain((fields) =>
  FastCheck.option(text).map((fileName) =>
    Prompt.makePart("file", fileName === null ? fields : { ...fields, fileName })
  )
)
const callPart = FastCheck.record({
  id: text,
  name: text,
  params: json,
  providerExecuted: FastCheck.boolean(),
  options: providerOptions
}).map((fields) => Prompt.makePart("tool-call", fields))
const resultPart = FastCheck.record({
  id: text,
  name: text,
  isFailure: FastCheck.boolean(),
  result: FastCheck.oneof<Array<FastCheck.Arbitrary<LedgerEvent.Json | undefined>>>(
    json,
    text,
    FastCheck.constant(undefined)
  ),
  providerExecuted: FastCheck.boolean(),
  options: providerOptions
}).map((fields) => Prompt.makePart("tool-result", fields))
const reasoningPart = FastCheck.record({ text, options: providerOptions }).map((fields) =>
  Prompt.makePart("reasoning", fields)
)
/** A result that is kept as a part: JSON has no undefined. */
const providerResultPart = resultPart.filter(({ result }) => result !== undefined)

const message: FastCheck.Arbitrary<Prompt.Message> = FastCheck.oneof(
  FastCheck.record({ content: text, options: providerOptions }).map((fields) => Prompt.makeMessage("system", fields)),
  FastCheck.record({
    content: FastCheck.oneof<
      [FastCheck.Arbitrary<Array<Prompt.UserMessagePart>>, FastCheck.Arbitrary<Array<Prompt.UserMessagePart>>]
    >(
      FastCheck.array(textPart, { minLength: 1, maxLength: 1 }),
      FastCheck.array(FastCheck.oneof(textPart, filePart), { maxLength: 4 })
    ),
    options: providerOptions
  }).map((fields) => Prompt.makeMessage("user", fields)),
  FastCheck.record({
    content: FastCheck.array<Prompt.AssistantMessagePart>(
      FastCheck.oneof(textPart, callPart, reasoningPart, filePart, providerResultPart),
      { maxLength: 5 }
    ),
    options: providerOptions
  }).map((fields) => Prompt.makeMessage("assistant", fields)),
  FastCheck.record({ content: FastCheck.array(resultPart, { maxLength: 3 }), options: providerOptions }).map((fields) =>
    Prompt.makeMessage("tool", fields)
  )
)

/** What comes back after the messages were stored. */
const stored = (messages: ReadonlyArray<Conversation.ConversationMessage>) =>
  Effect.gen(function* () {
    const conversations = yield* Conversations.Conversations
    yield* conversations.createConversation({ id: options.conversationId, userId: "u", createdAt: 0, lastActivity: 0 })
    yield* conversations.storeMessages(messages)
    const found = yield* conversations.getMessages(options.conversationId)
    yield* conversations.deleteConversation(options.conversationId)
    return found
  })

const database = SqliteConversations.layer({ filename: ":memory:" })

/** Without what only tells that a message has no field for it. */
const plain = ({ metadata: _, ...message }: Conversation.ConversationMessage) => message

const usual = Prompt.make([
  { role: "system", content: "Be short." },
  { role: "user", content: [{ type: "text", text: "What is the weather in Oslo?" }] },
  {
    role: "assistant",
    content: [
      { type: "text", text: "I look." },
      { type: "tool-call", id: "call-1", name: "weather", params: { city: "Oslo" } },
      { type: "tool-call", id: "call-2", name: "clock", params: {} }
    ]
  },
  {
    role: "tool",
    content: [
      {
        type: "tool-result",
        id: "call-1",
        name: "weather",
        isFailure: false,
        providerExecuted: false,
        result: { c: -3 }
      },
      { type: "tool-result", id: "call-2", name: "clock", isFailure: false, providerExecuted: false, result: "12:00" }
    ]
  },
  { role: "assistant", content: [{ type: "text", text: "-3 °C." }] }
])

layer(database)("ConversationPrompt and prompts", (it) => {
  it.effect("an ordinary prompt is ordinary messages, and back", () =>
    Effect.gen(function* () {
      let next = 0
      const messages = yield* ConversationPrompt.fromPrompt(usual, options).pipe(
        Effect.provideService(IdGenerator.IdGenerator, { next: Effect.sync(() => `m-${++next}`) })
      )
      const base = { conversationId: "c-1", timestamp: 1 }
      assert.deepStrictEqual(messages, [
        { ...base, id: "m-1", role: "system", content: "Be short." },
        { ...base, id: "m-2", role: "user", content: "What is the weather in Oslo?" },
        {
          ...base,
          id: "m-3",
          role: "assistant",
          content: "I look.",
          toolCalls: [
            { id: "call-1", type: "function", function: { name: "weather", arguments: '{"city":"Oslo"}' } },
            { id: "call-2", type: "function", function: { name: "clock", arguments: "{}" } }
          ]
        },
        { ...base, id: "m-4", role: "tool", content: '{"c":-3}', toolCallId: "call-1", name: "weather" },
        { ...base, id: "m-5", role: "tool", content: "12:00", toolCallId: "call-2", name: "clock" },
        { ...base, id: "m-6", role: "assistant", content: "-3 °C." }
      ])
      assert.deepStrictEqual((yield* ConversationPrompt.toPrompt(messages)).content, usual.content)
    })
  )

  it.effect.prop(
    "any prompt comes back as it was, after it was stored",
    [FastCheck.array(message, { maxLength: 6 })],
    ([content]) =>
      Effect.gen(function* () {
        const messages = yield* ConversationPrompt.fromPrompt(Prompt.fromMessages(content), options)
        const prompt = yield* ConversationPrompt.toPrompt(yield* stored(messages))
        assert.deepStrictEqual(prompt.content, content)
      }),
    { timeout: 60_000, fastCheck: { numRuns: 150 } }
  )

  it.effect("a text is a user's; ids are new each time, and the time is now", () =>
    Effect.gen(function* () {
      yield* TestClock.setTime(42)
      const [first, ...others] = yield* ConversationPrompt.fromPrompt("Hello", { conversationId: "c-1" })
      const [second] = yield* ConversationPrompt.fromPrompt("Hello", { conversationId: "c-1" })
      assert.deepStrictEqual(others, [])
      assert.deepInclude(first, { conversationId: "c-1", role: "user", content: "Hello", timestamp: 42 })
      assert.notStrictEqual(first?.id, second?.id)
    })
  )

  it.effect("messages of other programs are understood", () =>
    Effect.gen(function* () {
      const base = { conversationId: "c-1", timestamp: 1, content: "" }
      const call = (toolCalls: ReadonlyArray<LedgerEvent.Json>) => ({
        ...base,
        id: "m-1",
        role: "assistant" as const,
        toolCalls
      })
      for (const [toolCall, params] of [
        [{ id: "x", type: "function", function: { name: "t", arguments: '{"q":1}' } }, { q: 1 }],
        [{ id: "x", type: "function", function: { name: "t", arguments: "{broken" } }, "{broken"],
        [{ id: "x", name: "t", arguments: { q: 1 } }, { q: 1 }],
        [{ id: "x", name: "t", params: [1] }, [1]],
        [{ id: "x", type: "tool_use", name: "t", input: { q: 2 } }, { q: 2 }],
        [{ toolCallId: "x", toolName: "t", args: { q: 3 } }, { q: 3 }],
        [{ id: "x", name: "t" }, {}]
      ] as const) {
        const prompt = yield* ConversationPrompt.toPrompt([
          call([toolCall]),
          { ...base, id: "m-2", role: "tool", toolCallId: "x", content: '{"hits":0}' },
          { ...base, id: "m-3", role: "tool", toolCallId: "x", content: "3 hits" }
        ])
        assert.deepStrictEqual(prompt.content, [
          Prompt.makeMessage("assistant", {
            content: [Prompt.makePart("tool-call", { id: "x", name: "t", params, providerExecuted: false })]
          }),
          Prompt.makeMessage("tool", {
            content: [{ hits: 0 }, "3 hits"].map((result) =>
              Prompt.makePart("tool-result", { id: "x", name: "t", isFailure: false, providerExecuted: false, result })
            )
          })
        ])
      }
      for (const [messages, reason] of [
        [[call([{ name: "t" }])], /toolCalls\[0\] of the message "m-1" has no id or no name/],
        [[call(["text"])], /toolCalls\[0\]/],
        [[{ ...base, id: "m-9", role: "tool" as const }], /"m-9" has no toolCallId/],
        [[{ ...base, id: "m-9", role: "tool" as const, toolCallId: "y" }], /nobody called "y"/]
      ] as const) {
        const error = yield* Effect.flip(ConversationPrompt.toPrompt(messages))
        assert.strictEqual(error._tag, "InvalidInput")
        assert.match(error.message, /^ConversationPrompt\.toPrompt: /)
        assert.match(error.message, reason)
      }
    })
  )

  it.effect("what was changed since is what counts, and the other parts stay", () =>
    Effect.gen(function* () {
      const file = Prompt.makePart("file", { mediaType: "image/png", data: Uint8Array.of(1, 2) })
      const [message] = yield* ConversationPrompt.fromPrompt(
        Prompt.fromMessages([
          Prompt.makeMessage("user", {
            content: [
              Prompt.makePart("text", { text: "Look:" }),
              file,
              Prompt.makePart("text", { text: "What is it?" })
            ]
          })
        ]),
        options
      )
      assert.strictEqual(message?.content, "Look:What is it?")
      const changed = [
        { ...message, id: "m", conversationId: "c", timestamp: 1, role: "user" as const, content: "Changed" }
      ]
      assert.deepStrictEqual((yield* ConversationPrompt.toPrompt(changed)).content, [
        Prompt.makeMessage("user", { content: [Prompt.makePart("text", { text: "Changed" }), file] })
      ])
      // Somebody else's metadata under the same name says nothing.
      const foreign = changed.map((it) => ({ ...it, metadata: { "@effect/ai": "mine" } }))
      assert.deepStrictEqual((yield* ConversationPrompt.toPrompt(foreign)).content, [
        Prompt.makeMessage("user", { content: [Prompt.makePart("text", { text: "Changed" })] })
      ])
    })
  )

  it.effect("what is no JSON is InvalidInput", () =>
    Effect.gen(function* () {
      for (const part of [
        Prompt.makePart("tool-call", { id: "x", name: "t", params: { at: new Date(0) }, providerExecuted: false }),
        Prompt.makePart("tool-call", { id: "x", name: "t", params: 1n, providerExecuted: false }),
        Prompt.makePart("text", { text: "x", options: { openai: { f: () => 1 } } })
      ]) {
        const prompt = Prompt.fromMessages([Prompt.makeMessage("assistant", { content: [part] })])
        const error = yield* Effect.flip(ConversationPrompt.fromPrompt(prompt, options))
        assert.strictEqual(error._tag, "InvalidInput")
      }
    })
  )
})

const usage = (fields: Partial<Response.Usage>) =>
  new Response.Usage({ inputTokens: undefined, outputTokens: undefined, totalTokens: undefined, ...fields })

const toolCall = Response.makePart("tool-call", {
  id: "call-1",
  name: "weather",
  params: { city: "Oslo" },
  providerExecuted: false
})
const toolResult = Response.makePart("tool-result", {
  id: "call-1",
  name: "weather",
  isFailure: false,
  result: { c: -3 },
  encodedResult: { c: -3 },
  providerExecuted: false
})

const answer: ReadonlyArray<Response.AnyPart> = [
  Response.makePart("response-metadata", {
    id: Option.some("resp-1"),
    modelId: Option.some("model-1"),
    timestamp: Option.some(DateTime.unsafeMake(1_767_225_600_000))
  }),
  Response.makePart("reasoning", { text: "Think.", metadata: { anthropic: { signature: "abc" } } }),
  Response.makePart("text", { text: "I look." }),
  toolCall,
  toolResult,
  Response.makePart("finish", {
    reason: "tool-calls",
    usage: usage({ inputTokens: 10, outputTokens: 5, totalTokens: 17, reasoningTokens: 2, cachedInputTokens: 4 })
  })
]

layer(database)("ConversationPrompt and responses", (it) => {
  it.effect("a response is the assistant's message and one for each result, with model and usage", () =>
    Effect.gen(function* () {
      const messages = yield* ConversationPrompt.fromResponse({ content: answer }, options)
      assert.deepStrictEqual(
        messages.map(({ id: _, ...message }) => plain({ id: "", ...message })),
        [
          {
            id: "",
            conversationId: "c-1",
            timestamp: 1,
            role: "assistant",
            content: "I look.",
            model: "model-1",
            usage: { promptTokens: 10, completionTokens: 5, totalTokens: 17, cacheReadTokens: 4 },
            toolCalls: [{ id: "call-1", type: "function", function: { name: "weather", arguments: '{"city":"Oslo"}' } }]
          },
          {
            id: "",
            conversationId: "c-1",
            timestamp: 1,
            role: "tool",
            content: '{"c":-3}',
            toolCallId: "call-1",
            name: "weather"
          }
        ]
      )
      const found = yield* stored(messages)
      assert.deepStrictEqual(yield* ConversationPrompt.toResponse(found), answer)
      assert.deepStrictEqual(
        (yield* ConversationPrompt.toPrompt(found)).content,
        Prompt.fromResponseParts(answer).content
      )
    })
  )

  it.effect("every kind of part comes back as it was, after it was stored", () =>
    Effect.gen(function* () {
      const parts: ReadonlyArray<Response.AnyPart> = [
        Response.makePart("text", { text: "", metadata: { openai: { id: "x" } } }),
        Response.makePart("file", { mediaType: "image/png", data: Uint8Array.of(0, 255, 7) }),
        Response.documentSourcePart({ id: "s-1", mediaType: "text/plain", title: "Doc", fileName: "a.txt" }),
        Response.urlSourcePart({ id: "s-2", url: new URL("https://example.com/x"), title: "Page" }),
        Response.makePart("tool-call", {
          id: "call-1",
          name: "OpenAiSearch",
          providerName: "web_search",
          params: "text",
          providerExecuted: true,
          metadata: { openai: { n: 1 } }
        }),
        Response.makePart("tool-result", {
          id: "call-1",
          name: "OpenAiSearch",
          providerName: "web_search",
          isFailure: false,
          result: [1],
          encodedResult: [1],
          providerExecuted: true
        }),
        Response.makePart("text", { text: "between" }),
        Response.makePart("tool-call", {
          id: "call-2",
          name: "Run",
          providerName: "bash",
          params: {},
          providerExecuted: false
        }),
        Response.makePart("tool-result", {
          id: "call-2",
          name: "Run",
          providerName: "bash",
          isFailure: true,
          result: "no such command",
          encodedResult: "no such command",
          providerExecuted: false
        }),
        Response.makePart("text", { text: "after" }),
        Response.makePart("error", { error: { code: 7 } }),
        Response.makePart("finish", { reason: "error", usage: usage({}) })
      ]
      const found = yield* stored(yield* ConversationPrompt.fromResponse(parts, { ...options, model: "mine" }))
      assert.deepStrictEqual(yield* ConversationPrompt.toResponse(found), parts)
      assert.deepStrictEqual(
        (yield* ConversationPrompt.toPrompt(found)).content,
        Prompt.fromResponseParts(parts).content
      )
      assert.deepStrictEqual(
        found.map(({ model, usage }) => [model, usage]),
        [
          ["mine", undefined],
          [undefined, undefined]
        ]
      )
    })
  )

  it.effect("a streamed response is put together, also one that was cut off", () =>
    Effect.gen(function* () {
      const streamed: ReadonlyArray<Response.AnyPart> = [
        Response.makePart("reasoning-start", { id: "r" }),
        Response.makePart("text-start", { id: "1" }),
        Response.makePart("reasoning-delta", { id: "r", delta: "Think" }),
        Response.makePart("text-delta", { id: "1", delta: "I " }),
        Response.makePart("reasoning-end", { id: "r", metadata: { anthropic: { signature: "abc" } } }),
        Response.makePart("text-delta", { id: "1", delta: "look." }),
        Response.makePart("text-end", { id: "1" }),
        Response.makePart("tool-params-start", { id: "call-1", name: "weather", providerExecuted: false }),
        Response.makePart("tool-params-delta", { id: "call-1", delta: "{}" }),
        Response.makePart("tool-params-end", { id: "call-1" }),
        toolCall,
        toolResult,
        Response.makePart("text-start", { id: "2" }),
        Response.makePart("text-delta", { id: "2", delta: "Cut of" })
      ]
      const messages = yield* ConversationPrompt.fromResponse(streamed, options)
      assert.strictEqual(messages[0]?.content, "I look.Cut of")
      assert.deepStrictEqual(yield* ConversationPrompt.toResponse(messages), [
        Response.makePart("reasoning", { text: "Think", metadata: { anthropic: { signature: "abc" } } }),
        Response.makePart("text", { text: "I look." }),
        toolCall,
        toolResult,
        Response.makePart("text", { text: "Cut of" })
      ])
      const ended = [...streamed, Response.makePart("text-end", { id: "2" })]
      const prompt = yield* ConversationPrompt.toPrompt(yield* ConversationPrompt.fromResponse(ended, options))
      assert.deepStrictEqual(prompt.content, Prompt.fromResponseParts(ended).content)
    })
  )

  it.effect("of a usage what is missing counts as 0, and a missing total as the sum", () =>
    Effect.gen(function* () {
      for (const [reported, expected] of [
        [{}, undefined],
        [{ cachedInputTokens: 3 }, undefined],
        [
          { inputTokens: 1, outputTokens: 2, totalTokens: 9 },
          { promptTokens: 1, completionTokens: 2, totalTokens: 9 }
        ],
        [
          { inputTokens: 1, outputTokens: 2 },
          { promptTokens: 1, completionTokens: 2, totalTokens: 3 }
        ],
        [
          { totalTokens: 4, cachedInputTokens: 0 },
          { promptTokens: 0, completionTokens: 0, totalTokens: 4, cacheReadTokens: 0 }
        ],
        [
          { inputTokens: Number.NaN, outputTokens: 2 },
          { promptTokens: 0, completionTokens: 2, totalTokens: 2 }
        ]
      ] as const) {
        const parts = [Response.makePart("finish", { reason: "stop", usage: usage(reported) })]
        const [message] = yield* ConversationPrompt.fromResponse(parts, options)
        assert.deepStrictEqual(message?.usage, expected)
      }
    })
  )

  it.effect("messages that no response made are responses too", () =>
    Effect.gen(function* () {
      const messages = yield* ConversationPrompt.fromPrompt(usual, options)
      const [first] = messages.filter(({ role }) => role === "assistant")
      const parts = yield* ConversationPrompt.toResponse(
        messages.map((message) =>
          message === first
            ? { ...message, model: "m", usage: { promptTokens: 1, completionTokens: 2, totalTokens: 3 } }
            : message
        )
      )
      assert.deepStrictEqual(
        parts.map(({ type }) => type),
        ["text", "tool-call", "tool-call", "tool-result", "tool-result", "response-metadata", "finish", "text"]
      )
      assert.deepStrictEqual(yield* ConversationPrompt.fromResponse([], options), [])
      assert.deepStrictEqual(yield* ConversationPrompt.toResponse([]), [])
    })
  )
})
