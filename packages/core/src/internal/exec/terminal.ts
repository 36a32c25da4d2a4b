import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Ref from "effect/Ref"
import type * as Scope from "effect/Scope"
import * as Sink from "effect/Sink"
import * as Stream from "effect/Stream"
import type { Terminal, TerminalInput, TerminalOptions, TerminalOutput } from "../../Exec.js"
import type { TerminalConnection } from "../../Execd.js"
import { EventName } from "../../LedgerEvent.js"
import type { OpenTerminal } from "../../Replay.js"
import type { ExecFailure, SandboxFailure } from "../../SandboxError.js"
import type { ExecContext, Spec } from "./context.js"
import { terminalEvents } from "./drivers.js"
import { execution } from "./execution.js"
import { running } from "./handles.js"
import { bytesOf, event, outputPayload } from "./record.js"
import { pipeError } from "./writable.js"

/** The next piece of input; the source is paused until then, so that nothing piles up. */
const nextInput = (input: TerminalInput): Effect.Effect<Uint8Array | string> =>
  Effect.async((resume) => {
    const onData = (data: Uint8Array | string) => {
      input.pause()
      resume(Effect.succeed(data))
    }
    input.once("data", onData)
    input.resume()
    return Effect.sync(() => {
      input.off("data", onData)
      input.pause()
    })
  })

const writeTo = (output: TerminalOutput, bytes: Uint8Array): Effect.Effect<void, unknown> =>
  Effect.async((resume) => {
    output.write(bytes, (error) => resume(error ? Effect.fail(error) : Effect.void))
  })

/** Every change of a window, the present one first. */
const windowSizes = (output: TerminalOutput): Stream.Stream<readonly [cols: number, rows: number]> =>
  Stream.asyncPush<readonly [number, number]>(
    (emit) =>
      Effect.acquireRelease(
        Effect.sync(() => {
          const tell = () => {
            if (output.columns !== undefined && output.rows !== undefined) emit.single([output.columns, output.rows])
          }
          output.on?.("resize", tell)
          tell()
          return tell
        }),
        (tell) => Effect.sync(() => output.off?.("resize", tell))
      ),
    // Only the newest size matters.
    { bufferSize: 1, strategy: "sliding" }
  )

/** Types again what had been typed into a terminal that was open at the checkpoint. */
const reconstruct = (
  context: ExecContext,
  recorded: OpenTerminal,
  write: (data: Uint8Array) => Effect.Effect<void, SandboxFailure>
): Effect.Effect<void, SandboxFailure> =>
  context.ledger
    .read({
      sandboxId: recorded.sandboxId,
      stepIdx: recorded.seq,
      events: [EventName.execOutput],
      after: recorded.started,
      until: recorded.checkpoint
    })
    .pipe(
      Stream.filterMap((entry) => bytesOf(entry, "stdin")),
      Stream.runForEach(write)
    )

export const openTerminal = (
  context: ExecContext,
  options: TerminalOptions = {}
): Effect.Effect<Terminal, ExecFailure, Scope.Scope> =>
  Effect.gen(function* () {
    const { command, cwd, size } = options
    const connected = yield* Deferred.make<TerminalConnection>()
    const spec: Spec = {
      command: command ?? "bash",
      options: { cwd, strict: false },
      interactive: true,
      driver: (context) => ({
        prepare: Effect.succeed(
          terminalEvents(context, { command, cwd, pipe: false }, (connection) =>
            Effect.asVoid(Deferred.succeed(connected, connection))
          )
        ),
        stop: context.execd.deleteTerminal,
        status: undefined
      })
    }
    // Looked at before the terminal is opened: a divergence empties the index.
    const { terminals } = yield* Ref.get(context.replay)
    const run = yield* running(context, spec, (onStarted) => execution(context, spec, onStarted))
    const { seq } = run
    // One that ended before it was connected to was replayed, or could not be started.
    const connection = yield* Effect.raceFirst(
      Effect.map(Deferred.await(connected), Option.some),
      Effect.as(run.result, Option.none<TerminalConnection>())
    )
    const turn = yield* Effect.makeSemaphore(1)

    const write = (data: Uint8Array | string): Effect.Effect<void, SandboxFailure> =>
      Option.match(connection, {
        onNone: () => Effect.void,
        onSome: (connection) => {
          const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data
          if (bytes.length === 0) return Effect.void
          const text = new TextDecoder().decode(bytes)
          return context.ledger
            .append(
              event(context, seq, EventName.execOutput, {
                ...outputPayload(seq, { stream: "stdin", text, bytes }, undefined)
              })
            )
            .pipe(Effect.zipRight(connection.write(bytes)), turn.withPermits(1))
        }
      })

    const onConnection = <A, E>(
      use: (connection: TerminalConnection) => Effect.Effect<A, E>
    ): Effect.Effect<void, E> => (Option.isNone(connection) ? Effect.void : Effect.asVoid(use(connection.value)))
    const resize = (cols: number, rows: number) => onConnection((_) => _.resize(cols, rows))

    if (size !== undefined) yield* resize(size.cols, size.rows)
    const recorded = terminals.get(seq)
    if (recorded !== undefined && recorded.command === spec.command) yield* reconstruct(context, recorded, write)

    const output = Stream.map(run.output, ({ bytes, text }) => bytes ?? new TextEncoder().encode(text))
    const exitCode = Effect.map(run.result, (result) => result.exitCode)
    const attach = (input: TerminalInput, target: TerminalOutput): Effect.Effect<number, ExecFailure> =>
      Effect.gen(function* () {
        yield* Effect.acquireRelease(
          Effect.sync(() => input.setRawMode?.(true)),
          () => Effect.sync(() => input.setRawMode?.(false))
        )
        yield* Effect.forkScoped(Effect.forever(Effect.flatMap(nextInput(input), write)))
        yield* windowSizes(target).pipe(
          Stream.runForEach(([cols, rows]) => resize(cols, rows)),
          Effect.forkScoped
        )
        yield* Stream.runForEach(output, (bytes) =>
          Effect.mapError(writeTo(target, bytes), (cause) => pipeError(context, spec, seq, cause))
        )
        return yield* exitCode
      }).pipe(Effect.scoped)

    return {
      seq,
      write,
      stdin: Sink.forEach(write),
      output,
      resize,
      signal: (name: string) => onConnection((_) => _.signal(name)),
      exitCode,
      attach
    }
  }).pipe(
    Effect.withSpan("Sandbox.openTerminal", {
      captureStackTrace: false,
      attributes: { "sandbox.id": context.sandbox.id }
    })
  )
