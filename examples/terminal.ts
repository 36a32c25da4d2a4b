/**
 * A terminal of a sandbox. With a person at this terminal it is joined to it; otherwise it is typed into by the program.
 *
 *     npx bun examples/terminal.ts
 */
import { Sandboxes } from "@sandglass/core"
import { Effect, Stream } from "effect"
import { runExample } from "./support.js"

runExample(
  Effect.gen(function* () {
    const sandboxes = yield* Sandboxes.Sandboxes
    const sandbox = yield* sandboxes.create({ image: "node:22", name: "terminal" })
    const terminal = yield* sandbox.openTerminal({ size: { cols: 100, rows: 30 } })

    if (process.stdin.isTTY) {
      console.log("a shell in the sandbox; leave it with: exit")
      console.log(`exit code ${yield* terminal.attach(process.stdin, process.stdout)}`)
      return
    }
    yield* Stream.make("stty size\n", "exit 3\n").pipe(Stream.run(terminal.stdin))
    yield* terminal.output.pipe(
      Stream.decodeText(),
      Stream.runForEach((text) => Effect.sync(() => process.stdout.write(text)))
    )
    console.log(`exit code ${yield* terminal.exitCode}`)
  })
)
