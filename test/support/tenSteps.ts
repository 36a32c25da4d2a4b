/**
 * A workflow of ten steps that leaves a line in a file of the machine whenever a step of it runs, and everything it needs to run: for tests
 * that kill it.
 */
import { OpenSandbox, Sandboxes } from "@sandglass/core"
import { PgLedger } from "@sandglass/sql-pg"
import { SqliteLedger } from "@sandglass/sql-sqlite"
import { Workflow } from "@sandglass/workflow"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"

export interface Options {
  /** A Postgres URL, or the name of a SQLite file. */
  readonly ledger: string
  readonly server: { readonly url: string; readonly apiKey: string }
}

export const live = ({ ledger, server }: Options) =>
  Sandboxes.layer.pipe(
    Layer.provideMerge(
      ledger.startsWith("postgres")
        ? PgLedger.layer({ url: Redacted.make(ledger), maxConnections: 2 })
        : SqliteLedger.layer({ filename: ledger })
    ),
    Layer.provide(OpenSandbox.layer({ url: server.url, apiKey: Redacted.make(server.apiKey) }))
  )

/** `effects` is the file in which every command leaves a line, besides the one in its own sandbox. */
export const tenSteps = (effects: string) => {
  const mark = (name: string) => `echo ${name} >>'${effects}'; echo ${name} >>marks; echo ${name}; sleep 0.03; `
  return Workflow.make("ten-steps").pipe(
    Workflow.sandbox({ image: "node:22", name: "first" }, (sb) =>
      sb
        .exec(`${mark("prepare")} echo 1.2.3 >version; echo "$TMPDIR/../workspace" >/dev/null`)
        .checkpoint("prepared")
        .retry({ times: 2, schedule: Schedule.spaced("20 millis") }, (sb) =>
          sb.exec(`${mark("flaky")} test $(grep -c flaky marks) -ge 2`)
        )
        .when(
          (ctx) => ctx.exitCode === 0,
          (sb) => sb.exec(mark("good")),
          (sb) => sb.exec(mark("bad"))
        )
        .forEach(["web", "api"], { concurrency: 2 }, (sb, service) => sb.exec(mark(service)))
        .readFile("/workspace/version", "version")
        .effect(
          "count",
          (sandbox) => Effect.map(sandbox.files.read("/workspace/marks"), (text) => text.split("\n").length),
          {
            as: "lines",
            schema: Schema.Number
          }
        )
        .exec((ctx) => `${mark("last")} echo ${ctx.vars.version.trim()} ${ctx.vars.lines}; sort marks | uniq -c`)
    ),
    Workflow.parallel([{ image: "node:20" }, { image: "node:22" }], (sb, _, index) =>
      sb.exec(`${mark(`branch${index}`)} sort marks | uniq -c`)
    )
  )
}

/** How often each command leaves its line when it runs as often as it should. */
export const wanted: Readonly<Record<string, number>> = {
  prepare: 1,
  flaky: 2,
  good: 1,
  web: 1,
  api: 1,
  last: 1,
  branch0: 1,
  branch1: 1
}

/** What a run comes to. */
export const expected = {
  stdout: [
    "prepare",
    "flaky",
    "good",
    "web",
    "api",
    "last",
    "1.2.3 7",
    "      1 api",
    "      2 flaky",
    "      1 good",
    "      1 last",
    "      1 prepare",
    "      1 web",
    "branch0",
    "      1 branch0",
    "branch1",
    "      1 branch1",
    ""
  ].join("\n"),
  vars: { version: "1.2.3\n", lines: 7 }
}
