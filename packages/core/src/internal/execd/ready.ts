/** @internal */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import type { ExecdClient, ExecdEvent } from "../../Execd.js"
import { OpenSandboxError } from "../../OpenSandboxError.js"
import type { Caller } from "./caller.js"

/** @internal */
export const makeReady =
  ({ connections, span, where }: Caller, command: ExecdClient["command"]): ExecdClient["ready"] =>
  (input = {}) => {
    const at = where("ready")
    const timeout = Duration.decode(input.timeout ?? "120 seconds")
    let last: OpenSandboxError | undefined
    const probe = command({ command: "true" }).pipe(
      Stream.runFold(undefined as ExecdEvent | undefined, (exit, event) => (event._tag === "Exit" ? event : exit)),
      Effect.timeoutFail({
        duration: "10 seconds",
        onTimeout: () =>
          new OpenSandboxError({ ...at, reason: "Timeout", description: "a command did not end within 10 seconds" })
      }),
      Effect.flatMap((exit) =>
        exit?._tag === "Exit" && exit.exitCode === 0
          ? Effect.void
          : Effect.fail(
              new OpenSandboxError({
                ...at,
                reason: "ServerError",
                description: `the command "true" failed: ${
                  exit?._tag === "Exit" ? (exit.message ?? `exit code ${exit.exitCode}`) : "no end"
                }`
              })
            )
      )
    )
    const isFinal = (error: OpenSandboxError): boolean =>
      error.module === "OpenSandbox" &&
      (error.reason === "InvalidRequest" ||
        error.reason === "Unauthorized" ||
        (error.reason === "NotFound" && /SANDBOX_NOT_FOUND/.test(error.code ?? "")))
    const loop = (delay: number): Effect.Effect<void, OpenSandboxError> =>
      Effect.catchAll(probe, (error) => {
        last = error
        return isFinal(error)
          ? Effect.fail(error)
          : connections.dropAll.pipe(
              Effect.zipRight(Effect.sleep(delay)),
              Effect.zipRight(Effect.suspend(() => loop(Math.min(delay * 1.5, 2000))))
            )
      })
    return Effect.suspend(() => loop(100)).pipe(
      Effect.timeoutFail({
        duration: timeout,
        onTimeout: () =>
          new OpenSandboxError({
            ...at,
            reason: "Timeout",
            description: `no command runs after ${Duration.format(timeout)}${
              last === undefined ? "" : `; the last attempt: ${last.message}`
            }`,
            cause: last
          })
      }),
      span("ready")
    )
  }
