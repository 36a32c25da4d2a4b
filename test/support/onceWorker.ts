/** Runs a command with an idempotency key in a sandbox of a given server and ledger file, and waits to be killed. */
import { OpenSandbox, Sandboxes } from "@sandglass/core"
import { SqliteLedger } from "@sandglass/sql-sqlite"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Stream from "effect/Stream"

const [url = "", key = "", filename = "", command = ""] = process.argv.slice(2)

const program = Effect.gen(function* () {
  const sandboxes = yield* Sandboxes.Sandboxes
  const sandbox = yield* sandboxes.create({ image: "node:22", name: "worker", idempotencyKey: "worker" })
  yield* sandbox
    .exec(command, { idempotencyKey: "once", strict: false })
    .lines.pipe(Stream.runForEach((line) => Effect.sync(() => console.log(line))))
}).pipe(
  Effect.scoped,
  Effect.provide(
    Sandboxes.layer.pipe(
      Layer.provide(OpenSandbox.layer({ url, apiKey: Redacted.make(key) })),
      Layer.provide(SqliteLedger.layer({ filename }))
    )
  )
)

await Effect.runPromise(program)
