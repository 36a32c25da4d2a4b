import { LanguageModel, Tool, Toolkit } from "@effect/ai"
import type { Sandbox } from "@sandglass/core"
import { Conversations } from "@sandglass/memory"
import { ConversationPrompt } from "@sandglass/memory/ai"
import { Effect, Schema } from "effect"

const RunCommand = Tool.make("run_command", {
  description: "Runs a shell command in the sandbox and answers what it printed",
  parameters: { command: Schema.String },
  success: Schema.Struct({ exitCode: Schema.Number, output: Schema.String })
})

export const tools = Toolkit.make(RunCommand)

/** The tool runs its commands in a sandbox, whose ledger has them. */
export const toolsIn = (sandbox: Sandbox.Sandbox) =>
  tools.toLayer({
    run_command: ({ command }) =>
      sandbox.exec(command, { strict: false }).pipe(
        Effect.map(({ exitCode, stderr, stdout }) => ({ exitCode, output: stdout + stderr })),
        Effect.orDie
      )
  })

/**
 * One turn: what the user says, then the model and its tools until there is an answer. Everything is stored as soon as it is
 * there, so that a turn that was cut off can be gone on with.
 */
export const turn = (conversationId: string, text: string) =>
  Effect.gen(function* () {
    const conversations = yield* Conversations.Conversations
    yield* conversations.storeMessages(yield* ConversationPrompt.fromPrompt(text, { conversationId }))
    for (;;) {
      const history = yield* conversations.getMessages(conversationId)
      const prompt = yield* ConversationPrompt.toPrompt(history)
      const response = yield* LanguageModel.generateText({ prompt, toolkit: tools })
      yield* conversations.storeMessages(yield* ConversationPrompt.fromResponse(response, { conversationId }))
      if (response.toolCalls.length === 0) {
        return response.text
      }
    }
  })
