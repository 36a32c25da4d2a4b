/** Running code as execd's API. @internal */

import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { badRequest } from "./apiError.js"
import type { CodeContext } from "./codes.js"
import { outputStream } from "./events.js"
import { body, empty, json, query } from "./http.js"
import type { Handler, Route } from "./routes.js"
import { route } from "./routes.js"

const text = Schema.optional(Schema.NullOr(Schema.String))

const CreateContext = Schema.Struct({ language: text, cwd: text })

const RunCode = Schema.Struct({
  code: Schema.NonEmptyString,
  context: Schema.optional(Schema.NullOr(Schema.Struct({ id: text, language: text })))
})

const invalidBody = (message: string) => badRequest(message, "INVALID_REQUEST_BODY")

const shown = ({ id, language }: CodeContext) => ({ id, language })

const required = (name: string) =>
  Effect.flatMap(query, (params) => {
    const value = params.get(name)
    return value === null || value === ""
      ? Effect.fail(badRequest(`${name} is missing`, "MISSING_QUERY"))
      : Effect.succeed(value)
  })

const create: Handler = (sandbox, sandboxes) =>
  Effect.gen(function* () {
    const { cwd, language } = yield* body(CreateContext, invalidBody)
    if (!language) return yield* badRequest("language is missing", "INVALID_REQUEST_BODY")
    return json(shown(yield* sandboxes.working(sandbox, sandbox.codes.create(language, cwd || undefined))))
  })

const list: Handler = (sandbox) =>
  Effect.map(Effect.flatMap(required("language"), sandbox.codes.list), (all) => json(all.map(shown)))

const get: Handler = (sandbox, _sandboxes, [id = ""]) =>
  Effect.map(sandbox.codes.get(id), (context) => json(shown(context)))

const remove: Handler = (sandbox, _sandboxes, [id = ""]) => Effect.as(sandbox.codes.remove(id), empty(200))

const removeAll: Handler = (sandbox) =>
  Effect.as(Effect.flatMap(required("language"), sandbox.codes.removeAll), empty(200))

const run: Handler = (sandbox, sandboxes) =>
  Effect.gen(function* () {
    const { code, context } = yield* body(RunCode, invalidBody)
    const id = context?.id || undefined
    const language = context?.language || undefined
    if (id !== undefined || language !== undefined)
      return outputStream(yield* sandboxes.working(sandbox, sandbox.codes.run({ id, language }, code)))
    const { output } = yield* sandboxes.working(
      sandbox,
      sandbox.commands.start({
        command: code,
        cwd: undefined,
        background: false,
        timeout: undefined,
        uid: undefined,
        gid: undefined,
        envs: {},
        raw: true
      })
    )
    return output === undefined ? empty(200) : outputStream(output.queue)
  })

const interrupt: Handler = (sandbox) =>
  Effect.gen(function* () {
    const id = yield* required("id")
    const command = sandbox.commands.get(id)
    yield* command === undefined ? sandbox.codes.interrupt(id) : sandbox.commands.interrupt(command)
    return empty(200)
  })

export const codeRoutes: ReadonlyArray<Route> = [
  route("POST", /^\/code$/, run),
  route("DELETE", /^\/code$/, interrupt),
  route("POST", /^\/code\/context$/, create),
  route("GET", /^\/code\/contexts$/, list),
  route("DELETE", /^\/code\/contexts$/, removeAll),
  route("GET", /^\/code\/contexts\/([^/]+)$/, get),
  route("DELETE", /^\/code\/contexts\/([^/]+)$/, remove)
]
