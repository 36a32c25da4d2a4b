/**
 * Shell sessions, which keep their directory and exported variables from one run to the next.
 *
 * As in execd each run is a shell of its own. What it is to keep travels through files that are passed as open descriptors, not through its output, and
 * the exit code is that of the process: nothing that a command prints can change either.
 *
 * @internal
 */

import * as Fs from "node:fs"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import type { ApiError } from "./apiError.js"
import { contextNotFound, runtimeError } from "./apiError.js"
import { endEvent, initEvent } from "./events.js"
import { uuid } from "./ids.js"
import type { Instance } from "./isolation.js"
import { LineEvents } from "./lines.js"
import type { EventQueue } from "./output.js"
import { CommandOutput } from "./output.js"
import type { Pipe, PipePool } from "./pipes.js"
import { closePipe } from "./pipes.js"
import type { Process, Processes } from "./processes.js"
import { spawnError } from "./processes.js"
import { closeQuietly, openDirectory } from "./rooted.js"

export interface SessionsOptions {
  readonly instance: Instance
  readonly processes: Processes
  readonly pipes: PipePool
  /** For files that have no name for longer than a moment. */
  readonly directory: string
  readonly env: { readonly [name: string]: string }
}

export interface SessionRun {
  readonly command: string
  /** Where to run it, and where the session is from then on. */
  readonly cwd: string | undefined
  readonly timeout: number | undefined
}

export interface Sessions {
  readonly create: (cwd: string | undefined) => Effect.Effect<string, ApiError>
  readonly run: (id: string, request: SessionRun) => Effect.Effect<EventQueue, ApiError>
  /** Kills what runs in it. */
  readonly remove: (id: string) => Effect.Effect<void, ApiError>
  readonly close: Effect.Effect<void>
}

interface Session {
  readonly id: string
  readonly cwd: string | undefined
  readonly running: Set<Process>
  /** What the next run is to begin with, as shell text. */
  state: string | undefined
}

/** Those in which nothing runs are forgotten beyond this many, the oldest first. */
const REMEMBERED = 1000
const MAX_STATE = 16 * 1024 * 1024

/** 3 is the state to begin with, 4 takes the one to keep, 5 is the command; the argument says whether the directory is already the wanted one. */
const script = `. /dev/fd/3 2>/dev/null
exec 3<&-
[ -n "$1" ] || [ -z "\${__SANDGLASS_CWD-}" ] || cd -- "$__SANDGLASS_CWD" 2>/dev/null
unset __SANDGLASS_CWD
shift
eval "exec 5<&-; $(command -p cat <&5)"
{ __sandglass_status=$?; set +vx; } 2>/dev/null
(__SANDGLASS_CWD=$PWD; unset PWD SHLVL __sandglass_status; export __SANDGLASS_CWD; command export -p) >&4 2>/dev/null
exit "$__sandglass_status"`

const isName = (name: string): boolean => /^[A-Za-z_]\w*$/.test(name)

export const makeSessions = (options: SessionsOptions): Effect.Effect<Sessions, never, Scope.Scope> =>
  Effect.gen(function* () {
    const { instance, processes } = options
    const clock = yield* Effect.clock
    const scope = yield* Effect.scope
    const now = () => clock.unsafeCurrentTimeMillis()
    const sessions = new Map<string, Session>()
    const open = new Set<CommandOutput>()
    // A variable that a run has removed is in the environment of the next all the same.
    const unset = `unset ${Object.keys({ ...instance.env, ...options.env })
      .filter(isName)
      .join(" ")}\n`
    const flags = instance.shell.endsWith("/bash") ? ["--noprofile", "--norc"] : []

    const get = (id: string) =>
      Effect.suspend(() => {
        const session = sessions.get(id)
        return session === undefined ? Effect.fail(contextNotFound(`Session ${id}`)) : Effect.succeed(session)
      })

    const file = (content: string): number => {
      const path = `${options.directory}/${uuid()}`
      const fd = Fs.openSync(path, "wx+", 0o600)
      Fs.unlinkSync(path)
      const bytes = Buffer.from(content)
      for (let at = 0; at < bytes.length; ) at += Fs.writeSync(fd, bytes, at, bytes.length - at, at)
      return fd
    }

    const read = (fd: number): string => {
      const { size } = Fs.fstatSync(fd)
      const bytes = Buffer.alloc(Math.min(size, MAX_STATE))
      return size > MAX_STATE ? "" : bytes.toString("utf8", 0, Fs.readSync(fd, bytes, 0, bytes.length, 0))
    }

    const spawn = (session: Session, request: SessionRun, pipe: Pipe): { process: Process; output: CommandOutput } => {
      const startedAt = now()
      const cwd = request.cwd ?? (session.state === undefined ? session.cwd : undefined)
      const kept = file("")
      const begin = file(session.state === undefined ? "" : unset + session.state)
      const command = file(request.command)
      let process: Process
      try {
        process = processes.spawn({
          what: `session ${session.id} (${request.command.slice(0, 200)})`,
          argv: [instance.shell, ...flags, "-c", script, "bash", request.cwd === undefined ? "" : "given"],
          cwd,
          stdio: ["ignore", pipe.writer, pipe.writer, begin, kept, command]
        })
      } catch (cause) {
        closeQuietly(kept)
        throw cause
      } finally {
        closeQuietly(begin)
        closeQuietly(command)
      }
      closeQuietly(pipe.writer)
      const output: CommandOutput = new CommandOutput(
        [{ pipe, decoder: new LineEvents("stdout", "dropped") }],
        now,
        () => open.delete(output)
      )
      open.add(output)
      session.running.add(process)
      output.queue.push(initEvent(session.id, startedAt))
      output.start()
      processes.whenEnded(process, () => {
        session.running.delete(process)
        const state = read(kept)
        closeQuietly(kept)
        if (state !== "") session.state = state
        output.exit(() => endEvent(process, startedAt, now()))
      })
      return { process, output }
    }

    const run: Sessions["run"] = (id, request) =>
      Effect.gen(function* () {
        const session = yield* get(id)
        const pipe = yield* Effect.mapError(options.pipes.take, (error) => runtimeError(error.message))
        const { output, process } = yield* Effect.try({
          try: () => spawn(session, request, pipe),
          catch: (cause) => {
            closePipe(pipe)
            return spawnError(instance.root, request.cwd ?? session.cwd)(cause)
          }
        })
        if (request.timeout !== undefined && request.timeout > 0)
          yield* Effect.forkIn(Effect.interruptible(processes.killAfter(process, request.timeout)), scope)
        return output.queue
      }).pipe(Effect.uninterruptible)

    return {
      create: (cwd) =>
        Effect.try({
          try: () => {
            closeQuietly(openDirectory(instance.root, cwd ?? instance.root.cwd))
            const id = uuid()
            sessions.set(id, { id, cwd, running: new Set(), state: undefined })
            for (const [old, session] of sessions) {
              if (sessions.size <= REMEMBERED) break
              if (session.running.size === 0) sessions.delete(old)
            }
            return id
          },
          catch: spawnError(instance.root, cwd)
        }),
      run,
      remove: (id) =>
        Effect.flatMap(get(id), (session) => {
          sessions.delete(id)
          return Effect.forEach(session.running, (process) => processes.kill(process, "the session was deleted"), {
            discard: true
          })
        }),
      close: Effect.sync(() => {
        for (const output of open) output.close()
        open.clear()
        sessions.clear()
      })
    }
  })
