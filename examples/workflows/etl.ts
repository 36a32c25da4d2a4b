/**
 * A resumable ETL. Its process is killed in the middle; another one takes the run up, and nothing is extracted twice. Then a load that
 * fails: what was done is undone.
 *
 *     bun examples/workflows/etl.ts            # runs it
 *     bun examples/workflows/etl.ts --graph    # draws it
 */
import { spawn } from "node:child_process"
import { appendFile, mkdtemp, readFile, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { BunRuntime } from "@effect/platform-bun"
import { OpenSandbox, Sandboxes } from "@sandglass/core"
import { LocalOpenSandbox } from "@sandglass/local"
import { SqliteLedger } from "@sandglass/sql-sqlite"
import { Workflow } from "@sandglass/workflow"
import { Effect, Layer, Redacted } from "effect"

/** Stands for a database: a file of the application, to which everything that changes the database adds a line. */
const write = (warehouse: string, line: string) => Effect.promise(() => appendFile(warehouse, `${line}\n`))

const etl = (warehouse: string, rows: string) =>
  Workflow.make("etl").pipe(
    Workflow.sandbox({ image: "python:3.13", name: "extract" }, (sb) =>
      sb
        .effect("extract", (sandbox) =>
          Effect.zipRight(sandbox.files.write("/workspace/source.csv", rows), write(warehouse, "extracted"))
        )
        .checkpoint("extracted")
        .exec("sleep 1; sort source.csv >sorted.csv", { label: "transform" })
        .readFile("/workspace/sorted.csv", "sorted")
    ),
    Workflow.sandbox({ image: "postgres:17", name: "load" }, (sb) =>
      sb
        .effect("create table", () => write(warehouse, "table created"), {
          rollback: (sb) => sb.effect("drop table", () => write(warehouse, "table dropped"))
        })
        .writeFile("/workspace/sorted.csv", (ctx) => ctx.vars.sorted)
        .exec("! grep -q bad sorted.csv", { label: "check" })
        .effect("load", (_, ctx) => write(warehouse, `loaded ${ctx.vars.sorted.trim().split("\n").length} rows`))
    )
  )

const good = "3,carol\n1,ada\n2,bob\n"

const live = (url: string, apiKey: string, folder: string) =>
  Sandboxes.layer.pipe(
    Layer.provideMerge(SqliteLedger.layer({ filename: join(folder, "ledger.db") })),
    Layer.provide(OpenSandbox.layer({ url, apiKey: Redacted.make(apiKey) }))
  )

/** A process of its own that runs the workflow, and is killed when the transformation has begun. */
const killedRun = (url: string, apiKey: string, folder: string) =>
  Effect.async<void>((resume) => {
    const child = spawn(process.execPath, [fileURLToPath(import.meta.url), "--run", url, apiKey, folder], {
      stdio: ["ignore", "pipe", "inherit"]
    })
    child.stdout.on("data", (text) => {
      if (String(text).includes("> transform")) child.kill("SIGKILL")
    })
    child.on("close", () => resume(Effect.void))
  })

const example = Effect.gen(function* () {
  const server = yield* LocalOpenSandbox.make()
  const folder = yield* Effect.acquireRelease(
    Effect.promise(() => mkdtemp(join(tmpdir(), "sandglass-etl-"))),
    (folder) => Effect.promise(() => rm(folder, { recursive: true }))
  )
  const warehouse = join(folder, "warehouse")
  const show = (what: string) =>
    Effect.map(
      Effect.promise(() => readFile(warehouse, "utf8")),
      (text) => console.log(`${what}: ${text.trimEnd().replaceAll("\n", ", ")}`)
    )
  const apiKey = Redacted.value(server.apiKey)

  yield* killedRun(server.url, apiKey, folder)
  console.log("killed in the middle of the transformation")
  yield* Effect.gen(function* () {
    const { vars } = yield* Workflow.resume(etl(warehouse, good), "nightly")
    console.log(`resumed: ${vars.sorted.trim().replaceAll("\n", " ")}`)
    yield* show("warehouse")

    yield* Workflow.run(etl(warehouse, "1,bad\n")).pipe(
      Effect.catchTag("WorkflowError", (error) =>
        Effect.sync(() => console.log(`failed: ${error.reason} in step ${error.step} of stage ${error.stage}`))
      )
    )
    yield* show("warehouse")
  }).pipe(Effect.provide(live(server.url, apiKey, folder)))
}).pipe(Effect.scoped)

const [mode, url = "", apiKey = "", folder = ""] = process.argv.slice(2)
if (mode === "--graph") console.log(Workflow.toMermaid(etl("warehouse", good)))
else if (mode === "--run") {
  Workflow.runWithProgress(etl(join(folder, "warehouse"), good), { runId: "nightly" }).pipe(
    Effect.provide(live(url, apiKey, folder)),
    BunRuntime.runMain
  )
} else BunRuntime.runMain(example)
