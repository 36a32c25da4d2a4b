/**
 * The commands of a sandbox as `@effect/platform`'s `CommandExecutor`: a program written for the local machine works in a sandbox by a change
 * of Layer, and its commands are recorded and replayed.
 *
 * @since 0.1.0
 */
import * as Command from "@effect/platform/Command"
import * as CommandExecutor from "@effect/platform/CommandExecutor"
import type { PlatformError } from "@effect/platform/Error"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as HashMap from "effect/HashMap"
import * as Inspectable from "effect/Inspectable"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import * as Sink from "effect/Sink"
import * as Stream from "effect/Stream"
import type { OutputChunk } from "./Exec.js"
import { contextKey } from "./internal/contextKey.js"
import { chunkBytes } from "./internal/exec/record.js"
import type { Where } from "./internal/platform/errors.js"
import * as Errors from "./internal/platform/errors.js"
import { forward } from "./internal/platform/inherit.js"
import type { SandboxProcess } from "./internal/platform/process.js"
import { startProcess } from "./internal/platform/process.js"
import type { Segment } from "./internal/platform/processScript.js"
import { processScript, recordedCommand, wordsOf } from "./internal/platform/processScript.js"
import { makeShell } from "./internal/platform/shell.js"
import type { Sandbox } from "./Sandbox.js"
import type { ExecFailure } from "./SandboxError.js"

/**
 * What `inherit` writes to: a Node writable such as `process.stdout`.
 *
 * @since 0.1.0
 * @category models
 */
export interface Writable {
  write(chunk: Uint8Array, callback: (error?: Error | null) => void): unknown
}

/**
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** Where commands start that name no directory of their own. Default: the container's own working directory. */
  readonly cwd?: string | undefined
  /** What `Command.stdin("inherit")` reads. Default: nothing. */
  readonly stdin?: Stream.Stream<Uint8Array> | undefined
  /** What `Command.stdout("inherit")` writes to. Default: this process's own. */
  readonly stdout?: Writable | undefined
  readonly stderr?: Writable | undefined
}

/**
 * The key of the commands of a region: they are replayed by it instead of their sequence; see `withKey`.
 *
 * @since 0.1.0
 * @category references
 */
export class CommandKey extends Context.Reference<CommandKey>()("@sandglass/core/SandboxCommandExecutor/CommandKey", {
  defaultValue: (): string | undefined => undefined
}) {}

/**
 * Gives the command of an effect a key, as `ExecOptions.key` does: commands that run at the same time are replayed correctly whatever order
 * they start in. On another `CommandExecutor` it has no effect.
 *
 * @example
 * ```ts
 * import * as Command from "@effect/platform/Command"
 * import { SandboxCommandExecutor } from "@sandglass/core"
 * import * as Effect from "effect/Effect"
 *
 * export const build = Effect.forEach(
 *   ["web", "api"],
 *   (name) => Command.exitCode(Command.make("make", name)).pipe(SandboxCommandExecutor.withKey(`make ${name}`)),
 *   { concurrency: 2 }
 * )
 * ```
 *
 * @since 0.1.0
 * @category combinators
 */
export const withKey =
  (key: string) =>
  <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.provideService(self, CommandKey, key)

const ProcessProto = {
  ...Inspectable.BaseProto,
  [CommandExecutor.ProcessTypeId]: CommandExecutor.ProcessTypeId,
  toJSON(this: CommandExecutor.Process) {
    return { _id: "@sandglass/core/SandboxCommandExecutor/Process", pid: this.pid }
  }
}

/** A command that was stopped has no exit code, and its output just ends. */
const wasStopped = (failure: ExecFailure): boolean =>
  failure._tag === "ExecError" &&
  (failure.reason === "Killed" || failure.reason === "Interrupted" || failure.reason === "Timeout")

const bytesOf =
  (stream: OutputChunk["stream"], where: Where) =>
  ({ run }: SandboxProcess): Stream.Stream<Uint8Array, PlatformError> =>
    run.output.pipe(
      Stream.filterMap((chunk) => (chunk.stream === stream ? chunkBytes(chunk) : Option.none())),
      Stream.catchAll((failure) =>
        wasStopped(failure) ? Stream.empty : Stream.fail(Errors.unknown(where, failure.message, failure))
      )
    )

/** Larger pieces are sent as several. */
const pieceLength = 128 * 1024

/** A piece of standard input as the script in the sandbox expects it. */
const framed = (bytes: Uint8Array): Uint8Array => {
  const length = new TextEncoder().encode(`${bytes.length}\n`)
  const frame = new Uint8Array(length.length + bytes.length)
  frame.set(length)
  frame.set(bytes, length.length)
  return frame
}

const stdinOf = (started: SandboxProcess, where: Where): Sink.Sink<void, Uint8Array, never, PlatformError> => {
  const write = (bytes: Uint8Array) =>
    Effect.mapError(started.write(framed(bytes)), (cause) => Errors.fromServer(where, cause))
  const pieces = (bytes: Uint8Array): Effect.Effect<void, PlatformError> =>
    bytes.length === 0
      ? Effect.void
      : Effect.zipRight(
          write(bytes.subarray(0, pieceLength)),
          Effect.suspend(() => pieces(bytes.subarray(pieceLength)))
        )
  return Sink.mapEffect(Sink.forEach(pieces), () => write(new Uint8Array()))
}

/** What Linux takes as one word of a command line, in bytes. */
const longestWord = 128 * 1024 - 1

/** Refuses what no system could start. */
const check = (commands: ReadonlyArray<Command.StandardCommand>, where: Where): Effect.Effect<void, PlatformError> => {
  const words = commands.flatMap((command) => [
    ...wordsOf(command),
    ...Array.from(command.env, ([name, value]) => `${name}=${value}`)
  ])
  return words.some((word) => word.includes("\0"))
    ? Effect.fail(Errors.badArgument(where, "the words and variables of a command must not contain NUL"))
    : words.some((word) => word.length > longestWord / 3 && Buffer.byteLength(word) > longestWord)
      ? Effect.fail(Errors.fromCode(where, "E2BIG", "a word or variable of the command is longer than 128 KiB"))
      : Effect.void
}

const isText = (option: unknown): option is "pipe" | "inherit" => typeof option === "string"

/**
 * Each Command is one exec of the sandbox: recorded with its output, numbered, and on a resumed sandbox answered from the ledger. Commands that
 * are piped into one another are one exec, run as a pipeline inside the sandbox.
 *
 * The server's pipes, which the bytes go through, need `bash` in the image. What is different from commands of the local machine:
 *
 * - standard input stays open until its stream or sink ends, as it does there; it is not recorded, and a replayed command reads nothing
 * - output is read back from the ledger: a reader that is slow, or that never comes, does not hold up the command
 * - output ends with the program: what processes print that it leaves behind is not waited for
 * - `pid` is that inside the sandbox; a replayed process has its sequence number instead
 * - `kill` of a process that has ended does nothing, instead of failing
 * - a program that is missing anywhere in a pipe fails the whole, as `NotFound`; what those before the last print to stderr is part of `stderr`
 * - with `uid` the command goes over the server's line-based endpoint: its output is text, each line ended, and its standard input is sent
 *   before it starts; the values of its variables show in the command line there
 *
 * @example
 * ```ts
 * import * as Command from "@effect/platform/Command"
 * import type { Sandbox } from "@sandglass/core"
 * import { SandboxCommandExecutor } from "@sandglass/core"
 * import * as Effect from "effect/Effect"
 *
 * const program = Command.string(Command.make("node", "--version"))
 *
 * export const inside = (sandbox: Sandbox.Sandbox) =>
 *   Effect.provide(program, SandboxCommandExecutor.layer(sandbox))
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (sandbox: Sandbox, options: Options = {}): CommandExecutor.CommandExecutor => {
  const context = sandbox[contextKey]
  const shell = makeShell(sandbox.execd, options)

  /** One directory for all is the exec's own; others are changed to on the way. */
  const directories = (commands: ReadonlyArray<Command.StandardCommand>, where: Where) =>
    Effect.gen(function* () {
      const asked = commands.map((command) => Option.getOrElse(command.cwd, () => options.cwd))
      const [cwd] = asked
      const segments: Array<Segment> = []
      const recorded: Array<Segment> = []
      const same = asked.every((directory) => directory === cwd)
      for (const directory of asked) {
        if (directory === "") yield* shell.locate({ ...where, module: "FileSystem", method: "access" }, directory)
      }
      for (const [index, command] of commands.entries()) {
        const own = same ? undefined : asked[index]
        recorded.push({ command, cwd: own })
        segments.push({ command, cwd: own === undefined ? undefined : yield* shell.locate(where, own) })
      }
      return { cwd: same ? cwd : undefined, segments, recorded, asked }
    })

  const start = (command: Command.Command): Effect.Effect<CommandExecutor.Process, PlatformError, Scope.Scope> =>
    Effect.gen(function* () {
      const commands = Command.flatten(command)
      const first = commands[0]
      const last = commands[commands.length - 1] ?? first
      const path = commands.map((_) => [_.command, ..._.args].join(" ")).join(" | ")
      const at = (method: string): Where => ({ module: "Command", method, path })
      yield* check(commands, at("spawn"))
      const { asked, cwd, recorded, segments } = yield* directories(commands, at("spawn"))
      const uid = Option.getOrUndefined(first.uid)
      const input = first.stdin === "inherit" ? (options.stdin ?? Stream.empty) : first.stdin
      const names = new Set(commands.flatMap((_) => [...HashMap.keys(_.env)]))

      const started = yield* startProcess(context, {
        command: recordedCommand(recorded),
        script: processScript(segments, uid === undefined),
        options: {
          cwd,
          // Only the names are recorded; the values are in the script.
          env: names.size === 0 ? undefined : Object.fromEntries([...names].map((name) => [name, ""])),
          shell:
            first.shell === false || commands.length > 1 ? undefined : first.shell === true ? "/bin/sh" : first.shell,
          uid,
          gid: Option.getOrUndefined(first.gid),
          stdin: uid === undefined || isText(input) ? undefined : input,
          key: yield* CommandKey
        }
      }).pipe(
        Effect.catchAll((failure) =>
          Effect.gen(function* () {
            // As on the local machine, a directory that is missing is what is missing.
            for (const directory of new Set(asked)) {
              const where: Where = { module: "FileSystem", method: "access", path: directory ?? "." }
              if (directory === undefined) continue
              yield* Effect.flatMap(shell.locate(where, directory), (located) =>
                shell.run(where, `stat -L -- "$1/." >/dev/null`, located)
              )
            }
            return yield* failure._tag === "StartFailure"
              ? Errors.fromCode(at("spawn"), failure.code, path)
              : Errors.unknown(at("spawn"), failure.message, failure)
          })
        )
      )

      const ended = Effect.flatMap(Deferred.await(started.done), (exit) =>
        Exit.isSuccess(exit) ? Effect.succeed(exit.value) : Effect.failCause(exit.cause)
      )
      const written = yield* forward(
        { output: last.stdout, to: options.stdout, standard: "stdout" },
        bytesOf("stdout", at("stdout"))(started)
      )
      const writtenErrors = yield* forward(
        { output: last.stderr, to: options.stderr, standard: "stderr" },
        bytesOf("stderr", at("stderr"))(started)
      )
      const stdin = uid === undefined ? stdinOf(started, at("stdin")) : Sink.drain
      if (!isText(input) && uid === undefined) {
        // As on the local machine: an input that fails is one that ends.
        yield* Effect.forkScoped(
          Effect.ignore(
            Stream.run(
              // What has ended reads no more.
              Stream.interruptWhen(
                Stream.catchAll(input, () => Stream.empty),
                Deferred.await(started.done)
              ),
              stdin
            )
          )
        )
      }
      const stdout = last.stdout === "inherit" ? Stream.empty : bytesOf("stdout", at("stdout"))(started)
      const isRunning = Effect.negate(Deferred.isDone(started.done))

      return Object.assign(Object.create(ProcessProto), {
        pid: CommandExecutor.ProcessId(Option.getOrElse(started.pid, () => started.run.seq)),
        exitCode: ended.pipe(
          Effect.map(({ exitCode }) => CommandExecutor.ExitCode(exitCode)),
          Effect.mapError((failure) => Errors.unknown(at("exitCode"), failure.message, failure)),
          Effect.zipLeft(Effect.zipRight(written, writtenErrors))
        ),
        isRunning,
        kill: (signal: CommandExecutor.Signal = "SIGTERM") =>
          started.signal(signal).pipe(
            Effect.catchAll(() => started.run.interrupt),
            Effect.zipRight(Deferred.await(started.done)),
            Effect.asVoid
          ),
        stdin,
        stderr: last.stderr === "inherit" ? Stream.empty : bytesOf("stderr", at("stderr"))(started),
        stdout: isText(last.stdout) ? stdout : Stream.transduce(stdout, last.stdout)
      }) as CommandExecutor.Process
    }).pipe(
      Effect.withSpan("SandboxCommandExecutor.start", {
        captureStackTrace: false,
        attributes: { "sandbox.id": sandbox.id }
      })
    )

  return CommandExecutor.makeExecutor(start)
}

/**
 * @since 0.1.0
 * @category layers
 */
export const layer = (sandbox: Sandbox, options?: Options): Layer.Layer<CommandExecutor.CommandExecutor> =>
  Layer.sync(CommandExecutor.CommandExecutor, () => make(sandbox, options))
