/**
 * Runs the benchmarks, each in a process of its own, prints a table and writes `benchmarks/results.json`.
 *
 *     npm run bench [-- [--quick] [--strict] [--out FILE] [SUBJECT …]]
 *
 * An aim that is missed is told, and makes the exit code 1 only with `--strict`; a benchmark that fails always does.
 */
import { fork } from "node:child_process"
import * as fs from "node:fs"
import * as os from "node:os"
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"
import * as Effect from "effect/Effect"
import * as Logger from "effect/Logger"
import * as LogLevel from "effect/LogLevel"
import { startServer } from "../test/support/postgresServer.js"
import { serverVariable } from "./backends.js"
import type { Figure, Options, Subject } from "./harness.js"
import { isMet } from "./harness.js"
import { concurrent } from "./subjects/concurrent.js"
import { conversations } from "./subjects/conversations.js"
import { exec } from "./subjects/exec.js"
import { execPostgres } from "./subjects/exec-postgres.js"
import { firstByte } from "./subjects/first-byte.js"
import { heap } from "./subjects/heap.js"
import { ledger } from "./subjects/ledger.js"
import { listing } from "./subjects/listing.js"
import { local } from "./subjects/local.js"
import { memoryPostgres, memorySqlite } from "./subjects/memory.js"
import { resume } from "./subjects/resume.js"
import { size } from "./subjects/size.js"
import { tail } from "./subjects/tail.js"
import { workflow } from "./subjects/workflow.js"

const subjects: ReadonlyArray<Subject> = [
  exec,
  execPostgres,
  ledger,
  concurrent,
  resume,
  listing,
  tail,
  size,
  heap,
  firstByte,
  local,
  conversations,
  memorySqlite,
  memoryPostgres,
  workflow
]

interface Outcome {
  readonly figures?: ReadonlyArray<Figure>
  readonly error?: string
}

const { positionals, values: flags } = parseArgs({
  allowPositionals: true,
  options: {
    quick: { type: "boolean", default: false },
    strict: { type: "boolean", default: false },
    out: { type: "string", default: fileURLToPath(new URL("results.json", import.meta.url)) },
    /** Runs the one subject named in this process, for the process that asked for it. */
    child: { type: "boolean", default: false }
  }
})
const unknown = positionals.filter((name) => !subjects.some((subject) => subject.name === name))
if (unknown.length > 0) {
  console.error(`no benchmark ${unknown.join(", ")}; there are ${subjects.map(({ name }) => name).join(", ")}`)
  process.exit(2)
}
const chosen = subjects.filter(({ name }) => positionals.length === 0 || positionals.includes(name))

const runHere = (subject: Subject, options: Options): Promise<Outcome> =>
  Effect.runPromise(
    subject.run(options).pipe(
      Effect.scoped,
      Effect.map((figures) => ({ figures })),
      Logger.withMinimumLogLevel(LogLevel.Warning)
    )
  ).catch((error: unknown) => ({ error: error instanceof Error ? (error.stack ?? error.message) : String(error) }))

const runInChild = (subject: Subject, postgres: string): Promise<Outcome> =>
  new Promise((resolve) => {
    const args = [subject.name, "--child", ...(flags.quick ? ["--quick"] : [])]
    const child = fork(fileURLToPath(import.meta.url), args, {
      stdio: ["ignore", "inherit", "inherit", "ipc"],
      env: { ...process.env, [serverVariable]: postgres }
    })
    let outcome: Outcome | undefined
    child.on("message", (message) => {
      outcome = message as Outcome
    })
    child.on("close", (code) => resolve(outcome ?? { error: `ended with ${code} and without a result` }))
  })

const number = (value: number): string =>
  Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : value.toFixed(2)

const cells = (figure: Figure): ReadonlyArray<string> => {
  const { aim, note = "", unit, value, what } = figure
  const met = isMet(figure)
  return [
    what,
    `${number(value)} ${unit}`,
    aim === undefined ? "" : "atLeast" in aim ? `at least ${number(aim.atLeast)}` : `at most ${number(aim.atMost)}`,
    met === undefined ? "" : met ? "met" : "MISSED",
    note
  ]
}

const print = (title: string, { error, figures = [] }: Outcome): void => {
  console.log(`\n${title}`)
  if (error !== undefined) console.log(`  FAILED: ${error}`)
  const widths = [50, 20, 18, 6]
  for (const figure of figures) {
    const row = cells(figure).map((cell, column) =>
      column === 1 ? cell.padStart(20) : cell.padEnd(widths[column] ?? 0)
    )
    console.log(`  ${row.join("  ").trimEnd()}`)
  }
}

if (flags.child) {
  for (const subject of chosen) process.send?.(await runHere(subject, { quick: flags.quick }))
  process.disconnect?.()
} else {
  const machine = {
    cpus: os.availableParallelism(),
    model: os.cpus()[0]?.model ?? "unknown",
    memory: `${Math.round(os.totalmem() / 1024 ** 3)} GiB`,
    system: `${os.type()} ${os.release()} ${os.arch()}`,
    bun: Bun.version
  }
  console.log(`${machine.cpus} × ${machine.model}, ${machine.memory}, ${machine.system}, bun ${machine.bun}`)
  if (flags.quick) console.log("--quick: these sizes show that the benchmarks work, not how fast anything is")
  const results = []
  const server = await startServer()
  for (const subject of chosen) {
    const start = Date.now()
    const outcome = await runInChild(subject, server.url("postgres"))
    print(subject.title, outcome)
    results.push({
      name: subject.name,
      title: subject.title,
      seconds: (Date.now() - start) / 1000,
      error: outcome.error,
      figures: outcome.figures?.map((figure) => ({ ...figure, met: isMet(figure) }))
    })
  }
  await server.close()
  fs.writeFileSync(flags.out, `${JSON.stringify({ machine, quick: flags.quick, subjects: results }, undefined, 2)}\n`)

  const figures = results.flatMap((result) => result.figures ?? [])
  const failed = results.filter(({ error }) => error !== undefined)
  const aims = figures.filter(({ met }) => met !== undefined)
  const missed = aims.filter(({ met }) => met === false)
  console.log(
    `\n${aims.length - missed.length} of ${aims.length} aims met${failed.length === 0 ? "" : `, ${failed.length} benchmarks failed`}; ${flags.out}`
  )
  if (failed.length > 0 || (flags.strict && missed.length > 0)) process.exitCode = 1
}
