import * as SqlClient from "@effect/sql/SqlClient"
import { assert, layer } from "@effect/vitest"
import { Conversations } from "@sandglass/memory"
import { PgConversations } from "@sandglass/sql-pg"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import type { Plan } from "../support/pgPlans.js"
import { describePlan, explained, indexesOf, looked } from "../support/pgPlans.js"
import { database } from "../support/postgres.js"

const messages = 200_000
const conversations = 40_000

/** One conversation of very many messages, many of one time; one user of very many conversations; others around them. */
const fill = (sql: SqlClient.SqlClient) =>
  sql.unsafe(`
    INSERT INTO sandglass_conversations (id, user_id, agent_id, created_at, last_activity)
    SELECT 'c-' || i, CASE WHEN i % 4 = 0 THEN 'u-' || i ELSE 'busy' END,
      CASE WHEN i % 1000 = 1 THEN 'rare' WHEN i % 2 = 0 THEN 'common' END, i, i / 10
    FROM generate_series(0, ${conversations - 1}) AS i;
    INSERT INTO sandglass_messages
      (id, conversation_id, role, content, timestamp, prompt_tokens, completion_tokens, total_tokens)
    SELECT 'm-' || i, CASE WHEN i % 5 = 0 THEN 'c-' || (i % 1000) ELSE 'c-1' END,
      CASE WHEN i % 2 = 0 THEN 'user' ELSE 'assistant' END, repeat('content ' || i, 20), i / 500,
      CASE WHEN i % 2 = 1 THEN 10 END, CASE WHEN i % 2 = 1 THEN 2 END, CASE WHEN i % 2 = 1 THEN 12 END
    FROM generate_series(0, ${messages - 1}) AS i`)

const big = "c-1"
const bigCount = messages * 0.8

for (const statistics of ["of these rows", "of empty tables"] as const) {
  const filled = Layer.effectDiscard(
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      for (const table of ["sandglass_conversations", "sandglass_messages"]) {
        yield* sql.unsafe(`ALTER TABLE ${table} SET (autovacuum_enabled = false)`)
        yield* sql.unsafe(`ANALYZE ${table}`)
      }
      yield* fill(sql)
      if (statistics === "of these rows") {
        yield* sql`VACUUM ANALYZE sandglass_conversations`
        yield* sql`VACUUM ANALYZE sandglass_messages`
      }
    })
  )
  const postgres = Layer.unwrapScoped(
    Effect.map(database, (url) => Layer.provideMerge(filled, PgConversations.layer({ url })))
  )

  layer(postgres, { timeout: "60 seconds" })(`PgConversations with many messages, statistics: ${statistics}`, (it) => {
    const plans = <A, E>(operation: (service: Conversations.Conversations["Type"]) => Effect.Effect<A, E>) =>
      explained(/sandglass_(?:messages|conversations)/, Effect.flatMap(Conversations.Conversations, operation))

    const throughIndexes = (nodes: ReadonlyArray<Plan>, most: number) => {
      assert.isAbove(nodes.length, 0)
      assert.isFalse(
        nodes.some((node) => node["Node Type"] === "Seq Scan"),
        describePlan(nodes)
      )
      assert.isAtMost(looked(nodes), most, describePlan(nodes))
    }

    const noSort = (nodes: ReadonlyArray<Plan>) =>
      assert.isFalse(
        nodes.some((node) => /^(?:Incremental )?Sort$/.test(node["Node Type"])),
        describePlan(nodes)
      )

    const pages: ReadonlyArray<readonly [most: number, options: Conversations.MessageOptions, count: number]> = [
      [50, { limit: 50 }, 50],
      [50, { limit: 50, order: "desc" }, 50],
      [1_050, { limit: 50, offset: 1_000 }, 50],
      [50, { limit: 50, since: 100, until: 300 }, 50],
      [50, { limit: 50, since: 100, order: "desc" }, 50],
      [50, { limit: 50, roles: ["user"] }, 50],
      [100, { limit: 50, roles: ["user", "tool"], order: "desc" }, 50],
      [50, { limit: 50, roles: ["user", "assistant"] }, 50],
      [0, { limit: 50, roles: ["system"] }, 0],
      [400, { since: 100, until: 100 }, 400]
    ]
    for (const [most, options, count] of pages) {
      it.effect(`a page of the history: ${JSON.stringify(options)}`, () =>
        Effect.gen(function* () {
          const { nodes, result, statements } = yield* plans((service) => service.getMessages(big, options))
          assert.strictEqual(result.length, count)
          assert.strictEqual(statements, 1)
          throughIndexes(nodes, most)
          if (options.limit !== undefined) {
            noSort(nodes)
          }
          const index = options.roles?.length === 1 ? "role" : "history"
          assert.deepStrictEqual(indexesOf(nodes), [`sandglass_messages_${index}`])
        })
      )
    }

    it.effect("a stream finds each of its pages, among messages of one time too", () =>
      Effect.gen(function* () {
        for (const order of ["asc", "desc"] as const) {
          const { nodes, result, statements } = yield* plans((service) =>
            service.streamMessages(big, { order }).pipe(Stream.chunks, Stream.take(4), Stream.runCollect)
          )
          assert.strictEqual(Chunk.size(result), 4)
          assert.isAtMost(statements, 5)
          throughIndexes(nodes, 4_100)
          noSort(nodes)
        }
      })
    )

    it.effect("the count and the sums are those of an index", () =>
      Effect.gen(function* () {
        const count = yield* plans((service) => service.getMessageCount(big))
        assert.strictEqual(count.result, bigCount)
        throughIndexes(count.nodes, bigCount)
        const usage = yield* plans((service) => service.getConversationTokenUsage(big))
        assert.deepStrictEqual(usage.result, {
          promptTokens: bigCount * 5,
          completionTokens: bigCount,
          totalTokens: bigCount * 6
        })
        if (statistics === "of these rows") {
          throughIndexes(usage.nodes, bigCount / 2)
          assert.deepStrictEqual(indexesOf(usage.nodes), ["sandglass_messages_usage"])
        } else {
          throughIndexes(usage.nodes, bigCount)
        }
      })
    )

    it.effect("a user's list is read in the order of an index", () =>
      Effect.gen(function* () {
        for (const [most, options, count] of [
          [20, { limit: 20 }, 20],
          [520, { limit: 20, offset: 500 }, 20],
          [20, { agentId: "rare", limit: 20 }, 20],
          [60, { agentId: "common", limit: 20, offset: 40 }, 20]
        ] as const) {
          const { nodes, result } = yield* plans((service) => service.listConversations("busy", options))
          assert.strictEqual(result.length, count)
          throughIndexes(nodes, most)
          noSort(nodes)
        }
        const all = yield* plans((service) => service.listConversations("u-4"))
        throughIndexes(all.nodes, 1)
        assert.strictEqual(all.result.length, 1)
      })
    )

    it.effect("what is read and written by id is found by it", () =>
      Effect.gen(function* () {
        const conversation = yield* plans((service) => service.getConversation(big))
        const message = yield* plans((service) => service.getMessage("m-7"))
        assert.isTrue(Option.isSome(conversation.result) && Option.isSome(message.result))
        const patched = yield* plans((service) => service.updateConversation("c-7", { title: "t" }))
        const removed = yield* plans((service) => service.deleteMessage("m-10"))
        for (const { nodes } of [conversation, message, patched, removed]) {
          throughIndexes(nodes, 2)
        }
        const emptied = yield* plans((service) => service.deleteMessagesForConversation("c-0"))
        assert.strictEqual(emptied.result, 200)
        throughIndexes(emptied.nodes, 200)
      })
    )
  })
}
