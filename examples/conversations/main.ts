/**
 * An agent's turns, stored as they happen: what was said, tool calls and their results, and what it cost. The conversation
 * and the ledger of the sandbox are in one SQLite file.
 *
 *     bun examples/conversations/main.ts
 */
import { BunRuntime } from "@effect/platform-bun"
import { Sandboxes } from "@sandglass/core"
import { LocalOpenSandbox } from "@sandglass/local"
import { Conversations, SqlConversations } from "@sandglass/memory"
import { SqliteLedger } from "@sandglass/sql-sqlite"
import { Clock, Effect, Layer, Stream } from "effect"
import { toolsIn, turn } from "./agent.js"
import { ScriptedModel } from "./model.js"

const program = Effect.gen(function* () {
  const conversations = yield* Conversations.Conversations
  const sandboxes = yield* Sandboxes.Sandboxes
  const sandbox = yield* sandboxes.create({ image: "node:22", name: "agent" })

  const now = yield* Clock.currentTimeMillis
  const { id } = yield* conversations.createConversation({
    id: "conversation-1",
    userId: "ada",
    agentId: "counter",
    title: "Counting lines",
    createdAt: now,
    lastActivity: now,
    metadata: { sandboxId: sandbox.id }
  })
  for (const text of ["How many lines are there?", "Count again, please."]) {
    yield* turn(id, text).pipe(Effect.provide(toolsIn(sandbox)))
  }

  // Page by page: a conversation need not fit in memory.
  yield* conversations.streamMessages(id).pipe(
    Stream.runForEach(({ content, role, toolCalls = [] }) =>
      Effect.sync(() => {
        console.log(`${role}: ${content}`)
        for (const call of toolCalls) console.log(`  calls ${JSON.stringify(call)}`)
      })
    )
  )
  const usage = yield* conversations.getConversationTokenUsage(id)
  const count = yield* conversations.getMessageCount(id)
  console.log(`${count} messages, ${usage.totalTokens} tokens, ${usage.cacheReadTokens} of the prompts' from the cache`)

  const [latest] = yield* conversations.listConversations("ada", { limit: 1 })
  console.log(`latest of ada: ${latest?.title}`)
}).pipe(Effect.scoped)

const Live = Sandboxes.layer.pipe(
  Layer.merge(SqlConversations.layer),
  Layer.provideMerge(Layer.merge(LocalOpenSandbox.layer, SqliteLedger.layer({ filename: ":memory:" }))),
  Layer.merge(ScriptedModel)
)

BunRuntime.runMain(program.pipe(Effect.provide(Live)))
