/** The terminals of a sandbox. @internal */

import * as Effect from "effect/Effect"
import * as FiberSet from "effect/FiberSet"
import type * as Scope from "effect/Scope"
import type * as WS from "ws"
import { ApiError, conflict, contextNotFound, runtimeError } from "./apiError.js"
import { uuid } from "./ids.js"
import type { Instance } from "./isolation.js"
import type { Pipe, PipePool } from "./pipes.js"
import { closePipe } from "./pipes.js"
import type { Processes } from "./processes.js"
import { spawnError } from "./processes.js"
import { closeQuietly, openDirectory } from "./rooted.js"
import type { Relay } from "./terminal/relays.js"
import type { Mode } from "./terminal/terminal.js"
import { Terminal } from "./terminal/terminal.js"

export interface TerminalsOptions {
  readonly instance: Instance
  readonly processes: Processes
  readonly pipes: PipePool
  readonly env: { readonly [name: string]: string }
  /** What makes terminals on this machine; undefined where nothing does. */
  readonly relay: Effect.Effect<Relay | undefined>
}

export interface AttachRequest {
  readonly mode: Mode
  readonly since: number
  readonly takeover: boolean
}

export interface Terminals {
  readonly create: (request: {
    readonly cwd: string | undefined
    readonly command: string | undefined
  }) => Effect.Effect<Terminal, ApiError>
  readonly get: (id: string) => Effect.Effect<Terminal, ApiError>
  /** Kills its process, and forgets it. */
  readonly remove: (id: string) => Effect.Effect<void, ApiError>
  /** Refuses, or makes the socket and connects it. */
  readonly attach: <E>(
    id: string,
    request: AttachRequest,
    upgrade: Effect.Effect<WS.WebSocket, E>
  ) => Effect.Effect<void, ApiError | E>
  readonly close: Effect.Effect<void>
}

/** Those that do not run are forgotten beyond this many, the oldest first. */
const REMEMBERED = 1000

const noTerminals = new ApiError({
  status: 501,
  code: "NOT_IMPLEMENTED",
  message: "Terminals need perl or python3, and neither makes one on this machine. With pty=0 there are pipes instead."
})

const shellArgv = (shell: string, command: string | undefined): readonly [string, ...Array<string>] => [
  shell,
  ...(shell.endsWith("/bash") ? ["--noprofile", "--norc"] : []),
  ...(command === undefined ? [] : ["-c", command])
]

export const makeTerminals = (options: TerminalsOptions): Effect.Effect<Terminals, never, Scope.Scope> =>
  Effect.gen(function* () {
    const { instance, processes } = options
    const clock = yield* Effect.clock
    const run = yield* FiberSet.makeRuntime<never>()
    const terminals = new Map<string, Terminal>()

    const forget = () => {
      for (const [id, terminal] of terminals) {
        if (terminals.size <= REMEMBERED) return
        if (!terminal.running && !terminal.held) terminals.delete(id)
      }
    }

    const get = (id: string) =>
      Effect.suspend(() => {
        const terminal = terminals.get(id)
        return terminal === undefined ? Effect.fail(contextNotFound(`Terminal ${id}`)) : Effect.succeed(terminal)
      })

    const create: Terminals["create"] = ({ command, cwd }) =>
      Effect.gen(function* () {
        const relay = yield* options.relay
        yield* Effect.try({
          try: () => closeQuietly(openDirectory(instance.root, cwd ?? instance.root.cwd)),
          catch: spawnError(instance.root, cwd)
        })
        const shell = shellArgv(instance.shell, command)
        const id = uuid()
        const terminal = new Terminal({
          id,
          now: () => clock.unsafeCurrentTimeMillis(),
          start: (mode, writers) =>
            processes.spawn({
              what: `terminal ${id} (${command ?? "shell"}${mode === "pipe" ? ", pipes" : ""})`,
              argv: mode === "pty" && relay !== undefined ? relay.command(shell) : shell,
              cwd,
              envs: mode === "pty" && options.env["TERM"] === undefined ? { TERM: "xterm-256color" } : {},
              stdio: ["pipe", ...writers]
            }),
          whenEnded: (process, then) => processes.whenEnded(process, ({ exitCode }) => then(exitCode)),
          signal: processes.signal,
          run: (effect) => {
            run(effect)
          }
        })
        terminals.set(id, terminal)
        forget()
        return terminal
      })

    const attach: Terminals["attach"] = (id, request, upgrade) =>
      Effect.gen(function* () {
        const terminal = yield* get(id)
        if (terminal.held && !request.takeover)
          return yield* conflict("ALREADY_CONNECTED", `another client is connected to terminal ${id}`)
        if (!terminal.running && request.mode === "pty" && (yield* options.relay) === undefined)
          return yield* noTerminals
        const take = Effect.mapError(options.pipes.take, (error) => runtimeError(error.message))
        const out = yield* take
        const error = yield* Effect.tapError(take, () => closing([out]))
        const socket = yield* Effect.onError(upgrade, () => closing([out, error]))
        terminal.connect(socket, { ...request, pipes: [out, error] })
      })

    yield* Effect.sync(() => {
      for (const terminal of terminals.values()) terminal.tick()
    }).pipe(Effect.delay("1 second"), Effect.forever, Effect.interruptible, Effect.forkScoped)

    return {
      create,
      get,
      remove: (id) =>
        Effect.flatMap(get(id), (terminal) => {
          const { process } = terminal
          terminals.delete(id)
          if (process === undefined) return Effect.void
          terminal.hangUp()
          // A relay that is told so ends what it holds; and what has none is killed itself.
          return processes.stop(process)
        }),
      attach,
      close: Effect.sync(() => {
        for (const terminal of terminals.values()) terminal.close()
        terminals.clear()
      })
    }
  })

const closing = (pipes: ReadonlyArray<Pipe>) => Effect.sync(() => pipes.forEach(closePipe))
