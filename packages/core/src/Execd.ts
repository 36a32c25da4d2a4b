/**
 * A client of execd, the agent inside each sandbox: commands, files, directories.
 *
 * Its address and token come from `OpenSandbox.endpoint` and change whenever the sandbox is paused and resumed. GET and DELETE are repeated a few times, the first
 * time at once with a new endpoint; POST is sent exactly once, and after a failed connection or a 401 the next call asks for the endpoint again.
 *
 * @since 0.1.0
 */
import * as HttpBody from "@effect/platform/HttpBody"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import type * as HttpClientResponse from "@effect/platform/HttpClientResponse"
import * as Chunk from "effect/Chunk"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import { IdGenerator } from "./IdGenerator.js"
import type { Connection } from "./internal/execdHttp.js"
import { makeConnections, open, reads, repeatable, withConnection } from "./internal/execdHttp.js"
import * as FileWire from "./internal/fileWire.js"
import { makeFrameDecoder } from "./internal/frames.js"
import * as Http from "./internal/http.js"
import { concat, decodeUtf8, snippet } from "./internal/httpBody.js"
import type { Where } from "./internal/httpError.js"
import { errorDocument, invalidRequest, reasonOf } from "./internal/httpError.js"
import { revealed } from "./internal/lifecycleWire.js"
import { multipart } from "./internal/multipart.js"
import { nullish } from "./internal/nullish.js"
import { OpenSandbox } from "./OpenSandbox.js"
import { OpenSandboxError } from "./OpenSandboxError.js"

/**
 * A command for `bash -c` (`sh -c` where there is no bash).
 *
 * @since 0.1.0
 * @category models
 */
export interface CommandRequest {
  readonly command: string
  readonly cwd?: string | undefined
  readonly env?: { readonly [key: string]: string | Redacted.Redacted } | undefined
  /** The server kills the command after it; sent in whole milliseconds. Default: never. */
  readonly timeout?: Duration.DurationInput | undefined
  readonly uid?: number | undefined
  /** Needs `uid`. */
  readonly gid?: number | undefined
  /** Ends the stream as soon as the command has started; see `status` and `logs`. Default `false`. */
  readonly background?: boolean | undefined
}

/**
 * One event of a command's stream.
 *
 * - `Init`: the id that `interrupt`, `status` and `logs` want
 * - `Output`: what one network read brought of one stream, up to a change of the stream: whole lines, each with its line end, at most 65,536
 *   UTF-16 code units (a longer line is split, never inside a character)
 * - `Exit`: the terminal event. `exitCode` is absent where the server's words are no clean integer, or -1 (killed by a signal or by the timeout), and where the
 *   command was only started (`background`); `message` holds the words, `name` their kind (`CommandExecError`)
 *
 * The server never says whether the last line had an end, so it gets one.
 *
 * @since 0.1.0
 * @category models
 */
export type ExecdEvent =
  | { readonly _tag: "Init"; readonly commandId: string }
  | { readonly _tag: "Output"; readonly stream: "stdout" | "stderr"; readonly text: string }
  /** The terminal event. `exitCode` is absent where the server's words are no clean integer, or -1; `message` holds them. */
  | {
      readonly _tag: "Exit"
      readonly exitCode?: number | undefined
      readonly message?: string | undefined
      readonly name?: string | undefined
      readonly traceback?: ReadonlyArray<string> | undefined
      /** What the server measured. */
      readonly durationMillis?: number | undefined
      /** The command was started in the background; nothing is known about its end. */
      readonly background?: boolean | undefined
    }

/**
 * What execd still knows about a command. `exitCode` is `None` while it runs, and where it was killed.
 *
 * @since 0.1.0
 * @category models
 */
export interface CommandStatus {
  readonly id: string
  readonly running: boolean
  readonly exitCode: Option.Option<number>
  readonly error?: string | undefined
}

/**
 * A file, as execd sees it. Times are epoch milliseconds.
 *
 * @since 0.1.0
 * @category models
 */
export interface FileInfo {
  readonly path: string
  /** `file`, `directory`, `symlink`, `other`; absent from older servers. */
  readonly type?: string | undefined
  readonly size: number
  /** Octal digits as a string, e.g. `755`. */
  readonly mode: string
  readonly owner: string
  readonly group: string
  readonly modifiedAt?: number | undefined
  readonly createdAt?: number | undefined
}

/**
 * A file mode, `0o755` or `"755"`: both send `755`, because the wire carries octal digits as a decimal number. From 0 to `0o7777`.
 *
 * @since 0.1.0
 * @category models
 */
export type Mode = number | string

/**
 * Who may do what with a file.
 *
 * @since 0.1.0
 * @category models
 */
export interface Permission {
  readonly mode?: Mode | undefined
  readonly owner?: string | undefined
  readonly group?: string | undefined
}

/**
 * A file to write. Missing parent directories are made. Text is sent as UTF-8.
 *
 * @since 0.1.0
 * @category models
 */
export interface UploadFile extends Permission {
  readonly path: string
  readonly content: string | Uint8Array | Stream.Stream<Uint8Array, unknown>
}

/**
 * execd of one sandbox. Its endpoint is resolved on first use and kept.
 *
 * @since 0.1.0
 * @category models
 */
export interface ExecdClient {
  readonly sandboxId: string
  /** Forget the endpoint: pause and resume change its port and token. */
  readonly invalidate: Effect.Effect<void>
  readonly ping: Effect.Effect<void, OpenSandboxError>
  /** Waits until a command really runs, trying with a growing delay (0.1 to 2 seconds). Default timeout: 120 seconds. */
  readonly ready: (options?: {
    readonly timeout?: Duration.DurationInput | undefined
  }) => Effect.Effect<void, OpenSandboxError>
  /**
   * Runs a command; sent once. One chunk of the stream is what one network read brought. Ends after the terminal event, whatever the connection does
   * then. Ending the stream early frees the socket but does **not** stop the command: use `interrupt`.
   * Fails with `Transport` when the connection ends without a terminal event, `Timeout` after the idle limit, `Decode` for a body that is no event
   * stream, and with the server's own code for an error inside the stream.
   */
  readonly command: (request: CommandRequest) => Stream.Stream<ExecdEvent, OpenSandboxError>
  /** A command that is gone already counts as interrupted. */
  readonly interrupt: (commandId: string) => Effect.Effect<void, OpenSandboxError>
  readonly status: (commandId: string) => Effect.Effect<CommandStatus, OpenSandboxError>
  /**
   * Output of a background command, stdout and stderr together, from an opaque cursor on. Ask with the cursor of the last answer; it holds back the bytes of
   * a character that was cut, so that the texts may simply be joined. At most 64 MiB at a time.
   */
  readonly logs: (
    commandId: string,
    cursor?: string
  ) => Effect.Effect<{ readonly text: string; readonly cursor: Option.Option<string> }, OpenSandboxError>
  /** One request for all files, streamed. A content that fails is an `InvalidRequest` that names the file. */
  readonly upload: (files: ReadonlyArray<UploadFile>) => Effect.Effect<void, OpenSandboxError>
  /**
   * The bytes of a file, as they arrive. `offset` and `length` are bytes.
   *
   * Some servers answer 200 with an error document where there is no file. That counts as an error, before any byte is delivered, if the answer is JSON
   * of the shape `{ code, message }` and carries no `Content-Disposition`, which execd sends with every file; so a JSON file is safe.
   */
  readonly download: (
    path: string,
    options?: { readonly offset?: number | undefined; readonly length?: number | undefined }
  ) => Stream.Stream<Uint8Array, OpenSandboxError>
  readonly info: (paths: ReadonlyArray<string>) => Effect.Effect<ReadonlyMap<string, FileInfo>, OpenSandboxError>
  /** Files below `root` that match a glob pattern; default `**`, all of them. */
  readonly search: (root: string, pattern?: string) => Effect.Effect<ReadonlyArray<FileInfo>, OpenSandboxError>
  readonly move: (
    moves: ReadonlyArray<{ readonly from: string; readonly to: string }>
  ) => Effect.Effect<void, OpenSandboxError>
  /** Replaces every occurrence of `old`, which must not be empty. Returns how many there were, by path. */
  readonly replace: (replacements: {
    readonly [path: string]: { readonly old: string; readonly new: string }
  }) => Effect.Effect<ReadonlyMap<string, number>, OpenSandboxError>
  /** What is not given stays as it is. */
  readonly setPermissions: (permissions: {
    readonly [path: string]: Permission
  }) => Effect.Effect<void, OpenSandboxError>
  readonly removeFiles: (paths: ReadonlyArray<string>) => Effect.Effect<void, OpenSandboxError>
  /** What is in a directory, `depth` levels deep; default 1. The path must not be a symbolic link. */
  readonly listDirectory: (
    path: string,
    options?: { readonly depth?: number | undefined }
  ) => Effect.Effect<ReadonlyArray<FileInfo>, OpenSandboxError>
  /** With parents. Default mode `755`. */
  readonly makeDirectories: (directories: {
    readonly [path: string]: Permission
  }) => Effect.Effect<void, OpenSandboxError>
  /** With everything in them. */
  readonly removeDirectories: (paths: ReadonlyArray<string>) => Effect.Effect<void, OpenSandboxError>
}

/**
 * execd as a service: a client for each sandbox.
 *
 * @example
 * ```ts
 * import { Execd, OpenSandbox } from "@sandglass/core"
 * import * as Console from "effect/Console"
 * import * as Effect from "effect/Effect"
 * import * as Layer from "effect/Layer"
 * import * as Stream from "effect/Stream"
 *
 * export const program = Effect.gen(function*() {
 *   const execd = yield* Execd.Execd
 *   const client = yield* execd.connect("sandbox-id")
 *   yield* client.ready()
 *   yield* client.command({ command: "npm ci", cwd: "/work", timeout: "10 minutes" }).pipe(Stream.runForEach(Console.log))
 * }).pipe(Effect.provide(Execd.layer.pipe(Layer.provide(OpenSandbox.layerConfig()))))
 * ```
 *
 * @since 0.1.0
 * @category tags
 */
export class Execd extends Context.Tag("@sandglass/core/Execd")<
  Execd,
  {
    /** A client for one sandbox; nothing is sent yet. */
    readonly connect: (sandboxId: string) => Effect.Effect<ExecdClient>
  }
>() {}

/**
 * How long to wait for execd, and how often to ask again.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** The longest silence of a command's stream, on which a heartbeat comes every 3 seconds. Default 15 seconds. */
  readonly idleTimeout?: Duration.DurationInput | undefined
  /** For one complete answer, and for the start or a silence of a streamed one. Default 30 seconds. */
  readonly requestTimeout?: Duration.DurationInput | undefined
  /** For a whole upload. Default: none. */
  readonly uploadTimeout?: Duration.DurationInput | undefined
  /** How GET and DELETE are repeated; see `OpenSandbox.Options`. */
  readonly retry?:
    | {
        readonly times?: number | undefined
        readonly baseDelay?: Duration.DurationInput | undefined
        readonly maxDelay?: Duration.DurationInput | undefined
      }
    | undefined
}

const Status = Schema.Struct({
  id: nullish(Schema.String),
  running: nullish(Schema.Boolean),
  exit_code: nullish(Schema.Number),
  error: nullish(Schema.String)
})

const cursorHeader = "execd-commands-tail-cursor"
const logsCap = 64 * 1024 * 1024
/** What an error document that stands for a file may measure at most. */
const documentCap = 64 * 1024

const isCode = (code: number): boolean => Number.isSafeInteger(code) && code >= 0

const commandProblem = (request: CommandRequest): string | undefined => {
  if (request.command === "") return "the command is empty"
  if (request.timeout !== undefined && !(Duration.toMillis(request.timeout) > 0)) return "the timeout must be positive"
  if (request.gid !== undefined && request.uid === undefined) return "gid needs uid"
  for (const id of [request.uid, request.gid]) {
    if (id !== undefined && (!Number.isInteger(id) || id < 0))
      return `uid and gid are whole numbers from 0 on, not ${id}`
  }
  return undefined
}

const commandBody = (request: CommandRequest) => {
  const timeout = request.timeout === undefined ? undefined : Duration.decode(request.timeout)
  return {
    command: request.command,
    cwd: request.cwd,
    background: request.background,
    timeout: timeout === undefined || !Duration.isFinite(timeout) ? undefined : Math.ceil(Duration.toMillis(timeout)),
    uid: request.uid,
    gid: request.gid,
    envs: request.env === undefined ? undefined : revealed(request.env)
  }
}

/** The start of a character whose rest is missing at the end of `bytes`. */
const cutCharacter = (bytes: Uint8Array): number => {
  for (let back = 1; back <= Math.min(3, bytes.length); back++) {
    const byte = bytes[bytes.length - back] ?? 0
    if (byte < 0x80) return 0
    if (byte >= 0xc0) {
      const size = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2
      return size > back ? back : 0
    }
  }
  return 0
}

const cursorPattern = /^(.*)!((?:[0-9a-f]{2}){1,3})$/

const fromHex = (hex: string): Uint8Array =>
  Uint8Array.from(hex.match(/../g) ?? [], (digits) => Number.parseInt(digits, 16))

const toHex = (bytes: Uint8Array): string => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")

/** Paths in batches that a request line can carry. */
const batches = (paths: ReadonlyArray<string>): ReadonlyArray<ReadonlyArray<string>> => {
  const out: Array<Array<string>> = []
  let size = Number.POSITIVE_INFINITY
  for (const path of paths) {
    const cost = new URLSearchParams({ path }).toString().length + 1
    if (size + cost > 6000) {
      out.push([])
      size = 0
    }
    out[out.length - 1]?.push(path)
    size += cost
  }
  return out
}

const baseName = (path: string): string => path.slice(path.lastIndexOf("/") + 1)

/**
 * Builds the service on `OpenSandbox`: its endpoints, and its HTTP client.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (options: Options = {}): Effect.Effect<Context.Tag.Service<Execd>, never, OpenSandbox> =>
  Effect.gen(function* () {
    const api = yield* OpenSandbox
    const { next } = yield* IdGenerator
    const idleTimeout = Duration.decode(options.idleTimeout ?? "15 seconds")
    const requestTimeout = Duration.decode(options.requestTimeout ?? "30 seconds")
    const uploadTimeout = Duration.decode(options.uploadTimeout ?? Duration.infinity)
    const policy = Http.retryPolicy(options.retry)
    const where = (method: string): Where => ({ module: "Execd", method })

    const connect = (sandboxId: string): ExecdClient => {
      const connections = makeConnections(api, sandboxId)

      const span = (method: string, attributes: { readonly [key: string]: unknown } = {}) =>
        Effect.withSpan(`Execd.${method}`, {
          captureStackTrace: false,
          attributes: { "sandbox.id": sandboxId, ...attributes }
        })

      const send = <A>(
        connection: Connection,
        at: Where,
        request: HttpClientRequest.HttpClientRequest,
        decode: (response: HttpClientResponse.HttpClientResponse) => Effect.Effect<A, OpenSandboxError>,
        timeout = requestTimeout
      ): Effect.Effect<A, OpenSandboxError> => Http.send(connection.client, at, timeout, request, decode)

      const get = <A>(
        at: Where,
        path: string,
        params: ReadonlyArray<readonly [string, string]>,
        decode: (response: HttpClientResponse.HttpClientResponse) => Effect.Effect<A, OpenSandboxError>
      ): Effect.Effect<A, OpenSandboxError> =>
        repeatable(connections, policy, (connection) =>
          send(connection, at, HttpClientRequest.get(path, { urlParams: params }), decode)
        )

      const remove = (
        at: Where,
        path: string,
        params: ReadonlyArray<readonly [string, string]>
      ): Effect.Effect<void, OpenSandboxError> =>
        repeatable(connections, policy, (connection, attempt) =>
          send(connection, at, HttpClientRequest.del(path, { urlParams: params }), Http.noBody).pipe(
            // an earlier attempt may have done it before its answer was lost
            Effect.catchIf(
              (error) => attempt > 0 && error.reason === "NotFound",
              () => Effect.void
            )
          )
        )

      const post = <A>(
        at: Where,
        path: string,
        body: unknown,
        decode: (response: HttpClientResponse.HttpClientResponse) => Effect.Effect<A, OpenSandboxError>,
        params: ReadonlyArray<readonly [string, string]> = []
      ): Effect.Effect<A, OpenSandboxError> =>
        withConnection(connections, (connection) =>
          send(
            connection,
            at,
            HttpClientRequest.post(path, { urlParams: params, body: HttpBody.unsafeJson(body) }),
            decode
          )
        )

      const command = (request: CommandRequest): Stream.Stream<ExecdEvent, OpenSandboxError> => {
        const at = where("command")
        return Stream.unwrapScoped(
          Effect.gen(function* () {
            const problem = commandProblem(request)
            if (problem !== undefined) return yield* Effect.fail(invalidRequest(at, problem))
            const connection = yield* connections.get
            const { close, pull, requestId } = yield* withConnection(connections, () =>
              Effect.gen(function* () {
                const opened = yield* open(
                  connection,
                  at,
                  requestTimeout,
                  HttpClientRequest.post("/command", {
                    // compressed, a proxy may hold output back
                    headers: { accept: "text/event-stream", "accept-encoding": "identity" },
                    body: HttpBody.unsafeJson(commandBody(request))
                  })
                )
                return {
                  close: opened.close,
                  pull: yield* reads(at, opened, idleTimeout),
                  requestId: opened.response.headers["x-request-id"]
                }
              })
            )
            const span = yield* Effect.option(Effect.currentSpan)
            const decoder = makeFrameDecoder({ lines: true, background: request.background === true })
            let ended: OpenSandboxError | undefined

            const brokenOff = (): OpenSandboxError => {
              const failure = decoder.failure()
              if (failure?._tag === "Reported") {
                const { code, description } = failure.document
                return new OpenSandboxError({
                  ...at,
                  reason: reasonOf(at, 500, failure.document),
                  code,
                  description,
                  requestId
                })
              }
              return new OpenSandboxError({
                ...at,
                reason: "Decode",
                description: `no event stream: ${failure?.description ?? ""}`,
                requestId
              })
            }

            const deliver = (events: Array<ExecdEvent>) => {
              for (const event of events) {
                if (event._tag === "Init" && Option.isSome(span)) span.value.attribute("command.id", event.commandId)
              }
              return Chunk.unsafeFromArray(events)
            }

            const step: Effect.Effect<Chunk.Chunk<ExecdEvent>, Option.Option<OpenSandboxError>> = Effect.suspend(() => {
              if (decoder.isDone()) return Effect.fail(Option.none())
              if (decoder.failure() !== undefined) return Effect.fail(Option.some(brokenOff()))
              if (ended !== undefined) {
                // the sandbox may have moved
                return Effect.zipRight(connections.drop(connection), Effect.fail(Option.some(ended)))
              }
              return Effect.matchEffect(pull, {
                onSuccess: (bytes) => settle(decoder.push(bytes)),
                onFailure: (end) => {
                  const events = decoder.end()
                  ended = Option.getOrElse(
                    end,
                    () =>
                      new OpenSandboxError({
                        ...at,
                        reason: "Transport",
                        description: decoder.isEmpty()
                          ? "the event stream was empty"
                          : "the event stream ended without a terminal event",
                        requestId
                      })
                  )
                  return settle(events)
                }
              })
            })

            // what is over frees its socket before anyone looks at it
            const settle = (events: Array<ExecdEvent>) => {
              const next = events.length === 0 ? step : Effect.succeed(deliver(events))
              return decoder.isDone() || ended !== undefined || decoder.failure() !== undefined
                ? Effect.zipRight(close, next)
                : next
            }

            return Stream.repeatEffectChunkOption(step)
          })
        ).pipe(
          Stream.withSpan("Execd.command", {
            captureStackTrace: false,
            attributes: { "sandbox.id": sandboxId, "command.background": request.background === true }
          })
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
              exitCode:
                wire.running === true || code === undefined || !isCode(code) ? Option.none() : Option.some(code),
              error: wire.error === null || wire.error === "" ? undefined : wire.error
            }
          }),
          span("status", { "command.id": commandId })
        )
      }

      const logs: ExecdClient["logs"] = (commandId, cursor) => {
        const at = where("logs")
        const [, position = cursor, held = ""] = cursorPattern.exec(cursor ?? "") ?? []
        return Http.segment(at, "command id", commandId).pipe(
          Effect.flatMap((id) =>
            get(at, `/command/${id}/logs`, position === undefined ? [] : [["cursor", position]], (response) =>
              Effect.map(
                Http.textBody(at, logsCap)(response),
                (bytes) => [bytes, response.headers[cursorHeader]] as const
              )
            )
          ),
          Effect.map(([fresh, next]) => {
            const start = fromHex(held)
            const bytes = start.length === 0 ? fresh : concat([start, fresh], start.length + fresh.length)
            if (next === undefined || next === "") return { text: decodeUtf8(bytes), cursor: Option.none() }
            const cut = cutCharacter(bytes)
            return {
              text: decodeUtf8(bytes.subarray(0, bytes.length - cut)),
              cursor: Option.some(cut === 0 ? next : `${next}!${toHex(bytes.subarray(bytes.length - cut))}`)
            }
          }),
          span("logs", { "command.id": commandId })
        )
      }

      const ping = get(where("ping"), "/ping", [], Http.noBody).pipe(span("ping"))

      const ready: ExecdClient["ready"] = (input = {}) => {
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

      const pathsProblem = (paths: ReadonlyArray<string>): string | undefined =>
        paths.includes("") ? "a path is empty" : undefined

      const check = (at: Where, problem: string | undefined): Effect.Effect<void, OpenSandboxError> =>
        problem === undefined ? Effect.void : Effect.fail(invalidRequest(at, problem))

      const upload = (files: ReadonlyArray<UploadFile>): Effect.Effect<void, OpenSandboxError> => {
        const at = where("upload")
        return Effect.gen(function* () {
          if (files.length === 0) return
          for (const file of files) yield* check(at, FileWire.permissionProblem(file.path, file))
          const boundary = `sandglass-${yield* next}`
          // fetch reports a failing body as a failed connection, so it is remembered here
          let failed: OpenSandboxError | undefined
          const parts = files.map((file) => ({
            metadata: JSON.stringify({ path: file.path, ...FileWire.permissionBody(file) }),
            fileName: baseName(file.path),
            content:
              typeof file.content === "string" || file.content instanceof Uint8Array
                ? file.content
                : Stream.tapErrorCause(file.content, (cause) =>
                    Effect.sync(() => {
                      failed ??= new OpenSandboxError({
                        ...at,
                        reason: "InvalidRequest",
                        description: `the content of ${JSON.stringify(file.path)} failed`,
                        cause
                      })
                    })
                  )
          }))
          yield* withConnection(connections, (connection) =>
            send(
              connection,
              at,
              HttpClientRequest.post("/files/upload", {
                body: HttpBody.stream(multipart(boundary, parts), `multipart/form-data; boundary=${boundary}`)
              }),
              Http.noBody,
              uploadTimeout
            ).pipe(Effect.mapError((error) => failed ?? error))
          )
        }).pipe(span("upload", { "files.count": files.length }))
      }

      const download: ExecdClient["download"] = (path, range = {}) => {
        const at = where("download")
        const offset = range.offset ?? 0
        const length = range.length
        const isWhole = offset === 0 && length === undefined
        const header = `bytes=${offset}-${length === undefined ? "" : offset + length - 1}`
        return Stream.unwrapScoped(
          Effect.gen(function* () {
            yield* check(at, pathsProblem([path]))
            for (const number of [offset, length]) {
              if (number !== undefined && !isCode(number)) {
                return yield* Effect.fail(
                  invalidRequest(at, `offset and length are whole numbers from 0 on, not ${number}`)
                )
              }
            }
            if (length === 0) return Stream.empty
            const opened = yield* repeatable(connections, policy, (connection) =>
              open(
                connection,
                at,
                requestTimeout,
                HttpClientRequest.get("/files/download", {
                  urlParams: { path },
                  headers: { "accept-encoding": "identity", ...(isWhole ? {} : { range: header }) }
                })
              )
            )
            const { headers, status } = opened.response
            const pull = yield* reads(at, opened, requestTimeout)
            const expected =
              headers["content-encoding"] === undefined && /^\d+$/.test(headers["content-length"] ?? "")
                ? Number(headers["content-length"])
                : undefined
            let received = 0
            const bytes = Stream.repeatEffectOption(pull).pipe(
              Stream.tap((chunk) =>
                Effect.sync(() => {
                  received += chunk.length
                })
              ),
              Stream.concat(
                Stream.unwrap(
                  Effect.suspend(() =>
                    expected === undefined || received === expected
                      ? Effect.succeed(Stream.empty)
                      : Effect.fail(
                          new OpenSandboxError({
                            ...at,
                            reason: "Transport",
                            description: `the file ended after ${received} of ${expected} bytes`
                          })
                        )
                  )
                )
              )
            )
            if (
              status !== 206 &&
              headers["content-disposition"] === undefined &&
              /^application\/(problem\+)?json\b/i.test(headers["content-type"] ?? "") &&
              (expected === undefined || expected <= documentCap)
            ) {
              const { held, rest } = yield* heldBack(bytes, documentCap)
              const size = held.reduce((sum, chunk) => sum + chunk.length, 0)
              const document = size > documentCap ? undefined : errorIn(decodeUtf8(concat(held, size)))
              if (document !== undefined) {
                return yield* Effect.fail(
                  new OpenSandboxError({
                    ...at,
                    reason: reasonOf(at, 500, document),
                    code: document.code,
                    description: document.description ?? snippet(document.code ?? ""),
                    requestId: headers["x-request-id"]
                  })
                )
              }
              const all = Stream.concat(Stream.fromIterable(held), rest)
              return isWhole ? all : sliced(all, offset, length)
            }
            // a server that ignores the range sends the file from its start
            return isWhole || status === 206 ? bytes : sliced(bytes, offset, length)
          })
        ).pipe(Stream.withSpan("Execd.download", { captureStackTrace: false, attributes: { "sandbox.id": sandboxId } }))
      }

      const info = (paths: ReadonlyArray<string>): Effect.Effect<ReadonlyMap<string, FileInfo>, OpenSandboxError> => {
        const at = where("info")
        return check(at, pathsProblem(paths)).pipe(
          Effect.zipRight(
            Effect.forEach(batches(paths), (batch) =>
              get(
                at,
                "/files/info",
                batch.map((path) => ["path", path] as const),
                Http.jsonBody(at, FileWire.schemas.InfoMap)
              )
            )
          ),
          Effect.map(
            (maps) =>
              new Map(
                maps.flatMap((map) =>
                  Object.entries(map ?? {}).map(([path, wire]) => [path, FileWire.fileInfo(wire, path)] as const)
                )
              )
          ),
          span("info", { "files.count": paths.length })
        )
      }

      const infoList = (
        at: Where,
        path: string,
        params: ReadonlyArray<readonly [string, string]>
      ): Effect.Effect<ReadonlyArray<FileInfo>, OpenSandboxError> =>
        Effect.map(get(at, path, params, Http.jsonBody(at, FileWire.schemas.InfoList)), (list) =>
          (list ?? []).map((wire) => FileWire.fileInfo(wire, ""))
        )

      const search = (root: string, pattern?: string): Effect.Effect<ReadonlyArray<FileInfo>, OpenSandboxError> => {
        const at = where("search")
        return check(at, pathsProblem([root])).pipe(
          Effect.zipRight(
            infoList(at, "/files/search", [
              ["path", root],
              ...(pattern === undefined ? [] : [["pattern", pattern] as const])
            ])
          ),
          span("search")
        )
      }

      const move: ExecdClient["move"] = (moves) => {
        const at = where("move")
        return check(at, pathsProblem(moves.flatMap(({ from, to }) => [from, to]))).pipe(
          Effect.zipRight(
            Effect.suspend(() =>
              moves.length === 0
                ? Effect.void
                : post(
                    at,
                    "/files/mv",
                    moves.map(({ from, to }) => ({ src: from, dest: to })),
                    Http.noBody
                  )
            )
          ),
          span("move", { "files.count": moves.length })
        )
      }

      const replace: ExecdClient["replace"] = (replacements) => {
        const at = where("replace")
        const entries = Object.entries(replacements)
        return Effect.gen(function* () {
          yield* check(at, pathsProblem(entries.map(([path]) => path)))
          for (const [path, { old }] of entries) {
            yield* check(at, old === "" ? `what to replace in ${JSON.stringify(path)} is empty` : undefined)
          }
          if (entries.length === 0) return new Map<string, number>()
          const counts = yield* post(at, "/files/replace", replacements, Http.jsonBody(at, FileWire.schemas.Replaced), [
            ["verbose", "true"]
          ])
          return new Map(Object.entries(counts ?? {}).map(([path, { replacedCount }]) => [path, replacedCount ?? 0]))
        }).pipe(span("replace", { "files.count": entries.length }))
      }

      const setPermissions: ExecdClient["setPermissions"] = (permissions) => {
        const at = where("setPermissions")
        const entries = Object.entries(permissions)
        return Effect.gen(function* () {
          for (const [path, permission] of entries) yield* check(at, FileWire.permissionProblem(path, permission))
          if (entries.length === 0) return
          // the wire has no way to leave the mode alone
          const silent = entries.filter(([, { mode }]) => mode === undefined).map(([path]) => path)
          const known = silent.length === 0 ? undefined : yield* info(silent)
          const body = Object.fromEntries(
            entries.map(([path, permission]) => {
              const mode = permission.mode ?? known?.get(path)?.mode
              return [path, FileWire.permissionBody({ ...permission, mode: mode === "" ? undefined : mode })]
            })
          )
          yield* post(at, "/files/permissions", body, Http.noBody)
        }).pipe(span("setPermissions", { "files.count": entries.length }))
      }

      const removeAll = (method: string, path: string) => (paths: ReadonlyArray<string>) => {
        const at = where(method)
        return check(at, pathsProblem(paths)).pipe(
          Effect.zipRight(
            Effect.forEach(
              batches(paths),
              (batch) =>
                remove(
                  at,
                  path,
                  batch.map((path) => ["path", path] as const)
                ),
              { discard: true }
            )
          ),
          span(method, { "files.count": paths.length })
        )
      }

      const listDirectory: ExecdClient["listDirectory"] = (path, { depth } = {}) => {
        const at = where("listDirectory")
        return check(
          at,
          pathsProblem([path]) ??
            (depth === undefined || isCode(depth) ? undefined : `depth is a whole number from 0 on, not ${depth}`)
        ).pipe(
          Effect.zipRight(
            infoList(at, "/directories/list", [
              ["path", path],
              ...(depth === undefined ? [] : [["depth", String(depth)] as const])
            ])
          ),
          span("listDirectory")
        )
      }

      const makeDirectories: ExecdClient["makeDirectories"] = (directories) => {
        const at = where("makeDirectories")
        const entries = Object.entries(directories)
        return Effect.gen(function* () {
          for (const [path, permission] of entries) yield* check(at, FileWire.permissionProblem(path, permission))
          if (entries.length === 0) return
          yield* post(
            at,
            "/directories",
            Object.fromEntries(
              entries.map(([path, permission]) => [path, FileWire.permissionBody({ mode: "755", ...permission })])
            ),
            Http.noBody
          )
        }).pipe(span("makeDirectories", { "files.count": entries.length }))
      }

      return {
        sandboxId,
        invalidate: connections.dropAll,
        ping,
        ready,
        command,
        interrupt,
        status,
        logs,
        upload,
        download,
        info,
        search,
        move,
        replace,
        setPermissions,
        removeFiles: removeAll("removeFiles", "/files"),
        listDirectory,
        makeDirectories,
        removeDirectories: removeAll("removeDirectories", "/directories")
      }
    }

    return Execd.of({ connect: (sandboxId) => Effect.sync(() => connect(sandboxId)) })
  })

/** The start of a stream, up to `cap` bytes, and what comes after it. */
const heldBack = <E>(bytes: Stream.Stream<Uint8Array, E>, cap: number) =>
  Effect.map(Stream.toPull(bytes), (pull) => ({ pull })).pipe(
    Effect.flatMap(({ pull }) => {
      const held: Array<Uint8Array> = []
      let size = 0
      let ended = false
      const fill: Effect.Effect<void, E> = Effect.suspend(() =>
        size > cap
          ? Effect.void
          : Effect.matchEffect(pull, {
              onSuccess: (chunk) => {
                for (const piece of chunk) {
                  held.push(piece)
                  size += piece.length
                }
                return fill
              },
              onFailure: Option.match({
                onNone: () => {
                  ended = true
                  return Effect.void
                },
                onSome: Effect.fail
              })
            })
      )
      return Effect.map(fill, () => ({ held, rest: ended ? Stream.empty : Stream.repeatEffectChunkOption(pull) }))
    })
  )

/** The error document that a downloaded text is, if it is one and nothing else. */
const errorIn = (text: string) => {
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined
    const keys = Object.keys(value)
    const isError =
      (keys.includes("code") && keys.includes("message")) ||
      (keys.length === 1 && (keys[0] === "detail" || keys[0] === "error"))
    return isError ? errorDocument(value) : undefined
  } catch {
    return undefined
  }
}

/** `length` bytes from `offset` on. */
const sliced = <E>(bytes: Stream.Stream<Uint8Array, E>, offset: number, length: number | undefined) =>
  Stream.suspend(() => {
    const end = length === undefined ? Number.POSITIVE_INFINITY : offset + length
    let position = 0
    return bytes.pipe(
      Stream.map((chunk) => {
        const start = position
        position += chunk.length
        return chunk.subarray(Math.max(0, offset - start), Math.max(0, end - start))
      }),
      Stream.takeUntil(() => position >= end),
      Stream.filter((chunk) => chunk.length > 0)
    )
  })

/**
 * The service with options; `layer` is the same with the defaults.
 *
 * @example
 * ```ts
 * import { Execd } from "@sandglass/core"
 *
 * export const Patient = Execd.layerWith({ idleTimeout: "1 minute", retry: { times: 5 } })
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layerWith = (options: Options): Layer.Layer<Execd, never, OpenSandbox> =>
  Layer.effect(Execd, make(options))

/**
 * The service: silence of 15 seconds on a command's stream is a `Timeout`, other answers have 30.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer: Layer.Layer<Execd, never, OpenSandbox> = Layer.effect(Execd, make())
