import type { Prompt, Response } from "@effect/ai"
import { LanguageModel } from "@effect/ai"
import { Effect, Layer, Stream } from "effect"

const usage = (inputTokens: number, outputTokens: number) => ({
  inputTokens,
  outputTokens,
  totalTokens: inputTokens + outputTokens,
  cachedInputTokens: inputTokens - 10
})

const results = ({ content }: Prompt.Prompt) => {
  const last = content[content.length - 1]
  return last?.role === "tool" ? last.content : undefined
}

const answer = (prompt: Prompt.Prompt): ReadonlyArray<Response.PartEncoded> => {
  const answered = results(prompt)
  const size = JSON.stringify(prompt.content).length
  return answered === undefined
    ? [
        { type: "text", text: "I have a look." },
        { type: "tool-call", id: `call-${size}`, name: "run_command", params: { command: "seq 1 1000 | wc -l" } },
        { type: "finish", reason: "tool-calls", usage: usage(size, 20) }
      ]
    : [
        { type: "text", text: `It printed ${JSON.stringify(answered[0]?.result)}.` },
        { type: "finish", reason: "stop", usage: usage(size, 30) }
      ]
}

/**
 * In the place of a real one, such as `OpenAiLanguageModel.layer`: it calls the tool once, and then tells what that
 * answered.
 */
export const ScriptedModel = Layer.effect(
  LanguageModel.LanguageModel,
  LanguageModel.make({
    generateText: ({ prompt }) =>
      Effect.succeed([{ type: "response-metadata", modelId: "scripted-1" }, ...answer(prompt)]),
    streamText: () => Stream.dieMessage("this model does not stream")
  })
)
