/**
 * The main job, end to end: a sandbox, live commands, a durable ledger, a crash, a resume.
 *
 *     npm start
 *
 * It starts a sandbox server on this machine (or uses the one of OPEN_SANDBOX_URL), runs `job.ts` in a process of its own, kills that
 * process in the middle of its last command, runs it again on the session it left behind, and shows the timeline from the ledger.
 * The exit code is 0 only if the resumed job printed what the first one printed, and went on to the end.
 */

import { mkdtemp, readFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { Command } from "@effect/platform"
import { BunContext, BunRuntime } from "@effect/platform-bun"
import { Ledger, LedgerEvent, OpenSandbox, Replay, Sandboxes } from "@sandglass/core"
import { LocalOpenSandbox } from "@sandglass/local"
import { SqliteLedger } from "@sandglass/sql-sqlite"
import { Config, Effect, Layer, Option, Redacted, Stream } from "effect"

const say = (text: string) => Effect.sync(() => console.log(`\n== ${text}`))

/** The server of the environment, or one of our own that ends with this program. */
const server = Effect.gen(function* () {
  const url = yield* Config.option(Config.string("OPEN_SANDBOX_URL"))
  if (Option.isSome(url)) {
    const key = yield* Config.redacted("OPEN_SANDBOX_API_KEY").pipe(Config.withDefault(Redacted.make("")))
    return { url: url.value, key: Redacted.value(key), what: "from OPEN_SANDBOX_URL" }
  }
  const local = yield* LocalOpenSandbox.make()
  return { url: local.url, key: Redacted.value(local.apiKey), what: local.description }
})

/** Where the job stands in its third command, as seen in the ledger by another process. */
const reportIsUnderWay = (ledger: Effect.Effect.Success<typeof Ledger.Ledger>) =>
  ledger.tail({ stepIdx: 3, events: [LedgerEvent.EventName.execOutput] }).pipe(Stream.take(3), Stream.runDrain)

const program = Effect.gen(function* () {
  const folder = yield* Effect.promise(() => mkdtemp(join(tmpdir(), "sandglass-main-job-")))
  const ledgerFile = join(folder, "ledger.db")
  const { key, url, what } = yield* server
  const proxy = yield* Config.withDefault(Config.boolean("OPEN_SANDBOX_USE_SERVER_PROXY"), false)
  yield* say(`server: ${url} (${what})`)

  yield* Effect.gen(function* () {
    const ledger = yield* Ledger.Ledger
    const sandboxes = yield* Sandboxes.Sandboxes
    const job = (outputs: string, ...resume: ReadonlyArray<string>) =>
      Command.make(
        process.execPath,
        fileURLToPath(new URL("job.ts", import.meta.url)),
        ledgerFile,
        outputs,
        ...resume
      ).pipe(
        Command.env({ OPEN_SANDBOX_URL: url, OPEN_SANDBOX_API_KEY: key }),
        Command.stdout("inherit"),
        Command.stderr("inherit"),
        Command.start
      )
    const outputsOf = (file: string) =>
      Effect.promise(async () => JSON.parse(await readFile(file, "utf8")) as Record<string, string>)

    yield* say("first process: runs the job")
    const first = join(folder, "first.json")
    const process1 = yield* job(first)
    yield* Effect.raceFirst(
      reportIsUnderWay(ledger),
      Effect.zipRight(process1.exitCode, Effect.die("the first process ended"))
    )
    yield* process1.kill("SIGKILL")
    yield* say("killed (SIGKILL) in the middle of `npm run report`")

    const [crashed] = yield* Effect.map(Stream.runCollect(sandboxes.list({ limit: 1 })), (all) => [...all])
    if (crashed === undefined) return yield* Effect.dieMessage("the ledger is empty")
    yield* say(`second process: resumes ${crashed.sandboxId} from ${ledgerFile}`)
    const second = join(folder, "second.json")
    const exitCode = yield* Effect.flatMap(job(second, crashed.sandboxId), (process) => process.exitCode)
    yield* sandboxes.close(crashed.sandboxId)

    yield* say("timeline, from the ledger")
    yield* timeline
    const before = yield* outputsOf(first)
    const after = yield* outputsOf(second)
    const seenBefore = yield* printed(crashed.sandboxId, 3)
    const same =
      Object.entries(before).every(([command, output]) => after[command] === output) &&
      (after["npm run report"] ?? "").startsWith(seenBefore) &&
      (after["npm run report"] ?? "").includes("report complete")
    console.log(`\nledger: ${ledgerFile}`)
    if (exitCode !== 0 || !same) return yield* Effect.dieMessage("the resumed output differs from the original")
    console.log("the resumed job printed what the first one printed, and went on to the end")
  }).pipe(
    Effect.provide(
      Sandboxes.layer.pipe(
        Layer.provideMerge(SqliteLedger.layer({ filename: ledgerFile })),
        Layer.provide(OpenSandbox.layer({ url, apiKey: Redacted.make(key), useServerProxy: proxy }))
      )
    )
  )
}).pipe(Effect.scoped)

/** What the ledger holds of a command's stdout. */
const printed = (sandboxId: string, stepIdx: number) =>
  Effect.flatMap(Ledger.Ledger, (ledger) =>
    ledger.read({ sandboxId, stepIdx, events: [LedgerEvent.EventName.execOutput] }).pipe(
      Stream.runFold("", (text, { payload }) => {
        const { type, text: piece } = payload as { readonly type: string; readonly text: string }
        return type === "stdout" ? text + piece : text
      })
    )
  )

/** What ran, where, how, how long, and how it ended: one line per command and session. */
const timeline = Effect.gen(function* () {
  const ledger = yield* Ledger.Ledger
  const rows: Array<ReadonlyArray<string>> = [["sandbox", "#", "command", "how", "duration", "exit"]]
  const sessions = [...(yield* Stream.runCollect(ledger.sandboxes()))].reverse()
  for (const { resumedFrom, sandboxId, snapshotId } of sessions) {
    const short = sandboxId.slice(0, 12)
    if (resumedFrom !== undefined) {
      const checkpoint = yield* ledger.checkpoints(resumedFrom).pipe(
        Stream.filter((checkpoint) => checkpoint.snapshotId === snapshotId),
        Stream.runHead
      )
      const replayed = Option.isSome(checkpoint) ? yield* Replay.load(ledger, checkpoint.value) : Replay.empty
      for (const exec of [...replayed.bySeq.values()].flat()) {
        rows.push([short, String(exec.seq), exec.command, "replayed", "", String(exec.exitCode)])
      }
    }
    const entries = [...(yield* Stream.runCollect(ledger.read({ sandboxId, withoutOutput: true })))]
    for (const started of entries.filter(({ event }) => event === LedgerEvent.EventName.execStarted)) {
      const { cmd } = started.payload as { readonly cmd: string }
      const end = entries.find(
        ({ event, stepIdx }) => stepIdx === started.stepIdx && event !== LedgerEvent.EventName.execStarted
      )
      const exit = (end?.payload as { readonly exitCode?: number } | undefined)?.exitCode
      rows.push([
        short,
        String(started.stepIdx),
        cmd,
        "live",
        end === undefined ? "" : `${end.ts - started.ts} ms`,
        end === undefined ? "no end recorded: killed" : String(exit ?? end.event)
      ])
    }
  }
  const widths = rows[0]?.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0))) ?? []
  for (const row of rows)
    console.log(
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join("  ")
        .trimEnd()
    )
})

program.pipe(Effect.provide(BunContext.layer), BunRuntime.runMain)
