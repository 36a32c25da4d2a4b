/** Starts a local server, runs one command in a sandbox, prints its output, and ends. */
import { Ledger, Sandboxes } from "@sandglass/core"
import { LocalOpenSandbox } from "@sandglass/local"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"

const program = Effect.gen(function* () {
  const sandboxes = yield* Sandboxes.Sandboxes
  const sandbox = yield* sandboxes.create({ image: "node:22" })
  console.log((yield* sandbox.exec("echo hello from the sandbox")).stdout)
}).pipe(
  Effect.scoped,
  Effect.provide(Sandboxes.layer.pipe(Layer.provide(Layer.merge(LocalOpenSandbox.layer, Ledger.layerMemory))))
)

await Effect.runPromise(program)
