import { Database } from "bun:sqlite"
import { copyFileSync, mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { assert, describe, it } from "@effect/vitest"
import type { AgentOsImport } from "@sandglass/memory"
import { ConversationError, Conversations, MemoryError } from "@sandglass/memory"
import { SqliteConversations } from "@sandglass/sql-sqlite"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"

const fixture = (name: string) => fileURLToPath(new URL(`../fixtures/agentos/${name}`, import.meta.url))

const today = fixture("agentos.sqlite3")
const earlier = fixture("agentos-13-columns.sqlite3")

const folder = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "sandglass-agentos-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
)

/** A copy of the file of today with some changes. */
const changed = (...statements: ReadonlyArray<string>) =>
  Effect.map(folder, (path) => {
    const filename = join(path, "agentos.sqlite3")
    copyFileSync(today, filename)
    const database = new Database(filename)
    for (const statement of statements) {
      database.run(statement)
    }
    database.close()
    return filename
  })

const store = Effect.provide(SqliteConversations.layer({ filename: ":memory:" }))

const told = ({ problems }: AgentOsImport.Report) =>
  problems.map(({ id, kind, table }) => `${kind} ${table} ${id}`).toSorted()

describe("SqliteConversations.importAgentOs", () => {
  it.effect("the layout of today: everything but the orphan, which is reported whole", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations.Conversations
      const before = readFileSync(today)
      const report = yield* SqliteConversations.importAgentOs(today)
      assert.deepStrictEqual(report, {
        conversations: 3,
        messages: 4,
        alreadyThere: 0,
        problems: [
          {
            kind: "orphan",
            table: "messages",
            id: "m-orphan",
            description: 'there is no conversation "conv-gone"',
            row: {
              id: "m-orphan",
              conversationId: "conv-gone",
              role: "user",
              content: "left behind by a cascade that did not run",
              timestamp: 1_767_225_665_000,
              model: null,
              promptTokens: null,
              completionTokens: null,
              totalTokens: null,
              toolCalls: null,
              toolCallId: null,
              name: null,
              metadata: null,
              cacheReadTokens: null,
              cacheCreationTokens: null
            }
          }
        ]
      })
      assert.deepStrictEqual(yield* conversations.listConversations("user-1"), [
        { id: "conv-2", userId: "user-1", createdAt: 1_767_225_700_000, lastActivity: 1_767_225_700_000 },
        {
          id: "conv-1",
          userId: "user-1",
          agentId: "agent-coding",
          title: "Größe & emoji 🚀",
          createdAt: 1_767_225_600_000,
          lastActivity: 1_767_225_665_000,
          metadata: { tags: ["a", "b"], nested: { n: 1.5 } }
        }
      ])
      const [empty] = yield* conversations.listConversations("user-2")
      assert.deepStrictEqual(empty?.metadata, {})
      const base = { conversationId: "conv-1" }
      assert.deepStrictEqual(yield* conversations.getMessages("conv-1"), [
        { ...base, id: "m-1", role: "user", content: "Explain async/await", timestamp: 1_767_225_600_000 },
        {
          ...base,
          id: "m-2",
          role: "assistant",
          content: "",
          timestamp: 1_767_225_660_000,
          model: "claude-sonnet-4-6",
          usage: {
            promptTokens: 100,
            completionTokens: 20,
            totalTokens: 120,
            cacheReadTokens: 80,
            cacheCreationTokens: 15
          },
          toolCalls: [{ id: "call-1", type: "function", function: { name: "search", arguments: '{"q":"x"}' } }]
        },
        {
          ...base,
          id: "m-3",
          role: "tool",
          content: '{"hits":0}',
          timestamp: 1_767_225_660_000,
          toolCallId: "call-1",
          name: "search"
        },
        {
          ...base,
          id: "m-4",
          role: "assistant",
          content: "done",
          timestamp: 1_767_225_665_000,
          model: "claude-sonnet-4-6",
          usage: { promptTokens: 50, completionTokens: 10, totalTokens: 60, cacheReadTokens: 0 },
          metadata: { finish: "stop" }
        }
      ])
      assert.deepStrictEqual(yield* conversations.getConversationTokenUsage("conv-1"), {
        promptTokens: 150,
        completionTokens: 30,
        totalTokens: 180,
        cacheReadTokens: 80,
        cacheCreationTokens: 15
      })
      assert.deepStrictEqual(readFileSync(today), before)
    }).pipe(store)
  )

  it.effect("the layout without the columns for cached tokens", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations.Conversations
      const report = yield* SqliteConversations.importAgentOs(earlier)
      assert.deepStrictEqual(report, { conversations: 1, messages: 1, alreadyThere: 0, problems: [] })
      assert.deepStrictEqual(
        yield* conversations.getConversation("old-1"),
        Option.some({
          id: "old-1",
          userId: "user-9",
          title: "old",
          createdAt: 1_700_000_000_000,
          lastActivity: 1_700_000_000_001
        })
      )
      assert.deepStrictEqual(yield* conversations.getMessages("old-1"), [
        {
          id: "old-m-1",
          conversationId: "old-1",
          role: "assistant",
          content: "hi",
          timestamp: 1_700_000_000_001,
          model: "m"
        }
      ])
    }).pipe(store)
  )

  it.scoped("a second import finds everything there, and one that was interrupted is finished", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations.Conversations
      yield* SqliteConversations.importAgentOs(today)
      yield* conversations.deleteMessage("m-3")
      yield* conversations.deleteConversation("conv-2")
      const report = yield* SqliteConversations.importAgentOs(today)
      assert.deepInclude(report, { conversations: 1, messages: 1, alreadyThere: 5 })
      assert.deepStrictEqual(told(report), ["orphan messages m-orphan"])
      assert.strictEqual(yield* conversations.getMessageCount("conv-1"), 4)
    }).pipe(store)
  )

  it.scoped("what cannot be imported is told, and keeps nothing else from being so", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations.Conversations
      const filename = yield* changed(
        "INSERT INTO conversations VALUES ('bad', 'u', NULL, 1, 1, NULL, '{broken')",
        "INSERT INTO conversations VALUES ('nobody', '', NULL, 1, 1, NULL, NULL)",
        "INSERT INTO conversations VALUES (NULL, 'u', NULL, 1, 1, NULL, NULL)",
        "INSERT INTO conversations VALUES ('taken', 'u', NULL, 1, 1, NULL, '[1]')",
        "INSERT INTO conversations VALUES ('other', 'u', NULL, 1, 1, 'theirs', NULL)",
        ...[
          ["of-bad", "bad", "'text'", "1", "NULL"],
          ["of-other", "other", "'text'", "1", "NULL"],
          ["list", "conv-1", "'text'", "1", "'[]'"],
          ["no-time", "conv-1", "'text'", "'yesterday'", "NULL"],
          ["half-a-time", "conv-1", "'text'", "1.5", "NULL"],
          ["bytes", "conv-1", "x'00ff'", "1", "NULL"],
          ["theirs", "conv-1", "'theirs'", "1", "NULL"],
          ["good", "conv-1", "'good'", "1", "'null'"]
        ].map(
          ([id, conversation, content, time, metadata]) =>
            `INSERT INTO messages (id, conversationId, role, content, timestamp, metadata) VALUES ('${id}', '${conversation}', 'user', ${content}, ${time}, ${metadata})`
        )
      )
      yield* conversations.createConversation({
        id: "other",
        userId: "u",
        createdAt: 1,
        lastActivity: 1,
        title: "ours"
      })
      const ours = { conversationId: "other", role: "user", content: "ours", timestamp: 1 } as const
      yield* conversations.storeMessage({ ...ours, id: "theirs" })
      const report = yield* SqliteConversations.importAgentOs(filename)
      assert.deepInclude(report, { conversations: 3, messages: 5, alreadyThere: 0 })
      assert.deepStrictEqual(told(report), [
        "conflict conversations other",
        "conflict messages of-other",
        "conflict messages theirs",
        "invalid conversations ",
        "invalid conversations bad",
        "invalid conversations nobody",
        "invalid conversations taken",
        "invalid messages bytes",
        "invalid messages half-a-time",
        "invalid messages list",
        "invalid messages no-time",
        "invalid messages of-bad",
        "orphan messages m-orphan"
      ])
      for (const { description, row } of report.problems) {
        assert.notStrictEqual(description, "")
        assert.isFalse(Object.keys(row).some((column) => column.startsWith("sandglass")))
      }
      assert.deepStrictEqual(yield* conversations.getMessages("other"), [{ ...ours, id: "theirs" }])
      assert.isTrue(Option.isSome(yield* conversations.getMessage("good")))
    }).pipe(store)
  )

  it.scoped("a count of 0, which AgentOS stores as none, is 0 where others are there", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations.Conversations
      const filename = yield* changed(
        "UPDATE messages SET promptTokens = NULL WHERE id = 'm-2'",
        "UPDATE messages SET promptTokens = NULL, completionTokens = NULL, totalTokens = NULL WHERE id = 'm-4'"
      )
      yield* SqliteConversations.importAgentOs(filename)
      const usages = (yield* conversations.getMessages("conv-1", { roles: ["assistant"] })).map(({ usage }) => usage)
      assert.deepStrictEqual(usages, [
        { promptTokens: 0, completionTokens: 20, totalTokens: 120, cacheReadTokens: 80, cacheCreationTokens: 15 },
        { promptTokens: 0, completionTokens: 0, totalTokens: 0, cacheReadTokens: 0 }
      ])
    }).pipe(store)
  )

  it.scoped("many rows, page by page, in the order in which they were stored; problems one by one", () =>
    Effect.gen(function* () {
      const conversations = yield* Conversations.Conversations
      const numbers = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 1499)"
      const filename = yield* changed(
        `INSERT INTO conversations (id, userId, createdAt, lastActivity) ${numbers} SELECT 'c-' || i, 'many', i, 5 FROM n`,
        `INSERT INTO messages (id, conversationId, role, content, timestamp) ${numbers}
          SELECT 'x-' || i, CASE i % 3 WHEN 0 THEN 'gone' WHEN 1 THEN 'conv-2' ELSE 'c-' || i END, 'user', i, 7 FROM n`
      )
      let orphans = 0
      const report = yield* SqliteConversations.importAgentOs(filename, {
        onProblem: ({ kind }) =>
          Effect.sync(() => {
            orphans += kind === "orphan" ? 1 : 0
          })
      })
      assert.deepStrictEqual(report, { conversations: 1_503, messages: 1_004, alreadyThere: 0, problems: [] })
      assert.strictEqual(orphans, 501)
      const contents = (yield* conversations.getMessages("conv-2")).map(({ content }) => Number(content))
      assert.deepStrictEqual(
        contents,
        Array.from({ length: 500 }, (_, index) => index * 3 + 1)
      )
      const newest = yield* conversations.listConversations("many", { limit: 1 })
      assert.deepInclude(newest[0], { id: "c-1499", lastActivity: 7 })
      // What fails in `onProblem` is the import's own error.
      const stop = SqliteConversations.importAgentOs(filename, { onProblem: () => Effect.fail("stop" as const) })
      assert.strictEqual(yield* Effect.flip(stop), "stop")
    }).pipe(store)
  )

  it.scoped("what is no file of AgentOS is an error", () =>
    Effect.gen(function* () {
      const path = yield* folder
      const empty = join(path, "empty.db")
      new Database(empty).close()
      const other = yield* changed("DROP TABLE messages")
      for (const filename of [join(path, "missing.db"), fileURLToPath(import.meta.url), path]) {
        const error = yield* Effect.flip(SqliteConversations.importAgentOs(filename))
        assert.instanceOf(error, ConversationError.ConversationStoreError)
        assert.strictEqual(error.reason, "Connection")
        assert.include(error.message, filename)
      }
      const error = yield* Effect.flip(SqliteConversations.importAgentOs(other))
      assert.instanceOf(error, MemoryError.InvalidInput)
      assert.include(error.message, "no database of AgentOS")
    }).pipe(store)
  )
})
