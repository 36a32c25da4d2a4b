import * as Cause from "effect/Cause"
import * as Channel from "effect/Channel"
import * as Chunk from "effect/Chunk"
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Ref from "effect/Ref"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import type { OutputChunk } from "../../Exec.js"
import type { EventInput } from "../../Ledger.js"
import { EventName } from "../../LedgerEvent.js"
import { OpenSandboxError } from "../../OpenSandboxError.js"
import * as Replay from "../../Replay.js"
import type { ExecErrorReason, ExecFailure, ExecIdentity, LanguageError } from "../../SandboxError.js"
import { ExecError, ReplayDivergence } from "../../SandboxError.js"
import { bounded } from "../bounded.js"
import { jsonField } from "../json.js"
import { OutputTail } from "../output.js"
import type { CodeValue, ExecContext, Execution, Location, Outcome, RunEvent, Spec } from "./context.js"
import { validate } from "./context.js"
import { countExec } from "./counting.js"
import { commandDriver, isTakeover, pipeDriver } from "./drivers.js"
import {
  codeValue,
  event,
  fingerprintOf,
  locationOf,
  outputEvents,
  recordedOutput,
  startedEvent,
  toOutput
} from "./record.js"
import { storeOutput } from "./storing.js"

/** Answers from the ledger. */
export const replayed = (context: ExecContext, seq: number, recorded: Replay.RecordedExec): Execution =>
  Channel.suspend(() => {
    const results: Array<CodeValue> = []
    return Stream.toChannel(
      recordedOutput(context.ledger, locationOf(recorded), [EventName.execOutput, EventName.execResult]).pipe(
        Stream.mapChunks((entries) => {
          for (const entry of entries) {
            if (entry.event === EventName.execResult) results.push(codeValue(jsonField(entry.payload, "data")))
          }
          return Chunk.filterMap(entries, toOutput)
        })
      )
    ).pipe(
      Channel.map(
        (): Outcome => ({
          seq,
          exitCode: recorded.exitCode,
          outputIncomplete: recorded.outputIncomplete,
          replayed: true,
          results,
          codeError: recorded.codeError
        })
      )
    )
  })

/** What a server's words for an end without an exit code mean, where they mean that the command was killed. */
export const killedBy = (message: string | undefined): "Timeout" | "Killed" | undefined => {
  if (message === undefined) return undefined
  if (/time(d )?.?out|deadline/i.test(message)) return "Timeout"
  return message === "-1" || /signal|kill/i.test(message) ? "Killed" : undefined
}

/** What is known of a run that is under way. */
interface RunState {
  commandId: string | undefined
  /** Prepares it, and starts it; the first events are its result. */
  starting: Fiber.Fiber<unknown, unknown> | undefined
  /** When it was sent: the request may have reached the server. */
  sentAt: number | undefined
  /** Nothing is left running on the server. */
  ended: boolean
  /** `exec.completed` is in the ledger. */
  completed: boolean
  /** The record of its end, on its way. */
  completing: Fiber.Fiber<unknown, unknown> | undefined
  failure: { readonly reason: string; readonly message: string } | undefined
}

type Step =
  | { readonly _tag: "More"; readonly chunks: ReadonlyArray<OutputChunk> }
  | { readonly _tag: "Done"; readonly chunks: ReadonlyArray<OutputChunk>; readonly outcome: Outcome }
  | { readonly _tag: "Failed"; readonly chunks: ReadonlyArray<OutputChunk>; readonly error: ExecFailure }

/** How long after an interruption the id of a command that was just sent is waited for. */
const commandIdTimeout = "2 seconds"
const stopTimeout = "5 seconds"
const recordTimeout = "5 seconds"

const live = (
  context: ExecContext,
  spec: Spec,
  seq: number,
  onStarted: (location: Location) => Effect.Effect<void>
): Execution =>
  Channel.unwrapScoped(
    Effect.gen(function* () {
      const { hooks, ledger, sandbox } = context
      const { options } = spec
      const execId = (yield* context.nextId).slice(0, 12)
      const driver = (spec.driver ?? (options.raw === true ? pipeDriver : commandDriver))(context, spec, execId)
      const told = { seq, command: spec.command }
      const state: RunState = {
        commandId: undefined,
        starting: undefined,
        sentAt: undefined,
        ended: false,
        completed: false,
        completing: undefined,
        failure: undefined
      }
      const tail = new OutputTail()
      const began = yield* Clock.currentTimeMillis
      const connection = yield* Scope.make()

      const stop = Effect.gen(function* () {
        if (state.starting === undefined || state.ended) return
        if (driver.stop === undefined) return yield* Scope.close(connection, Exit.void)
        if (state.sentAt === undefined) yield* Fiber.interrupt(state.starting)
        else if (state.commandId === undefined) {
          yield* Fiber.await(state.starting).pipe(Effect.timeoutOption(commandIdTimeout))
        }
        if (state.commandId === undefined) return
        const stopped = driver.stop(state.commandId)
        yield* Effect.onError(stopped, () => Effect.sync(() => context.unstopped.add(stopped)))
      })

      const store = (events: ReadonlyArray<EventInput>, chunks: ReadonlyArray<OutputChunk>) =>
        storeOutput(ledger, events, chunks)

      const release = (exit: Exit.Exit<unknown, unknown>) =>
        Effect.gen(function* () {
          // The last record may be on its way: how that ends decides what is recorded.
          if (state.completing !== undefined) {
            yield* bounded("recording exec.completed", recordTimeout, Fiber.await(state.completing))
          }
          if (!state.completed) {
            yield* bounded("stopping a command", stopTimeout, stop)
            const failure = state.failure ?? failureOf(exit)
            const { commandId } = state
            yield* bounded(
              "recording exec.failed",
              recordTimeout,
              ledger.append(event(context, seq, EventName.execFailed, { seq, ...failure, commandId, execId }))
            )
            yield* hooks.onExecFailed(sandbox, { ...told, reason: failure.reason })
          }
          yield* countExec(began, state.completed ? "completed" : (state.failure?.reason ?? "interrupted"))
          yield* bounded("closing a connection", stopTimeout, Scope.close(connection, Exit.void))
        })

      yield* Effect.addFinalizer(release)
      // Interruptible: a ledger that hangs must not hold the exec. What it was given may still arrive; exec.failed then follows it.
      const started = yield* ledger.append(startedEvent(context, spec, seq, execId))
      yield* onStarted({ sandboxId: sandbox.id, seq, after: { ts: started.ts, id: started.id }, execId })
      yield* hooks.onExecStarted(sandbox, told)

      type Pull = Effect.Effect<Chunk.Chunk<RunEvent>, Option.Option<OpenSandboxError>>
      let pull: Pull = Effect.never
      // What is sent outlives an interruption of the exec until the connection is closed: the id that its first events bring is what
      // the command can be stopped with.
      const first = yield* driver.prepare.pipe(
        Effect.mapError(Option.some),
        Effect.tap(() =>
          Effect.map(Clock.currentTimeMillis, (now) => {
            state.sentAt = now
          })
        ),
        Effect.flatMap(Stream.toPull),
        Effect.flatMap((events) => {
          pull = events
          return events
        }),
        Effect.tap((events) =>
          Effect.sync(() => {
            const init = Chunk.findFirst(events, (_) => _._tag === "Init")
            if (Option.isSome(init) && init.value._tag === "Init") state.commandId = init.value.commandId
          })
        ),
        Scope.extend(connection),
        Effect.interruptible,
        Effect.forkIn(connection)
      )
      state.starting = first

      const execError = (reason: ExecErrorReason, description: string, cause?: OpenSandboxError) =>
        new ExecError({
          sandboxId: sandbox.id,
          seq,
          command: spec.command,
          reason: context.isClosed() ? "Closed" : reason,
          description,
          code: cause?.code,
          stdout: tail.stdout.text,
          stderr: tail.stderr.text,
          cause
        })

      const failed = (chunks: ReadonlyArray<OutputChunk>, error: ExecError): Step => {
        state.failure = { reason: error.reason.toLowerCase(), message: error.description }
        return { _tag: "Failed", chunks, error }
      }

      const results: Array<CodeValue> = []
      const resultEvents = (from: number) =>
        results.slice(from).map((data) => event(context, seq, EventName.execResult, { seq, data, execId }))

      const completed = (
        chunks: ReadonlyArray<OutputChunk>,
        exitCode: number,
        {
          codeError,
          newResults = results.length,
          outputIncomplete = false
        }: {
          readonly codeError?: LanguageError | undefined
          readonly newResults?: number
          readonly outputIncomplete?: boolean
        } = {}
      ) =>
        Effect.gen(function* () {
          const recording = yield* store(
            [
              ...outputEvents(context, seq, chunks, execId),
              ...resultEvents(newResults),
              event(context, seq, EventName.execCompleted, {
                seq,
                exitCode,
                error: codeError === undefined ? undefined : { ...codeError },
                commandId: state.commandId,
                stdoutLength: tail.stdout.total,
                stderrLength: tail.stderr.total,
                outputIncomplete: outputIncomplete ? true : undefined,
                execId
              })
            ],
            chunks
          ).pipe(
            Effect.tap(() =>
              Effect.sync(() => {
                state.completed = true
                useKey(context, spec)
              })
            ),
            // Cut in the middle, it would be recorded as completed and then as failed: it ends by itself, and the release waits for it.
            Effect.interruptible,
            Effect.forkDaemon
          )
          state.completing = recording
          yield* Fiber.join(recording)
          yield* hooks.onExecCompleted(sandbox, { ...told, exitCode })
          const outcome = { seq, exitCode, outputIncomplete, replayed: false, results, codeError }
          return { _tag: "Done", chunks, outcome } satisfies Step
        })

      const onEvents = (events: Chunk.Chunk<RunEvent>): Effect.Effect<Step, ExecFailure> => {
        const chunks: Array<OutputChunk> = []
        const newResults = results.length
        for (const event of events) {
          if (event._tag === "Init") state.commandId = event.commandId
          else if (event._tag === "Output") {
            const { bytes, stream, text } = event
            chunks.push(bytes === undefined ? { stream, text } : { stream, text, bytes })
          }
          // The server's JSON, as it was read.
          else if (event._tag === "Result") results.push(event.data as CodeValue)
          else if (event._tag === "Exit") {
            tail.add(chunks)
            state.ended = true
            if (event.exitCode !== undefined) return completed(chunks, event.exitCode, { newResults })
            if (spec.language !== undefined && event.name !== undefined) {
              const codeError = { name: event.name, value: event.message ?? "", traceback: event.traceback ?? [] }
              return completed(chunks, 1, { codeError, newResults })
            }
            return store(outputEvents(context, seq, chunks, execId), chunks).pipe(
              Effect.zipRight(Clock.currentTimeMillis),
              Effect.map((now) => {
                const message = event.message ?? ""
                const killed = killedBy(message)
                const timedOut =
                  options.timeout !== undefined &&
                  (killed === "Timeout" ||
                    now - (state.sentAt ?? now) >= Duration.toMillis(Duration.decode(options.timeout)))
                return failed(
                  chunks,
                  timedOut
                    ? execError("Timeout", "killed by the server after its timeout")
                    : killed !== undefined
                      ? execError("Killed", message === "-1" ? "ended by a signal" : message)
                      : execError("Failed", message === "" ? "the server gave no exit code" : message)
                )
              })
            )
          }
        }
        const more = { _tag: "More", chunks } as const
        if (chunks.length === 0 && results.length === newResults) return Effect.succeed(more)
        tail.add(chunks)
        return Effect.as(
          store([...outputEvents(context, seq, chunks, execId), ...resultEvents(newResults)], chunks),
          more
        )
      }

      /** The connection is gone without a terminal event: the server may still know how the command ended. */
      const onLost = (cause: OpenSandboxError | undefined): Effect.Effect<Step, ExecFailure> => {
        const description = cause?.description ?? "the stream ended without a terminal event"
        const { commandId } = state
        const lost = (what: string) => failed([], execError("Lost", `${description}; ${what}`, cause))
        if (commandId === undefined) return Effect.succeed(lost("the command may or may not have run"))
        if (driver.status === undefined) return Effect.succeed(lost("the server keeps no record of its end"))
        return driver.status(commandId).pipe(
          Effect.matchEffect({
            onFailure: () => Effect.succeed(lost("the server cannot say how the command ended")),
            onSuccess: (status) => {
              if (status.id !== commandId) return Effect.succeed(lost("the server answered for another command"))
              if (status.running) return Effect.succeed(lost("the command was still running and is stopped"))
              state.ended = true
              if (Option.isSome(status.exitCode))
                return completed([], status.exitCode.value, { outputIncomplete: true })
              const killed = killedBy(status.error)
              return Effect.succeed(
                killed !== undefined
                  ? failed([], execError(options.timeout === undefined ? "Killed" : killed, status.error ?? "", cause))
                  : lost(status.error ?? "the server does not know its exit code")
              )
            }
          })
        )
      }

      const onError = (error: Option.Option<OpenSandboxError>): Effect.Effect<Step, ExecFailure> => {
        if (Option.isSome(error) && state.sentAt === undefined && !context.isClosed()) {
          state.failure = { reason: "rejected", message: error.value.message }
          state.ended = true
          return Effect.succeed({ _tag: "Failed", chunks: [], error: error.value })
        }
        if (Option.isNone(error) || error.value.reason === "Transport" || error.value.reason === "Timeout") {
          return onLost(Option.getOrUndefined(error))
        }
        const refusal = error.value
        if (isTakeover(refusal)) {
          state.ended = true
          return Effect.succeed(failed([], execError("TakenOver", refusal.description ?? refusal.message, refusal)))
        }
        if (state.commandId === undefined && refusal.status !== undefined && refusal.status >= 300) {
          state.failure = { reason: "rejected", message: refusal.message }
          // Only an answer of the server's own says that nothing runs; a gateway's says nothing.
          state.ended = refusal.status < 500
          return Effect.succeed({ _tag: "Failed", chunks: [], error: refusal })
        }
        return Effect.succeed(
          failed(
            [],
            execError(
              refusal.reason === "Decode" ? "Protocol" : "Failed",
              refusal.description ?? refusal.message,
              refusal
            )
          )
        )
      }

      /** Closing the sandbox ends what waits for a server that says nothing. */
      const closing = Effect.zipRight(
        Deferred.await(context.closed),
        Effect.fail(
          Option.some(
            new OpenSandboxError({
              module: "Execd",
              method: "command",
              reason: "Decode",
              description: "the sandbox was closed"
            })
          )
        )
      )

      const step = (events: Pull): Effect.Effect<Step, ExecFailure> =>
        Effect.matchEffect(Effect.raceFirst(events, closing), { onFailure: onError, onSuccess: onEvents }).pipe(
          Effect.tapError((error) =>
            Effect.sync(() => {
              state.failure ??= { reason: "ledger", message: error.message }
            })
          )
        )

      const emit = (chunks: ReadonlyArray<OutputChunk>, rest: Execution): Execution =>
        chunks.length === 0 ? rest : Channel.zipRight(Channel.write(Chunk.unsafeFromArray(chunks)), rest)

      const loop = (events: Pull): Execution =>
        Channel.flatMap(Channel.fromEffect(step(events)), (step) => {
          switch (step._tag) {
            case "More":
              return emit(
                step.chunks,
                Channel.suspend(() => loop(pull))
              )
            case "Done":
              return emit(step.chunks, Channel.succeed(step.outcome))
            case "Failed":
              return emit(step.chunks, Channel.fail(step.error))
          }
        })

      return loop(Fiber.join(first))
    })
  )

/** One run, after those before it where it belongs to a session. */
export const execution = (
  context: ExecContext,
  spec: Spec,
  onStarted: (location: Location) => Effect.Effect<void> = () => Effect.void
): Execution => {
  const { session } = spec
  return session === undefined
    ? decided(context, spec, onStarted)
    : Channel.unwrapScoped(
        Effect.as(
          Effect.acquireRelease(Effect.interruptible(session.oneAtATime.take(1)), () => session.oneAtATime.release(1)),
          decided(context, spec, onStarted)
        )
      )
}

/** Decides between replay and the real thing. */
const decided = (context: ExecContext, spec: Spec, onStarted: (location: Location) => Effect.Effect<void>): Execution =>
  Channel.unwrap(
    Effect.gen(function* () {
      yield* validate(context, spec)
      const seq = ++context.sequence.last
      const recorded = yield* lookup(context, spec, seq)
      if (recorded === undefined) return live(context, spec, seq, onStarted)
      yield* onStarted(locationOf(recorded))
      return replayed(context, seq, recorded)
    })
  )

/** The recorded exec that answers this one, if there is one. */
export const lookup = (
  context: ExecContext,
  spec: Spec,
  seq: number
): Effect.Effect<Replay.RecordedExec | undefined, ReplayDivergence> =>
  Effect.gen(function* () {
    const { cwd, key } = spec.options
    const asked = {
      seq,
      command: spec.command,
      cwd,
      key,
      language: spec.language,
      fingerprint: fingerprintOf(spec)
    }
    const uses = key === undefined ? 0 : (context.keyUses.get(key) ?? 0)
    const found = Replay.lookup(yield* Ref.get(context.replay), asked, uses)
    if (found._tag === "Live") return undefined
    if (found._tag === "Replay") {
      useKey(context, spec)
      return found.exec
    }
    const divergence = new ReplayDivergence({
      sandboxId: context.sandbox.id,
      seq,
      recorded: identity(found.recorded),
      asked: identity(asked)
    })
    if (context.onDivergence === "fail") return yield* divergence
    yield* Ref.set(context.replay, Replay.empty)
    context.divergence.keys = [...context.keyUses.keys()]
    yield* Effect.logWarning(`${divergence.message}; running live from here`)
    return undefined
  })

/** One more exec of this key has its result: the next one of the same key is another. */
const useKey = ({ keyUses }: ExecContext, { options: { key } }: Spec): void => {
  if (key !== undefined) keyUses.set(key, (keyUses.get(key) ?? 0) + 1)
}

/** How the end of an exec is recorded that neither the server nor an interruption brought about. */
const failureOf = (exit: Exit.Exit<unknown, unknown>): { readonly reason: string; readonly message: string } => {
  if (Exit.isSuccess(exit) || Cause.isInterruptedOnly(exit.cause)) {
    return { reason: "interrupted", message: "the exec was interrupted" }
  }
  const failure = Option.getOrUndefined(Cause.failureOption(exit.cause))
  return failure instanceof ExecError
    ? { reason: failure.reason.toLowerCase(), message: failure.description }
    : { reason: "failed", message: Cause.pretty(exit.cause).split("\n")[0] ?? "" }
}

const identity = ({ command, cwd, fingerprint, key, language }: Replay.Identity): typeof ExecIdentity.Type => ({
  command,
  ...(fingerprint === undefined ? {} : { fingerprint }),
  ...(cwd === undefined ? {} : { cwd }),
  ...(key === undefined ? {} : { key }),
  ...(language === undefined ? {} : { language })
})
