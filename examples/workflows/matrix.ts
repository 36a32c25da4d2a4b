/**
 * The same tests on several images at once, then a summary of what each said.
 *
 *     bun examples/workflows/matrix.ts            # runs it, with its live output
 *     bun examples/workflows/matrix.ts --graph    # draws it
 */
import { Workflow } from "@sandglass/workflow"
import { Effect, Stream } from "effect"
import { runExample } from "../support.js"

const matrix = Workflow.make("matrix").pipe(
  Workflow.parallel([{ image: "node:20" }, { image: "node:22" }, { image: "node:24" }], (sb, { image }) =>
    sb.exec(`echo ${image}: installed`).exec(`echo ${image}: tests passed`)
  ),
  Workflow.sequence([
    {
      image: "alpine",
      name: "summary",
      run: (sb, previous) =>
        sb
          .writeFile("/workspace/results", previous.stdout)
          .exec("echo $(grep -c passed results) images passed", { label: "count" })
    }
  ])
)

if (process.argv.includes("--graph")) console.log(Workflow.toMermaid(matrix))
else {
  runExample(
    Workflow.stream(matrix).pipe(
      Stream.runForEach(({ branch, stage, text }) =>
        Effect.sync(() => console.log(`[${stage}${branch === undefined ? "" : `.${branch}`}] ${text.trimEnd()}`))
      )
    )
  )
}
