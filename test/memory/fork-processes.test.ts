import { spawn } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { assert, describe, it } from "@effect/vitest"
import { EmbeddingModel, Memory } from "@sandglass/memory"
import { PgMemory } from "@sandglass/sql-pg"
import { SqliteMemory } from "@sandglass/sql-sqlite"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import { database } from "../support/postgres.js"

const bun = fileURLToPath(new URL("../../node_modules/.bin/bun", import.meta.url))
const script = fileURLToPath(new URL("../support/memoryForker.ts", import.meta.url))

type Where = { readonly MEMORY_FILE: string } | { readonly DATABASE_URL: string }

const file = Effect.map(
  Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "sandglass-forks-"))),
    (folder) => Effect.sync(() => rmSync(folder, { recursive: true, force: true }))
  ),
  (folder): Where => ({ MEMORY_FILE: join(folder, "memory.db") })
)

const server = Effect.map(database, (url): Where => ({ DATABASE_URL: Redacted.value(url) }))

const memoryOf = (where: Where) =>
  Layer.provide(
    "MEMORY_FILE" in where
      ? SqliteMemory.layer({ filename: where.MEMORY_FILE })
      : PgMemory.layer({ url: Redacted.make(where.DATABASE_URL) }),
    EmbeddingModel.layerLexical({ dimensions: 32 })
  )

const keys = 30
const facts = 1_500

const fill = Effect.gen(function* () {
  const memory = yield* Memory.FullMemory
  const parent = { resourceId: "parent" }
  for (let index = 0; index < keys; index++) yield* memory.working.set(parent, `key ${index}`, index)
  yield* memory.rememberAll(
    parent,
    Array.from({ length: facts }, (_, index) => ({ content: `fact ${index}` }))
  )
})

/** How many keys and facts a child has. */
const sizeOf = (index: number) =>
  Effect.gen(function* () {
    const memory = yield* Memory.FullMemory
    const child = { resourceId: `child-${index}` }
    return [(yield* memory.working.list(child)).size, yield* Stream.runCount(memory.listAll(child))] as const
  })

/** Runs the script, killed so many milliseconds after its first fork; what it printed, and how it ended. */
const run = (where: Where, args: ReadonlyArray<number>, killAfter?: number) =>
  Effect.async<{ readonly code: number | null; readonly stdout: string; readonly stderr: string }>((resume) => {
    const { DATABASE_URL: _, ...env } = process.env
    const child = spawn(bun, [script, ...args.map(String)], { env: { ...env, ...where } })
    let stdout = ""
    let stderr = ""
    child.stdout.on("data", (chunk) => {
      const before = stdout.includes("forked")
      stdout += String(chunk)
      if (killAfter !== undefined && !before && stdout.includes("forked")) {
        setTimeout(() => child.kill("SIGKILL"), killAfter)
      }
    })
    child.stderr.on("data", (chunk) => {
      stderr += String(chunk)
    })
    child.on("close", (code) => resume(Effect.succeed({ code, stdout, stderr })))
    return Effect.sync(() => void child.kill("SIGKILL"))
  })

const cases = (name: string, place: Effect.Effect<Where, never, Scope.Scope>) => {
  it.scopedLive(
    `${name}: of two processes that make the same forks each makes its own, and each fork is whole`,
    () =>
      Effect.gen(function* () {
        const where = yield* place
        yield* Effect.provide(fill, memoryOf(where))
        const runs = yield* Effect.all([run(where, [1, 12]), run(where, [1, 12])], { concurrency: 2 })
        for (const { code, stderr } of runs) assert.strictEqual(code, 0, stderr)
        const made = runs.map(({ stdout }) => Number(/made (\d+)/.exec(stdout)?.[1]))
        assert.strictEqual((made[0] ?? 0) + (made[1] ?? 0), 12)
        yield* Effect.gen(function* () {
          for (let index = 1; index <= 12; index++) assert.deepStrictEqual(yield* sizeOf(index), [keys, facts])
        }).pipe(Effect.provide(memoryOf(where)))
      }),
    120_000
  )

  it.scopedLive(
    `${name}: a process that is killed leaves whole forks, and no part of one`,
    () =>
      Effect.gen(function* () {
        const where = yield* place
        yield* Effect.provide(fill, memoryOf(where))
        for (const killAfter of [0, 15, 40]) {
          const { code } = yield* run(where, [1, 1_000], killAfter)
          assert.strictEqual(code, null)
        }
        yield* Effect.gen(function* () {
          const memory = yield* Memory.FullMemory
          let index = 1
          for (let size = yield* sizeOf(index); size[0] + size[1] > 0; size = yield* sizeOf(++index)) {
            assert.deepStrictEqual(size, [keys, facts])
          }
          assert.isAtLeast(index, 4)
          // Where the killed one was, another goes on.
          const result = yield* memory.fork({ resourceId: "parent" }, `child-${index}`)
          assert.deepStrictEqual([result.workingKeysCopied, result.semanticFactsCopied], [keys, facts])
        }).pipe(Effect.provide(memoryOf(where)))
      }),
    120_000
  )
}

describe("forks and other processes", () => {
  cases("SQLite", file)
  cases("Postgres", server)
})
