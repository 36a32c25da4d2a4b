/** Conversations on SQLite and Postgres: batches against the raw drivers, and one conversation of a million messages. */
import { Database } from "bun:sqlite"
import { createRequire } from "node:module"
import * as SqlClient from "@effect/sql/SqlClient"
import type { Conversation } from "@sandglass/memory"
import { Conversations } from "@sandglass/memory"
import { PgConversations } from "@sandglass/sql-pg"
import { SqliteConversations } from "@sandglass/sql-sqlite"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Stream from "effect/Stream"
import { startServer } from "../../test/support/postgresServer.js"
import type { Figure, Subject } from "../harness.js"
import { interleaved, median, paired, scratch, timed } from "../harness.js"

const batchSize = 500
const mega = 1_000_000
const parts = 10

const conversation = (id: string) => ({ id, userId: "user", createdAt: 1, lastActivity: 1 })

const message = (index: number): Conversation.ConversationMessage => ({
  id: `5d3f1f0a-7a5e-4a39-9a53-${String(index).padStart(12, "0")}`,
  conversationId: "bench",
  role: index % 2 === 0 ? "user" : "assistant",
  content: `message ${index}: ${"what a model says in a turn. ".repeat(8)}`,
  timestamp: 1_767_225_600_000 + index,
  model: "model-1",
  usage: { promptTokens: 1_200, completionTokens: 80, totalTokens: 1_280, cacheReadTokens: 1_000 },
  metadata: { finish: "stop", attempt: 1 }
})

const columns = [
  "id",
  "conversation_id",
  "role",
  "content",
  "timestamp",
  "model",
  "prompt_tokens",
  "completion_tokens",
  "total_tokens",
  "cache_read_tokens",
  "metadata"
]

/** What stands in the columns. */
const rowOf = ({ usage, ...given }: Conversation.ConversationMessage): ReadonlyArray<string | number> => [
  given.id,
  given.conversationId,
  given.role,
  given.content,
  given.timestamp,
  given.model ?? "",
  usage?.promptTokens ?? 0,
  usage?.completionTokens ?? 0,
  usage?.totalTokens ?? 0,
  usage?.cacheReadTokens ?? 0,
  JSON.stringify(given.metadata)
]

/** One statement for a batch; `param` is the text of the parameter at a place. */
const insertText = (param: (place: number) => string): string =>
  `INSERT INTO sandglass_messages (${columns.join(", ")}) VALUES ${Array.from(
    { length: batchSize },
    (_, row) => `(${columns.map((_, column) => param(row * columns.length + column + 1)).join(", ")})`
  ).join(", ")}`

/** Writes batches in transactions of their own, and moves `last_activity` as the service does. */
type Write = (batches: ReadonlyArray<ReadonlyArray<string | number>>, latest: number) => Promise<void>

const rawSqlite = (filename: string) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => new Database(filename)),
      (database) => Effect.sync(() => database.close())
    ),
    (database): Write => {
      const insert = database.query(insertText(() => "?"))
      const touch = database.query(
        "UPDATE sandglass_conversations SET last_activity = max(last_activity, ?) WHERE id = ?"
      )
      return async (batches, latest) => {
        for (const batch of batches) {
          database.run("BEGIN IMMEDIATE")
          touch.run(latest, "bench")
          insert.run(...batch)
          database.run("COMMIT")
        }
      }
    }
  )

interface RawClient {
  readonly connect: () => Promise<void>
  readonly end: () => Promise<void>
  readonly query: (text: string, values?: ReadonlyArray<unknown>) => Promise<unknown>
}

const rawPostgres = (url: string) => {
  const { Client }: { readonly Client: new (options: object) => RawClient } = createRequire(import.meta.url)("pg")
  return Effect.map(
    Effect.acquireRelease(
      Effect.promise(async () => {
        const client = new Client({ connectionString: url })
        await client.connect()
        return client
      }),
      (client) => Effect.promise(() => client.end())
    ),
    (client): Write => {
      const text = insertText((place) => `$${place}`)
      return async (batches, latest) => {
        for (const batch of batches) {
          await client.query("BEGIN")
          await client.query(
            "UPDATE sandglass_conversations SET last_activity = greatest(last_activity, $1) WHERE id = $2",
            [latest, "bench"]
          )
          await client.query(text, batch)
          await client.query("COMMIT")
        }
      }
    }
  )
}

/** The service against the raw driver, in two databases of the same tables and indexes. */
const batches = (
  name: string,
  ours: Conversations.Conversations["Type"],
  raw: Write,
  { count, rounds }: { readonly count: number; readonly rounds: { readonly warmUp: number; readonly counted: number } }
) =>
  Effect.gen(function* () {
    const total = count * batchSize
    let next = { ours: 0, raw: 0 }
    /** Messages of one side, which are new in each round. */
    const take = (side: "ours" | "raw") => {
      const from = next[side]
      next = { ...next, [side]: from + total }
      return Array.from({ length: count }, (_, batch) =>
        Array.from({ length: batchSize }, (_, index) => message(from + batch * batchSize + index))
      )
    }
    const times = yield* interleaved(rounds, {
      ours: Effect.suspend(() => {
        const messages = take("ours")
        return timed(Effect.forEach(messages, (batch) => ours.storeMessages(batch), { discard: true }))
      }),
      raw: Effect.suspend(() => {
        const encoded = take("raw").map((batch) => batch.flatMap(rowOf))
        return timed(Effect.promise(() => raw(encoded, message(next.raw).timestamp)))
      })
    })
    const rate = (millis: number) => (total / millis) * 1000
    return [
      { what: `${name}: storeMessages, ${batchSize} a batch`, value: rate(median(times.ours)), unit: "messages/s" },
      { what: `${name}: raw driver, the same rows`, value: rate(median(times.raw)), unit: "messages/s" },
      {
        what: `${name}: storeMessages / raw driver`,
        value: paired(times.raw, times.ours, (a, b) => a / b),
        unit: "ratio",
        aim: { atLeast: 0.5 }
      }
    ] satisfies ReadonlyArray<Figure>
  })

const memory = (): number => {
  Bun.gc(true)
  return process.memoryUsage().heapUsed / mega
}

/** `fill` puts so many messages into a conversation, within the database. */
const long = (name: string, count: number, fill: (count: number) => string) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const conversations = yield* Conversations.Conversations
    yield* conversations.createConversation(conversation("long"))
    yield* sql.unsafe(fill(count))

    const newest = conversations.getMessages("long", { order: "desc", limit: 50 })
    const pages = yield* interleaved({ warmUp: 10, counted: 101 }, { newest: timed(newest) })
    const counted = yield* timed(conversations.getMessageCount("long"))
    const summed = yield* timed(conversations.getConversationTokenUsage("long"))

    const samples: Array<number> = []
    let seen = 0
    const seconds = yield* timed(
      conversations.streamMessages("long").pipe(
        Stream.runForEachChunk((chunk) =>
          Effect.sync(() => {
            seen += chunk.length
            if (seen >= ((samples.length + 1) * count) / parts) samples.push(memory())
          })
        )
      )
    )
    if (seen !== count) return yield* Effect.dieMessage(`${seen} of ${count} messages came`)
    const [first = Number.NaN, ...rest] = samples
    return [
      {
        what: `${name}: newest 50 of ${count.toLocaleString("en")} messages`,
        value: median(pages.newest),
        unit: "ms",
        aim: { atMost: 5 }
      },
      { what: `${name}: count of all`, value: counted, unit: "ms" },
      { what: `${name}: token usage of all`, value: summed, unit: "ms" },
      { what: `${name}: streamMessages of all`, value: (count / seconds) * 1000, unit: "messages/s" },
      {
        what: `${name}: heap growth after the first 10 %`,
        value: Math.max(...rest) - first,
        unit: "MB",
        aim: { atMost: 16 },
        note: `heap at every 10 %: ${samples.map(Math.round).join(" ")}`
      }
    ] satisfies ReadonlyArray<Figure>
  })

const longColumns = "id, conversation_id, role, content, timestamp, prompt_tokens, completion_tokens, total_tokens"
const longValues =
  "'m-' || i, 'long', CASE WHEN i % 2 = 0 THEN 'user' ELSE 'assistant' END, 'message ' || i || ' that says something to somebody in a hundred characters or so, as they say', 1000 + i / 3, 10, 2, 12"

const fillSqlite = (count: number) =>
  `INSERT INTO sandglass_messages (${longColumns}) WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ${count - 1}) SELECT ${longValues} FROM n`

const fillPostgres = (count: number) =>
  `INSERT INTO sandglass_messages (${longColumns}) SELECT ${longValues} FROM generate_series(0, ${count - 1}) AS i`

export const conversations: Subject = {
  name: "conversations",
  title: "conversations: batches against the raw drivers, and one conversation of 1,000,000 messages",
  run: ({ quick }) =>
    Effect.gen(function* () {
      const directory = yield* scratch
      const count = quick ? 2_000 : 1_000_000
      const size = quick
        ? { count: 1, rounds: { warmUp: 0, counted: 1 } }
        : { count: 8, rounds: { warmUp: 2, counted: 11 } }
      const prepared = Effect.tap(Conversations.Conversations, (service) =>
        service.createConversation(conversation("bench"))
      )

      const sqlite = (name: string) => SqliteConversations.layer({ filename: `${directory}/${name}.db` })
      // The tables and the conversation of the other side, which the raw driver then writes to.
      yield* Effect.provide(prepared, sqlite("raw"))
      const onSqlite = yield* Effect.gen(function* () {
        const raw = yield* rawSqlite(`${directory}/raw.db`)
        return [
          ...(yield* batches("SQLite", yield* prepared, raw, size)),
          ...(yield* long("SQLite", count, fillSqlite))
        ]
      }).pipe(Effect.provide(sqlite("ours")))

      const server = yield* Effect.acquireRelease(
        Effect.promise(() => startServer()),
        ({ close }) => Effect.promise(close)
      )
      const postgres = (name: string) => PgConversations.layer({ url: Redacted.make(server.url(name)) })
      yield* Effect.provide(
        Effect.flatMap(SqlClient.SqlClient, (sql) => sql`CREATE DATABASE raw`),
        postgres("postgres")
      )
      yield* Effect.provide(prepared, postgres("raw"))
      const onPostgres = yield* Effect.gen(function* () {
        const raw = yield* rawPostgres(server.url("raw"))
        return [
          ...(yield* batches("Postgres", yield* prepared, raw, size)),
          ...(yield* long("Postgres", count, fillPostgres))
        ]
      }).pipe(Effect.provide(Layer.fresh(postgres("postgres"))))
      return [...onSqlite, ...onPostgres]
    })
}
