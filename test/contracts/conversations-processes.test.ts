import type { ChildProcess } from "node:child_process"
import { spawn } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import * as SqlClient from "@effect/sql/SqlClient"
import { assert, describe, it } from "@effect/vitest"
import { Conversations } from "@sandglass/memory"
import { PgConversations } from "@sandglass/sql-pg"
import { SqliteConversations } from "@sandglass/sql-sqlite"
import * as Arr from "effect/Array"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import { database } from "../support/postgres.js"

const bun = fileURLToPath(new URL("../../node_modules/.bin/bun", import.meta.url))
const script = fileURLToPath(new URL("../support/conversationWriter.ts", import.meta.url))

const start = (target: string, name: string, ...tasks: ReadonlyArray<string>) =>
  Effect.acquireRelease(
    Effect.sync(() => spawn(bun, [script, target, name, ...tasks], { stdio: ["ignore", "pipe", "pipe"] })),
    (child) => Effect.sync(() => void child.kill("SIGKILL"))
  )

const ready = (child: ChildProcess) =>
  Effect.async<void>((resume) => void child.stdout?.once("data", () => resume(Effect.void)))

interface Ended {
  readonly code: number | null
  readonly stderr: string
  /** How many batches it says that it stored. */
  readonly stored: number
}

const ended = (child: ChildProcess) =>
  Effect.async<Ended>((resume) => {
    let stderr = ""
    let stdout = ""
    child.stderr?.on("data", (chunk) => {
      stderr += String(chunk)
    })
    child.stdout?.on("data", (chunk) => {
      stdout += String(chunk)
    })
    child.once("close", (code) =>
      resume(Effect.succeed({ code, stderr, stored: Number(/stored (\d+)/.exec(stdout)?.[1]) }))
    )
  })

/** Runs them all at once; how many batches each of them stored. */
const together = (target: string, ...processes: ReadonlyArray<readonly [name: string, ...tasks: Array<string>]>) =>
  Effect.gen(function* () {
    const children = yield* Effect.forEach(processes, ([name, ...tasks]) => start(target, name, ...tasks))
    const results = yield* Effect.forEach(children, ended, { concurrency: "unbounded" })
    for (const { code, stderr } of results) {
      assert.deepStrictEqual([code, stderr], [0, ""])
    }
    return results.map(({ stored }) => stored)
  })

const temporaryFile = Effect.map(
  Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "sandglass-processes-"))),
    (folder) => Effect.sync(() => rmSync(folder, { recursive: true, force: true }))
  ),
  (folder) => join(folder, "conversations.db")
)

interface Backend {
  readonly name: string
  /** Where a fresh database is. */
  readonly target: Effect.Effect<string, never, Scope.Scope>
  readonly layer: (target: string) => ReturnType<typeof SqliteConversations.layer | typeof PgConversations.layer>
}

const backends: ReadonlyArray<Backend> = [
  { name: "SQLite", target: temporaryFile, layer: (filename) => SqliteConversations.layer({ filename }) },
  {
    name: "Postgres",
    target: Effect.map(database, Redacted.value),
    layer: (url) => PgConversations.layer({ url: Redacted.make(url) })
  }
]

/** What must hold for everything that is stored, as the tables say and as the service says. */
const invariants = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const conversations = yield* Conversations.Conversations
  const orphans = yield* sql.unsafe(
    "SELECT id FROM sandglass_messages WHERE conversation_id NOT IN (SELECT id FROM sandglass_conversations)"
  )
  assert.deepStrictEqual(orphans, [])
  const ids = yield* sql.unsafe<{ readonly id: string }>("SELECT id FROM sandglass_conversations ORDER BY id")
  for (const { id } of ids) {
    const messages = yield* conversations.getMessages(id)
    assert.strictEqual(yield* conversations.getMessageCount(id), messages.length)
    const stored = Option.getOrThrow(yield* conversations.getConversation(id))
    assert.strictEqual(stored.lastActivity, Math.max(0, ...messages.map(({ timestamp }) => timestamp)))
    const usage = yield* conversations.getConversationTokenUsage(id)
    assert.deepStrictEqual(usage, {
      promptTokens: messages.length * 2,
      completionTokens: messages.length,
      totalTokens: messages.length * 3,
      ...(messages.length === 0
        ? {}
        : { cacheReadTokens: messages.reduce((sum, message) => sum + (message.usage?.cacheReadTokens ?? 0), 0) })
    })
  }
  return ids.map(({ id }) => id)
})

for (const { layer, name, target } of backends) {
  describe(`conversations and several processes: ${name}`, () => {
    it.scopedLive(
      "two processes patch different fields and store messages into one conversation",
      () =>
        Effect.gen(function* () {
          const at = yield* target
          yield* together(at, ["owner", "create:shared"])
          yield* together(
            at,
            ["a", "store:shared:60:25", "patch:shared:title:150"],
            ["b", "store:shared:50:30", "patch:shared:agentId:150"]
          )
          yield* Effect.gen(function* () {
            const conversations = yield* Conversations.Conversations
            assert.deepStrictEqual(yield* invariants, ["shared"])
            assert.strictEqual(yield* conversations.getMessageCount("shared"), 3_000)
            assert.deepStrictEqual(
              yield* conversations.getConversation("shared"),
              Option.some({
                id: "shared",
                userId: "owner",
                createdAt: 0,
                lastActivity: 1_500,
                title: "150",
                agentId: "150"
              })
            )
            // Of one time each process's own stand in its order.
            for (const writer of ["a", "b"]) {
              const times = (yield* conversations.getMessages("shared"))
                .filter(({ id }) => id.includes(`/${writer}/`))
                .map(({ timestamp }) => timestamp)
              assert.deepStrictEqual(times, Arr.range(1, 1_500))
            }
          }).pipe(Effect.provide(layer(at)))
        }),
      120_000
    )

    it.scopedLive(
      "conversations are deleted while two processes store into them",
      () =>
        Effect.gen(function* () {
          const at = yield* target
          const ids = Arr.makeBy(15, (index) => `gone${index}`)
          yield* together(at, ["owner", "create:kept", ...ids.map((id) => `create:${id}`)])
          const stores = [...ids.map((id) => `store:${id}:100000:3`), "store:kept:20:3"]
          const [a = 0, b = 0] = yield* together(at, ["a", ...stores], ["b", ...stores], ["c", "delete:gone:15:60"])
          // Both stored more than what was kept.
          assert.isAbove(Math.min(a, b), 20)
          yield* Effect.gen(function* () {
            const conversations = yield* Conversations.Conversations
            assert.deepStrictEqual(yield* invariants, ["kept"])
            assert.strictEqual(yield* conversations.getMessageCount("kept"), 120)
          }).pipe(Effect.provide(layer(at)))
        }),
      120_000
    )

    it.scopedLive(
      "of a process that is killed only whole batches remain",
      () =>
        Effect.gen(function* () {
          const at = yield* target
          yield* together(at, ["owner", "create:c0", "create:c1", "create:c2"])
          for (const [index, pause] of (["60 millis", "140 millis", "250 millis"] as const).entries()) {
            // Batches of 300 take several statements each.
            const child = yield* start(at, "killed", `store:c${index}:100000:300`)
            const end = yield* Effect.fork(ended(child))
            yield* ready(child)
            yield* Effect.sleep(pause)
            child.kill("SIGKILL")
            yield* end
          }
          yield* Effect.gen(function* () {
            const conversations = yield* Conversations.Conversations
            let stored = 0
            for (const id of ["c0", "c1", "c2"]) {
              // On Postgres the server may not have noticed yet; it then rolls back, or commits what it was told to.
              yield* conversations.updateConversation(id, { title: "after" })
              const count = yield* conversations.getMessageCount(id)
              assert.strictEqual(count % 300, 0)
              stored += count
            }
            assert.isAbove(stored, 0)
            yield* invariants
          }).pipe(Effect.provide(layer(at)))
        }),
      120_000
    )

    it.scopedLive(
      "eight processes create the tables of an empty database at once",
      () =>
        Effect.gen(function* () {
          const at = yield* target
          const names = Arr.makeBy(8, (index) => `p${index}`)
          yield* together(at, ...names.map((name) => [name, `create:${name}`] as const))
          const ids = yield* Effect.provide(invariants, layer(at))
          assert.deepStrictEqual(ids, names)
        }),
      120_000
    )
  })
}
