/** @internal */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type { ExecdClient, SessionRequest } from "../../Execd.js"
import * as Http from "../http/client.js"
import { check } from "../http/portCaller.js"
import type { Caller } from "./caller.js"
import { goneCounts } from "./caller.js"
import { timeoutMillis, timeoutProblem } from "./commands.js"
import { runEvents } from "./events.js"

const Created = Schema.Struct({ session_id: Schema.NonEmptyString })

const problem = (request: SessionRequest): string | undefined =>
  request.command === "" ? "the command is empty" : timeoutProblem(request.timeout)

/** @internal */
export const makeSessions = (caller: Caller): Pick<ExecdClient, "createSession" | "runInSession" | "deleteSession"> => {
  const { remove, span, where, write } = caller

  const createSession: ExecdClient["createSession"] = (options = {}) => {
    const at = where("createSession")
    return write(at, "POST", "/session", () => ({ cwd: options.cwd }), Http.jsonBody(at, Created)).pipe(
      Effect.map(({ session_id }) => session_id),
      Effect.tap((id) => Effect.annotateCurrentSpan("session.id", id)),
      span("createSession")
    )
  }

  const runInSession: ExecdClient["runInSession"] = (sessionId, request) => {
    const at = where("runInSession")
    return runEvents(
      caller,
      at,
      Effect.gen(function* () {
        yield* check(at, problem(request))
        const id = yield* Http.segment(at, "session id", sessionId)
        return {
          path: `/session/${id}/run`,
          body: () => ({ command: request.command, cwd: request.cwd, timeout: timeoutMillis(request.timeout) }),
          frames: { lines: true, background: false },
          attributes: { "session.id": sessionId }
        }
      })
    )
  }

  const deleteSession: ExecdClient["deleteSession"] = (sessionId) => {
    const at = where("deleteSession")
    return Http.segment(at, "session id", sessionId).pipe(
      Effect.flatMap((id) => remove(at, `/session/${id}`, [])),
      goneCounts,
      span("deleteSession", { "session.id": sessionId })
    )
  }

  return { createSession, runInSession, deleteSession }
}
