/** @internal */

import * as ChildProcess from "node:child_process"
import * as Fs from "node:fs"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as FiberId from "effect/FiberId"
import type * as Scope from "effect/Scope"
import type { ApiError } from "./apiError.js"
import { badRequest, fromErrno, runtimeError } from "./apiError.js"
import { uuid } from "./ids.js"
import type { Instance } from "./isolation.js"
import { CommandOutput } from "./output.js"
import type { Pipe, PipePool } from "./pipes.js"
import { groupAlive, procStat, signal, waitUntil } from "./process.js"
import { closeQuietly, openDirectory } from "./rooted.js"

/** How long a command that was asked to stop has before it is killed. */
const GRACE_MILLIS = 500

export interface CommandRequest {
  readonly command: string
  readonly cwd: string | undefined
  readonly background: boolean
  readonly timeout: number | undefined
  readonly uid: number | undefined
  readonly gid: number | undefined
  readonly envs: { readonly [name: string]: string }
}

export interface Command {
  readonly id: string
  readonly content: string
  readonly startedAt: number
  /** The pid of what was spawned, which the group hangs on; undefined where it could not start. */
  readonly pid: number | undefined
  /** Events of a foreground command. */
  readonly output: CommandOutput | undefined
  /** The file that a background command's output goes to. */
  readonly log: string | undefined
  readonly finished: Deferred.Deferred<void>
  timedOut: boolean
  state: CommandState
}

export type CommandState =
  | { readonly _tag: "Running" }
  | { readonly _tag: "Finished"; readonly at: number; readonly exitCode: number; readonly error: string | undefined }

const json = (value: unknown): string => `${JSON.stringify(value)}\n\n`

export const initEvent = (id: string, now: number): string => json({ type: "init", text: id, timestamp: now })

export const pingEvent = (now: number): string => json({ type: "ping", text: "pong", timestamp: now })

export const completeEvent = (startedAt: number, now: number): string =>
  json({ type: "execution_complete", execution_time: now - startedAt, timestamp: now })

const errorEvent = (evalue: string, traceback: string, now: number): string =>
  json({ type: "error", error: { ename: "CommandExecError", evalue, traceback: [traceback] }, timestamp: now })

const terminalEvent = (command: Command, now: number): string => {
  const { state } = command
  if (state._tag === "Running") return ""
  if (state.exitCode === 0) return completeEvent(command.startedAt, now)
  const error = state.error ?? `exit status ${state.exitCode}`
  return errorEvent(command.pid === undefined ? error : String(state.exitCode), error, now)
}

export interface CommandsOptions {
  readonly instance: Instance
  readonly pipes: PipePool
  /** Where background commands log to. */
  readonly logs: string
  readonly env: { readonly [name: string]: string }
}

export interface Commands {
  readonly start: (request: CommandRequest) => Effect.Effect<Command, ApiError>
  /** Runs a program instead of a shell command, in the background. */
  readonly startEntrypoint: (argv: ReadonlyArray<string>) => Effect.Effect<Command, ApiError>
  readonly busy: () => boolean
  readonly get: (id: string) => Command | undefined
  /** Stops everything in the command's process group. Returns when nothing is left. */
  readonly interrupt: (command: Command) => Effect.Effect<void>
  /** Lets commands that were stopped and continued from inside be seen to end. To be run now and then. */
  readonly nudge: Effect.Effect<void>
  /** The sandbox is gone: lets go of pipes. */
  readonly close: Effect.Effect<void>
}

/** Finished commands are remembered, for their status, up to this many. */
const REMEMBERED = 10_000

export const makeCommands = (options: CommandsOptions): Effect.Effect<Commands, never, Scope.Scope> =>
  Effect.gen(function* () {
    const { instance } = options
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

    const finish = (command: Command, exitCode: number, error: string | undefined) => {
      if (command.state._tag === "Finished") return
      command.state = { _tag: "Finished", at: now(), exitCode, error }
      Deferred.unsafeDone(command.finished, Effect.void)
      command.output?.exit(() => terminalEvent(command, now()))
      forget()
    }

    const settled = (cause: unknown) =>
      cause instanceof Error ? cause.message.replace(/^spawn \S+ /, "") : String(cause)

    /** Spawns and registers without suspending, so that nothing can come between the two. */
    const spawn = (
      argv: ReadonlyArray<string>,
      request: CommandRequest,
      target: { readonly pipes: { readonly stdout: Pipe; readonly stderr: Pipe } } | { readonly log: string }
    ): Command => {
      const id = uuid().replaceAll("-", "")
      const cwd = openDirectory(instance.root, request.cwd ?? instance.root.cwd)
      const toClose: Array<number> = []
      const startedAt = now()
      let output: CommandOutput | undefined
      let child: ChildProcess.ChildProcess | undefined
      let refused: string | undefined
      try {
        let stdio: readonly [number, number]
        if ("pipes" in target) {
          stdio = [target.pipes.stdout.writer, target.pipes.stderr.writer]
          toClose.push(...stdio)
          const made = new CommandOutput(target.pipes, now, () => open.delete(made))
          output = made
        } else {
          const fd = Fs.openSync(target.log, "a", 0o600)
          stdio = [fd, fd]
          toClose.push(fd)
        }
        const launch = instance.launch({ argv, cwd, uid: request.uid, gid: request.gid })
        child = ChildProcess.spawn(launch.file, launch.args, {
          cwd: launch.cwd,
          env: { ...instance.env, ...options.env, ...request.envs },
          stdio: ["ignore", ...stdio],
          detached: true,
          ...(launch.argv0 === undefined ? {} : { argv0: launch.argv0 }),
          ...(launch.uid === undefined ? {} : { uid: launch.uid }),
          ...(launch.gid === undefined ? {} : { gid: launch.gid })
        })
      } catch (cause) {
        refused = settled(cause)
      } finally {
        for (const fd of toClose) closeQuietly(fd)
      }
      const command: Command = {
        id,
        content: request.command,
        startedAt,
        pid: child?.pid,
        output,
        log: "log" in target ? target.log : undefined,
        finished: Deferred.unsafeMake(FiberId.none),
        timedOut: false,
        state: { _tag: "Running" }
      }
      commands.set(id, command)
      if (output !== undefined) {
        open.add(output)
        output.event(initEvent(id, startedAt))
        output.start()
      }
      const done = (exitCode: number, error: string | undefined) => {
        closeQuietly(cwd)
        finish(command, exitCode, error)
      }
      if (child === undefined) {
        done(-1, `fork/exec ${argv[0]}: ${refused}`)
      } else {
        child.on("error", (cause) => {
          if (child?.pid === undefined) done(-1, `fork/exec ${argv[0]}: ${settled(cause)}`)
        })
        child.on("exit", (code, name) => {
          if (command.timedOut) done(-1, "timeout: killed")
          else if (code === null) done(-1, `signal: ${name ?? "unknown"}`)
          else done(code, code === 0 ? undefined : `exit status ${code}`)
        })
      }
      return command
    }

    /** The pid whose group the command's processes are in; waits for a command that is only just starting. */
    const group = (command: Command): Effect.Effect<number | undefined> =>
      Effect.suspend(() => {
        const { pid } = command
        if (pid === undefined) return Effect.succeed(undefined)
        let found: number | undefined
        return Effect.map(
          waitUntil(() => {
            found = instance.groupOf(pid)
            return found !== undefined || command.state._tag === "Finished"
          }, 1000),
          () => found
        )
      })

    const kill = (pgid: number, name: NodeJS.Signals) => {
      // Before it has made its own group, the process itself.
      if (!signal(-pgid, name)) signal(pgid, name)
    }

    const alive = (pgid: number) => groupAlive(pgid) || (procStat(pgid)?.state ?? "Z") !== "Z"

    const interrupt = (command: Command): Effect.Effect<void> =>
      Effect.gen(function* () {
        if (command.state._tag === "Finished") return
        const pgid = yield* group(command)
        if (pgid === undefined) return
        kill(pgid, "SIGTERM")
        // A stopped process takes its signals only when it goes on.
        kill(pgid, "SIGCONT")
        if (!(yield* waitUntil(() => !alive(pgid), GRACE_MILLIS))) {
          kill(pgid, "SIGKILL")
          yield* waitUntil(() => !alive(pgid), 2000)
        }
        yield* awaitFinished(command)
      })

    const awaitFinished = (command: Command) =>
      Effect.timeoutTo(Effect.interruptible(Deferred.await(command.finished)), {
        duration: "2 seconds",
        onSuccess: () => undefined,
        onTimeout: () => undefined
      })

    const expire = (command: Command, millis: number): Effect.Effect<void> =>
      Effect.raceFirst(
        Deferred.await(command.finished),
        Effect.gen(function* () {
          yield* Effect.sleep(millis)
          const pgid = yield* group(command)
          if (pgid === undefined || command.state._tag === "Finished") return
          command.timedOut = true
          kill(pgid, "SIGKILL")
        })
      )

    const launch = (argv: ReadonlyArray<string>, request: CommandRequest): Effect.Effect<Command, ApiError> =>
      Effect.gen(function* () {
        if (request.uid === undefined && request.gid !== undefined) return yield* badRequest("gid needs uid")
        const refused = request.uid === undefined ? undefined : instance.refuseUser(request.uid, request.gid)
        if (refused !== undefined) return yield* badRequest(refused)
        const toApi = fromErrno(request.cwd ?? instance.root.cwd)
        const asBadRequest = (cause: unknown) => {
          const error = toApi(cause)
          return error.status === 404 ? badRequest(`working directory ${error.message}`) : error
        }
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
            : Effect.forkIn(Effect.interruptible(expire(command, request.timeout)), scope)
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
      busy: () => [...commands.values()].some((command) => command.state._tag === "Running"),
      get: (id) => commands.get(id),
      interrupt,
      nudge: Effect.sync(() => {
        for (const command of commands.values()) {
          if (command.state._tag === "Finished" || command.pid === undefined) continue
          if (procStat(command.pid)?.state !== "T") continue
          const inner = instance.groupOf(command.pid)
          // nsenter stops together with the process it waits for, but does not go on together with it.
          if (inner === command.pid || (inner !== undefined && procStat(inner)?.state === "T")) continue
          signal(command.pid, "SIGCONT")
        }
      }),
      close: Effect.sync(() => {
        for (const command of commands.values()) {
          // What entered a sandbox from outside may have been stopped together with it, and would stay so.
          if (command.state._tag === "Running" && command.pid !== undefined) signal(-command.pid, "SIGKILL")
        }
        for (const output of open) output.close()
        open.clear()
      })
    }
  })

const closePipe = (pipe: Pipe) => {
  closeQuietly(pipe.reader)
  closeQuietly(pipe.writer)
  closeQuietly(pipe.marker)
}
