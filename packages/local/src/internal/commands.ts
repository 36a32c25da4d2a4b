/** @internal */

import * as Fs from "node:fs"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import type { ApiError } from "./apiError.js"
import { badRequest, runtimeError } from "./apiError.js"
import { endEvent, initEvent } from "./events.js"
import { uuid } from "./ids.js"
import type { Instance } from "./isolation.js"
import { LineEvents } from "./lines.js"
import { CommandOutput, rawDecoder } from "./output.js"
import type { Pipe, PipePool } from "./pipes.js"
import { closePipe } from "./pipes.js"
import type { Process, Processes } from "./processes.js"
import { spawnError } from "./processes.js"
import { closeQuietly } from "./rooted.js"

export interface CommandRequest {
  readonly command: string
  readonly cwd: string | undefined
  readonly background: boolean
  readonly timeout: number | undefined
  readonly uid: number | undefined
  readonly gid: number | undefined
  readonly envs: { readonly [name: string]: string }
  /** Text as it is printed instead of lines. */
  readonly raw?: boolean | undefined
}

export interface Command {
  readonly id: string
  readonly content: string
  readonly startedAt: number
  readonly process: Process
  /** Events of a foreground command. */
  readonly output: CommandOutput | undefined
  /** The file that a background command's output goes to. */
  readonly log: string | undefined
  state: CommandState
}

export type CommandState =
  | { readonly _tag: "Running" }
  | { readonly _tag: "Finished"; readonly at: number; readonly exitCode: number; readonly error: string | undefined }

export interface CommandsOptions {
  readonly instance: Instance
  readonly processes: Processes
  readonly pipes: PipePool
  /** Where background commands log to. */
  readonly logs: string
}

export interface Commands {
  readonly start: (request: CommandRequest) => Effect.Effect<Command, ApiError>
  /** Runs a program instead of a shell command, in the background. */
  readonly startEntrypoint: (argv: readonly [string, ...Array<string>]) => Effect.Effect<Command, ApiError>
  readonly get: (id: string) => Command | undefined
  /** Stops everything in the command's process group. Returns when nothing is left. */
  readonly interrupt: (command: Command) => Effect.Effect<void>
  /** The sandbox is gone: lets go of pipes. */
  readonly close: Effect.Effect<void>
}

/** Finished commands are remembered, for their status, up to this many. */
const REMEMBERED = 10_000

export const makeCommands = (options: CommandsOptions): Effect.Effect<Commands, never, Scope.Scope> =>
  Effect.gen(function* () {
    const { instance, processes } = options
    const clock = yield* Effect.clock
    const scope = yield* Effect.scope
    const now = () => clock.unsafeCurrentTimeMillis()
    const commands = new Map<string, Command>()
    /** With pipes still open, be it for what a command left behind. */
    const open = new Set<CommandOutput>()

    const forget = () => {
      for (const [id, command] of commands) {
        if (commands.size <= REMEMBERED) return
        if (command.state._tag === "Finished") commands.delete(id)
      }
    }

    /** Spawns and registers without suspending, so that nothing can come between the two. */
    const spawn = (
      argv: readonly [string, ...Array<string>],
      request: CommandRequest,
      target: { readonly pipes: { readonly stdout: Pipe; readonly stderr: Pipe } } | { readonly log: string }
    ): Command => {
      const id = uuid().replaceAll("-", "")
      const startedAt = now()
      const log = "log" in target ? Fs.openSync(target.log, "a", 0o600) : undefined
      const writers = "pipes" in target ? [target.pipes.stdout.writer, target.pipes.stderr.writer] : []
      let process: Process
      try {
        process = processes.spawn({
          what: `command ${id} (${request.command.slice(0, 200)})`,
          argv,
          cwd: request.cwd,
          uid: request.uid,
          gid: request.gid,
          envs: request.envs,
          stdio: ["ignore", ...(log === undefined ? writers : [log, log])]
        })
      } finally {
        if (log !== undefined) closeQuietly(log)
      }
      for (const fd of writers) closeQuietly(fd)
      let output: CommandOutput | undefined
      if ("pipes" in target) {
        const decoder = request.raw === true ? rawDecoder : (type: "stdout" | "stderr") => new LineEvents(type)
        const made = new CommandOutput(
          [
            { pipe: target.pipes.stdout, decoder: decoder("stdout") },
            { pipe: target.pipes.stderr, decoder: decoder("stderr") }
          ],
          now,
          () => open.delete(made)
        )
        output = made
      }
      const command: Command = {
        id,
        content: request.command,
        startedAt,
        process,
        output,
        log: "log" in target ? target.log : undefined,
        state: { _tag: "Running" }
      }
      commands.set(id, command)
      if (output !== undefined) {
        open.add(output)
        output.queue.push(initEvent(id, startedAt))
        output.start()
      }
      processes.whenEnded(process, ({ error, exitCode }) => {
        command.state = { _tag: "Finished", at: now(), exitCode, error }
        output?.exit(() => endEvent(process, startedAt, now()))
        forget()
      })
      return command
    }

    const launch = (
      argv: readonly [string, ...Array<string>],
      request: CommandRequest
    ): Effect.Effect<Command, ApiError> =>
      Effect.gen(function* () {
        if (request.uid === undefined && request.gid !== undefined) return yield* badRequest("gid needs uid")
        const refused = request.uid === undefined ? undefined : instance.refuseUser(request.uid, request.gid)
        if (refused !== undefined) return yield* badRequest(refused)
        const asBadRequest = spawnError(instance.root, request.cwd)
        if (request.background) {
          const log = `${options.logs}/${uuid()}`
          return yield* Effect.try({ try: () => spawn(argv, request, { log }), catch: asBadRequest })
        }
        const takePipe = Effect.mapError(options.pipes.take, (error) => runtimeError(error.message))
        const stdout = yield* takePipe
        const stderr = yield* Effect.tapError(takePipe, () => Effect.sync(() => closePipe(stdout)))
        return yield* Effect.try({
          try: () => spawn(argv, request, { pipes: { stdout, stderr } }),
          catch: (cause) => {
            closePipe(stdout)
            closePipe(stderr)
            return asBadRequest(cause)
          }
        })
      }).pipe(
        Effect.tap((command) =>
          request.timeout === undefined || request.timeout <= 0
            ? Effect.void
            : Effect.forkIn(Effect.interruptible(processes.killAfter(command.process, request.timeout)), scope)
        ),
        Effect.uninterruptible
      )

    return {
      start: (request) => launch([instance.shell, "-c", request.command], request),
      startEntrypoint: (argv) =>
        launch(argv, {
          command: argv.join(" "),
          cwd: undefined,
          background: true,
          timeout: undefined,
          uid: undefined,
          gid: undefined,
          envs: {}
        }),
      get: (id) => commands.get(id),
      interrupt: (command) => processes.stop(command.process),
      close: Effect.sync(() => {
        for (const output of open) output.close()
        open.clear()
      })
    }
  })
