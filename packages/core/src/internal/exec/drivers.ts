import * as Chunk from "effect/Chunk"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import type { ExecOptions, OutputChunk } from "../../Exec.js"
import type { ExecdEvent, TerminalConnection, TerminalEvent } from "../../Execd.js"
import { OpenSandboxError } from "../../OpenSandboxError.js"
import { bounded } from "../bounded.js"
import { telling, waiting } from "./byInput.js"
import type { Driver, ExecContext, ExecSession, RunEvent, Spec } from "./context.js"
import { madeOnServer } from "./onServer.js"
import * as Script from "./shell.js"
import { commandLine, exportVariables } from "./shell.js"

type Variables = ExecOptions["env"]

/** Runs a script of ours to its end, as the sandbox's own user. */
export const runScript = (
  { execd }: ExecContext,
  command: string
): Effect.Effect<
  { readonly exitCode: number | undefined; readonly stdout: string; readonly stderr: string },
  OpenSandboxError
> =>
  execd.command({ command, timeout: "30 seconds" }).pipe(
    Stream.runFold({ exitCode: undefined as number | undefined, stdout: "", stderr: "" }, (result, event) => {
      if (event._tag === "Output") return { ...result, [event.stream]: result[event.stream] + event.text }
      return event._tag === "Exit" ? { ...result, exitCode: event.exitCode } : result
    })
  )

/** The folder of inputs; a command may remove from it what it knows the name of, whoever it runs as. */
const inputs = "/tmp/.sandglass-input"

/** Uploads what a command is to read; on a failure, or when the command has not taken it at the end of the scope, it is removed. */
const uploadInput = (
  { execd, nextId }: ExecContext,
  { stdin, uid }: ExecOptions,
  isTaken: () => boolean
): Effect.Effect<string | undefined, OpenSandboxError, Scope.Scope> =>
  Effect.gen(function* () {
    if (stdin === undefined) return undefined
    const path = `${inputs}/${yield* nextId}`
    if (uid !== undefined) yield* execd.makeDirectories({ [inputs]: { mode: "733" } })
    yield* Effect.addFinalizer(() =>
      Effect.suspend(() =>
        isTaken()
          ? Effect.void
          : bounded(
              "removing the input of a command",
              "5 seconds",
              Effect.catchIf(
                execd.removeFiles([path]),
                (error) => error.reason === "NotFound",
                () => Effect.void
              )
            )
      )
    )
    // Another user's command has to be able to read it.
    yield* execd.upload([{ path, content: stdin, mode: uid === undefined ? "600" : "644" }])
    return path
  })

/** A session's state belongs to whoever runs its next command; the sandbox's own user may read and write it anyway. */
const handOver = (context: ExecContext, session: ExecSession, uid: number | undefined) =>
  Effect.gen(function* () {
    if (uid === session.owner) return
    if (uid !== undefined) {
      const { exitCode, stderr } = yield* runScript(context, Script.handSessionTo(session.place, uid))
      if (exitCode !== 0) {
        return yield* new OpenSandboxError({
          module: "Execd",
          method: "command",
          reason: "ServerError",
          description: `the session's state could not be given to user ${uid}: ${stderr.trim()}`
        })
      }
    }
    session.owner = uid
  })

const withText = ({ bytes, stream }: OutputChunk, text: string): RunEvent => ({
  _tag: "Output",
  stream,
  text,
  ...(bytes === undefined ? {} : { bytes: new TextEncoder().encode(text) })
})

/** Takes the line that tells of a script's own failure out of the output, and tells it as the reason of the end. */
const translateFailure = (nonce: string) => {
  const mark = Script.failureMark(nonce)
  const line = new RegExp(`${mark}(.*)\\n?`)
  let last = ""
  let failure: string | undefined
  return (event: RunEvent): RunEvent => {
    if (event._tag === "Output" && event.stream === "stderr") {
      last = (last + event.text).slice(-4096)
      failure ??= Script.failureIn(nonce, last)
      return event.text.includes(mark) ? withText(event, event.text.replace(line, "")) : event
    }
    const own = event._tag === "Exit" && (event.exitCode === undefined || event.exitCode === Script.failureCode)
    return own && failure !== undefined ? { ...event, exitCode: undefined, message: failure } : event
  }
}

/**
 * Prepares a command the way that its options ask for. Where they need a script around it, that is what is run, with the command's variables
 * under other names.
 */
export const prepared = (
  context: ExecContext,
  spec: Spec,
  nonce: string,
  run: (command: string, variables: Variables) => Stream.Stream<RunEvent, OpenSandboxError>,
  background = false
): Driver["prepare"] => {
  const { options, session } = spec
  const { cwd, env = {}, idempotencyKey, shell, stdin, uid } = options
  const command = shell === undefined ? spec.command : commandLine([shell, "-c", spec.command])
  if (session === undefined && idempotencyKey === undefined && stdin === undefined)
    return Effect.succeed(run(command, options.env))
  return Effect.gen(function* () {
    let taken = false
    if (session !== undefined) yield* handOver(context, session, uid)
    const input = yield* uploadInput(context, options, () => taken)
    const script = Script.script({
      nonce,
      command,
      variables: Object.keys(env),
      input,
      session: session?.place,
      cwd,
      once:
        idempotencyKey === undefined
          ? undefined
          : {
              sandboxId: context.sandbox.id,
              key: idempotencyKey,
              identity: [spec.command, shell, cwd, session?.name]
            }
    })
    const variables = Object.fromEntries(Object.entries(env).map(([name, value]) => [Script.variableOf(name), value]))
    return Stream.map(run(script, variables), translateFailure(nonce)).pipe(
      Stream.tap((event) =>
        Effect.sync(() => {
          // In the foreground it may yet be stopped before it has looked.
          taken ||= background || event._tag === "Output" || (event._tag === "Exit" && event.exitCode !== undefined)
        })
      )
    )
  })
}

/** A command of the server's own kind. */
export const request =
  ({ execd }: ExecContext, { options, session }: Spec, background?: true) =>
  (command: string, env: Variables = options.env): Stream.Stream<ExecdEvent, OpenSandboxError> =>
    execd.command({
      command,
      // A session has a directory of its own to start from.
      cwd: session === undefined ? options.cwd : undefined,
      env,
      timeout: options.timeout,
      uid: options.uid,
      gid: options.gid,
      background
    })

export const commandDriver = (context: ExecContext, spec: Spec, execId: string): Driver => ({
  prepare: prepared(context, spec, execId, request(context, spec)),
  stop: context.execd.interrupt,
  status: context.execd.status
})

/** A terminal's events as those of a run: text as far as whole characters have come, and the bytes. */
export const toRunEvents = (
  output: Stream.Stream<TerminalEvent, OpenSandboxError>
): Stream.Stream<RunEvent, OpenSandboxError> =>
  Stream.suspend(() => {
    // A byte order mark is part of the text here.
    const decoder = () => new TextDecoder("utf-8", { ignoreBOM: true })
    const decoders = { stdout: decoder(), stderr: decoder() }
    const eventsOf = (event: TerminalEvent): ReadonlyArray<RunEvent> => {
      if (event._tag === "Output") {
        const { bytes, channel } = event
        return [{ _tag: "Output", stream: channel, text: decoders[channel].decode(bytes, { stream: true }), bytes }]
      }
      // Half a character, whose other half never came; its bytes were told.
      const rest = (["stdout", "stderr"] as const).flatMap((stream): ReadonlyArray<RunEvent> => {
        const text = decoders[stream].decode()
        return text === "" ? [] : [{ _tag: "Output", stream, text, bytes: new Uint8Array() }]
      })
      const { exitCode } = event
      return [...rest, { _tag: "Exit", exitCode, message: exitCode === undefined ? "-1" : undefined }]
    }
    return Stream.mapChunks(output, (events) => Chunk.fromIterable(Array.from(events).flatMap(eventsOf)))
  })

/** Another client has taken a terminal. */
export const isTakeover = (error: OpenSandboxError): boolean =>
  error.reason === "Conflict" && error.code === "TAKEN_OVER"

/** Runs a command behind a terminal's endpoint until its end; it does not outlive the stream. */
export const terminalEvents = (
  { execd, unstopped }: ExecContext,
  options: {
    readonly command?: string | undefined
    readonly cwd?: string | undefined
    readonly pipe: boolean
    /** Counted from its start; then it ends as if by a signal. */
    readonly timeout?: ExecOptions["timeout"]
    /** Written first of all. */
    readonly input?: Uint8Array | undefined
  },
  onConnected: (connection: TerminalConnection) => Effect.Effect<void> = () => Effect.void
): Stream.Stream<RunEvent, OpenSandboxError> =>
  Stream.unwrapScoped(
    Effect.gen(function* () {
      const { command, cwd, input, pipe, timeout } = options
      let takenOver = false
      const id = yield* madeOnServer(execd.createTerminal({ command, cwd }), (id) => {
        // It is another client's now.
        if (takenOver) return Effect.void
        const deleted = execd.deleteTerminal(id)
        const orLater = Effect.onError(deleted, () => Effect.sync(() => unstopped.add(deleted)))
        return bounded("deleting a terminal", "5 seconds", orLater)
      })
      const connection = yield* execd.attachTerminal(id, { pipe, reconnect: true })
      if (input !== undefined) yield* connection.write(input)
      yield* onConnected(connection)
      const init: RunEvent = { _tag: "Init", commandId: id }
      const killed: RunEvent = { _tag: "Exit", message: "-1" }
      const output = Stream.tapError(toRunEvents(connection.output), (error) =>
        Effect.sync(() => {
          takenOver = isTakeover(error)
        })
      )
      return Stream.concat(
        Stream.succeed(init),
        timeout === undefined
          ? output
          : Stream.merge(output, Stream.fromEffect(Effect.as(Effect.sleep(Duration.decode(timeout)), killed)), {
              haltStrategy: "left"
            })
      )
    })
  )

/** Longer ones are told by the input. */
const longestCommand = 64 * 1024

/** A byte-exact way to run a command: over pipes instead of the line-based endpoint. The variables' values show in no command line. */
export const pipeDriver = (context: ExecContext, spec: Spec, execId: string): Driver => ({
  prepare: prepared(context, spec, execId, (script, env = {}) => {
    const variables = Object.entries(env).map(
      ([name, value]) => [name, typeof value === "string" ? value : Redacted.value(value)] as const
    )
    // The pipe that is its input has no end.
    const whole = exportVariables(variables, spec.options.stdin === undefined ? `exec </dev/null; ${script}` : script)
    const byInput = (variables.length > 0 || whole.length > longestCommand) && !whole.includes("\0")
    return terminalEvents(context, {
      pipe: true,
      command: byInput ? waiting : whole,
      input: byInput ? telling(whole) : undefined,
      cwd: spec.session === undefined ? spec.options.cwd : undefined,
      timeout: spec.options.timeout
    })
  }),
  stop: undefined,
  status: undefined
})
