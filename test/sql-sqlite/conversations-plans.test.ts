import * as SqlClient from "@effect/sql/SqlClient"
import { assert, layer } from "@effect/vitest"
import { Conversations } from "@sandglass/memory"
import { SqliteConversations } from "@sandglass/sql-sqlite"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import { recordStatements } from "../support/statements.js"

const messages = 200_000
const conversations = 40_000

/** One conversation of very many messages, many of one time; one user of very many conversations; others around them. */
const fill = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql.unsafe(`
    INSERT INTO sandglass_conversations (id, user_id, agent_id, created_at, last_activity)
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ${conversations - 1})
    SELECT 'c-' || i, CASE WHEN i % 4 = 0 THEN 'u-' || i ELSE 'busy' END,
      CASE WHEN i % 1000 = 1 THEN 'rare' WHEN i % 2 = 0 THEN 'common' END, i, i / 10 FROM n`)
  yield* sql.unsafe(`
    INSERT INTO sandglass_messages (id, conversation_id, role, content, timestamp, prompt_tokens, completion_tokens, total_tokens)
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ${messages - 1})
    SELECT 'm-' || i, CASE WHEN i % 5 = 0 THEN 'c-' || (i % 1000) ELSE 'c-1' END,
      CASE WHEN i % 2 = 0 THEN 'user' ELSE 'assistant' END, 'content ' || i, i / 500,
      CASE WHEN i % 2 = 1 THEN 10 END, CASE WHEN i % 2 = 1 THEN 2 END, CASE WHEN i % 2 = 1 THEN 12 END FROM n`)
})

const big = "c-1"
const bigCount = messages * 0.8

for (const statistics of ["none", "of these rows"] as const) {
  const analyzed = Effect.flatMap(SqlClient.SqlClient, (sql) => sql`ANALYZE`)
  const filled = Layer.effectDiscard(statistics === "none" ? fill : Effect.zipRight(fill, analyzed))
  const database = Layer.provideMerge(filled, SqliteConversations.layer({ filename: ":memory:" }))

  layer(database, { timeout: "60 seconds" })(
    `SqliteConversations with many messages, statistics: ${statistics}`,
    (it) => {
      /** What the statements of an operation are, and how the database runs each. */
      const plans = <A, E>(operation: (service: Conversations.Conversations["Type"]) => Effect.Effect<A, E>) =>
        Effect.gen(function* () {
          const sql = yield* SqlClient.SqlClient
          const service = yield* Conversations.Conversations
          const { statements, tracer } = recordStatements()
          const result = yield* Effect.withTracer(operation(service), tracer)
          const details = yield* Effect.forEach(new Set(statements), (text) =>
            sql
              .unsafe<{ readonly detail: string }>(
                `EXPLAIN QUERY PLAN ${text}`,
                Array.from(text.matchAll(/\?/g), () => 1)
              )
              .pipe(Effect.map((rows) => rows.map(({ detail }) => detail)))
          )
          return { result, statements, plan: details.flat() }
        })

      const noScan = (plan: ReadonlyArray<string>) => {
        assert.isAbove(plan.length, 0)
        for (const detail of plan) {
          assert.notMatch(detail, /SCAN sandglass_/)
          assert.notMatch(detail, /TEMP B-TREE/)
        }
      }

      const pages: ReadonlyArray<readonly [options: Conversations.MessageOptions, count: number]> = [
        [{ limit: 50 }, 50],
        [{ limit: 50, order: "desc" }, 50],
        [{ limit: 50, offset: 1_000 }, 50],
        [{ limit: 50, since: 100, until: 300 }, 50],
        [{ limit: 50, since: 100, order: "desc" }, 50],
        [{ limit: 50, roles: ["user"] }, 50],
        [{ limit: 50, roles: ["user", "assistant"], order: "desc" }, 50],
        [{ limit: 50, roles: ["system"] }, 0],
        [{ since: 100, until: 100 }, 400],
        [{ offset: bigCount - 7 }, 7]
      ]
      for (const [options, count] of pages) {
        it.effect(`a page of the history: ${JSON.stringify(options)}`, () =>
          Effect.gen(function* () {
            const { plan, result, statements } = yield* plans((service) => service.getMessages(big, options))
            noScan(plan)
            assert.strictEqual(result.length, count)
            assert.strictEqual(statements.length, 1)
            const index = options.roles?.length === 1 ? "role" : "history"
            assert.match(plan.join("\n"), new RegExp(`INDEX sandglass_messages_${index} \\(conversation_id=\\?`))
          })
        )
      }

      it.effect("a stream finds each of its pages, among messages of one time too", () =>
        Effect.gen(function* () {
          for (const order of ["asc", "desc"] as const) {
            const { plan, result, statements } = yield* plans((service) =>
              service.streamMessages(big, { order }).pipe(Stream.chunks, Stream.take(4), Stream.runCollect)
            )
            noScan(plan)
            assert.strictEqual(Chunk.size(result), 4)
            assert.isAtMost(statements.length, 5)
            assert.match(
              plan.join("\n"),
              /sandglass_messages_history \(conversation_id=\? AND timestamp=\? AND seq[<>]\?\)/
            )
            assert.match(plan.join("\n"), /sandglass_messages_history \(conversation_id=\? AND timestamp[<>]\?\)/)
          }
        })
      )

      it.effect("the count and the sums are those of an index alone", () =>
        Effect.gen(function* () {
          const count = yield* plans((service) => service.getMessageCount(big))
          assert.strictEqual(count.result, bigCount)
          noScan(count.plan)
          assert.match(count.plan.join("\n"), /COVERING INDEX sandglass_messages_\w+ \(conversation_id=\?\)/)
          const usage = yield* plans((service) => service.getConversationTokenUsage(big))
          assert.deepStrictEqual(usage.result, {
            promptTokens: bigCount * 5,
            completionTokens: bigCount,
            totalTokens: bigCount * 6
          })
          noScan(usage.plan)
          assert.match(usage.plan.join("\n"), /COVERING INDEX sandglass_messages_usage \(conversation_id=\?/)
        })
      )

      it.effect("a user's list is read in the order of an index", () =>
        Effect.gen(function* () {
          for (const [options, count, index] of [
            [{ limit: 20 }, 20, "user"],
            [{ limit: 20, offset: 500 }, 20, "user"],
            [{ agentId: "rare", limit: 20 }, 20, "agent"],
            [{ agentId: "common", limit: 20, offset: 40 }, 20, "agent"]
          ] as const) {
            const { plan, result } = yield* plans((service) => service.listConversations("busy", options))
            noScan(plan)
            assert.strictEqual(result.length, count)
            assert.match(plan.join("\n"), new RegExp(`INDEX sandglass_conversations_${index} \\(user_id=\\?`))
          }
          const all = yield* plans((service) => service.listConversations("u-4"))
          noScan(all.plan)
          assert.strictEqual(all.result.length, 1)
        })
      )

      it.effect("one conversation and one message are found by their ids", () =>
        Effect.gen(function* () {
          const conversation = yield* plans((service) => service.getConversation(big))
          const message = yield* plans((service) => service.getMessage("m-7"))
          assert.isTrue(Option.isSome(conversation.result) && Option.isSome(message.result))
          for (const { plan } of [conversation, message]) {
            noScan(plan)
            assert.match(plan.join("\n"), /autoindex_sandglass_\w+ \(id=\?\)/)
          }
        })
      )
    }
  )
}
