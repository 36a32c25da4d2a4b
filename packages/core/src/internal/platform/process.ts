import * as Chunk from "effect/Chunk"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import type { ExecOptions, ExecResult, OutputChunk, RunningExec } from "../../Exec.js"
import type { TerminalConnection } from "../../Execd.js"
import { OpenSandboxError } from "../../OpenSandboxError.js"
import type { ExecFailure } from "../../SandboxError.js"
import { bounded } from "../bounded.js"
import { telling, waiting } from "../exec/byInput.js"
import type { Driver, ExecContext, RunEvent, Spec } from "../exec/context.js"
import { toRunEvents } from "../exec/drivers.js"
import { execution } from "../exec/execution.js"
import { running } from "../exec/handles.js"
import { madeOnServer } from "../exec/onServer.js"
import { commandLine } from "../exec/shell.js"

/** A command to be started as a process. */
export interface ProcessRequest {
  /** What is recorded, and compared when it is replayed. */
  readonly command: string
  /** What the shell really runs; its first line of output says how the start went. */
  readonly script: string
  readonly options: Pick<ExecOptions, "cwd" | "env" | "shell" | "uid" | "gid" | "stdin" | "key">
}

/** A process of the sandbox: live, or one that was replayed. */
export interface SandboxProcess {
  readonly run: RunningExec
  /** Inside the sandbox. `None` for a replayed one. */
  readonly pid: Option.Option<number>
  readonly done: Deferred.Deferred<Exit.Exit<ExecResult, ExecFailure>>
  /** To the script, as it wants it. Without effect where it has ended or was replayed. */
  readonly write: (bytes: Uint8Array) => Effect.Effect<void, OpenSandboxError>
  readonly signal: (name: string) => Effect.Effect<void, OpenSandboxError>
}

/** The program could not be started. */
export interface StartFailure {
  readonly _tag: "StartFailure"
  readonly code: string
}

type Head = { readonly pid: number } | { readonly code: string }

/** Takes the first line of stdout, which is the script's own, from the events. */
const headed = (
  events: Stream.Stream<RunEvent, OpenSandboxError>,
  onHead: (head: Head) => Effect.Effect<unknown>
): Stream.Stream<RunEvent, OpenSandboxError> =>
  Stream.suspend(() => {
    let held: string | undefined = ""
    const rest = (chunk: OutputChunk, length: number): OutputChunk => ({
      ...chunk,
      text: chunk.text.slice(length),
      bytes: chunk.bytes?.subarray(length)
    })
    return Stream.mapChunksEffect(events, (chunk) =>
      Effect.gen(function* () {
        if (held === undefined) return chunk
        const out: Array<RunEvent> = []
        for (const event of chunk) {
          if (held === undefined || event._tag !== "Output" || event.stream !== "stdout") {
            out.push(event)
            continue
          }
          // The line is ASCII: as many bytes as characters.
          const end = event.text.indexOf("\n")
          held += end === -1 ? event.text : event.text.slice(0, end)
          if (end === -1) continue
          const [, word, value = ""] = /^(started|failed) (\w+)$/.exec(held) ?? []
          held = undefined
          const code = word === "failed" ? value : undefined
          yield* onHead(code === undefined ? { pid: Number(value) } : { code })
          if (code !== undefined) {
            return yield* new OpenSandboxError({
              module: "Execd",
              method: "command",
              reason: "InvalidRequest",
              description: `the program could not be started: ${code}`,
              code
            })
          }
          const left = rest(event, end + 1)
          if (left.text !== "" || (left.bytes?.length ?? 0) > 0) out.push({ ...left, _tag: "Output" })
        }
        return Chunk.unsafeFromArray(out)
      })
    )
  })

/** Over pipes: every byte, with a standard input that stays open. */
const pipes =
  (request: ProcessRequest, onHead: (head: Head) => Effect.Effect<unknown>, connected: Connected) =>
  ({ execd }: ExecContext): Driver => ({
    prepare: Effect.succeed(
      Stream.unwrapScoped(
        Effect.gen(function* () {
          const id = yield* madeOnServer(execd.createTerminal({ command: waiting, cwd: request.options.cwd }), (id) =>
            bounded("deleting a terminal", "5 seconds", execd.deleteTerminal(id))
          )
          const connection = yield* execd.attachTerminal(id, { pipe: true })
          yield* connection.write(telling(request.script))
          yield* Deferred.succeed(connected, connection)
          const init: RunEvent = { _tag: "Init", commandId: id }
          return Stream.concat(Stream.succeed(init), headed(toRunEvents(connection.output), onHead))
        })
      )
    ),
    stop: execd.deleteTerminal,
    status: undefined
  })

/** The file is unlinked before the program sees it. The API's `/tmp` is the command's `TMPDIR` in a plain directory. */
const withInput = (path: string, script: string): string =>
  [
    `__sg_in=${path}; [ -e "$__sg_in" ] || __sg_in="\${TMPDIR:-/tmp}\${__sg_in#/tmp}"`,
    `exec <"$__sg_in" || exit 125`,
    `rm -f "$__sg_in" 2>/dev/null; unset __sg_in`,
    script
  ].join("\n")

/** Over the line-based endpoint, which is the one that knows users. */
const lines =
  (request: ProcessRequest, onHead: (head: Head) => Effect.Effect<unknown>) =>
  ({ execd, nextId }: ExecContext): Driver => {
    const { cwd, gid, stdin, uid } = request.options
    const run = (command: string) =>
      headed(
        Stream.map(execd.command({ command, cwd, uid, gid }), (event): RunEvent => event),
        onHead
      )
    const prepare = Effect.gen(function* () {
      if (stdin === undefined) return run(request.script)
      const path = `/tmp/.sandglass-stdin-${yield* nextId}`
      yield* execd.upload([{ path, content: stdin, mode: "644" }])
      return run(withInput(path, request.script))
    })
    return { prepare, stop: execd.interrupt, status: execd.status }
  }

/** Other signals may be ignored where they are sent to a terminal. */
const everyServerKnows = new Set(["SIGHUP", "SIGINT", "SIGKILL", "SIGQUIT", "SIGTERM"])

type Connected = Deferred.Deferred<TerminalConnection>

/** Starts a process in a scope, and waits until it runs. */
export const startProcess = (
  context: ExecContext,
  request: ProcessRequest
): Effect.Effect<SandboxProcess, ExecFailure | StartFailure, Scope.Scope> =>
  Effect.gen(function* () {
    const head = yield* Deferred.make<Head>()
    const connected = yield* Deferred.make<TerminalConnection>()
    const onHead = (told: Head) => Deferred.succeed(head, told)
    const { key, shell, ...rest } = request.options
    const spec: Spec = {
      command: request.command,
      options: { ...rest, key, shell, strict: false, maxOutput: 0 },
      driver: rest.uid === undefined ? pipes(request, onHead, connected) : lines(request, onHead)
    }
    const run = yield* running(context, spec, (onStarted) => execution(context, spec, onStarted))
    const done = yield* Deferred.make<Exit.Exit<ExecResult, ExecFailure>>()
    yield* Effect.forkScoped(Effect.flatMap(Effect.exit(run.result), (exit) => Deferred.succeed(done, exit)))
    yield* Effect.raceFirst(Deferred.await(head), Deferred.await(done))
    const told = (yield* Deferred.isDone(head)) ? yield* Deferred.await(head) : undefined
    if (told !== undefined && "code" in told) {
      return yield* Effect.fail<StartFailure>({ _tag: "StartFailure", code: told.code })
    }
    if (told === undefined) {
      const exit = yield* Deferred.await(done)
      if (Exit.isFailure(exit)) return yield* Effect.failCause(exit.cause)
      // It ended before it could say that it had begun.
      if (!exit.value.replayed) return yield* Effect.fail<StartFailure>({ _tag: "StartFailure", code: "EIO" })
    }
    const connection = (yield* Deferred.isDone(connected))
      ? Option.some(yield* Deferred.await(connected))
      : Option.none<TerminalConnection>()

    const unlessDone = (self: Effect.Effect<void, OpenSandboxError>): Effect.Effect<void, OpenSandboxError> => {
      const ended = Deferred.isDone(done)
      return Effect.unlessEffect(self, ended).pipe(
        Effect.asVoid,
        // What ends meanwhile takes nothing any more.
        Effect.catchAll((error) => Effect.flatMap(ended, (yes) => (yes ? Effect.void : Effect.fail(error))))
      )
    }

    /** By a command of its own. A negative number is that of a group. */
    const kill = (name: string, ...targets: ReadonlyArray<number>) => {
      const words = commandLine(["kill", "-s", name.replace(/^SIG/, ""), "--"])
      const command = targets.map((target) => `${words} ${target} 2>/dev/null`).join(" || ")
      return Stream.runDrain(context.execd.command({ command, uid: rest.uid, gid: rest.gid }))
    }

    if (told !== undefined) {
      // As on the local machine: what a command leaves behind that has failed goes with the scope.
      yield* Effect.addFinalizer(() =>
        Effect.flatMap(Deferred.poll(done), (ended) =>
          Option.isNone(ended) || context.isClosed()
            ? Effect.void
            : Effect.flatMap(Effect.flatten(ended.value), ({ exitCode }) =>
                exitCode === 0
                  ? Effect.void
                  : bounded("stopping what a command left behind", "5 seconds", kill("SIGTERM", -told.pid))
              ).pipe(Effect.ignore)
        )
      )
    }

    return {
      run,
      done,
      pid: told === undefined ? Option.none() : Option.some(told.pid),
      write: (bytes: Uint8Array) =>
        Option.match(connection, { onNone: () => Effect.void, onSome: (_) => unlessDone(_.write(bytes)) }),
      signal: (name: string) =>
        unlessDone(
          Option.isSome(connection) && everyServerKnows.has(name)
            ? connection.value.signal(name)
            : told === undefined
              ? Effect.void
              : kill(name, -told.pid, told.pid)
        )
    }
  })
