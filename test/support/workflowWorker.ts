/** Waits for a line that says what to run or to resume, does it, prints its progress and the result as JSON, and ends. */
import { createInterface } from "node:readline"
import { Workflow } from "@sandglass/workflow"
import * as Effect from "effect/Effect"
import type { Options } from "./tenSteps.js"
import { live, tenSteps } from "./tenSteps.js"

interface Order extends Options {
  readonly runId: string
  readonly effects: string
}

console.log("ready")
for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line) as Order
  const workflow = tenSteps(order.effects)
  const output = { write: (text: string) => process.stdout.write(text) }
  const result = await Effect.runPromise(
    Workflow.runWithProgress(workflow, { resume: order.runId, output }).pipe(
      Effect.catchIf(
        (error) => error.reason === "RunNotFound",
        () => Workflow.runWithProgress(workflow, { runId: order.runId, output })
      ),
      Effect.provide(live(order))
    )
  )
  console.log(`result ${JSON.stringify(result)}`)
  break
}
process.exit(0)
