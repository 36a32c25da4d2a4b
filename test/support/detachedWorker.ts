/** Starts a detached command in a sandbox of a given server and ledger file, follows it, and waits to be killed. */
import { OpenSandbox, Sandboxes } from "@sandglass/core"
import { SqliteLedger } from "@sandglass/sql-sqlite"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Stream from "effect/Stream"

const [url = "", key = "", filename = ""] = process.argv.slice(2)

const program = Effect.gen(function* () {
  const sandboxes = yield* Sandboxes.Sandboxes
  const sandbox = yield* sandboxes.create({ image: "node:22", name: "worker" })
  const detached = yield* sandbox.startDetached(
    "for n in 1 2 3 4 5 6 7 8 9 10; do echo line $n; sleep 0.2; done; exit 7"
  )
  const running = yield* detached.attach
  console.log(`sandbox ${sandbox.id}`)
  yield* running.lines.pipe(Stream.runForEach((line) => Effect.sync(() => console.log(line))))
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
