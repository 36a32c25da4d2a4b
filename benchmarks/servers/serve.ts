/** Tells the benchmark where a server is, and ends with the benchmark. */
import * as Effect from "effect/Effect"
import * as Logger from "effect/Logger"
import type * as Scope from "effect/Scope"
import type { Server } from "../harness.js"

export const serve = (server: Effect.Effect<Server, unknown, Scope.Scope>): void => {
  const inputEnded = Effect.async<void>((resume) => {
    process.stdin.on("end", () => resume(Effect.void)).resume()
  })
  Effect.runPromise(
    server.pipe(
      Effect.tap((server) => Effect.sync(() => process.stdout.write(`${JSON.stringify(server)}\n`))),
      Effect.zipRight(inputEnded),
      Effect.scoped,
      // Its output is that one line.
      Effect.provide(Logger.remove(Logger.defaultLogger))
    )
  ).then(
    () => process.exit(0),
    (error: unknown) => {
      console.error(error)
      process.exit(1)
    }
  )
}
