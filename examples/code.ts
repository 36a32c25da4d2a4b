/**
 * Code for an interpreter: state is kept in a context, values are shown by MIME type, errors of the language are typed.
 *
 *     npx bun examples/code.ts
 */
import { Sandboxes } from "@sandglass/core"
import { Effect } from "effect"
import { runExample } from "./support.js"

runExample(
  Effect.gen(function* () {
    const sandboxes = yield* Sandboxes.Sandboxes
    const sandbox = yield* sandboxes.create({ image: "node:22", name: "code" })
    const context = yield* sandbox.createCodeContext("javascript")

    yield* context.exec("var numbers = [3, 4, 5]")
    const { results } = yield* context.exec("numbers.map((n) => n * n).reduce((a, b) => a + b)")
    console.log(`sum of squares: ${results[0]?.["text/plain"]}`)

    yield* context
      .exec("numbers.missing.length")
      .pipe(Effect.catchTag("CodeError", (error) => Effect.sync(() => console.log(`${error.name}: ${error.value}`))))
  })
)
