/** Shell sessions as execd's API. @internal */

import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { badRequest } from "./apiError.js"
import { outputStream } from "./events.js"
import { body, empty, json } from "./http.js"
import type { Handler, Route } from "./routes.js"
import { route } from "./routes.js"

const CreateSession = Schema.Struct({ cwd: Schema.optional(Schema.NullOr(Schema.String)) })

const RunInSession = Schema.Struct({
  command: Schema.NonEmptyString,
  cwd: Schema.optional(Schema.NullOr(Schema.String)),
  timeout: Schema.optional(Schema.NullOr(Schema.NonNegativeInt))
})

const invalidBody = (message: string) => badRequest(message, "INVALID_REQUEST_BODY")

const create: Handler = (sandbox) =>
  Effect.gen(function* () {
    const { cwd } = yield* body(CreateSession, invalidBody)
    return json({ session_id: yield* sandbox.sessions.create(cwd || undefined) })
  })

const run: Handler = (sandbox, sandboxes, [id = ""]) =>
  Effect.gen(function* () {
    const { command, cwd, timeout } = yield* body(RunInSession, invalidBody)
    const request = { command, cwd: cwd || undefined, timeout: timeout ?? undefined }
    return outputStream(yield* sandboxes.working(sandbox, sandbox.sessions.run(id, request)))
  })

const remove: Handler = (sandbox, _sandboxes, [id = ""]) => Effect.as(sandbox.sessions.remove(id), empty(200))

export const sessionRoutes: ReadonlyArray<Route> = [
  route("POST", /^\/session$/, create),
  route("POST", /^\/session\/([^/]+)\/run$/, run),
  route("DELETE", /^\/session\/([^/]+)$/, remove)
]
