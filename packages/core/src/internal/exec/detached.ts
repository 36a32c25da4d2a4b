import * as Cause from "effect/Cause"
import * as Channel from "effect/Channel"
import * as Chunk from "effect/Chunk"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import type { DetachedExec, ExecOptions, OutputChunk } from "../../Exec.js"
import type { CommandStatus } from "../../Execd.js"
import type { EventInput } from "../../Ledger.js"
import type { LedgerError } from "../../LedgerError.js"
import type { Cursor, Json, LedgerEntry } from "../../LedgerEvent.js"
import { EventName } from "../../LedgerEvent.js"
import type { OpenSandboxError } from "../../OpenSandboxError.js"
import type { ExecErrorReason, ExecFailure } from "../../SandboxError.js"
import { ExecError } from "../../SandboxError.js"
import { bounded } from "../bounded.js"
import { jsonField, stringField } from "../json.js"
import { OutputTail } from "../output.js"
import type { ExecContext, Execution, Outcome, Spec } from "./context.js"
import { validate } from "./context.js"
import { countExec } from "./counting.js"
import { prepared, request } from "./drivers.js"
import { killedBy, lookup, replayed } from "./execution.js"
import * as InternalExec from "./handles.js"
import { event, locationOf, startedEvent, toOutput } from "./record.js"
import { commandLine, failureIn } from "./shell.js"
import { storeOutput } from "./storing.js"
import { makeTrail } from "./trail.js"

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

const reasons: { readonly [recorded: string]: ExecErrorReason } = {
  timeout: "Timeout",
  killed: "Killed",
  failed: "Failed",
  closed: "Closed"
}

/** Output that the server has beyond a place. */
interface More {
  readonly _tag: "More"
  readonly text: string
  readonly next: string
}

/** There is no more of it: how the command ended, as it is recorded. */
interface End {
  readonly _tag: "End"
  readonly event: EventInput
  readonly outcome: string
}

/**
 * Follows a detached command: what is recorded of its output, then what the server has beyond that, recorded as it comes, to its end.
 * Whatever it tells comes from the ledger, so that several may follow at once: each records what it finds ahead of the ledger, and of
 * two who found the same one is heard. Ending it early leaves the command alone.
 */
const follow = (context: ExecContext, target: Started): Execution =>
  Channel.unwrap(Effect.map(context.nextId, (id) => followAs(context, target, id.slice(0, 12))))

const followAs = (context: ExecContext, target: Started, follower: string): Execution => {
  const { execd, hooks, ledger, sandbox } = context
  const { commandId, execId, seq, spec } = target
  const trail = makeTrail()
  const tail = new OutputTail()
  let seen = target.started
  let end: LedgerEntry | undefined
  /** Whether anything but the ledger was asked. */
  let live = false

  const ownEvent = (name: string, payload: { readonly [key: string]: Json | undefined }) =>
    event(context, seq, name, { seq, ...payload, execId })

  /** What the ledger has beyond what was seen of it. */
  const recorded: Channel.Channel<
    Chunk.Chunk<OutputChunk>,
    unknown,
    LedgerError,
    unknown,
    unknown,
    unknown
  > = Channel.suspend(() =>
    Stream.toChannel(
      ledger
        .read({
          sandboxId: sandbox.id,
          stepIdx: seq,
          events: [EventName.execOutput, EventName.execCompleted, EventName.execFailed],
          after: seen
        })
        .pipe(
          Stream.mapChunks((entries) => {
            const chunks: Array<OutputChunk> = []
            for (const entry of entries) {
              seen = cursorOf(entry)
              if (end !== undefined || stringField(entry.payload, "execId") !== execId) continue
              if (entry.event !== EventName.execOutput) end = entry
              else if (trail.follows(entry)) chunks.push(...Option.toArray(toOutput(entry)))
            }
            tail.add(chunks)
            return Chunk.unsafeFromArray(chunks)
          })
        )
    )
  )

  const failedWith = (reason: string, message: string): End => ({
    _tag: "End",
    event: failedEvent(context, target, reason, message, commandId),
    outcome: reason
  })

  const endOf = ({ error, exitCode }: CommandStatus): End => {
    if (Option.isSome(exitCode)) {
      const payload = { exitCode: exitCode.value, commandId, stdoutLength: tail.stdout.total }
      return { _tag: "End", event: ownEvent(EventName.execCompleted, payload), outcome: "completed" }
    }
    const own = execId === undefined ? undefined : failureIn(execId, tail.stdout.text)
    if (own !== undefined) return failedWith("failed", own)
    return failedWith(killedBy(error)?.toLowerCase() ?? "lost", error ?? "the server does not know its exit code")
  }

  const look = Effect.gen(function* () {
    live = true
    const from = trail.cursor()
    // Asked before the output is read: what a command prints last is there once it has ended.
    const status = yield* execd.status(commandId)
    const { cursor, held, text } = yield* execd.logs(commandId, from)
    if (text !== "") {
      const next = Option.getOrUndefined(cursor)
      if (next !== undefined && next !== from) return { _tag: "More", text, next } as const
      return yield* execError(context, target, "Protocol", "the server does not tell where the output goes on", tail)
    }
    if (status.running) return undefined
    // Half a character, whose other half never came.
    return Option.isSome(held)
      ? ({ _tag: "More", text: held.value.text, next: held.value.cursor } as const)
      : endOf(status)
  })

  /** Undefined where the command runs and has printed nothing more. */
  const lookAhead: Effect.Effect<More | End | undefined, ExecFailure> = look.pipe(
    Effect.catchIf(
      (error) => error._tag === "OpenSandboxError" && error.reason === "NotFound" && !context.isClosed(),
      (error) => Effect.succeed(failedWith("lost", `the server no longer knows the command: ${error.message}`))
    ),
    Effect.raceFirst(Effect.map(Deferred.await(context.closed), () => failedWith("closed", "the sandbox was closed")))
  )

  const record = (ahead: More | End): Effect.Effect<void, LedgerError> =>
    Effect.gen(function* () {
      if (ahead._tag === "More") {
        const chunks = chunksOf(ahead.text)
        const pieces = chunks.map(({ stream, text }, index) => {
          const mark = trail.mark(follower, index === chunks.length - 1 ? ahead.next : undefined)
          return ownEvent(EventName.execOutput, { type: stream, text, ...mark })
        })
        return yield* storeOutput(ledger, pieces, chunks)
      }
      yield* ledger.append(ahead.event)
      yield* countExec(target.started.ts, ahead.outcome)
      const told = { seq, command: spec.command }
      const exitCode = jsonField(ahead.event.payload, "exitCode")
      yield* typeof exitCode === "number"
        ? hooks.onExecCompleted(sandbox, { ...told, exitCode })
        : hooks.onExecFailed(sandbox, { ...told, reason: ahead.outcome })
    })

  const settled = ({ event, payload }: LedgerEntry): Effect.Effect<Outcome, ExecFailure> => {
    const exitCode = jsonField(payload, "exitCode")
    if (event === EventName.execCompleted && typeof exitCode === "number") {
      const outputIncomplete = jsonField(payload, "outputIncomplete") === true
      return Effect.succeed({ seq, exitCode, outputIncomplete, replayed: !live, results: [] })
    }
    const reason = reasons[stringField(payload, "reason") ?? ""] ?? "Lost"
    return execError(context, target, reason, stringField(payload, "message") ?? "it had no exit code", tail)
  }

  /** `found` lay ahead of the ledger at `from`; it does so still, unless somebody else has recorded it meanwhile. */
  const step = (pause: number, found?: More | End, from?: string): Execution =>
    Channel.flatMap(recorded, () => {
      if (end !== undefined) return Channel.fromEffect(settled(end))
      const at = trail.cursor()
      if (found !== undefined && from === at) {
        return Channel.flatMap(Channel.fromEffect(record(found)), () => step(20))
      }
      return Channel.flatMap(Channel.fromEffect(lookAhead), (ahead) =>
        ahead === undefined
          ? Channel.flatMap(Channel.fromEffect(Effect.sleep(pause)), () => step(Math.min(pause * 1.5, 500)))
          : step(pause, ahead, at)
      )
    })

  return Channel.suspend(() => step(20))
}

const handle = (context: ExecContext, target: Started): DetachedExec => ({
  seq: target.seq,
  command: target.spec.command,
  commandId: target.commandId,
  attach: InternalExec.running(context, target.spec, (onStarted) =>
    Channel.zipRight(
      Channel.fromEffect(
        onStarted({
          sandboxId: context.sandbox.id,
          seq: target.seq,
          after: target.started,
          execId: target.execId
        })
      ),
      follow(context, target)
    )
  ),
  interrupt: context.execd.interrupt(target.commandId)
})

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
        Effect.onError((cause) => failed(...startFailure(cause, "rejected")))
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
            failed(...startFailure(cause, "ledger"), commandId)
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
const startFailure = (cause: Cause.Cause<ExecFailure>, reason: string): [reason: string, message: string] => {
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
