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
import { SandboxError } from "../../SandboxError.js"
import type { ExecContext, Spec } from "./context.js"
import { terminalEvents } from "./drivers.js"
import { execution } from "./execution.js"
import { running } from "./handles.js"
import { bytesOf, chunkBytes, event, outputPayload, recordedOutput } from "./record.js"
import { pipeError } from "./writable.js"

/** The next piece of input, `None` at its end; the source is paused until then, so that nothing piles up. */
const nextInput = (input: TerminalInput): Effect.Effect<Option.Option<Uint8Array | string>> =>
  Effect.async((resume) => {
    if (input.readableEnded === true) return resume(Effect.succeedNone)
    const stop = () => {
      input.off("data", onData)
      input.off("end", onEnd)
      input.pause()
    }
    const onData = (data: Uint8Array | string) => {
      stop()
      resume(Effect.succeedSome(data))
    }
    const onEnd = () => {
      stop()
      resume(Effect.succeedNone)
    }
    input.once("data", onData)
    input.once("end", onEnd)
    input.resume()
    return Effect.sync(stop)
  })

/** What a terminal takes for the end of the input. */
const endOfInput = "\u0004"

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

/** The longest piece of input that is recorded as one. */
const pieceLength = 64 * 1024

/** However long somebody had paused, it is no use to wait longer for what the terminal printed meanwhile. */
const longestPause = 1000

/**
 * Types again what had been typed into a terminal that was open at the checkpoint: each piece when as much has been printed as there was when
 * it was typed, or as long after the piece before as it was then. A program that is typed to before it is there loses what it is told.
 */
const reconstruct = (
  context: ExecContext,
  { checkpoint, execId, sandboxId, seq, started }: OpenTerminal,
  printed: () => number,
  write: (data: Uint8Array) => Effect.Effect<void, SandboxFailure>
): Effect.Effect<void, SandboxFailure> =>
  Effect.suspend(() => {
    let printedThen = 0
    let last = started.ts
    const untilPrinted = (wanted: number, millis: number): Effect.Effect<void> =>
      Effect.suspend(() =>
        printed() >= wanted || millis <= 0
          ? Effect.void
          : Effect.zipRight(Effect.sleep(10), untilPrinted(wanted, millis - 10))
      )
    return recordedOutput(context.ledger, { sandboxId, seq, execId, after: started, until: checkpoint }).pipe(
      Stream.runForEach((entry) => {
        const typed = bytesOf(entry, "stdin")
        if (Option.isNone(typed)) {
          printedThen += Option.match(bytesOf(entry, "stdout"), { onNone: () => 0, onSome: (_) => _.length })
          return Effect.void
        }
        const pause = Math.min(entry.ts - last, longestPause)
        last = entry.ts
        return Effect.zipRight(untilPrinted(printedThen, pause), write(typed.value))
      })
    )
  })

const isWindowLength = (length: number): boolean => Number.isInteger(length) && length >= 1 && length <= 65535

/** A command that finds the window as it is to be: the process starts before anybody can tell the terminal. */
const sized = (command: string | undefined, size: TerminalOptions["size"]): string | undefined =>
  command === undefined || size === undefined
    ? command
    : `stty rows ${size.rows} cols ${size.cols} 2>/dev/null\n${command}`

export const openTerminal = (
  context: ExecContext,
  options: TerminalOptions = {}
): Effect.Effect<Terminal, ExecFailure, Scope.Scope> =>
  Effect.gen(function* () {
    const { command, cwd, size } = options
    if (size !== undefined && ![size.cols, size.rows].every(isWindowLength)) {
      return yield* new SandboxError({
        method: "Sandbox.openTerminal",
        reason: "InvalidOptions",
        description: "a window has from 1 to 65535 columns and rows",
        sandboxId: context.sandbox.id
      })
    }
    let printed = 0
    const connected = yield* Deferred.make<TerminalConnection>()
    const spec: Spec = {
      command: command ?? "bash",
      options: { cwd, strict: false },
      interactive: true,
      driver: (context) => ({
        prepare: Effect.succeed(
          Stream.mapChunks(
            terminalEvents(context, { command: sized(command, size), cwd, pipe: false }, (connection) =>
              Effect.asVoid(Deferred.succeed(connected, connection))
            ),
            (events) => {
              for (const event of events) if (event._tag === "Output") printed += event.bytes?.length ?? 0
              return events
            }
          )
        ),
        stop: undefined,
        status: undefined
      })
    }
    // Looked at before the terminal is opened: a divergence empties the index.
    const { terminals } = yield* Ref.get(context.replay)
    const run = yield* running(context, spec, (onStarted) => execution(context, spec, onStarted))
    const { execId, seq } = run.location
    // Where it cannot be opened as it was to be, nobody has a handle to end it with.
    const orEnd = <A, E, R>(self: Effect.Effect<A, E, R>) => Effect.onError(self, () => run.interrupt)
    // One that ended before it was connected to was replayed, or could not be started.
    const connection = yield* Effect.raceFirst(
      Effect.map(Deferred.await(connected), Option.some),
      Effect.as(run.result, Option.none<TerminalConnection>())
    ).pipe(orEnd)
    const turn = yield* Effect.makeSemaphore(1)

    const write = (data: Uint8Array | string): Effect.Effect<void, SandboxFailure> =>
      Option.match(connection, {
        onNone: () => Effect.void,
        onSome: (connection) => {
          const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data
          const from = (start: number): Effect.Effect<void, SandboxFailure> => {
            if (start >= bytes.length) return Effect.void
            const end = Math.min(start + pieceLength, bytes.length)
            const piece = bytes.subarray(start, end)
            const text = new TextDecoder().decode(piece)
            const payload = outputPayload(seq, { stream: "stdin", text, bytes: piece }, execId)
            return context.ledger
              .append(event(context, seq, EventName.execOutput, payload))
              .pipe(Effect.zipRight(connection.write(piece)), Effect.zipRight(Effect.suspend(() => from(end))))
          }
          return turn.withPermits(1)(from(0))
        }
      })

    const onConnection = <A, E>(
      use: (connection: TerminalConnection) => Effect.Effect<A, E>
    ): Effect.Effect<void, E> => (Option.isNone(connection) ? Effect.void : Effect.asVoid(use(connection.value)))
    const resize = (cols: number, rows: number) => onConnection((_) => _.resize(cols, rows))

    const recorded = terminals.get(seq)
    yield* Effect.gen(function* () {
      if (size !== undefined) yield* resize(size.cols, size.rows)
      if (recorded !== undefined && recorded.command === spec.command) {
        yield* reconstruct(context, recorded, () => printed, write)
      }
    }).pipe(orEnd)

    const output = Stream.filterMap(run.output, chunkBytes)
    const exitCode = Effect.map(run.result, (result) => result.exitCode)
    const attach = (input: TerminalInput, target: TerminalOutput): Effect.Effect<number, ExecFailure> =>
      Effect.gen(function* () {
        yield* Effect.acquireRelease(
          Effect.sync(() => input.setRawMode?.(true)),
          () => Effect.sync(() => input.setRawMode?.(false))
        )
        yield* windowSizes(target).pipe(
          Stream.runForEach(([cols, rows]) => Effect.ignore(resize(cols, rows))),
          Effect.forkScoped
        )
        const type: Effect.Effect<never, SandboxFailure> = Effect.flatMap(nextInput(input), (data) =>
          Effect.flatMap(
            // A key that a broken connection took along is for the person to press again; how the terminal ends is told by its output.
            Effect.catchTag(write(Option.getOrElse(data, () => endOfInput)), "OpenSandboxError", () => Effect.void),
            () => (Option.isNone(data) ? Effect.never : type)
          )
        )
        const show = Stream.runForEach(output, (bytes) =>
          Effect.mapError(writeTo(target, bytes), (cause) => pipeError(context, spec, seq, cause))
        )
        return yield* Effect.raceFirst(Effect.zipRight(show, exitCode), type)
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
