/** The processes that a sandbox's services start in it. @internal */

import * as ChildProcess from "node:child_process"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as FiberId from "effect/FiberId"
import type { ApiError } from "./apiError.js"
import { badRequest, fromErrno } from "./apiError.js"
import type { Instance } from "./isolation.js"
import type { Journal } from "./journal.js"
import { groupAlive, procStat, signal, waitUntil } from "./process.js"
import { closeQuietly, openDirectory } from "./rooted.js"

/** How long what was asked to stop has before it is killed. */
const GRACE_MILLIS = 500

export interface Ended {
  /** -1 where there is none: killed, or never started. */
  readonly exitCode: number
  readonly error: string | undefined
}

export interface Process {
  /** Of what was spawned, which the group hangs on; undefined where it could not start. */
  readonly pid: number | undefined
  readonly child: ChildProcess.ChildProcess | undefined
  readonly finished: Deferred.Deferred<void>
  /** Told instead of how it ended. */
  killedFor: string | undefined
  ended: Ended | undefined
}

export interface SpawnRequest {
  /** For people. */
  readonly what: string
  readonly argv: readonly [string, ...Array<string>]
  /** Default: where the sandbox's commands start. */
  readonly cwd?: string | undefined
  readonly uid?: number | undefined
  readonly gid?: number | undefined
  readonly envs?: { readonly [name: string]: string } | undefined
  readonly stdio: ReadonlyArray<"ignore" | "pipe" | number>
}

export interface Processes {
  /** Without suspending, so that nothing can come between this and what its caller notes. Throws where the directory cannot be opened. */
  readonly spawn: (request: SpawnRequest) => Process
  /** Calls back when it has ended, at once where it has. */
  readonly whenEnded: (process: Process, then: (ended: Ended) => void) => void
  /** To the process's group. */
  readonly signal: (process: Process, name: NodeJS.Signals) => Effect.Effect<void>
  /** Kills the group; `why` is told as the error. */
  readonly kill: (process: Process, why: string) => Effect.Effect<void>
  /** The same when it still runs then, for its timeout. */
  readonly killAfter: (process: Process, millis: number) => Effect.Effect<void>
  /** Stops everything in the group, first with SIGTERM. Returns when nothing is left. */
  readonly stop: (process: Process) => Effect.Effect<void>
  readonly busy: () => boolean
  /** Lets what was stopped and continued from inside be seen to end. To be run now and then. */
  readonly nudge: Effect.Effect<void>
  /** The sandbox ends: lets what is stopped outside it go on, to see its end. */
  readonly release: Effect.Effect<void>
  /** Kills what is still outside. */
  readonly close: Effect.Effect<void>
}

const words = (cause: unknown) => (cause instanceof Error ? cause.message.replace(/^spawn \S+ /, "") : String(cause))

export const makeProcesses = (options: {
  readonly instance: Instance
  readonly env: { readonly [name: string]: string }
  readonly journal: Journal
}): Processes => {
  const { instance, journal } = options
  const running = new Set<Process>()
  const listeners = new WeakMap<Process, Array<(ended: Ended) => void>>()

  const spawn = (request: SpawnRequest): Process => {
    const cwd = openDirectory(instance.root, request.cwd ?? instance.root.cwd)
    let child: ChildProcess.ChildProcess | undefined
    let refused: string | undefined
    try {
      const env = { ...instance.env, ...options.env, ...request.envs }
      const launch = instance.launch({ argv: request.argv, cwd, env, uid: request.uid, gid: request.gid })
      child = ChildProcess.spawn(launch.file, launch.args, {
        cwd: launch.cwd,
        env: launch.env,
        stdio: [...request.stdio],
        detached: true,
        ...(launch.argv0 === undefined ? {} : { argv0: launch.argv0 }),
        ...(launch.uid === undefined ? {} : { uid: launch.uid }),
        ...(launch.gid === undefined ? {} : { gid: launch.gid })
      })
    } catch (cause) {
      refused = words(cause)
    }
    const made: Process = {
      pid: child?.pid,
      child,
      finished: Deferred.unsafeMake(FiberId.none),
      killedFor: undefined,
      ended: undefined
    }
    running.add(made)
    journal.note("process", `${request.what} started`)
    const end = (exitCode: number, error: string | undefined) => {
      if (made.ended !== undefined) return
      closeQuietly(cwd)
      running.delete(made)
      journal.note("process", `${request.what} ended: ${error ?? "exit status 0"}`)
      const ended = { exitCode, error }
      made.ended = ended
      for (const listener of listeners.get(made) ?? []) listener(ended)
      Deferred.unsafeDone(made.finished, Effect.void)
    }
    if (child === undefined) {
      end(-1, `fork/exec ${request.argv[0]}: ${refused}`)
      return made
    }
    child.on("error", (cause) => {
      if (made.pid === undefined) end(-1, `fork/exec ${request.argv[0]}: ${words(cause)}`)
    })
    child.on("exit", (code, name) => {
      if (made.killedFor !== undefined) end(-1, made.killedFor)
      else if (code === null) end(-1, `signal: ${name ?? "unknown"}`)
      else end(code, code === 0 ? undefined : `exit status ${code}`)
    })
    // Written to after its end it would throw otherwise; what matters of that is told by the end itself.
    child.stdin?.on("error", () => {})
    return made
  }

  /** The pid whose group the processes are in; waits for one that is only just starting. */
  const groupOf = (process: Process): Effect.Effect<number | undefined> =>
    Effect.suspend(() => {
      const { pid } = process
      if (pid === undefined) return Effect.succeed(undefined)
      let found: number | undefined
      return Effect.map(
        waitUntil(() => {
          found = instance.groupOf(pid)
          return found !== undefined || process.ended !== undefined
        }, 1000),
        () => found
      )
    })

  const send = (pgid: number, name: NodeJS.Signals) => {
    // Before it has made its own group, the process itself.
    if (!signal(-pgid, name)) signal(pgid, name)
  }

  const alive = (pgid: number) => groupAlive(pgid) || (procStat(pgid)?.state ?? "Z") !== "Z"

  const inGroup = (process: Process, use: (pgid: number) => Effect.Effect<void>): Effect.Effect<void> =>
    Effect.suspend(() =>
      process.ended !== undefined
        ? Effect.void
        : Effect.flatMap(groupOf(process), (pgid) =>
            pgid === undefined || process.ended !== undefined ? Effect.void : use(pgid)
          )
    )

  const kill = (process: Process, why: string) =>
    inGroup(process, (pgid) =>
      Effect.sync(() => {
        process.killedFor = why
        send(pgid, "SIGKILL")
      })
    )

  const awaitEnd = (process: Process) =>
    Effect.timeoutTo(Effect.interruptible(Deferred.await(process.finished)), {
      duration: "2 seconds",
      onSuccess: () => undefined,
      onTimeout: () => undefined
    })

  return {
    spawn,
    whenEnded: (process, then) => {
      if (process.ended !== undefined) then(process.ended)
      else listeners.set(process, [...(listeners.get(process) ?? []), then])
    },
    signal: (process, name) => inGroup(process, (pgid) => Effect.sync(() => send(pgid, name))),
    kill,
    killAfter: (process, millis) =>
      Effect.raceFirst(
        Deferred.await(process.finished),
        Effect.zipRight(Effect.sleep(millis), kill(process, "timeout: killed"))
      ),
    stop: (process) =>
      inGroup(process, (pgid) =>
        Effect.gen(function* () {
          send(pgid, "SIGTERM")
          // A stopped process takes its signals only when it goes on.
          send(pgid, "SIGCONT")
          if (!(yield* waitUntil(() => !alive(pgid), GRACE_MILLIS))) {
            send(pgid, "SIGKILL")
            yield* waitUntil(() => !alive(pgid), 2000)
          }
          yield* awaitEnd(process)
        })
      ),
    busy: () => running.size > 0,
    nudge: Effect.sync(() => {
      for (const { pid } of running) {
        if (pid === undefined || procStat(pid)?.state !== "T") continue
        const inner = instance.groupOf(pid)
        // nsenter stops together with the process it waits for, but does not go on together with it.
        if (inner === pid || (inner !== undefined && procStat(inner)?.state === "T")) continue
        signal(pid, "SIGCONT")
      }
    }),
    release: Effect.sync(() => {
      for (const { pid } of running) if (pid !== undefined) signal(-pid, "SIGCONT")
    }),
    close: Effect.sync(() => {
      for (const { pid } of running) if (pid !== undefined) signal(-pid, "SIGKILL")
    })
  }
}

/** What `spawn` throws, as a client is told. */
export const spawnError =
  (root: Instance["root"], cwd: string | undefined) =>
  (cause: unknown): ApiError => {
    const error = fromErrno(cwd ?? root.cwd)(cause)
    return error.status === 404 ? badRequest(`working directory ${error.message}`) : error
  }
