/** The command and metrics half of execd; see `execdFiles.ts` for the rest. @internal */

import * as Fs from "node:fs"
import type * as Http from "node:http"
import * as Os from "node:os"
import type { Headers } from "@effect/platform/Headers"
import * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import * as HttpServerResponse from "@effect/platform/HttpServerResponse"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import type * as WS from "ws"
import { ApiError, badRequest, commandNotFound, notImplemented } from "./apiError.js"
import { completeEvent, encode, eventStream, initEvent, outputStream } from "./events.js"
import { codeRoutes } from "./execdCode.js"
import { fileRoutes } from "./execdFiles.js"
import { sessionRoutes } from "./execdSessions.js"
import { attachTerminal, terminalRoutes } from "./execdTerminals.js"
import { attempt, body, empty, iso, json, query, sameSecret, unauthorized } from "./http.js"
import { readFileOr } from "./process.js"
import type { Handler, Route, ServiceUpgrade } from "./routes.js"
import { ACCESS_HEADER, route } from "./routes.js"
import type { Sandbox, Sandboxes } from "./sandboxes.js"

const RunCommand = Schema.Struct({
  command: Schema.NonEmptyString,
  cwd: Schema.optional(Schema.NullOr(Schema.String)),
  background: Schema.optional(Schema.NullOr(Schema.Boolean)),
  timeout: Schema.optional(Schema.NullOr(Schema.NonNegativeInt)),
  uid: Schema.optional(Schema.NullOr(Schema.NonNegativeInt)),
  gid: Schema.optional(Schema.NullOr(Schema.NonNegativeInt)),
  envs: Schema.optional(Schema.NullOr(Schema.Record({ key: Schema.String, value: Schema.String })))
})

const invalidBody = (message: string) => badRequest(message, "INVALID_REQUEST_BODY")

const runCommand: Handler = (sandbox, sandboxes) =>
  Effect.gen(function* () {
    const request = yield* body(RunCommand, invalidBody)
    const clock = yield* Effect.clock
    const command = yield* sandboxes.working(
      sandbox,
      sandbox.commands.start({
        command: request.command,
        cwd: request.cwd || undefined,
        background: request.background ?? false,
        timeout: request.timeout ?? undefined,
        uid: request.uid ?? undefined,
        gid: request.gid ?? undefined,
        envs: request.envs ?? {}
      })
    )
    const { output } = command
    if (output === undefined) {
      const now = clock.unsafeCurrentTimeMillis()
      return eventStream(Stream.make(encode(initEvent(command.id, now) + completeEvent(command.startedAt, now))))
    }
    return outputStream(output.queue)
  })

const find = (sandbox: Sandbox, id: string) => {
  const command = sandbox.commands.get(id)
  return command === undefined ? Effect.fail(commandNotFound(id)) : Effect.succeed(command)
}

const interruptCommand: Handler = (sandbox) =>
  Effect.gen(function* () {
    const id = (yield* query).get("id")
    if (id === null || id === "") return yield* badRequest("the id of a command is missing")
    yield* sandbox.commands.interrupt(yield* find(sandbox, id))
    return empty(200)
  })

const commandStatus: Handler = (sandbox, _sandboxes, [id = ""]) =>
  Effect.map(find(sandbox, id), (command) => {
    const { state } = command
    return json({
      id: command.id,
      content: command.content,
      running: state._tag === "Running",
      exit_code: state._tag === "Running" ? null : state.exitCode,
      error: state._tag === "Running" ? "" : (state.error ?? ""),
      started_at: iso(command.startedAt),
      finished_at: state._tag === "Running" ? null : iso(state.at)
    })
  })

/** As much of a log as one answer brings. */
const LOG_PAGE = 8 * 1024 * 1024

/** How many of the last bytes begin a UTF-8 character whose end is not there (yet). */
const unfinished = (bytes: Uint8Array): number => {
  for (let back = 1; back <= Math.min(3, bytes.length); back++) {
    const byte = bytes[bytes.length - back] ?? 0
    if ((byte & 0xc0) === 0x80) continue
    const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1
    return length > back ? back : 0
  }
  return 0
}

const commandLogs: Handler = (sandbox, _sandboxes, [id = ""]) =>
  Effect.gen(function* () {
    const command = yield* find(sandbox, id)
    const { log } = command
    if (log === undefined) return yield* badRequest(`command ${id} does not run in the background`)
    const given = (yield* query).get("cursor") ?? "0"
    if (!/^\d+$/.test(given)) return yield* badRequest(`cursor must be a number, not ${given}`)
    const running = command.state._tag === "Running"
    return yield* attempt(() => {
      const fd = Fs.openSync(log, "r")
      try {
        const size = Fs.fstatSync(fd).size
        const start = Math.min(Number(given), size)
        const bytes = Buffer.alloc(Math.min(size - start, LOG_PAGE))
        const read = bytes.subarray(0, Fs.readSync(fd, bytes, 0, bytes.length, start))
        // A character whose end is still to come is left for the next time; at the end of the log it is what it is.
        const held = running || start + read.length < size ? unfinished(read) : 0
        return HttpServerResponse.text(read.subarray(0, read.length - held).toString("utf8"), {
          headers: { "EXECD-COMMANDS-TAIL-CURSOR": String(start + read.length - held) }
        })
      } finally {
        Fs.closeSync(fd)
      }
    })
  })

interface CpuTimes {
  readonly busy: number
  readonly total: number
}

const cpuTimes = (): CpuTimes => {
  const fields = (readFileOr("/proc/stat", "").split("\n", 1)[0] ?? "").trim().split(/\s+/).slice(1, 9).map(Number)
  const total = fields.reduce((sum, value) => sum + value, 0)
  return { busy: total - (fields[3] ?? 0) - (fields[4] ?? 0), total }
}

const metricsSince = (before: CpuTimes, now: number) => {
  const after = cpuTimes()
  const elapsed = after.total - before.total
  const available = Number(/MemAvailable:\s+(\d+)/.exec(readFileOr("/proc/meminfo", ""))?.[1] ?? 0) * 1024
  const mib = (bytes: number) => Math.round((bytes / 1048576) * 100) / 100
  return {
    cpu_count: Os.cpus().length,
    cpu_used_pct: elapsed <= 0 ? 0 : Math.round(((after.busy - before.busy) / elapsed) * 10_000) / 100,
    mem_total_mib: mib(Os.totalmem()),
    mem_used_mib: mib(Os.totalmem() - (available === 0 ? Os.freemem() : available)),
    timestamp: now
  }
}

/** The machine's figures, since its sandboxes have no limits of their own. */
const sample = Effect.gen(function* () {
  const before = cpuTimes()
  yield* Effect.sleep("50 millis")
  return metricsSince(before, yield* Effect.clockWith((clock) => clock.currentTimeMillis))
})

const metrics: Handler = () => Effect.map(sample, (value) => json(value))

/** Of a sandbox that is paused there is nothing to say, and nothing more of one that is deleted. */
const watchMetrics: Handler = (sandbox) =>
  Effect.succeed(
    eventStream(
      Stream.repeatEffect(Effect.map(sample, (value) => encode(`${JSON.stringify(value)}\n\n`))).pipe(
        Stream.schedule(Schedule.spaced("1 second")),
        Stream.filter(() => sandbox.status.state === "Running"),
        Stream.interruptWhen(Deferred.await(sandbox.doomed))
      )
    )
  )

/** First match wins. */
const routes: ReadonlyArray<Route> = [
  route("POST", /^\/command$/, runCommand),
  route("DELETE", /^\/command$/, interruptCommand),
  route("GET", /^\/command\/status\/([^/]+)$/, commandStatus),
  route("GET", /^\/command\/([^/]+)\/logs$/, commandLogs),
  route("GET", /^\/metrics$/, metrics),
  route("GET", /^\/metrics\/watch$/, watchMetrics),
  ...fileRoutes,
  ...sessionRoutes,
  ...codeRoutes,
  ...terminalRoutes,
  route("*", /^\/v1\/isolated(\/.*)?$/, () => Effect.fail(notImplemented("isolated sessions")))
]

export const running = (sandbox: Sandbox): Effect.Effect<Sandbox, ApiError> =>
  sandbox.status.state === "Running"
    ? Effect.succeed(sandbox)
    : Effect.fail(
        new ApiError({
          status: 503,
          code: "SANDBOX_NOT_RUNNING",
          message: `Sandbox ${sandbox.id} is ${sandbox.status.state}`
        })
      )

/** Whether a request may go on to a port of the sandbox. */
export const mayReach = (
  sandbox: Sandbox,
  headers: Http.IncomingHttpHeaders | Headers
): Effect.Effect<Sandbox, ApiError> => {
  const given = headers[ACCESS_HEADER.toLowerCase()]?.toString()
  return sandbox.spec.secureAccess && !sameSecret(given, sandbox.accessToken)
    ? Effect.fail(unauthorized(ACCESS_HEADER))
    : running(sandbox)
}

/** The sandbox, for whoever may ask its execd something. */
const authorized = (
  sandboxes: Sandboxes,
  sandboxId: string,
  token: string | undefined
): Effect.Effect<Sandbox, ApiError> =>
  Effect.gen(function* () {
    const sandbox = yield* sandboxes.get(sandboxId)
    if (!sameSecret(token, sandbox.token)) return yield* unauthorized("X-EXECD-ACCESS-TOKEN")
    return yield* running(sandbox)
  })

/** Answers what execd of one sandbox is asked; `path` is what follows the endpoint's address. */
export const execd = (sandboxes: Sandboxes, sandboxId: string, path: string) =>
  Effect.gen(function* () {
    const request = yield* HttpServerRequest.HttpServerRequest
    const sandbox = yield* authorized(sandboxes, sandboxId, request.headers["x-execd-access-token"])
    if (path === "/ping" && request.method === "GET") return HttpServerResponse.text("pong")
    let known = false
    for (const candidate of routes) {
      const match = candidate.path.exec(path)
      if (match === null) continue
      known = true
      if (candidate.method === "*" || candidate.method === request.method) {
        return yield* candidate.handle(sandbox, sandboxes, match.slice(1))
      }
    }
    return yield* known
      ? new ApiError({
          status: 405,
          code: "METHOD_NOT_ALLOWED",
          message: `${request.method} is not possible on ${path}`
        })
      : new ApiError({ status: 404, code: "NOT_FOUND", message: `There is no ${path}` })
  })

/** The same for WebSockets. */
export const execdUpgrade = (
  sandboxes: Sandboxes,
  { headers, id, path, query }: ServiceUpgrade,
  upgrade: Effect.Effect<WS.WebSocket, ApiError>
): Effect.Effect<void, ApiError> =>
  Effect.gen(function* () {
    const sandbox = yield* authorized(sandboxes, id, headers["x-execd-access-token"]?.toString())
    const terminal = /^\/pty\/([^/]+)\/ws$/.exec(path)?.[1]
    if (terminal === undefined)
      return yield* new ApiError({ status: 404, code: "NOT_FOUND", message: `There is no WebSocket at ${path}` })
    yield* sandboxes.working(sandbox, attachTerminal(sandbox, terminal, query, upgrade))
  })
