import * as Cause from "effect/Cause"
import * as Channel from "effect/Channel"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import type { DetachedExec, ExecOptions, OutputChunk } from "../../Exec.js"
import type { LedgerError } from "../../LedgerError.js"
import type { Cursor, LedgerEntry } from "../../LedgerEvent.js"
import { EventName } from "../../LedgerEvent.js"
import type { OpenSandboxError } from "../../OpenSandboxError.js"
import type { ExecErrorReason, ExecFailure } from "../../SandboxError.js"
import { ExecError } from "../../SandboxError.js"
import { bounded } from "../bounded.js"
import { jsonField, stringField } from "../json.js"
import { OutputTail } from "../output.js"
import type { ExecContext, Execution, Location, Outcome, Spec } from "./context.js"
import { validate } from "./context.js"
import { prepared, request } from "./drivers.js"
import { lookup, replayed, tellsOfSignal } from "./execution.js"
import * as InternalExec from "./handles.js"
import { event, locationOf, outputEvents, recordedOutput, startedEvent, toOutput } from "./record.js"
import { commandLine } from "./shell.js"

/** A detached command of this session, as its events tell. */
interface Started {
  readonly spec: Spec
  readonly seq: number
  readonly commandId: string
  readonly execId: string | undefined
  readonly started: Cursor
}

const cursorOf = ({ id, ts }: LedgerEntry): Cursor => ({ ts, id })

const execError = (
  context: ExecContext,
  { seq, spec }: { readonly seq: number; readonly spec: Spec },
  reason: ExecErrorReason,
  description: string,
  tail?: OutputTail,
  cause?: OpenSandboxError
) =>
  new ExecError({
    sandboxId: context.sandbox.id,
    seq,
    command: spec.command,
    reason,
    description,
    code: cause?.code,
    stdout: tail?.stdout.text ?? "",
    stderr: "",
    cause
  })

/** At most this many characters make one recorded chunk. */
const chunkLength = 64 * 1024

const chunksOf = (text: string): Array<OutputChunk> => {
  const chunks: Array<OutputChunk> = []
  for (let at = 0; at < text.length; ) {
    let end = Math.min(at + chunkLength, text.length)
    // Not inside a surrogate pair.
    if (end < text.length && (text.charCodeAt(end) & 0xfc00) === 0xdc00) end--
    chunks.push({ stream: "stdout", text: text.slice(at, end) })
    at = end
  }
  return chunks
}

const failedEvent = (
  context: ExecContext,
  { execId, seq }: { readonly execId: string | undefined; readonly seq: number },
  reason: string,
  message: string,
  commandId?: string
) => event(context, seq, EventName.execFailed, { seq, reason, message, commandId, execId })

/**
 * Follows a detached command: first what is recorded of its output, then what the server has beyond the last recorded cursor, recorded
 * as it comes, to its end. Ending it early leaves the command alone.
 */
const follow = (context: ExecContext, target: Started): Execution => {
  const { execd, ledger } = context
  const { commandId, execId, seq } = target
  const location: Location = { sandboxId: context.sandbox.id, seq, after: target.started, execId }

  const finished = (
    chunks: ReadonlyArray<OutputChunk>,
    cursor: string | undefined,
    tail: OutputTail
  ): Effect.Effect<Outcome, ExecFailure> =>
    Effect.flatMap(execd.status(commandId), (status) => {
      const output = withCursor(context, target, chunks, cursor)
      if (Option.isSome(status.exitCode)) {
        const exitCode = status.exitCode.value
        return Effect.as(
          ledger.appendAll([
            ...output,
            event(context, seq, EventName.execCompleted, {
              seq,
              exitCode,
              commandId,
              stdoutLength: tail.stdout.total,
              execId
            })
          ]),
          { seq, exitCode, outputIncomplete: false, replayed: false, results: [] }
        )
      }
      const killed = tellsOfSignal(status.error)
      const message = status.error ?? "the server does not know its exit code"
      return Effect.zipRight(
        ledger.appendAll([...output, failedEvent(context, target, killed ? "killed" : "lost", message, commandId)]),
        execError(context, target, killed ? "Killed" : "Lost", message, tail)
      )
    })

  /** The server no longer knows the command. */
  const onGone = (cause: OpenSandboxError, tail: OutputTail): Effect.Effect<never, ExecFailure> =>
    cause.reason === "NotFound"
      ? Effect.zipRight(
          ledger.append(failedEvent(context, target, "lost", cause.message, commandId)),
          execError(context, target, "Lost", "the server no longer knows the command", tail, cause)
        )
      : Effect.fail(cause)

  const step = (cursor: string | undefined, pause: number, tail: OutputTail): Execution => {
    const look = Effect.gen(function* () {
      // Asked before the output is read: what a command prints last is there once it has ended.
      const { running } = yield* execd.status(commandId)
      const logs = yield* execd.logs(commandId, cursor)
      const next = Option.getOrElse(logs.cursor, () => cursor)
      const chunks = chunksOf(logs.text)
      tail.add(chunks)
      if (!running) {
        const outcome = yield* finished(chunks, next, tail)
        return { chunks, next, outcome }
      }
      if (chunks.length > 0) yield* ledger.appendAll(withCursor(context, target, chunks, next))
      else yield* Effect.sleep(pause)
      return { chunks, next, outcome: undefined }
    }).pipe(Effect.catchTag("OpenSandboxError", (cause) => onGone(cause, tail)))
    return Channel.flatMap(Channel.fromEffect(look), ({ chunks, next, outcome }) => {
      const rest =
        outcome === undefined
          ? Channel.suspend(() => step(next, chunks.length > 0 ? 20 : Math.min(pause * 1.5, 500), tail))
          : Channel.succeed(outcome)
      return chunks.length === 0 ? rest : Channel.zipRight(Channel.write(Chunk.unsafeFromArray(chunks)), rest)
    })
  }

  return Channel.unwrap(
    Effect.sync(() => {
      let cursor: string | undefined
      const tail = new OutputTail()
      const recorded = recordedOutput(ledger, location).pipe(
        Stream.mapChunks((entries) => {
          for (const { payload } of entries) cursor = stringField(payload, "cursor") ?? cursor
          const chunks = Chunk.filterMap(entries, toOutput)
          tail.add(chunks)
          return chunks
        })
      )
      return Channel.flatMap(Stream.toChannel(recorded), () => Channel.suspend(() => step(cursor, 20, tail)))
    })
  )
}

/** The chunks of one read, with the cursor behind them on the last: following goes on from there. */
const withCursor = (
  context: ExecContext,
  { execId, seq }: Started,
  chunks: ReadonlyArray<OutputChunk>,
  cursor: string | undefined
) =>
  outputEvents(context, seq, chunks, execId).map((entry, index) =>
    index === chunks.length - 1 && cursor !== undefined
      ? event(context, seq, entry.event, {
          seq,
          type: chunks[index]?.stream,
          text: chunks[index]?.text,
          cursor,
          execId
        })
      : entry
  )

const handle = (context: ExecContext, target: Started): DetachedExec => ({
  seq: target.seq,
  command: target.spec.command,
  commandId: target.commandId,
  attach: InternalExec.running(context, target.spec, (onStarted) =>
    Channel.unwrap(
      Effect.gen(function* () {
        const location = {
          sandboxId: context.sandbox.id,
          seq: target.seq,
          after: target.started,
          execId: target.execId
        }
        yield* onStarted(location)
        const end = yield* recordedEnd(context, target)
        if (end === undefined) return follow(context, target)
        const exitCode = jsonField(end.payload, "exitCode")
        if (end.event !== EventName.execCompleted || typeof exitCode !== "number") {
          return Channel.fail(
            execError(context, target, "Lost", stringField(end.payload, "message") ?? "it had no exit code")
          )
        }
        return replayed(context, target.seq, {
          seq: target.seq,
          command: target.spec.command,
          exitCode,
          sandboxId: context.sandbox.id,
          execId: target.execId,
          started: target.started,
          completed: cursorOf(end),
          outputIncomplete: false
        })
      })
    )
  ),
  interrupt: context.execd.interrupt(target.commandId)
})

const recordedEnd = (
  context: ExecContext,
  { execId, seq }: Started
): Effect.Effect<LedgerEntry | undefined, LedgerError> =>
  context.ledger
    .read({
      sandboxId: context.sandbox.id,
      stepIdx: seq,
      events: [EventName.execCompleted, EventName.execFailed],
      withoutOutput: true
    })
    .pipe(
      Stream.filter(({ payload }) => stringField(payload, "execId") === execId),
      Stream.runHead,
      Effect.map(Option.getOrUndefined)
    )

const recordTimeout = "5 seconds"
const stopTimeout = "5 seconds"

/** Starts a command that outlives whoever started it. */
export const startDetached = (
  context: ExecContext,
  command: string | ReadonlyArray<string>,
  options: ExecOptions = {}
): Effect.Effect<DetachedExec, ExecFailure> =>
  Effect.uninterruptibleMask((restore) =>
    Effect.gen(function* () {
      const { execd, hooks, ledger, sandbox } = context
      const spec: Spec = { command: commandLine(command), options }
      yield* validate(context, spec)
      const seq = ++context.sequence.last
      const recorded = yield* lookup(context, spec, seq)
      if (recorded !== undefined) {
        return {
          seq,
          command: spec.command,
          commandId: "",
          attach: InternalExec.running(context, spec, (onStarted) =>
            Channel.zipRight(Channel.fromEffect(onStarted(locationOf(recorded))), replayed(context, seq, recorded))
          ),
          interrupt: Effect.void
        }
      }
      const execId = (yield* context.nextId).slice(0, 12)
      const told = { seq, command: spec.command }
      const failed = (reason: string, message: string, commandId?: string) =>
        Effect.zipRight(
          bounded(
            "recording exec.failed",
            recordTimeout,
            ledger.append(failedEvent(context, { seq, execId }, reason, message, commandId))
          ),
          hooks.onExecFailed(sandbox, { ...told, reason })
        )
      const [started, events] = yield* Effect.gen(function* () {
        const started = yield* ledger.append(startedEvent(context, spec, seq, execId, true))
        yield* hooks.onExecStarted(sandbox, told)
        return [started, yield* prepared(context, spec, execId, request(context, spec, true), true)] as const
      }).pipe(
        restore,
        Effect.onError((cause) => failed(...endOf(cause, "rejected")))
      )
      // Short, and half of it would leave a command that nobody can find again.
      const commandId = yield* events.pipe(
        Stream.filterMap((event) => (event._tag === "Init" ? Option.some(event.commandId) : Option.none())),
        Stream.runHead,
        Effect.flatMap(
          Option.match({
            onNone: () =>
              Effect.fail(execError(context, { seq, spec }, "Protocol", "the server did not tell the command's id")),
            onSome: Effect.succeed
          })
        ),
        Effect.tapError((error) =>
          failed(error._tag === "OpenSandboxError" && error.status !== undefined ? "rejected" : "lost", error.message)
        )
      )
      yield* Effect.onError(
        ledger.append(event(context, seq, EventName.execDetached, { seq, commandId, execId })),
        (cause) =>
          Effect.zipRight(
            bounded("stopping a command", stopTimeout, execd.interrupt(commandId)),
            failed(...endOf(cause, "ledger"), commandId)
          )
      )
      return handle(context, { spec, seq, commandId, execId, started: cursorOf(started) })
    }).pipe(Effect.scoped)
  ).pipe(
    Effect.withSpan("Sandbox.startDetached", {
      captureStackTrace: false,
      attributes: { "sandbox.id": context.sandbox.id }
    })
  )

/** How a start that came to nothing is recorded. */
const endOf = (cause: Cause.Cause<ExecFailure>, reason: string): [reason: string, message: string] => {
  if (Cause.isInterruptedOnly(cause)) return ["interrupted", "the start was interrupted"]
  const error = Option.getOrUndefined(Cause.failureOption(cause))
  return error === undefined
    ? ["failed", Cause.pretty(cause).split("\n")[0] ?? ""]
    : [error._tag === "LedgerError" ? "ledger" : reason, error.message]
}

/** The detached commands of this session whose end is not recorded. */
export const commands = (context: ExecContext): Stream.Stream<DetachedExec, LedgerError> =>
  Stream.unwrap(
    Effect.gen(function* () {
      const open = new Map<string, { readonly started: LedgerEntry; commandId: string | undefined }>()
      const apply = (entry: LedgerEntry) => {
        const id = stringField(entry.payload, "execId") ?? `seq ${entry.stepIdx}`
        if (entry.event === EventName.execStarted) {
          if (jsonField(entry.payload, "detached") === true) open.set(id, { started: entry, commandId: undefined })
        } else if (entry.event === EventName.execDetached) {
          const found = open.get(id)
          if (found !== undefined) found.commandId = stringField(entry.payload, "commandId")
        } else open.delete(id)
      }
      yield* context.ledger
        .read({
          sandboxId: context.sandbox.id,
          events: [EventName.execStarted, EventName.execDetached, EventName.execCompleted, EventName.execFailed],
          withoutOutput: true
        })
        .pipe(
          Stream.runForEachChunk((entries) =>
            Effect.sync(() => {
              for (const entry of entries) apply(entry)
            })
          )
        )
      return Stream.filterMap(Stream.fromIterable(open.values()), ({ commandId, started }) =>
        commandId === undefined
          ? Option.none()
          : Option.some(
              handle(context, {
                spec: { command: stringField(started.payload, "cmd") ?? "", options: {} },
                seq: started.stepIdx,
                commandId,
                execId: stringField(started.payload, "execId"),
                started: cursorOf(started)
              })
            )
      )
    })
  )
