/** @internal */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type { CommandRequest, CommandStatus, ExecdClient } from "../../Execd.js"
import type { OpenSandboxError } from "../../OpenSandboxError.js"
import * as Http from "../http/client.js"
import { invalidRequest } from "../http/error.js"
import { nullish } from "../http/nullish.js"
import { check } from "../http/portCaller.js"
import { revealed } from "../revealed.js"
import type { Caller } from "./caller.js"
import { isCode } from "./caller.js"
import { runEvents } from "./events.js"

const Status = Schema.Struct({
  id: nullish(Schema.String),
  running: nullish(Schema.Boolean),
  exit_code: nullish(Schema.Number),
  error: nullish(Schema.String)
})

/**
 * A timeout as execd wants it: whole milliseconds, absent where there is none.
 *
 * @internal
 */
export const timeoutMillis = (timeout: Duration.DurationInput | undefined): number | undefined => {
  if (timeout === undefined) return undefined
  const duration = Duration.decode(timeout)
  return Duration.isFinite(duration) ? Math.ceil(Duration.toMillis(duration)) : undefined
}

/** @internal */
export const timeoutProblem = (timeout: Duration.DurationInput | undefined): string | undefined =>
  timeout !== undefined && !(Duration.toMillis(timeout) > 0) ? "the timeout must be positive" : undefined

const commandProblem = (request: CommandRequest): string | undefined => {
  if (request.command === "") return "the command is empty"
  const problem = timeoutProblem(request.timeout)
  if (problem !== undefined) return problem
  if (request.gid !== undefined && request.uid === undefined) return "gid needs uid"
  for (const id of [request.uid, request.gid]) {
    if (id !== undefined && (!Number.isInteger(id) || id < 0))
      return `uid and gid are whole numbers from 0 on, not ${id}`
  }
  return undefined
}

const commandBody = (request: CommandRequest) => ({
  command: request.command,
  cwd: request.cwd,
  background: request.background,
  timeout: timeoutMillis(request.timeout),
  uid: request.uid,
  gid: request.gid,
  envs: request.env === undefined ? undefined : revealed(request.env)
})

/** @internal */
export const makeCommands = (caller: Caller): Pick<ExecdClient, "command" | "interrupt" | "status" | "ping"> => {
  const { get, remove, span, where } = caller

  const command: ExecdClient["command"] = (request) => {
    const at = where("command")
    return runEvents(
      caller,
      at,
      Effect.map(check(at, commandProblem(request)), () => ({
        path: "/command",
        body: () => commandBody(request),
        frames: { lines: true, background: request.background === true },
        attributes: { "command.background": request.background === true }
      })),
      Object.values(request.env ?? {})
    )
  }

  const interrupt = (commandId: string): Effect.Effect<void, OpenSandboxError> => {
    const at = where("interrupt")
    const attempt = (delays: ReadonlyArray<number>): Effect.Effect<void, OpenSandboxError> =>
      Effect.catchIf(
        remove(at, "/command", [["id", commandId]]),
        (error) => error.module === "Execd" && error.reason === "NotFound",
        () => {
          const [delay, ...rest] = delays
          return delay === undefined ? Effect.void : Effect.zipRight(Effect.sleep(delay), attempt(rest))
        }
      )
    return (
      commandId === "" ? Effect.fail(invalidRequest(at, "the command id is empty")) : attempt([50, 150, 400])
    ).pipe(span("interrupt", { "command.id": commandId }))
  }

  const status = (commandId: string): Effect.Effect<CommandStatus, OpenSandboxError> => {
    const at = where("status")
    return Http.segment(at, "command id", commandId).pipe(
      Effect.flatMap((id) => get(at, `/command/status/${id}`, [], Http.jsonBody(at, Status))),
      Effect.map((wire): CommandStatus => {
        const code = wire.exit_code ?? undefined
        return {
          id: wire.id ?? commandId,
          running: wire.running ?? false,
          exitCode: wire.running === true || code === undefined || !isCode(code) ? Option.none() : Option.some(code),
          error: wire.error === null || wire.error === "" ? undefined : wire.error
        }
      }),
      span("status", { "command.id": commandId })
    )
  }

  const ping = get(where("ping"), "/ping", [], Http.noBody).pipe(span("ping"))

  return { command, interrupt, status, ping }
}
