/** A program that takes one chunk of a command's stream and is then done: `takeOneChunk.ts <url>`. Run as a process of its own. */
import { Execd, OpenSandbox } from "@sandglass/core"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Stream from "effect/Stream"

const program = Effect.gen(function* () {
  const client = yield* Effect.flatMap(Execd.Execd, (execd) => execd.connect("s1"))
  yield* Stream.runDrain(Stream.take(client.command({ command: "yes" }), 1))
  yield* Effect.sync(() => process.stdout.write("taken\n"))
}).pipe(Effect.provide(Layer.provide(Execd.layer, OpenSandbox.layer({ url: process.argv[2] }))))

await Effect.runPromise(program)
