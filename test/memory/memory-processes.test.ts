import { Database } from "bun:sqlite"
import type { ChildProcess } from "node:child_process"
import { spawn } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { assert, describe, it } from "@effect/vitest"
import { EmbeddingModel, SemanticMemory, WorkingMemory } from "@sandglass/memory"
import { PgMemory } from "@sandglass/sql-pg"
import { SqliteMemory } from "@sandglass/sql-sqlite"
import * as Arr from "effect/Array"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import { database } from "../support/postgres.js"

const bun = fileURLToPath(new URL("../../node_modules/.bin/bun", import.meta.url))
const script = fileURLToPath(new URL("../support/memoryWriter.ts", import.meta.url))

type Where = { readonly MEMORY_FILE: string } | { readonly DATABASE_URL: string }

const temporaryFile = Effect.map(
  Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "sandglass-memories-"))),
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

const start = (where: Where, ...args: ReadonlyArray<string | number>) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const { DATABASE_URL: _, ...env } = process.env
      return spawn(bun, [script, ...args.map(String)], { stdio: ["ignore", "pipe", "pipe"], env: { ...env, ...where } })
    }),
    (child) => Effect.sync(() => void child.kill("SIGKILL"))
  )

const ready = (child: ChildProcess) =>
  Effect.async<void>((resume) => void child.stdout?.once("data", () => resume(Effect.void)))

/** How it ended, and what it complained of. */
const ended = (child: ChildProcess) =>
  Effect.async<readonly [code: number | null, stderr: string]>((resume) => {
    let stderr = ""
    child.stderr?.on("data", (chunk) => {
      stderr += String(chunk)
    })
    child.stdout?.resume()
    child.once("close", (code) => resume(Effect.succeed([code, stderr])))
  })

const shared = { resourceId: "shared", teamId: "team" }

const facts = Effect.flatMap(SemanticMemory.SemanticMemory, ({ prunable }) =>
  Effect.flatMap(prunable, ({ listAll }) =>
    Effect.map(Stream.runCollect(listAll(shared)), (all) => Chunk.toReadonlyArray(all).map(({ content }) => content))
  )
)

const cases = (name: string, place: Effect.Effect<Where, never, Scope.Scope>) => {
  it.scopedLive(
    `${name}: two processes write at once, and nothing is lost or doubled`,
    () =>
      Effect.gen(function* () {
        const where = yield* place
        const names = ["a", "b"]
        const children = yield* Effect.forEach(names, (own) => start(where, own, 40, 30))
        assert.deepStrictEqual(yield* Effect.forEach(children, ended, { concurrency: "unbounded" }), [
          [0, ""],
          [0, ""]
        ])
        yield* Effect.gen(function* () {
          const working = yield* WorkingMemory.WorkingMemory
          const semantic = yield* SemanticMemory.SemanticMemory
          assert.deepStrictEqual(yield* working.get(shared, "count"), Option.some(80))
          const fields = yield* working.get(shared, "fields")
          assert.strictEqual(Object.keys(Object(Option.getOrNull(fields))).length, 80)
          const contents = yield* facts
          assert.sameMembers(
            [...contents],
            Arr.flatMap(Arr.range(0, 39), (round) => [
              `fact ${round} of all`,
              ...Arr.flatMap(names, (own) => Arr.makeBy(30, (index) => `fact ${round}.${index} of ${own}`))
            ])
          )
          // What either of them has put into the index is found.
          for (const content of ["fact 3.7 of a", "fact 39.29 of b", "fact 17 of all"]) {
            assert.strictEqual((yield* semantic.recall(shared, content, { topK: 1 }))[0]?.content, content)
          }
        }).pipe(Effect.provide(memoryOf(where)))
      }),
    120_000
  )

  it.scopedLive(
    `${name}: eight processes start at once on an empty database`,
    () =>
      Effect.gen(function* () {
        const where = yield* place
        const children = yield* Effect.forEach(Arr.range(1, 8), (index) => start(where, index, 2, 1))
        assert.deepStrictEqual(
          yield* Effect.forEach(children, ended, { concurrency: "unbounded" }),
          Arr.makeBy(8, () => [0, ""] as const)
        )
        assert.strictEqual((yield* Effect.provide(facts, memoryOf(where))).length, 18)
      }),
    120_000
  )

  it.scopedLive(
    `${name}: of a writer that is killed only whole batches remain`,
    () =>
      Effect.gen(function* () {
        const where = yield* place
        for (const pause of ["60 millis", "170 millis", "400 millis"] as const) {
          const child = yield* start(where, `killed-${pause.replaceAll(" ", "")}`, 100_000, 600)
          const end = yield* Effect.fork(ended(child))
          yield* ready(child)
          yield* Effect.sleep(pause)
          child.kill("SIGKILL")
          yield* end
        }
        yield* Effect.gen(function* () {
          const semantic = yield* SemanticMemory.SemanticMemory
          const own = (yield* facts).filter((content) => !content.endsWith("of all"))
          assert.isAbove(own.length, 0)
          const batches = Arr.groupBy(own, (content) => content.replace(/\.\d+/, ""))
          for (const [batch, members] of Object.entries(batches)) {
            assert.strictEqual(members.length, 600, batch)
          }
          yield* semantic.remember(shared, { content: "after" })
          assert.strictEqual((yield* semantic.recall(shared, "after", { topK: 1 }))[0]?.content, "after")
        }).pipe(Effect.provide(memoryOf(where)))
        if ("MEMORY_FILE" in where) {
          const file = new Database(where.MEMORY_FILE)
          assert.deepStrictEqual(file.query("PRAGMA integrity_check").all(), [{ integrity_check: "ok" }])
          file.close()
        }
      }),
    120_000
  )
}

describe("memory and other processes", () => {
  cases("SQLite", temporaryFile)
  cases("Postgres", server)
})
