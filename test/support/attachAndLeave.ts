/** A program for a test: attaches to a terminal at the address it is given, takes one chunk, and has nothing else to do. */
import { Execd, OpenSandbox } from "@sandglass/core"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Stream from "effect/Stream"

const program = Effect.gen(function* () {
  const client = yield* Effect.flatMap(Execd.Execd, (execd) => execd.connect("s1"))
  const { output } = yield* client.attachTerminal("t1")
  yield* Stream.runHead(output)
}).pipe(Effect.scoped, Effect.provide(Layer.provide(Execd.layer, OpenSandbox.layer({ url: process.argv[2] ?? "" }))))

await Effect.runPromise(program)
process.stdout.write("done")
