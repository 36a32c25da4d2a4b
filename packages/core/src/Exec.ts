/**
 * A command of a sandbox: lazy, itself an Effect of its result, and a source of live output.
 *
 * @since 0.1.0
 */
import type * as Duration from "effect/Duration"
import type * as Effect from "effect/Effect"
import type * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import type * as Sink from "effect/Sink"
import type * as Stream from "effect/Stream"
import type { Json } from "./LedgerEvent.js"
import type { OpenSandboxError } from "./OpenSandboxError.js"
import type { CodeFailure, ExecFailure, SandboxFailure } from "./SandboxError.js"

/**
 * A piece of output: what arrived together, at most 64 KiB of text, recorded in the ledger as one entry before it is delivered.
 * It need not end at a line end; for lines use `lines`.
 *
 * @since 0.1.0
 * @category models
 */
export interface OutputChunk {
  readonly stream: "stdout" | "stderr"
  readonly text: string
  /** The bytes as they came, where they are known: with `raw`, and from terminals. */
  readonly bytes?: Uint8Array | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface ExecOptions {
  /** Working directory. Default: the container's. */
  readonly cwd?: string | undefined
  /** Environment variables. The ledger gets their names, never their values. */
  readonly env?: { readonly [name: string]: string | Redacted.Redacted } | undefined
  /** The server kills the command after it, counted from its start: `ExecError` with reason `Timeout`. Default: none. */
  readonly timeout?: Duration.DurationInput | undefined
  readonly uid?: number | undefined
  readonly gid?: number | undefined
  /** The shell that interprets the command, as `shell -c command`. Default: the server's (`bash`, or `sh` where there is none). */
  readonly shell?: string | undefined
  /**
   * True: byte-exact, with `bytes` in every chunk, over pipes instead of the line-based endpoint: no line end is added, nothing is
   * replaced. `text` is what can be read of the bytes. Such a command waits for no consumer: what it prints is recorded as it comes, and
   * read back for whoever is slower. Names of variables are those of a shell. Default false.
   */
  readonly raw?: boolean | undefined
  /** True (default): an exit code other than 0 is a `CommandError`. False: it is in the result. */
  readonly strict?: boolean | undefined
  /**
   * Unique within the session. A keyed exec is replayed by its key instead of its sequence: give keys to execs that run
   * concurrently, so that they replay correctly whatever order they start in.
   */
  readonly key?: string | undefined
  /**
   * Standard input, sent whole before the command starts: text as UTF-8, bytes, or a Stream of bytes. Default: empty. It is not
   * recorded. Where it cannot be sent the exec fails with that `OpenSandboxError`, and nothing has run.
   */
  readonly stdin?: string | Uint8Array | Stream.Stream<Uint8Array, unknown> | undefined
  /**
   * Runs the command at most once in this container: the same key, from whichever process, waits for the first run and gets its
   * output and exit code, also after a lost connection or a crash. `ExecError` with reason `Killed` when the first run was killed,
   * `Failed` when the key was used for another command, shell, `cwd` or session.
   */
  readonly idempotencyKey?: string | undefined
  /** How many characters (UTF-16 code units) of stdout, and of stderr, a result keeps: head and tail. Default: 8,388,608. */
  readonly maxOutput?: number | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface ExecResult {
  readonly seq: number
  readonly exitCode: number
  /** What it printed, rebuilt from lines: each ends with `\n`. Beyond `maxOutput` the middle is left out and marked. */
  readonly stdout: string
  readonly stderr: string
  /** True where `stdout` or `stderr` had more than `maxOutput` characters; the ledger has them all. */
  readonly truncated: boolean
  /** The full lengths, in characters. */
  readonly stdoutLength: number
  readonly stderrLength: number
  /** True when the connection was lost and the exit code was learnt afterwards: the end of the output may be missing. */
  readonly outputIncomplete: boolean
  /** True when it came from the ledger. */
  readonly replayed: boolean
}

/**
 * What `pipeTo` can write to: a Node writable such as `process.stdout`.
 *
 * @since 0.1.0
 * @category models
 */
export interface Writable {
  write(chunk: string, callback: (error?: Error | null) => void): unknown
  on?(event: "error" | "close", listener: (error?: unknown) => void): unknown
  off?(event: "error" | "close", listener: (error?: unknown) => void): unknown
}

/**
 * A command, not yet run. Yield it for its result, or run one of its streams; each run is one execution with one sequence
 * number.
 *
 * @since 0.1.0
 * @category models
 */
export interface Exec extends Effect.Effect<ExecResult, ExecFailure> {
  readonly command: string
  /** stdout and stderr in the order they arrived. Ends with `CommandError` for an exit code other than 0, unless `strict: false`. */
  readonly output: Stream.Stream<OutputChunk, ExecFailure>
  /** The text of stdout, chunk by chunk. stderr is recorded all the same. */
  readonly stdout: Stream.Stream<string, ExecFailure>
  readonly stderr: Stream.Stream<string, ExecFailure>
  /** The lines of stdout, without their ends. */
  readonly lines: Stream.Stream<string, ExecFailure>
  /**
   * Writes the output to a Node writable as it arrives (`stderr` to the second one, if given), or feeds a Sink of chunks, and
   * returns the result. A slow target slows the command down instead of filling memory.
   */
  readonly pipeTo: {
    (target: Writable, stderr?: Writable): Effect.Effect<ExecResult, ExecFailure>
    <E, R>(sink: Sink.Sink<unknown, OutputChunk, unknown, E, R>): Effect.Effect<ExecResult, ExecFailure | E, R>
  }
}

/**
 * @since 0.1.0
 * @category models
 */
export interface CodeOptions {
  /** As the server calls it: `python`, `javascript`, `bash`, … */
  readonly language: string
  /** Replays by this key instead of the sequence; see `ExecOptions.key`. */
  readonly key?: string | undefined
  readonly maxOutput?: number | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface CodeResult extends ExecResult {
  /** What the code showed, such as the value of its last expression: each by MIME type, e.g. `text/plain`, `image/png` (base64). */
  readonly results: ReadonlyArray<{ readonly [mimeType: string]: Json }>
}

/**
 * A piece of code, not yet run. Yield it for its result, or run one of its streams. An error of the language is a `CodeError`.
 *
 * @since 0.1.0
 * @category models
 */
export interface CodeExec extends Effect.Effect<CodeResult, CodeFailure> {
  readonly code: string
  readonly output: Stream.Stream<OutputChunk, CodeFailure>
  readonly stdout: Stream.Stream<string, CodeFailure>
  readonly stderr: Stream.Stream<string, CodeFailure>
  readonly lines: Stream.Stream<string, CodeFailure>
}

/**
 * An interpreter that keeps its state from one piece of code to the next. Its state is no part of a snapshot: on a resumed sandbox
 * it starts empty.
 *
 * @since 0.1.0
 * @category models
 */
export interface CodeContext {
  readonly language: string
  readonly exec: (code: string, options?: Omit<CodeOptions, "language">) => CodeExec
}

/**
 * Commands that share a directory and an environment: `cd` and `export` of one are there for the next. They run one after another.
 *
 * However a command ends, its state is kept, unless it is killed or leaves the shell with `exec program`; what it does in the shell that
 * an option names is not kept either. The variables, secrets among them, are in a file of the container until the session ends, and
 * therefore in snapshots.
 *
 * @since 0.1.0
 * @category models
 */
export interface Session {
  readonly name: string
  /** As `Sandbox.exec`; `cwd` and `env` of the options stay in force for the commands that follow. */
  readonly exec: (command: string | ReadonlyArray<string>, options?: ExecOptions) => Exec
}

/**
 * A command that is running. Its streams start with the first output whenever they are run, and may be run by many consumers
 * at once: they are read back from the ledger, so a slow consumer delays nobody. Closing its scope stops the command.
 *
 * @since 0.1.0
 * @category models
 */
export interface RunningExec {
  readonly seq: number
  readonly command: string
  readonly output: Stream.Stream<OutputChunk, ExecFailure>
  readonly stdout: Stream.Stream<string, ExecFailure>
  readonly stderr: Stream.Stream<string, ExecFailure>
  readonly lines: Stream.Stream<string, ExecFailure>
  /** Waits for the end. */
  readonly result: Effect.Effect<ExecResult, ExecFailure>
  /** Stops the command; `result` then fails with reason `Interrupted`. */
  readonly interrupt: Effect.Effect<void>
}

/**
 * A command that outlives the process that started it. stdout and stderr come as one stream, in the order in which they were
 * written.
 *
 * @since 0.1.0
 * @category models
 */
export interface DetachedExec {
  readonly seq: number
  readonly command: string
  /** The server's id of it; empty for one that was replayed. */
  readonly commandId: string
  /**
   * Follows it in a scope: output that was recorded already comes first, then what came since, recorded as it comes, to its exit
   * code. Closing the scope stops the following, not the command. Several may follow at once, from wherever: all are told everything,
   * once.
   */
  readonly attach: Effect.Effect<RunningExec, ExecFailure, Scope.Scope>
  /** Stops the command. */
  readonly interrupt: Effect.Effect<void, OpenSandboxError>
}

/**
 * @since 0.1.0
 * @category models
 */
export interface TerminalOptions {
  /** What runs in it. Default: an interactive `bash`. */
  readonly command?: string | undefined
  readonly cwd?: string | undefined
  /** The window. Default 80 by 24. */
  readonly size?: { readonly cols: number; readonly rows: number } | undefined
}

/**
 * What `Terminal.attach` reads from: a Node readable such as `process.stdin`.
 *
 * @since 0.1.0
 * @category models
 */
export interface TerminalInput {
  once(event: "data" | "end", listener: (data: Uint8Array | string) => void): unknown
  off(event: "data" | "end", listener: (data: Uint8Array | string) => void): unknown
  /** Whether it had ended already. */
  readonly readableEnded?: boolean | undefined
  pause(): unknown
  resume(): unknown
  /** Where it is a terminal itself. */
  setRawMode?(raw: boolean): unknown
}

/**
 * What `Terminal.attach` writes to: a Node writable such as `process.stdout`, whose window is followed where it is a terminal.
 *
 * @since 0.1.0
 * @category models
 */
export interface TerminalOutput {
  write(chunk: Uint8Array, callback: (error?: Error | null) => void): unknown
  readonly columns?: number | undefined
  readonly rows?: number | undefined
  on?(event: "resize", listener: () => void): unknown
  off?(event: "resize", listener: () => void): unknown
}

/**
 * A terminal of the sandbox, recorded in both directions. Closing its scope ends it.
 *
 * @since 0.1.0
 * @category models
 */
export interface Terminal {
  readonly seq: number
  /**
   * Types; recorded before it is sent. It waits for a lost connection to be replaced; what was on its way when that broke may be lost, since
   * servers acknowledge no input. Without effect on a terminal that was replayed.
   */
  readonly write: (data: Uint8Array | string) => Effect.Effect<void, SandboxFailure>
  readonly stdin: Sink.Sink<void, Uint8Array | string, never, SandboxFailure>
  /** What it prints, from the first byte on, whenever it is run and by however many; ends with the process. */
  readonly output: Stream.Stream<Uint8Array, ExecFailure>
  readonly resize: (cols: number, rows: number) => Effect.Effect<void, OpenSandboxError>
  /** A signal for what runs in it, by name: `SIGINT`. */
  readonly signal: (name: string) => Effect.Effect<void, OpenSandboxError>
  /** Waits for the end. */
  readonly exitCode: Effect.Effect<number, ExecFailure>
  /**
   * Joins it to a terminal of this process until it ends; returns its exit code. Where the input ends before, the terminal is told with
   * the character for that (Ctrl-D).
   */
  readonly attach: (input: TerminalInput, output: TerminalOutput) => Effect.Effect<number, ExecFailure>
}
