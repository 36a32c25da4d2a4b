import { spawn } from "node:child_process"
import * as Fs from "node:fs"
import { createServer } from "node:net"
import * as Os from "node:os"
import * as Path from "node:path"
import { createInterface } from "node:readline"
import { fileURLToPath } from "node:url"
import { assert, describe, it } from "@effect/vitest"
import { Ledger } from "@sandglass/core"
import { LocalOpenSandbox } from "@sandglass/local"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Stream from "effect/Stream"
import type { Order } from "../support/durableRunner.js"
import { engine } from "../support/durableRunner.js"
import { database } from "../support/postgres.js"
import { expected, live, wanted } from "../support/tenSteps.js"

const folder = Effect.acquireRelease(
  Effect.sync(() => Fs.mkdtempSync(Path.join(Os.tmpdir(), "sandglass-cluster-"))),
  (folder) => Effect.sync(() => Fs.rmSync(folder, { recursive: true, force: true }))
)

const freePort = Effect.async<number>((resume) => {
  const server = createServer().listen(0, "127.0.0.1", () => {
    const address = server.address()
    server.close(() => resume(Effect.succeed(typeof address === "object" && address !== null ? address.port : 0)))
  })
})

interface Runner {
  readonly kill: () => void
  readonly closed: Promise<void>
}

const startRunner = (order: Order, onLine: (line: string, runner: Runner) => void) =>
  Effect.acquireRelease(
    Effect.sync((): Runner => {
      const script = fileURLToPath(new URL("../support/durableRunner.ts", import.meta.url))
      const child = spawn(process.execPath, [script], { stdio: ["pipe", "pipe", "inherit"] })
      const closed = new Promise<void>((resolve) => child.once("close", () => resolve()))
      const runner = { kill: () => void child.kill("SIGKILL"), closed }
      createInterface({ input: child.stdout }).on("line", (line) => onLine(line, runner))
      child.stdin.write(`${JSON.stringify(order)}\n`)
      return runner
    }),
    ({ closed, kill }) => {
      kill()
      return Effect.promise(() => closed)
    }
  )

describe("a workflow on an engine of three processes over Postgres", () => {
  it.scopedLive(
    "ends on another process when the one that works on it is killed, with every step done once",
    () =>
      Effect.gen(function* () {
        const directory = yield* folder
        const server = yield* LocalOpenSandbox.make({ mode: "plain" })
        const ledger = Redacted.value(yield* database)
        const effects = Path.join(directory, "effects")
        Fs.writeFileSync(effects, "")
        const options = { ledger, server: { url: server.url, apiKey: Redacted.value(server.apiKey) } }

        // The first connection makes the engine's tables.
        yield* Effect.scoped(Layer.build(engine(ledger)))
        let killed: Runner | undefined
        const atWork = new Set<Runner>()
        const onCreate = (line: string, runner: Runner) => {
          if (!line.startsWith("create ")) return
          atWork.add(runner)
          if (killed !== undefined) return
          killed = runner
          // In the middle of its first stage.
          const mark = setInterval(() => {
            if (!Fs.readFileSync(effects, "utf8").includes("flaky")) return
            clearInterval(mark)
            runner.kill()
          }, 5)
        }
        for (let index = 0; index < 3; index++) {
          yield* startRunner({ ...options, effects, port: yield* freePort }, onCreate)
        }

        let result: unknown
        const client = yield* startRunner({ ...options, effects, runId: "the-run" }, (line) => {
          if (line.startsWith("result ")) result = JSON.parse(line.slice("result ".length))
        })
        yield* Effect.promise(() => client.closed)
        assert.deepInclude(result, { runId: "the-run", ...expected })

        const counts: Record<string, number> = {}
        for (const line of Fs.readFileSync(effects, "utf8").trimEnd().split("\n"))
          counts[line] = (counts[line] ?? 0) + 1
        assert.deepStrictEqual(counts, wanted)
        assert.strictEqual(atWork.size, 2, "one that was killed, and one that went on")

        yield* Effect.gen(function* () {
          const book = yield* Ledger.Ledger
          const events = Chunk.toReadonlyArray(yield* Stream.runCollect(book.read({ sandboxId: "the-run" })))
          assert.deepStrictEqual(
            events.map(({ event }) => event).filter((event) => event.startsWith("run.")),
            ["run.started", "run.resumed", "run.completed"]
          )
          const running = yield* Stream.runCount(book.sandboxes({ status: "running" }))
          assert.strictEqual(running, 0)
        }).pipe(Effect.provide(live(options)))
      }),
    200_000
  )
})
