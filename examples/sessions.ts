/**
 * A session keeps directory and environment; standard input; a command that runs once whoever asks for it.
 *
 *     npx bun examples/sessions.ts
 */
import { Sandboxes } from "@sandglass/core"
import { Effect } from "effect"
import { runExample } from "./support.js"

runExample(
  Effect.gen(function* () {
    const sandboxes = yield* Sandboxes.Sandboxes
    const sandbox = yield* sandboxes.create({ image: "node:22", name: "sessions" })

    const session = yield* sandbox.createSession()
    yield* session.exec("mkdir -p app && cd app && export STAGE=test")
    yield* session.exec('echo "$STAGE in $(basename "$PWD")"').pipeTo(process.stdout)

    const { stdout } = yield* sandbox.exec("sort -n | tail -n 1", { stdin: "3\n20\n1\n" })
    console.log(`largest: ${stdout.trim()}`)

    const migrate = sandbox.exec("echo migrated at $(date +%s%N)", { idempotencyKey: "migration-7" })
    const [first, second] = yield* Effect.all([migrate, migrate], { concurrency: 2 })
    console.log(first.stdout === second.stdout ? "ran once" : "ran twice")
  })
)
