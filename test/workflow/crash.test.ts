import { spawn } from "node:child_process"
import * as Fs from "node:fs"
import * as Os from "node:os"
import * as Path from "node:path"
import { createInterface } from "node:readline"
import { fileURLToPath } from "node:url"
import { assert, describe, it } from "@effect/vitest"
import { Ledger, OpenSandbox } from "@sandglass/core"
import { LocalOpenSandbox } from "@sandglass/local"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import { database } from "../support/postgres.js"
import { expected, live, wanted } from "../support/tenSteps.js"

/** On each backend. */
const kills = Number(process.env["CRASH_KILLS"] ?? 25)
/** How many runs are under way at once. */
const lanes = 3
/**
 * After how many lines of its progress at most a process is killed, and how many milliseconds later. What it has from the ledger does not
 * count; a run prints about 60 lines.
 */
const patience = { lines: 20, millis: 40 }

const folder = Effect.acquireRelease(
  Effect.sync(() => Fs.mkdtempSync(Path.join(Os.tmpdir(), "sandglass-crash-"))),
  (folder) => Effect.sync(() => Fs.rmSync(folder, { recursive: true, force: true }))
)

/** One file starts in a fraction of the time of hundreds. */
const bundle = (folder: string) =>
  Effect.promise(() =>
    Bun.build({
      entrypoints: [fileURLToPath(new URL("../support/workflowWorker.ts", import.meta.url))],
      outdir: folder,
      target: "bun"
    })
  ).pipe(Effect.map(({ outputs }) => outputs[0]?.path ?? ""))

interface Worker {
  /** Gives it its order, and kills it after so many lines of its progress. Its result, if it had one. */
  readonly work: (order: object, lines: number) => Effect.Effect<string | undefined>
}

/** A process that waits for its order. */
const startWorker = (script: string) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.sync(() => spawn(process.execPath, [script], { stdio: ["pipe", "pipe", "inherit"] })),
      (child) => Effect.sync(() => child.kill("SIGKILL"))
    ),
    (child): Worker => {
      const progress: Array<string> = []
      let limit = Number.POSITIVE_INFINITY
      const closed = new Promise<number | null>((resolve) => child.once("close", resolve))
      const ready = new Promise<void>((resolve) => {
        createInterface({ input: child.stdout }).on("line", (line) => {
          if (line === "ready") return resolve()
          progress.push(line)
          if (!line.includes("from the ledger")) limit--
          if (limit === 0) setTimeout(() => child.kill("SIGKILL"), Math.random() * patience.millis)
        })
      })
      return {
        work: (order, lines) =>
          Effect.gen(function* () {
            limit = lines
            yield* Effect.promise(() => Promise.race([ready, closed]))
            child.stdin.end(`${JSON.stringify(order)}\n`)
            const code = yield* Effect.promise(() => closed)
            if (code !== 0 && code !== null) return yield* Effect.dieMessage(`the worker ended with ${code}`)
            const last = progress.at(-1)
            return last?.startsWith("result ") === true ? last.slice("result ".length) : undefined
          })
      }
    }
  )

const all = <A, E, R>(stream: Stream.Stream<A, E, R>) => Effect.map(Stream.runCollect(stream), Chunk.toReadonlyArray)

const survives = (ledgerOf: (folder: string) => Effect.Effect<string, never, Scope.Scope>) =>
  Effect.gen(function* () {
    const directory = yield* folder
    const [server, script, ledger] = yield* Effect.all(
      [LocalOpenSandbox.make({ mode: "plain" }), bundle(directory), ledgerOf(directory)],
      { concurrency: 3 }
    )
    const options = { ledger, server: { url: server.url, apiKey: Redacted.value(server.apiKey) } }
    let killed = 0
    let runs = 0
    const results: Array<readonly [runId: string, result: unknown]> = []

    const lane = Effect.gen(function* () {
      let next = yield* startWorker(script)
      while (killed < kills) {
        const runId = `run-${runs++}`
        const order = { ...options, runId, effects: Path.join(directory, runId) }
        Fs.writeFileSync(order.effects, "")
        for (let result: string | undefined; result === undefined; ) {
          const worker = next
          next = yield* startWorker(script)
          const lines = killed < kills ? 1 + Math.floor(Math.random() * patience.lines) : Number.POSITIVE_INFINITY
          result = yield* worker.work(order, lines)
          if (result === undefined) killed++
          else results.push([runId, JSON.parse(result)])
        }
      }
    })
    yield* Effect.all(
      Array.from({ length: lanes }, () => lane),
      { concurrency: lanes, discard: true }
    )

    assert.isAtLeast(killed, kills)
    for (const [runId, result] of results) {
      assert.deepInclude(result, { runId, ...expected })
      const lines = Fs.readFileSync(Path.join(directory, runId), "utf8").trimEnd().split("\n")
      const counts: Record<string, number> = {}
      for (const line of lines) counts[line] = (counts[line] ?? 0) + 1
      assert.deepStrictEqual(counts, wanted, runId)
    }

    // What a killed process left behind is gone.
    yield* Effect.gen(function* () {
      const book = yield* Ledger.Ledger
      assert.deepStrictEqual(yield* all(book.sandboxes({ status: "running" })), [])
      const points = new Set<string>()
      for (const [runId] of results) {
        const sessions = [runId, ...(yield* all(book.sandboxes({ runId }))).map(({ sandboxId }) => sandboxId)]
        const entries = (yield* Effect.forEach(sessions, (sandboxId) => all(book.read({ sandboxId })))).flat()
        entries.sort((a, b) => a.id - b.id)
        entries.forEach(({ event }, index) => {
          const before = entries[index - 1]
          if (event === "run.resumed") points.add(`${before?.event} ${before?.stepIdx}`)
        })
        const [end] = yield* all(book.read({ sandboxId: runId, order: "desc", limit: 1 }))
        assert.strictEqual(end?.event, "run.completed")
        for (const { sandboxId } of yield* all(book.sandboxes({ runId }))) {
          const steps = yield* all(book.read({ sandboxId, events: ["step.completed"] }))
          const names = steps.map(({ payload }) => (payload as { readonly step: string }).step)
          assert.deepStrictEqual(names, [...new Set(names)], "a step that has completed does not complete again")
        }
      }
      assert.isAtLeast(points.size, 8, "the kills came at many different points")
    }).pipe(Effect.provide(live(options)))
    yield* Effect.gen(function* () {
      const api = yield* OpenSandbox.OpenSandbox
      assert.deepStrictEqual(
        (yield* all(api.list())).map(({ id }) => id),
        []
      )
    }).pipe(Effect.provide(OpenSandbox.layer({ url: server.url, apiKey: server.apiKey })))
  })

describe(`a workflow of ten steps, killed ${kills} times at random points`, () => {
  it.scopedLive("on SQLite", () => survives((folder) => Effect.succeed(Path.join(folder, "ledger.db"))), 240_000)
  it.scopedLive("on Postgres", () => survives(() => Effect.map(database, Redacted.value)), 240_000)
})
