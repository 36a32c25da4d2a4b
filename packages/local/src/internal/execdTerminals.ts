/** Terminals as execd's API. @internal */

import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type * as WS from "ws"
import type { ApiError } from "./apiError.js"
import { badRequest } from "./apiError.js"
import { body, empty, json } from "./http.js"
import type { Handler, Route } from "./routes.js"
import { route } from "./routes.js"
import type { Sandbox } from "./sandboxes.js"

const CreateTerminal = Schema.Struct({
  cwd: Schema.optional(Schema.NullOr(Schema.String)),
  command: Schema.optional(Schema.NullOr(Schema.String))
})

const create: Handler = (sandbox) =>
  Effect.gen(function* () {
    const request = yield* body(CreateTerminal, (message) => badRequest(message, "INVALID_REQUEST_BODY"))
    const { id } = yield* sandbox.terminals.create({
      cwd: request.cwd || undefined,
      command: request.command || undefined
    })
    return json({ session_id: id }, 201)
  })

const get: Handler = (sandbox, _sandboxes, [id = ""]) =>
  Effect.map(sandbox.terminals.get(id), ({ replay, running }) =>
    json({ session_id: id, running, output_offset: replay.total })
  )

const remove: Handler = (sandbox, _sandboxes, [id = ""]) => Effect.as(sandbox.terminals.remove(id), empty(200))

export const terminalRoutes: ReadonlyArray<Route> = [
  route("POST", /^\/pty$/, create),
  route("GET", /^\/pty\/([^/]+)$/, get),
  route("DELETE", /^\/pty\/([^/]+)$/, remove),
  route("GET", /^\/pty\/[^/]+\/ws$/, () => Effect.fail(badRequest("this is for WebSockets only")))
]

export const attachTerminal = (
  sandbox: Sandbox,
  id: string,
  query: URLSearchParams,
  upgrade: Effect.Effect<WS.WebSocket, ApiError>
): Effect.Effect<void, ApiError> =>
  Effect.suspend(() => {
    const since = query.get("since") ?? "0"
    if (!/^\d{1,15}$/.test(since)) return Effect.fail(badRequest(`since must be a number of bytes, not ${since}`))
    return sandbox.terminals.attach(
      id,
      {
        mode: query.get("pty") === "0" ? "pipe" : "pty",
        since: Number(since),
        takeover: query.get("takeover") === "1"
      },
      upgrade
    )
  })
