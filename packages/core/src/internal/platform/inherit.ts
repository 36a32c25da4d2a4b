import type { CommandOutput } from "@effect/platform/Command"
import type { PlatformError } from "@effect/platform/Error"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"

interface Writable {
  write(chunk: Uint8Array, callback: (error?: Error | null) => void): unknown
}

/** This process's own, where there is a process. */
const standard = (name: "stdout" | "stderr"): Writable | undefined =>
  typeof process === "undefined" ? undefined : process[name]

const write = (target: Writable, bytes: Uint8Array): Effect.Effect<void, unknown> =>
  Effect.async((resume) => {
    target.write(bytes, (error) => resume(error ? Effect.fail(error) : Effect.void))
  })

/** Writes what is inherited to where it leads; returns what waits for all of it. A target that fails gets no more. */
export const forward = (
  {
    output,
    standard: name,
    to
  }: {
    readonly output: CommandOutput
    readonly to: Writable | undefined
    readonly standard: "stdout" | "stderr"
  },
  bytes: Stream.Stream<Uint8Array, PlatformError>
): Effect.Effect<Effect.Effect<void>, never, Scope.Scope> => {
  if (output !== "inherit") return Effect.succeed(Effect.void)
  const target = to ?? standard(name)
  if (target === undefined) return Effect.succeed(Effect.void)
  return Effect.map(
    Effect.forkScoped(Effect.ignore(Stream.runForEach(bytes, (piece) => write(target, piece)))),
    (fiber) => Effect.asVoid(Fiber.await(fiber))
  )
}
