/** What all benchmarks share: measuring two things in turn, scratch directories, servers in processes of their own. */
import { spawn } from "node:child_process"
import * as fs from "node:fs/promises"
import * as os from "node:os"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import type { Ledger } from "@sandglass/core"
import { Execd, OpenSandbox, Sandboxes } from "@sandglass/core"
import { SqliteLedger } from "@sandglass/sql-sqlite"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"

/** A benchmark that could not be run. */
export class BenchmarkError extends Data.TaggedError("BenchmarkError")<{ readonly message: string }> {}

export interface Figure {
  readonly what: string
  readonly value: number
  readonly unit: string
  readonly aim?: { readonly atLeast: number } | { readonly atMost: number }
  readonly note?: string
}

export interface Options {
  /** Sizes that only show that the benchmark works. */
  readonly quick: boolean
}

export interface Subject {
  readonly name: string
  readonly title: string
  readonly run: (options: Options) => Effect.Effect<ReadonlyArray<Figure>, unknown, Scope.Scope>
}

export const isMet = ({ aim, value }: Figure): boolean | undefined =>
  aim === undefined ? undefined : "atLeast" in aim ? value >= aim.atLeast : value <= aim.atMost

export const median = (values: ReadonlyArray<number>): number => {
  const sorted = [...values].sort((a, b) => a - b)
  const middle = sorted.length >>> 1
  return sorted.length % 2 === 1
    ? (sorted[middle] ?? Number.NaN)
    : ((sorted[middle - 1] ?? 0) + (sorted[middle] ?? 0)) / 2
}

/** The median over the rounds of what two measurements of the same round have to do with each other. */
export const paired = (
  a: ReadonlyArray<number>,
  b: ReadonlyArray<number>,
  compare: (a: number, b: number) => number
): number => median(a.map((value, round) => compare(value, b[round] ?? Number.NaN)))

/** How many milliseconds it takes. */
export const timed = <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<number, E, R> =>
  Effect.suspend(() => {
    const start = performance.now()
    return Effect.map(self, () => performance.now() - start)
  })

/**
 * Measures several things in turn, round after round, the first rounds not counted: whatever else the machine does meets all of them.
 * Every other round goes backwards, so that none always follows the same one.
 */
export const interleaved = <K extends string, E, R>(
  rounds: { readonly warmUp: number; readonly counted: number },
  sides: { readonly [P in K]: Effect.Effect<number, E, R> }
): Effect.Effect<{ readonly [P in K]: ReadonlyArray<number> }, E, R> =>
  Effect.gen(function* () {
    const names = Object.keys(sides) as Array<K>
    const values = Object.fromEntries(names.map((name) => [name, []])) as unknown as { [P in K]: Array<number> }
    for (let round = 0; round < rounds.warmUp + rounds.counted; round++) {
      for (const name of round % 2 === 0 ? names : [...names].reverse()) {
        const value = yield* sides[name]
        if (round >= rounds.warmUp) values[name].push(value)
      }
    }
    return values
  })

/** A directory that goes with the scope. */
export const scratch: Effect.Effect<string, never, Scope.Scope> = Effect.acquireRelease(
  Effect.promise(() => fs.mkdtemp(path.join(os.tmpdir(), "sandglass-bench-"))),
  (directory) => Effect.promise(() => fs.rm(directory, { recursive: true, force: true }))
)

/** Where a server listens, as it says in its first line, and its key. */
export interface Server {
  readonly url: string
  readonly apiKey: string
  readonly description: string
}

/** Runs `servers/<name>.ts` in a process of its own: what feeds the bytes must not share the event loop of what is measured. */
export const server = (
  name: string,
  ...args: ReadonlyArray<string>
): Effect.Effect<Server, BenchmarkError, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(
      Effect.async<{ readonly server: Server; readonly stop: () => Promise<void> }, BenchmarkError>((resume) => {
        const file = fileURLToPath(new URL(`servers/${name}.ts`, import.meta.url))
        const child = spawn(process.execPath, [file, ...args], { stdio: ["pipe", "pipe", "inherit"] })
        const ended = new Promise<void>((resolve) => child.once("close", () => resolve()))
        let said = ""
        child.stdout.setEncoding("utf8").on("data", (text: string) => {
          said += text
          if (!said.includes("\n")) return
          const stop = () => {
            // It ends with its input, so that it does not outlive us whatever happens to us.
            child.stdin.end()
            return ended
          }
          resume(Effect.succeed({ server: JSON.parse(said) as Server, stop }))
        })
        child.once("error", ({ message }) => resume(Effect.fail(new BenchmarkError({ message }))))
        child.once("close", (code) =>
          resume(Effect.fail(new BenchmarkError({ message: `servers/${name}.ts ended with ${code}` })))
        )
      }),
      ({ stop }) => Effect.promise(stop)
    ),
    ({ server }) => server
  )

/** Everything an application has: a server's client, a ledger, sandboxes. */
export const liveWith = <A, E>({ apiKey, url }: Server, ledger: Layer.Layer<Ledger.Ledger | A, E>) =>
  Sandboxes.layer.pipe(
    Layer.merge(Execd.layer),
    Layer.provideMerge(OpenSandbox.layer({ url, apiKey: Redacted.make(apiKey) })),
    Layer.provideMerge(ledger)
  )

/** The same with the ledger in a file. */
export const live = (server: Server, ledgerFile: string) =>
  liveWith(server, SqliteLedger.layer({ filename: ledgerFile }))

const mega = 1_000_000

/** How many MB there are after a collection. */
export const memory = (): { readonly heap: number; readonly rss: number } => {
  Bun.gc(true)
  const { heapUsed, rss } = process.memoryUsage()
  return { heap: heapUsed / mega, rss: rss / mega }
}
