/**
 * A command that outlives its process: started detached, found again through the ledger, followed to its exit code.
 *
 *     npx bun examples/detached.ts
 */
import { Sandboxes } from "@sandglass/core"
import { Effect, Stream } from "effect"
import { runExample } from "./support.js"

runExample(
  Effect.gen(function* () {
    const sandboxes = yield* Sandboxes.Sandboxes
    const { id } = yield* sandboxes
      .create({ image: "node:22", name: "detached" })
      .pipe(Effect.tap((sandbox) => sandbox.startDetached("for n in 1 2 3; do echo step $n; sleep 0.2; done")))

    // From here on it could be another process: all that it needs is the sandbox's id.
    const sandbox = yield* sandboxes.connect(id)
    yield* sandbox.commands.pipe(
      Stream.runForEach((command) =>
        Effect.gen(function* () {
          console.log(`found: ${command.command}`)
          const running = yield* command.attach
          yield* running.lines.pipe(Stream.runForEach((line) => Effect.sync(() => console.log(line))))
          console.log(`exit code ${(yield* running.result).exitCode}`)
        }).pipe(Effect.scoped)
      )
    )
  })
)
