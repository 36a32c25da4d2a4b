/**
 * A client of execd, the agent inside each sandbox: commands, shell sessions, code, terminals, files, metrics.
 *
 * Its address and token come from `OpenSandbox.endpoint` and change whenever the sandbox is paused and resumed. GET and DELETE are repeated a few times, the first
 * time at once with a new endpoint; POST is sent exactly once, and after a failed connection or a 401 the next call asks for the endpoint again.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Option from "effect/Option"
import type * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import type * as Stream from "effect/Stream"
import { IdGenerator } from "./IdGenerator.js"
import type { Caller } from "./internal/execd/caller.js"
import { execdPort } from "./internal/execd/caller.js"
import { makeCode } from "./internal/execd/code.js"
import { makeCommands } from "./internal/execd/commands.js"
import { makeDownload } from "./internal/execd/download.js"
import { makeFiles } from "./internal/execd/files.js"
import { makeLogs } from "./internal/execd/logs.js"
import { makeMetrics } from "./internal/execd/metrics.js"
import { makeReady } from "./internal/execd/ready.js"
import { makeSessions } from "./internal/execd/sessions.js"
import { makeTerminals } from "./internal/execd/terminal/terminals.js"
import { makeUpload } from "./internal/execd/upload.js"
import { retryPolicy } from "./internal/http/client.js"
import { makePortCaller } from "./internal/http/portCaller.js"
import type { RetryOptions } from "./OpenSandbox.js"
import { OpenSandbox } from "./OpenSandbox.js"
import type { OpenSandboxError } from "./OpenSandboxError.js"

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
 * A command for a shell session.
 *
 * @since 0.1.0
 * @category models
 */
export interface SessionRequest {
  readonly command: string
  /** For this run only; default: where the session is. */
  readonly cwd?: string | undefined
  /** The server kills the command after it; sent in whole milliseconds. Default: the server's own limit. */
  readonly timeout?: Duration.DurationInput | undefined
}

/**
 * An interpreter that keeps its state from one piece of code to the next.
 *
 * @since 0.1.0
 * @category models
 */
export interface CodeContext {
  readonly id: string
  /** As the server calls it: `python`, `bash`, `java`, … */
  readonly language: string
}

/**
 * Code to run.
 *
 * @since 0.1.0
 * @category models
 */
export interface CodeRequest {
  readonly code: string
  /** Where to run it; without an `id`, in the language's default context. Without a context the code is a shell command. */
  readonly context?: { readonly language: string; readonly id?: string | undefined } | undefined
}

/**
 * One event of running code: those of a command, and
 *
 * - `Result`: a value to show, in one or more representations by MIME type, e.g. `text/plain`, `text/html`, `image/png` (base64)
 * - `ExecutionCount`: the number of this run in its context
 *
 * `Output` is the text as it was printed: lines are not completed. `Init` carries the id that `interruptCode` wants. `Exit` has `exitCode` 0 when the code
 * ended well; an error of the language has its `name` (`NameError`), `message` and `traceback` there, and no `exitCode`.
 *
 * @since 0.1.0
 * @category models
 */
export type CodeEvent =
  | ExecdEvent
  | { readonly _tag: "Result"; readonly data: { readonly [mimeType: string]: unknown } }
  | { readonly _tag: "ExecutionCount"; readonly count: number }

/**
 * What a sandbox uses at one moment.
 *
 * @since 0.1.0
 * @category models
 */
export interface Metrics {
  readonly cpuCount: number
  /** From 0 to 100, over all CPUs. */
  readonly cpuUsedPercent: number
  readonly memoryTotalMiB: number
  readonly memoryUsedMiB: number
  /** Epoch milliseconds, by the sandbox's clock. */
  readonly timestamp: number
}

/**
 * What to run in a terminal.
 *
 * @since 0.1.0
 * @category models
 */
export interface TerminalRequest {
  readonly cwd?: string | undefined
  /** For `bash -c`; default: an interactive shell. */
  readonly command?: string | undefined
}

/**
 * A terminal as execd describes it.
 *
 * @since 0.1.0
 * @category models
 */
export interface TerminalInfo {
  readonly id: string
  /** False before the first `attachTerminal`, which starts the process, and after the process has ended. */
  readonly running: boolean
  /** How many bytes the process has printed. */
  readonly outputOffset: number
}

/**
 * How to attach to a terminal.
 *
 * @since 0.1.0
 * @category models
 */
export interface AttachOptions {
  /** Pipes instead of a terminal: stdout and stderr apart, no echo, no window. Decided by whoever attaches first. Default `false`. */
  readonly pipe?: boolean | undefined
  /**
   * First deliver what was printed from this byte on, out of the last MiB, which is all that execd keeps. Default 0: all it has.
   */
  readonly since?: number | undefined
  /** Take the terminal from whoever holds it, instead of failing with `Conflict`. Default `false`. */
  readonly takeover?: boolean | undefined
  /**
   * Attach again when the connection is lost, and go on where the output broke off; see `attachTerminal`. Default `false`.
   */
  readonly reconnect?: boolean | undefined
}

/**
 * What a terminal prints, and how its process ends.
 *
 * - `Output`: bytes, as they arrived. `offset` is the number of bytes printed up to their end, what `since` wants. `replayed` marks output from before this
 *   connection; the server does not know any more which channel it came from, so it always counts as `stdout`
 * - `Exit`: the last event. `exitCode` is absent where the process was killed by a signal
 *
 * @since 0.1.0
 * @category models
 */
export type TerminalEvent =
  | {
      readonly _tag: "Output"
      readonly channel: "stdout" | "stderr"
      readonly bytes: Uint8Array
      readonly offset: number
      readonly replayed: boolean
    }
  | { readonly _tag: "Exit"; readonly exitCode?: number | undefined }

/**
 * A connection to a terminal. Only one can exist at a time.
 *
 * @since 0.1.0
 * @category models
 */
export interface TerminalConnection {
  /** `pipe` where the process has pipes instead of a terminal. */
  readonly mode: "pty" | "pipe"
  /**
   * Everything it prints, ended by `Exit`; for one consumer. A consumer that is slow stops the socket once a MiB waits for it. execd bears that for about
   * 10 seconds, then it drops the connection and keeps the last MiB for `since`: a consumer cannot slow the process itself down.
   *
   * Fails with `Conflict` and the code `TAKEN_OVER` when another client takes the terminal, with `Timeout` after the idle limit, and with `Transport` when
   * the connection ends in any other way without an exit code.
   */
  readonly output: Stream.Stream<TerminalEvent, OpenSandboxError>
  /** To the process's stdin; text is sent as UTF-8. What was under way when a connection broke is not sent again. */
  readonly write: (data: Uint8Array | string) => Effect.Effect<void, OpenSandboxError>
  /** Without effect on pipes. The window is 80 by 24 at first. */
  readonly resize: (cols: number, rows: number) => Effect.Effect<void, OpenSandboxError>
  /** A signal for the process group, by name: `SIGINT`. */
  readonly signal: (name: string) => Effect.Effect<void, OpenSandboxError>
  /** Waits for an answer. It comes behind the output, which has to be read meanwhile. */
  readonly ping: Effect.Effect<void, OpenSandboxError>
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
 * A piece of a background command's output. The cursor holds back the bytes of a character that was cut, so that the texts of one answer
 * after the other may simply be joined.
 *
 * @since 0.1.0
 * @category models
 */
export interface Logs {
  readonly text: string
  /** To ask with for what comes next. `None` where the server gave none. */
  readonly cursor: Option.Option<string>
  /** What is held back, as it reads when no more comes, and the cursor behind it. */
  readonly held: Option.Option<{ readonly text: string; readonly cursor: string }>
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
  /** Output of a background command, stdout and stderr together, from an opaque cursor on. At most 64 MiB at a time. */
  readonly logs: (commandId: string, cursor?: string) => Effect.Effect<Logs, OpenSandboxError>
  /**
   * Starts a shell whose working directory and environment last from one `runInSession` to the next, until `deleteSession`. Returns its id.
   */
  readonly createSession: (options?: { readonly cwd?: string | undefined }) => Effect.Effect<string, OpenSandboxError>
  /**
   * Runs a command in a session; sent once. Like `command`, but stderr comes as stdout and blank lines are lost, which is the server's doing, and so is this:
   * the exit code is read from the output, where the command can print one of its own (`__EXIT_CODE__:0`). `Init` carries the id of the session; there is no
   * interrupting but `deleteSession`.
   */
  readonly runInSession: (sessionId: string, request: SessionRequest) => Stream.Stream<ExecdEvent, OpenSandboxError>
  /** Ends its shell. A session that is gone already counts as deleted. */
  readonly deleteSession: (sessionId: string) => Effect.Effect<void, OpenSandboxError>
  /** Starts an interpreter, if the image has it. */
  readonly createCodeContext: (language: string) => Effect.Effect<CodeContext, OpenSandboxError>
  readonly codeContexts: (language: string) => Effect.Effect<ReadonlyArray<CodeContext>, OpenSandboxError>
  readonly codeContext: (contextId: string) => Effect.Effect<CodeContext, OpenSandboxError>
  /** A context that is gone already counts as deleted. */
  readonly deleteCodeContext: (contextId: string) => Effect.Effect<void, OpenSandboxError>
  /** All contexts of a language. */
  readonly deleteCodeContexts: (language: string) => Effect.Effect<void, OpenSandboxError>
  /**
   * Runs code; sent once. Ends and fails as `command` does: an error of the language is an event, not a failure. Ending the stream early does **not** stop
   * the code: use `interruptCode`.
   */
  readonly runCode: (request: CodeRequest) => Stream.Stream<CodeEvent, OpenSandboxError>
  /** Stops what runs in a context. A context that is gone already counts as interrupted. */
  readonly interruptCode: (contextId: string) => Effect.Effect<void, OpenSandboxError>
  readonly metrics: Effect.Effect<Metrics, OpenSandboxError>
  /** A measurement every second, without an end. Silence beyond the idle limit is a `Timeout`, an end of the connection a `Transport` error. */
  readonly watchMetrics: Stream.Stream<Metrics, OpenSandboxError>
  /** Prepares a terminal, and returns its id. The process starts with the first `attachTerminal`. */
  readonly createTerminal: (options?: TerminalRequest) => Effect.Effect<string, OpenSandboxError>
  readonly terminal: (terminalId: string) => Effect.Effect<TerminalInfo, OpenSandboxError>
  /** Kills its process. A terminal that is gone already counts as deleted. */
  readonly deleteTerminal: (terminalId: string) => Effect.Effect<void, OpenSandboxError>
  /**
   * Connects to a terminal, over a WebSocket of its own (`transformClient` does not see it), until the scope closes. The process goes on without the
   * connection. A terminal whose process has ended starts it anew.
   *
   * Fails with `Conflict` where another client holds the terminal. The connection is kept alive by pings, three within the idle limit.
   *
   * With `reconnect` a lost or silent connection is replaced, as often as `Options.retry` says, without losing or repeating a byte, and with `takeover`,
   * because execd may take a minute to notice that the old one is gone. It is given up, with `Transport`, where execd no longer has all the bytes in
   * between, or the process has ended in between (its exit code is lost then). `write` and its like wait for the new connection. On pipes it is also given
   * up where anything was printed in between: execd does not keep which of the two it came from.
   *
   * @example
   * ```ts
   * import type { Execd } from "@sandglass/core"
   * import * as Effect from "effect/Effect"
   * import * as Stream from "effect/Stream"
   *
   * export const shell = (client: Execd.ExecdClient) =>
   *   Effect.gen(function*() {
   *     const id = yield* client.createTerminal({ cwd: "/work" })
   *     const terminal = yield* client.attachTerminal(id, { reconnect: true })
   *     yield* terminal.resize(120, 40)
   *     yield* terminal.write("ls; exit\n")
   *     yield* Stream.runForEach(terminal.output, Effect.log)
   *   }).pipe(Effect.scoped)
   * ```
   */
  readonly attachTerminal: (
    terminalId: string,
    options?: AttachOptions
  ) => Effect.Effect<TerminalConnection, OpenSandboxError, Scope.Scope>
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
  /**
   * The longest silence of a stream of events, on which a heartbeat comes every 3 seconds, of metrics (one a second), and of a terminal (pinged three times
   * within it). Default 15 seconds.
   */
  readonly idleTimeout?: Duration.DurationInput | undefined
  /** For one complete answer, and for the start or a silence of a streamed one. Default 30 seconds. */
  readonly requestTimeout?: Duration.DurationInput | undefined
  /** For a whole upload. Default: none. */
  readonly uploadTimeout?: Duration.DurationInput | undefined
  /** How GET and DELETE are repeated; see `OpenSandbox.Options`. */
  readonly retry?: RetryOptions | undefined
}

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
    const policy = retryPolicy(options.retry)
    return Execd.of({
      connect: (sandboxId) =>
        Effect.sync(() => {
          const caller: Caller = {
            ...makePortCaller({ api, sandboxId, module: "Execd", port: execdPort, policy, requestTimeout }),
            idleTimeout,
            uploadTimeout,
            nextId: next
          }
          const commands = makeCommands(caller)
          return {
            sandboxId,
            invalidate: caller.connections.dropAll,
            ready: makeReady(caller, commands.command),
            ...commands,
            logs: makeLogs(caller),
            ...makeSessions(caller),
            ...makeCode(caller),
            ...makeMetrics(caller),
            ...makeTerminals(caller),
            upload: makeUpload(caller),
            download: makeDownload(caller),
            ...makeFiles(caller)
          }
        })
    })
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
