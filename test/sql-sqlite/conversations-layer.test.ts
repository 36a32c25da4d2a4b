import { Database } from "bun:sqlite"
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as SqlClient from "@effect/sql/SqlClient"
import * as SqliteClient from "@effect/sql-sqlite-bun/SqliteClient"
import { assert, describe, it } from "@effect/vitest"
import { Ledger } from "@sandglass/core"
import { ConversationError, Conversations, SqlConversations } from "@sandglass/memory"
import { SqliteConversations, SqliteLedger } from "@sandglass/sql-sqlite"
import * as ConfigProvider from "effect/ConfigProvider"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"

const conversation = { id: "c-1", userId: "u-1", createdAt: 1, lastActivity: 1 }

const message = (id: string, timestamp = 2) => ({
  id,
  conversationId: conversation.id,
  role: "user" as const,
  content: id,
  timestamp
})

const folder = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "sandglass-conversations-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

const open = (filename: string) => Layer.build(Layer.fresh(SqliteConversations.layer({ filename })))

const failsToOpen = (filename: string) =>
  Effect.map(Effect.flip(Effect.scoped(open(filename))), (error) => {
    assert.instanceOf(error, ConversationError.ConversationStoreError)
    assert.deepStrictEqual([error.method, error.reason], ["layer", "Connection"])
    assert.include(error.message, filename)
  })

describe("SqliteConversations.layer", () => {
  it.scoped("creates the folders, keeps the file, and closes it with the scope", () =>
    Effect.gen(function* () {
      const filename = join(yield* folder, "new", "dir", "conversations.db")
      const scope = yield* Scope.make()
      const conversations = Context.get(yield* Scope.extend(open(filename), scope), Conversations.Conversations)
      yield* conversations.createConversation(conversation)
      yield* conversations.storeMessage(message("m-1"))
      yield* Scope.close(scope, Exit.void)
      for (const operation of [
        conversations.getConversation("c-1"),
        conversations.storeMessage(message("m-2")),
        Stream.runDrain(conversations.streamMessages("c-1"))
      ]) {
        const error = yield* Effect.flip(Effect.asVoid<unknown, ConversationError.ConversationError, never>(operation))
        assert.instanceOf(error, ConversationError.ConversationStoreError)
        assert.strictEqual(error.reason, "Connection")
        assert.isTrue(error.isRetryable && ConversationError.isConversationError(error))
        assert.match(error.method, /^Conversations\.(?:getConversation|storeMessage|streamMessages)$/)
      }
      assert.isFalse(existsSync(`${filename}-wal`))
      const again = Context.get(yield* open(filename), Conversations.Conversations)
      assert.deepStrictEqual(yield* again.getMessages("c-1"), [message("m-1")])
    })
  )

  it.scoped("what cannot be opened is an error, and stays as it is", () =>
    Effect.gen(function* () {
      const path = yield* folder
      const notes = join(path, "notes.txt")
      writeFileSync(notes, "no database at all\n".repeat(100))
      yield* failsToOpen(notes)
      yield* failsToOpen(join(notes, "conversations.db"))
      yield* failsToOpen(path)
      yield* failsToOpen("/proc/sandglass/conversations.db")
      assert.strictEqual(yield* Effect.promise(() => Bun.file(notes).text()), "no database at all\n".repeat(100))
    })
  )

  it.scoped("a file that is deleted while it is open is an error, and no silent loss", () =>
    Effect.gen(function* () {
      const filename = join(yield* folder, "conversations.db")
      const conversations = Context.get(yield* open(filename), Conversations.Conversations)
      yield* conversations.createConversation(conversation)
      rmSync(filename)
      for (const operation of [
        conversations.storeMessage(message("m-1")),
        conversations.getMessages("c-1"),
        conversations.deleteConversation("c-1")
      ]) {
        const error = yield* Effect.flip(Effect.asVoid<unknown, ConversationError.ConversationError, never>(operation))
        assert.instanceOf(error, ConversationError.ConversationStoreError)
        assert.strictEqual(error.reason, "Connection")
        assert.include(error.message, filename)
      }
    })
  )

  it.scoped("layerConfig opens the file of the configuration", () =>
    Effect.gen(function* () {
      const filename = join(yield* folder, "configured.db")
      const provider = ConfigProvider.fromMap(new Map([["SANDGLASS_CONVERSATIONS_FILE", filename]]))
      yield* Layer.build(SqliteConversations.layerConfig()).pipe(Effect.withConfigProvider(provider))
      assert.isTrue(existsSync(filename))
    })
  )

  it.scopedLive("waits for another process that writes, and changes nothing when that takes too long", () =>
    Effect.gen(function* () {
      const filename = join(yield* folder, "conversations.db")
      const layer = SqliteConversations.layer({ filename, busyTimeout: 0, contentionTimeout: "400 millis" })
      const conversations = Context.get(yield* Layer.build(layer), Conversations.Conversations)
      yield* conversations.createConversation(conversation)
      const other = new Database(filename)
      yield* Effect.addFinalizer(() => Effect.sync(() => other.close()))
      other.run("BEGIN IMMEDIATE")
      const store = yield* Effect.fork(conversations.storeMessage(message("m-1")))
      yield* Effect.sleep("100 millis")
      other.run("COMMIT")
      yield* Fiber.join(store)
      other.run("BEGIN IMMEDIATE")
      const error = yield* Effect.flip(conversations.storeMessage(message("m-2")))
      assert.instanceOf(error, ConversationError.ConversationStoreError)
      assert.strictEqual(error.reason, "Contention")
      // Who writes does not keep anybody from reading.
      assert.deepStrictEqual(yield* conversations.getMessages("c-1"), [message("m-1")])
      other.run("ROLLBACK")
      yield* conversations.storeMessage(message("m-2"))
    })
  )
})

describe("SqlConversations and the client of an application", () => {
  it.effect("the ledger and the conversations in one file commit together, or not at all", () =>
    Effect.gen(function* () {
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
      assert.deepStrictEqual(yield* conversations.getConversation("c-1"), Option.some(conversation))
      yield* sql.withTransaction(
        Effect.gen(function* () {
          yield* turn("done")
          // What fails inside undoes itself, and nothing else.
          const exists = yield* Effect.flip(conversations.storeMessages([message("new"), message("done")]))
          assert.strictEqual(exists._tag, "MessageExists")
          assert.deepStrictEqual(yield* conversations.getMessages("c-1"), [message("done", 5)])
        })
      )
      assert.deepStrictEqual(yield* conversations.getMessages("c-1"), [message("done", 5)])
      assert.strictEqual(yield* Stream.runCount(ledger.read({ events: ["turn"] })), 1)
    }).pipe(
      Effect.provide(SqlConversations.layer.pipe(Layer.provideMerge(SqliteLedger.layer({ filename: ":memory:" }))))
    )
  )

  it.scoped("never in the transaction of another client", () =>
    Effect.gen(function* () {
      const conversations = Context.get(yield* open(":memory:"), Conversations.Conversations)
      const other = Context.get(
        yield* Layer.build(Layer.fresh(SqliteClient.layer({ filename: ":memory:" }))),
        SqlClient.SqlClient
      )
      yield* Effect.flip(
        other.withTransaction(
          Effect.gen(function* () {
            yield* conversations.createConversation(conversation)
            yield* conversations.storeMessage(message("m-1"))
            return yield* Effect.fail("undo")
          })
        )
      )
      assert.deepStrictEqual(yield* conversations.getMessages("c-1"), [message("m-1")])
    })
  )

  it.effect("whatever the client makes of names, and whether foreign keys are on or not", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const conversations = yield* Conversations.Conversations
      const full = { ...conversation, title: "t", metadata: { snake_case: 1, camelCase: { a_b: 2 } } }
      for (const foreignKeys of ["OFF", "ON"]) {
        yield* sql.unsafe(`PRAGMA foreign_keys = ${foreignKeys}`)
        yield* conversations.createConversation(full)
        const stored = { ...message("m-1"), toolCallId: "call-1", metadata: { snake_case: 1 } }
        yield* conversations.storeMessage(stored)
        assert.deepStrictEqual(yield* conversations.getMessages("c-1"), [stored])
        assert.deepStrictEqual(yield* conversations.listConversations("u-1"), [{ ...full, lastActivity: 2 }])
        assert.isTrue(yield* conversations.deleteConversation("c-1"))
        assert.deepStrictEqual(yield* sql.unsafe("SELECT * FROM sandglass_messages"), [])
      }
    }).pipe(
      Effect.provide(
        SqlConversations.layer.pipe(
          Layer.provideMerge(
            SqliteClient.layer({
              filename: ":memory:",
              transformQueryNames: (name) => name.toUpperCase(),
              transformResultNames: (name) => `changed_${name}`
            })
          )
        )
      )
    )
  )

  it.scoped("a second start changes nothing", () =>
    Effect.gen(function* () {
      const filename = join(yield* folder, "conversations.db")
      const schema = Effect.flatMap(SqlClient.SqlClient, (sql) =>
        Effect.all([sql`SELECT * FROM sqlite_master ORDER BY name`, sql`PRAGMA schema_version`])
      )
      const start = Effect.suspend(() => Effect.provide(schema, Layer.fresh(SqliteConversations.layer({ filename }))))
      const before = yield* start
      assert.isAbove(before[0].length, 5)
      assert.deepStrictEqual(yield* start, before)
      // Missing indexes come back.
      const database = new Database(filename)
      database.run("DROP INDEX sandglass_messages_history")
      database.close()
      assert.deepStrictEqual(
        (yield* start)[0].map(({ sql }) => sql),
        before[0].map(({ sql }) => sql)
      )
    })
  )

  it.effect("rows that another program wrote read as well as can be", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const conversations = yield* Conversations.Conversations
      yield* sql.unsafe(
        "INSERT INTO sandglass_conversations (id, user_id, created_at, last_activity, metadata, title) " +
          "VALUES ('c-1', 'u-1', '12', 'soon', 'no json', x'c3bc')"
      )
      yield* sql.unsafe(
        "INSERT INTO sandglass_messages (id, conversation_id, role, timestamp, content, tool_calls, metadata, total_tokens) " +
          "VALUES ('m-1', 'c-1', 'user', 1, 7, '{}', '[1]', 'many')"
      )
      assert.deepStrictEqual(
        yield* conversations.getConversation("c-1"),
        Option.some({
          id: "c-1",
          userId: "u-1",
          createdAt: 12,
          lastActivity: 0,
          title: "ü",
          metadata: { value: "no json" }
        })
      )
      const found: unknown = yield* conversations.getMessages("c-1")
      assert.deepStrictEqual(found, [
        {
          ...message("m-1", 1),
          content: "7",
          usage: { promptTokens: 0, completionTokens: 0, totalTokens: 0 },
          toolCalls: [{}],
          metadata: { value: [1] }
        }
      ])
    }).pipe(Effect.provide(SqliteConversations.layer({ filename: ":memory:" })))
  )

  it.effect("a large batch lets other fibers have their turn", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations.Conversations
      yield* conversations.createConversation(conversation)
      let turns = 0
      const others = yield* Effect.fork(
        Effect.forever(
          Effect.zipRight(
            Effect.sync(() => {
              turns += 1
            }),
            Effect.yieldNow()
          )
        )
      )
      yield* conversations.storeMessages(Array.from({ length: 256 * 20 }, (_, index) => message(`m-${index}`)))
      yield* Fiber.interrupt(others)
      assert.isAbove(turns, 5)
    }).pipe(Effect.provide(SqliteConversations.layer({ filename: ":memory:" })))
  )
})
