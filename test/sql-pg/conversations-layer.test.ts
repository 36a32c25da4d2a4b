import { randomBytes } from "node:crypto"
import * as SqlClient from "@effect/sql/SqlClient"
import * as PgClient from "@effect/sql-pg/PgClient"
import { assert, describe, it } from "@effect/vitest"
import { Ledger } from "@sandglass/core"
import { ConversationError, Conversations, SqlConversations } from "@sandglass/memory"
import { PgConversations, PgLedger } from "@sandglass/sql-pg"
import * as ConfigProvider from "effect/ConfigProvider"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import { client, database } from "../support/postgres.js"

const conversation = { id: "c-1", userId: "u-1", createdAt: 1, lastActivity: 1 }

const message = (id: string, timestamp = 2) => ({
  id,
  conversationId: conversation.id,
  role: "user" as const,
  content: id,
  timestamp
})

const conversationsAt = (url: Redacted.Redacted<string>) =>
  Effect.map(Layer.build(Layer.fresh(PgConversations.layer({ url }))), Context.get(Conversations.Conversations))

/** The same database under a role of its own, which is gone with the scope. */
const asRole = (url: Redacted.Redacted<string>) =>
  Effect.gen(function* () {
    const sql = yield* client(url)
    const role = `reader_${randomBytes(6).toString("hex")}`
    yield* Effect.acquireRelease(Effect.orDie(sql.unsafe(`CREATE ROLE ${role} LOGIN PASSWORD 'of ${role}'`)), () =>
      Effect.orDie(Effect.zipRight(sql.unsafe(`DROP OWNED BY ${role}`), sql.unsafe(`DROP ROLE ${role}`)))
    )
    const changed = new URL(Redacted.value(url))
    changed.username = role
    changed.password = `of ${role}`
    return { role, url: Redacted.make(changed.href) }
  })

describe("PgConversations.layer", () => {
  it.scopedLive("keeps what is stored, and disconnects with the scope", () =>
    Effect.gen(function* () {
      const url = yield* database
      const scope = yield* Scope.make()
      const conversations = yield* Scope.extend(conversationsAt(url), scope)
      yield* conversations.createConversation(conversation)
      yield* conversations.storeMessage(message("m-1"))
      yield* Scope.close(scope, Exit.void)
      const error = yield* Effect.flip(conversations.getMessages("c-1"))
      assert.instanceOf(error, ConversationError.ConversationStoreError)
      assert.deepStrictEqual([error.method, error.reason], ["Conversations.getMessages", "Connection"])
      const again = yield* conversationsAt(url)
      assert.deepStrictEqual(yield* again.getMessages("c-1"), [message("m-1")])
    })
  )

  it.scopedLive("what it cannot connect to is an error without the password", () =>
    Effect.gen(function* () {
      const url = Redacted.make("postgres://ada:never-shown@127.0.0.1:1/agents")
      const error = yield* Effect.flip(conversationsAt(url))
      assert.instanceOf(error, ConversationError.ConversationStoreError)
      assert.deepStrictEqual([error.method, error.reason], ["layer", "Connection"])
      assert.notInclude(JSON.stringify(error) + String(error), "never-shown")
    })
  )

  it.scopedLive("layerConfig connects to the database of the configuration", () =>
    Effect.gen(function* () {
      const url = yield* database
      const provider = ConfigProvider.fromMap(new Map([["DATABASE_URL", Redacted.value(url)]]))
      const context = yield* Layer.build(PgConversations.layerConfig()).pipe(Effect.withConfigProvider(provider))
      yield* Context.get(context, Conversations.Conversations).createConversation(conversation)
    })
  )

  it.scopedLive("a role that may not create tables uses those that are there", () =>
    Effect.gen(function* () {
      const url = yield* database
      const restricted = yield* asRole(url)
      const denied = yield* Effect.flip(conversationsAt(restricted.url))
      assert.instanceOf(denied, ConversationError.ConversationStoreError)
      yield* conversationsAt(url)
      const sql = yield* client(url)
      const tables = "sandglass_conversations, sandglass_messages"
      yield* sql.unsafe(`GRANT SELECT, INSERT, UPDATE, DELETE ON ${tables} TO ${restricted.role}`)
      yield* sql.unsafe(`GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO ${restricted.role}`)
      const conversations = yield* conversationsAt(restricted.url)
      yield* conversations.createConversation(conversation)
      yield* conversations.storeMessage(message("m-1"))
      assert.isTrue(yield* conversations.deleteConversation("c-1"))
    })
  )

  it.scopedLive("times and tokens are 64 bits wide, documents are JSONB, and messages belong to a conversation", () =>
    Effect.gen(function* () {
      const url = yield* database
      const conversations = yield* conversationsAt(url)
      const sql = yield* client(url)
      const columns = yield* sql<{ readonly name: string; readonly type: string }>`
        SELECT table_name || '.' || column_name AS name, data_type AS type FROM information_schema.columns
        WHERE table_name LIKE 'sandglass_%' AND data_type <> 'text' ORDER BY name`
      assert.deepStrictEqual(
        columns.map(({ name, type }) => `${name.replace("sandglass_", "")} ${type}`),
        [
          "conversations.created_at bigint",
          "conversations.last_activity bigint",
          "conversations.metadata jsonb",
          "conversations.seq bigint",
          "messages.cache_creation_tokens bigint",
          "messages.cache_read_tokens bigint",
          "messages.completion_tokens bigint",
          "messages.metadata jsonb",
          "messages.prompt_tokens bigint",
          "messages.seq bigint",
          "messages.timestamp bigint",
          "messages.tool_calls jsonb",
          "messages.total_tokens bigint"
        ]
      )
      yield* conversations.createConversation({ ...conversation, metadata: { a: [1] } })
      const [row] = yield* sql`SELECT metadata -> 'a' ->> 0 AS first FROM sandglass_conversations`
      assert.deepStrictEqual(row, { first: "1" })
      const orphan = yield* Effect.flip(
        sql`INSERT INTO sandglass_messages (id, conversation_id, role, timestamp, content) VALUES ('m', 'gone', 'user', 1, '')`
      )
      assert.include(String(orphan.cause), "foreign key")
      yield* sql`INSERT INTO sandglass_messages (id, conversation_id, role, timestamp, content) VALUES ('m', 'c-1', 'user', 1, '')`
      yield* sql`DELETE FROM sandglass_conversations`
      assert.deepStrictEqual(yield* sql`SELECT id FROM sandglass_messages`, [])
    })
  )
})

describe("SqlConversations and the client of an application", () => {
  it.scopedLive("the ledger and the conversations in one database commit together, or not at all", () =>
    Effect.gen(function* () {
      const url = yield* database
      const shared = SqlConversations.layer.pipe(Layer.provideMerge(PgLedger.layer({ url })))
      yield* Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const ledger = yield* Ledger.Ledger
        const conversations = yield* Conversations.Conversations
        yield* conversations.createConversation(conversation)
        const turn = (id: string) =>
          Effect.zipRight(
            conversations.storeMessage(message(id, 5)),
            ledger.append({ sandboxId: "sbx-1", name: "ci", event: "turn", payload: { id } })
          )
        yield* Effect.flip(sql.withTransaction(Effect.zipRight(turn("undone"), Effect.fail("undo" as const))))
        assert.deepStrictEqual(yield* conversations.getMessages("c-1"), [])
        yield* sql.withTransaction(
          Effect.gen(function* () {
            yield* turn("done")
            // Postgres goes on in a transaction in which nothing has failed: what fails inside is a savepoint.
            for (const failing of [
              conversations.storeMessages([message("new"), message("done")]),
              conversations.storeMessage({ ...message("new"), conversationId: "unknown" }),
              conversations.createConversation(conversation),
              conversations.updateConversation("unknown", { title: "t" })
            ]) {
              yield* Effect.flip(Effect.asVoid<unknown, ConversationError.ConversationError, never>(failing))
            }
            assert.deepStrictEqual(yield* conversations.getMessages("c-1"), [message("done", 5)])
          })
        )
        assert.deepStrictEqual(yield* conversations.getMessages("c-1"), [message("done", 5)])
        assert.strictEqual(yield* Stream.runCount(ledger.read({ events: ["turn"] })), 1)
      }).pipe(Effect.provide(shared))
    })
  )

  it.scopedLive("whatever the client makes of names, in serializable transactions too", () =>
    Effect.gen(function* () {
      const url = yield* database
      const sql = yield* client(url)
      yield* sql.unsafe(
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = serializable', current_database()); END $$"
      )
      const layer = SqlConversations.layer.pipe(
        Layer.provide(
          PgClient.layer({
            url,
            transformQueryNames: (name) => `changed_${name}`,
            transformResultNames: (name) => name.replace(/_(.)/g, (_, letter) => String(letter).toUpperCase())
          })
        )
      )
      yield* Effect.gen(function* () {
        const conversations = yield* Conversations.Conversations
        const full = { ...conversation, metadata: { snake_case: 1, camelCase: { a_b: 2 } } }
        yield* conversations.createConversation(full)
        const ids = Array.from({ length: 20 }, (_, index) => `m-${index}`)
        yield* Effect.forEach(ids, (id) => conversations.storeMessage(message(id)), { concurrency: "unbounded" })
        assert.strictEqual(yield* conversations.getMessageCount("c-1"), 20)
        assert.deepStrictEqual(yield* conversations.listConversations("u-1"), [{ ...full, lastActivity: 2 }])
      }).pipe(Effect.provide(layer))
    })
  )

  it.scopedLive("two who store into the same conversations in different orders do not stop each other", () =>
    Effect.gen(function* () {
      const conversations = yield* Effect.flatMap(database, conversationsAt)
      const ids = ["x", "y", "z"]
      yield* Effect.forEach(ids, (id) => conversations.createConversation({ ...conversation, id }))
      const batch = (name: string, order: ReadonlyArray<string>) =>
        conversations.storeMessages(
          order.map((conversationId) => ({ ...message(`${name}-${conversationId}`), conversationId }))
        )
      yield* Effect.forEach(
        Array.from({ length: 40 }, (_, index) => index),
        (index) => batch(`${index}`, index % 2 === 0 ? ids : ids.toReversed()),
        { concurrency: "unbounded" }
      )
      for (const id of ids) {
        assert.strictEqual(yield* conversations.getMessageCount(id), 40)
      }
    })
  )
})
