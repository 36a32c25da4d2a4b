/**
 * A CI pipeline: install, test with retries, decide on the result, deploy two services at once.
 *
 *     bun examples/workflows/ci.ts            # runs it, with its progress
 *     bun examples/workflows/ci.ts --graph    # draws it
 */
import { Workflow } from "@sandglass/workflow"
import { Effect, Schedule } from "effect"
import { runExample } from "../support.js"

const ci = Workflow.make("ci").pipe(
  Workflow.sandbox({ image: "node:22", name: "build" }, (sb) =>
    sb
      .writeFile("/workspace/version.txt", "1.4.0\n")
      .writeFile(
        "/workspace/test.sh",
        "echo try >>tries; echo tests: attempt $(grep -c try tries); [ $(grep -c try tries) -ge 2 ]"
      )
      .exec("echo dependencies installed")
      .checkpoint("installed")
      .retry({ times: 3, schedule: Schedule.exponential("50 millis") }, (sb) =>
        sb.exec("sh test.sh", { label: "test" })
      )
      .when(
        (ctx) => ctx.exitCode === 0,
        (sb) => sb.exec("echo report: all tests passed", { label: "report" }),
        (sb) => sb.exec("echo report: tests failed", { label: "explain" })
      )
      .readFile("/workspace/version.txt", "version")
      .forEach(["web", "api"], { concurrency: 2 }, (sb, service) =>
        sb.exec((ctx) => ["echo", `deployed ${service} ${ctx.vars.version.trim()}`], { label: `deploy ${service}` })
      )
  )
)

if (process.argv.includes("--graph")) console.log(Workflow.toMermaid(ci))
else {
  runExample(
    Effect.gen(function* () {
      const { stdout, vars } = yield* Workflow.runWithProgress(ci)
      console.log(`\nversion: ${vars.version.trim()}\n${stdout}`)
    })
  )
}
