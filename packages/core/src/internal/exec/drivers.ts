import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import * as Stream from "effect/Stream"
import type { ExecdEvent, TerminalConnection, TerminalEvent } from "../../Execd.js"
import type { OpenSandboxError } from "../../OpenSandboxError.js"
import { bounded } from "../bounded.js"
import type { Driver, ExecContext, RunEvent, Spec } from "./context.js"
import * as Script from "./shell.js"
import { commandLine, exportVariables } from "./shell.js"

/** Sends a command the way that its options ask for: as the script that comes of them, after its input. */
export const send = <A>(
  context: ExecContext,
  spec: Spec,
  run: (script: string) => Stream.Stream<A, OpenSandboxError>
): Stream.Stream<A, OpenSandboxError> => {
  const { idempotencyKey, shell, stdin, uid } = spec.options
  const inShell = shell === undefined ? spec.command : commandLine([shell, "-c", spec.command])
  const inSession = spec.session === undefined ? inShell : spec.session.script(inShell, spec.options)
  const once = idempotencyKey === undefined ? inSession : Script.once(context.sandbox.id, idempotencyKey, inSession)
  if (stdin === undefined) return run(once)
  return Stream.unwrap(
    Effect.gen(function* () {
      const path = `/tmp/.sandglass-stdin-${yield* context.nextId}`
      // Another user's command has to be able to read it.
      yield* context.execd.upload([{ path, content: stdin, mode: uid === undefined ? "600" : "644" }])
      return run(Script.withInput(path, once))
    })
  )
}

/** A command of the server's own kind. */
export const request =
  ({ execd }: ExecContext, { options, session }: Spec, background?: true) =>
  (command: string): Stream.Stream<ExecdEvent, OpenSandboxError> =>
    execd.command({
      command,
      // A session has a directory of its own to start from.
      cwd: session === undefined ? options.cwd : undefined,
      env: options.env,
      timeout: options.timeout,
      uid: options.uid,
      gid: options.gid,
      background
    })

export const commandDriver = (context: ExecContext, spec: Spec): Driver => ({
  events: send(context, spec, request(context, spec)),
  stop: context.execd.interrupt,
  status: context.execd.status
})

/** A terminal's events as those of a run: text as far as whole characters have come, and the bytes. */
export const toRunEvents = (
  output: Stream.Stream<TerminalEvent, OpenSandboxError>
): Stream.Stream<RunEvent, OpenSandboxError> =>
  Stream.suspend(() => {
    const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() }
    return Stream.map(
      output,
      (event): RunEvent =>
        event._tag === "Exit"
          ? { _tag: "Exit", exitCode: event.exitCode, message: event.exitCode === undefined ? "-1" : undefined }
          : {
              _tag: "Output",
              stream: event.channel,
              text: decoders[event.channel].decode(event.bytes, { stream: true }),
              bytes: event.bytes
            }
    )
  })

/** Runs a command behind a terminal's endpoint until its end; it does not outlive the stream. */
export const terminalEvents = (
  { execd }: ExecContext,
  options: { readonly command?: string | undefined; readonly cwd?: string | undefined; readonly pipe: boolean },
  onConnected: (connection: TerminalConnection) => Effect.Effect<void> = () => Effect.void
): Stream.Stream<RunEvent, OpenSandboxError> =>
  Stream.unwrapScoped(
    Effect.gen(function* () {
      const { command, cwd, pipe } = options
      const id = yield* Effect.acquireRelease(execd.createTerminal({ command, cwd }), (id) =>
        bounded("deleting a terminal", "5 seconds", execd.deleteTerminal(id))
      )
      const connection = yield* execd.attachTerminal(id, { pipe, reconnect: !pipe })
      yield* onConnected(connection)
      const init: RunEvent = { _tag: "Init", commandId: id }
      return Stream.concat(Stream.succeed(init), toRunEvents(connection.output))
    })
  )

/** A byte-exact way to run a command: over pipes instead of the line-based endpoint. */
export const pipeDriver = (context: ExecContext, spec: Spec): Driver => {
  const { cwd, env, timeout } = spec.options
  const variables = Object.entries(env ?? {}).map(([name, value]): readonly [string, string] => [
    name,
    typeof value === "string" ? value : Redacted.value(value)
  ])
  const events = send(context, spec, (script) =>
    terminalEvents(context, {
      pipe: true,
      command: exportVariables(variables, script),
      cwd: spec.session === undefined ? cwd : undefined
    })
  )
  const killed: RunEvent = { _tag: "Exit", message: "-1" }
  return {
    events:
      timeout === undefined
        ? events
        : Stream.merge(events, Stream.fromEffect(Effect.as(Effect.sleep(Duration.decode(timeout)), killed)), {
            haltStrategy: "left"
          }),
    stop: context.execd.deleteTerminal,
    status: undefined
  }
}
