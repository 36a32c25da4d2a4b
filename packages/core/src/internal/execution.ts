import * as Channel from "effect/Channel"
import * as Chunk from "effect/Chunk"
import * as Clock from "effect/Clock"
import type * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Encoding from "effect/Encoding"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Ref from "effect/Ref"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import type { ExecOptions, OutputChunk } from "../Exec.js"
import type { CodeEvent, CommandStatus, ExecdClient, ExecdEvent } from "../Execd.js"
import type { EventInput, Ledger } from "../Ledger.js"
import type { Cursor, Json, LedgerEntry } from "../LedgerEvent.js"
import { EventName } from "../LedgerEvent.js"
import type { OpenSandboxError } from "../OpenSandboxError.js"
import * as Replay from "../Replay.js"
import type { ExecErrorReason, ExecFailure, ExecIdentity, LanguageError } from "../SandboxError.js"
import { ExecError, ReplayDivergence, SandboxError } from "../SandboxError.js"
import type { ComposedHooks, HookSandbox } from "../SandboxHooks.js"
import { bounded } from "./bounded.js"
import { jsonField, jsonObject, stringField } from "./json.js"
import { OutputTail } from "./output.js"
import * as Script from "./shell.js"
import { commandLine } from "./shell.js"

/** What the execs of one sandbox handle share. The mutable parts are touched only in synchronous steps. */
export interface ExecContext {
  readonly sandbox: HookSandbox
  readonly ledger: Context.Tag.Service<Ledger>
  readonly execd: ExecdClient
  readonly hooks: ComposedHooks
  readonly replay: Ref.Ref<Replay.ReplayIndex>
  readonly onDivergence: "fail" | "live"
  readonly sequence: { last: number; sessions: number }
  readonly running: RunningSeqs
  readonly nextId: Effect.Effect<string>
  readonly isClosed: () => boolean
}

/**
 * Which execs are in flight. A checkpoint opens a window before it asks for the snapshot: whatever runs inside the window may or
 * may not be part of the snapshot, so it must not be replayed from that checkpoint.
 */
export class RunningSeqs {
  private readonly seqs = new Set<number>()
  private readonly windows = new Set<Set<number>>()

  add(seq: number): void {
    this.seqs.add(seq)
    for (const window of this.windows) window.add(seq)
  }

  delete(seq: number): void {
    this.seqs.delete(seq)
  }

  openWindow(): Set<number> {
    const window = new Set(this.seqs)
    this.windows.add(window)
    return window
  }

  closeWindow(window: Set<number>): void {
    this.windows.delete(window)
  }
}

/** How an execution ended. */
export interface Outcome {
  readonly seq: number
  readonly exitCode: number
  readonly outputIncomplete: boolean
  readonly replayed: boolean
  /** What code showed: values by MIME type. */
  readonly results: ReadonlyArray<CodeValue>
  /** The error of the language that ended code. */
  readonly codeError?: LanguageError | undefined
}

/** A value that code showed, by MIME type. */
export type CodeValue = { readonly [mimeType: string]: Json }

/** Where an execution's output stands in the ledger. */
export interface Location {
  readonly sandboxId: string
  readonly seq: number
  readonly after: Cursor
  readonly until?: Cursor | undefined
}

/** One run of a command: its chunks, recorded before they come out, and at the end its outcome. */
export type Execution = Channel.Channel<Chunk.Chunk<OutputChunk>, unknown, ExecFailure, unknown, Outcome, unknown>

/** A command, as it was asked for. */
export interface Spec {
  readonly command: string
  readonly options: ExecOptions
  /** The session it runs in. */
  readonly session?: ExecSession | undefined
  /** How it is run, where it is no plain command. */
  readonly driver?: ((context: ExecContext, spec: Spec) => Driver) | undefined
  /** The language, for code: then `command` is the code. */
  readonly language?: string | undefined
  /** True for a terminal that somebody types into. */
  readonly interactive?: boolean | undefined
}

/** What a running thing tells: a command's events, code's, or those of a terminal, with its bytes. */
export type RunEvent = Exclude<CodeEvent, { readonly _tag: "Output" }> | (OutputChunk & { readonly _tag: "Output" })

/** A way to run something. */
export interface Driver {
  /** Starts it. `Init` carries the id by which `stop` and `status` know it. */
  readonly events: Stream.Stream<RunEvent, OpenSandboxError>
  readonly stop: (id: string) => Effect.Effect<void, OpenSandboxError>
  /** How it ended, when the connection was lost; undefined where the server keeps no such thing. */
  readonly status: ((id: string) => Effect.Effect<CommandStatus, OpenSandboxError>) | undefined
}

/** What makes the commands of one session a sequence: the state that each leaves to the next. */
export interface ExecSession {
  readonly name: string
  /** The shell script that runs a command with the session's state. */
  readonly script: (command: string, options: ExecOptions) => string
  readonly oneAtATime: Effect.Semaphore
}

/** Refuses what makes no sense, and what comes after the sandbox was closed. */
export const validate = (context: ExecContext, spec: Spec): Effect.Effect<void, SandboxError> => {
  // A session's script handles the variables by name.
  const variable = spec.session === undefined ? /^[^=\0]+$/ : /^[A-Za-z_][A-Za-z0-9_]*$/
  const problem =
    spec.command.trim() === ""
      ? "an empty command"
      : Object.keys(spec.options.env ?? {}).some((name) => !variable.test(name))
        ? "the name of an environment variable is malformed"
        : spec.options.key === "" || spec.options.idempotencyKey === ""
          ? "an empty key"
          : spec.options.maxOutput !== undefined && !(spec.options.maxOutput >= 0)
            ? "maxOutput must not be negative"
            : spec.options.gid !== undefined && spec.options.uid === undefined
              ? "gid needs uid"
              : spec.options.timeout !== undefined && Option.isNone(Duration.decodeUnknown(spec.options.timeout))
                ? "timeout is no duration"
                : undefined
  const refuse = (reason: "InvalidOptions" | "Closed", description: string) =>
    Effect.fail(new SandboxError({ method: "Sandbox.exec", reason, description, sandboxId: context.sandbox.id }))
  return problem !== undefined
    ? refuse("InvalidOptions", problem)
    : context.isClosed()
      ? refuse("Closed", "the sandbox is closed")
      : Effect.void
}

export const outputEvents = (
  context: ExecContext,
  seq: number,
  chunks: ReadonlyArray<OutputChunk>
): Array<EventInput> =>
  chunks.map((chunk) => ({
    sandboxId: context.sandbox.id,
    name: context.sandbox.name,
    stepIdx: seq,
    event: EventName.execOutput,
    payload: outputPayload(seq, chunk)
  }))

/** Bytes that are no text are kept beside what can be read of them. */
const outputPayload = (seq: number, { bytes, stream, text }: OutputChunk): { readonly [key: string]: Json } =>
  bytes === undefined || isTextOf(text, bytes)
    ? { seq, type: stream, text }
    : { seq, type: stream, text, base64: Encoding.encodeBase64(bytes) }

const isTextOf = (text: string, bytes: Uint8Array): boolean => {
  const encoded = new TextEncoder().encode(text)
  return encoded.length === bytes.length && encoded.every((byte, index) => byte === bytes[index])
}

export const event = (
  context: ExecContext,
  seq: number,
  name: string,
  payload: { readonly [key: string]: Json | undefined }
): EventInput => ({
  sandboxId: context.sandbox.id,
  name: context.sandbox.name,
  stepIdx: seq,
  event: name,
  payload: jsonObject(payload)
})

/** The recorded output at a location, chunk by chunk. */
export const recordedOutput = (
  ledger: ExecContext["ledger"],
  location: Location,
  events: ReadonlyArray<string> = [EventName.execOutput]
) =>
  ledger.read({
    sandboxId: location.sandboxId,
    stepIdx: location.seq,
    events,
    after: location.after,
    until: location.until
  })

export const toOutput = ({ payload }: LedgerEntry): Option.Option<OutputChunk> => {
  const type = stringField(payload, "type")
  const text = stringField(payload, "text")
  if (text === undefined || (type !== "stdout" && type !== "stderr")) return Option.none()
  const base64 = stringField(payload, "base64")
  const bytes = base64 === undefined ? Option.none() : Either.getRight(Encoding.decodeBase64(base64))
  return Option.some(
    Option.match(bytes, {
      onNone: () => ({ stream: type, text }),
      onSome: (bytes) => ({ stream: type, text, bytes })
    })
  )
}

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

const codeValue = (data: Json | undefined): CodeValue =>
  typeof data === "object" && data !== null && !Array.isArray(data)
    ? // Array.isArray does not narrow readonly arrays away.
      (data as CodeValue)
    : {}

/** Whether a server's words for an end without an exit code mean that the command was killed. */
export const tellsOfSignal = (message: string | undefined): message is string =>
  message !== undefined && (message === "-1" || /signal|kill/i.test(message))

/** What is known of a run that is under way. */
interface RunState {
  commandId: string | undefined
  /** The request may have reached the server. */
  sent: Fiber.Fiber<unknown, unknown> | undefined
  /** Nothing is left running on the server. */
  ended: boolean
  /** `exec.completed` is in the ledger. */
  completed: boolean
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

export const startedEvent = (context: ExecContext, spec: Spec, seq: number, detached?: true): EventInput =>
  event(context, seq, EventName.execStarted, {
    seq,
    ...(spec.language === undefined ? { cmd: spec.command } : { code: spec.command, language: spec.language }),
    interactive: spec.interactive,
    key: spec.options.key,
    cwd: spec.options.cwd,
    shell: spec.options.shell,
    session: spec.session?.name,
    idempotencyKey: spec.options.idempotencyKey,
    detached,
    envNames: spec.options.env === undefined ? undefined : Object.keys(spec.options.env)
  })

/** Sends a command the way that its options ask for. */
export const send = (
  context: ExecContext,
  spec: Spec,
  background?: true
): Stream.Stream<ExecdEvent, OpenSandboxError> => {
  const { idempotencyKey, shell, stdin, ...options } = spec.options
  const inShell = shell === undefined ? spec.command : commandLine([shell, "-c", spec.command])
  const inSession = spec.session === undefined ? inShell : spec.session.script(inShell, options)
  const once = idempotencyKey === undefined ? inSession : Script.once(context.sandbox.id, idempotencyKey, inSession)
  const request = (command: string) =>
    context.execd.command({
      command,
      // A session has a directory of its own to start from.
      cwd: spec.session === undefined ? options.cwd : undefined,
      env: options.env,
      timeout: options.timeout,
      uid: options.uid,
      gid: options.gid,
      background
    })
  if (stdin === undefined) return request(once)
  return Stream.unwrap(
    Effect.gen(function* () {
      const path = `/tmp/.sandglass-stdin-${yield* context.nextId}`
      // Another user's command has to be able to read it.
      yield* context.execd.upload([{ path, content: stdin, mode: options.uid === undefined ? "600" : "644" }])
      return request(Script.withInput(path, once))
    })
  )
}

const commandDriver = (context: ExecContext, spec: Spec): Driver => ({
  events: send(context, spec),
  stop: context.execd.interrupt,
  status: context.execd.status
})

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
      const driver = (spec.driver ?? commandDriver)(context, spec)
      const told = { seq, command: spec.command }
      const state: RunState = {
        commandId: undefined,
        sent: undefined,
        ended: false,
        completed: false,
        failure: undefined
      }
      const tail = new OutputTail()
      const connection = yield* Scope.make()

      const stop = Effect.gen(function* () {
        if (state.sent === undefined || state.ended) return
        if (state.commandId === undefined) {
          yield* Fiber.await(state.sent).pipe(Effect.timeoutOption(commandIdTimeout))
        }
        if (state.commandId !== undefined) yield* driver.stop(state.commandId)
      })

      const release = Effect.gen(function* () {
        context.running.delete(seq)
        if (!state.completed) {
          yield* bounded("stopping a command", stopTimeout, stop)
          const failure = state.failure ?? { reason: "interrupted", message: "the exec was interrupted" }
          const { commandId } = state
          yield* bounded(
            "recording exec.failed",
            recordTimeout,
            ledger.append(event(context, seq, EventName.execFailed, { seq, ...failure, commandId }))
          )
          yield* hooks.onExecFailed(sandbox, { ...told, reason: failure.reason })
        }
        yield* bounded("closing a connection", stopTimeout, Scope.close(connection, Exit.void))
      })

      const started = yield* Effect.acquireRelease(
        ledger
          .append(startedEvent(context, spec, seq))
          .pipe(Effect.tap(() => Effect.sync(() => context.running.add(seq)))),
        () => release
      )
      yield* onStarted({ sandboxId: sandbox.id, seq, after: { ts: started.ts, id: started.id } })
      yield* hooks.onExecStarted(sandbox, told)

      const startedAt = yield* Clock.currentTimeMillis
      const pull = yield* Stream.toPull(driver.events).pipe(Scope.extend(connection))

      // The first pull outlives an interruption of the exec until the connection is closed: the id that it brings is what the
      // command can be stopped with.
      const first = yield* pull.pipe(
        Effect.tap((events) =>
          Effect.sync(() => {
            const init = Chunk.findFirst(events, (_) => _._tag === "Init")
            if (Option.isSome(init) && init.value._tag === "Init") state.commandId = init.value.commandId
          })
        ),
        Effect.interruptible,
        Effect.forkIn(connection)
      )
      state.sent = first

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
        results.slice(from).map((data) => event(context, seq, EventName.execResult, { seq, data }))

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
        ledger
          .appendAll([
            ...outputEvents(context, seq, chunks),
            ...resultEvents(newResults),
            event(context, seq, EventName.execCompleted, {
              seq,
              exitCode,
              error: codeError === undefined ? undefined : { ...codeError },
              commandId: state.commandId,
              stdoutLength: tail.stdout.total,
              stderrLength: tail.stderr.total,
              outputIncomplete: outputIncomplete ? true : undefined
            })
          ])
          .pipe(
            Effect.zipRight(
              Effect.sync((): Step => {
                state.completed = true
                const outcome = { seq, exitCode, outputIncomplete, replayed: false, results, codeError }
                return { _tag: "Done", chunks, outcome }
              })
            ),
            // Cut between the two, it would be recorded as completed and then as failed.
            Effect.uninterruptible,
            Effect.tap(() => hooks.onExecCompleted(sandbox, { ...told, exitCode }))
          )

      const onEvents = (events: Chunk.Chunk<RunEvent>): Effect.Effect<Step, ExecFailure> => {
        const chunks: Array<OutputChunk> = []
        const newResults = results.length
        for (const event of events) {
          if (event._tag === "Init") state.commandId = event.commandId
          else if (event._tag === "Output") chunks.push(event)
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
            return ledger.appendAll(outputEvents(context, seq, chunks)).pipe(
              Effect.zipRight(Clock.currentTimeMillis),
              Effect.map((now) => {
                const message = event.message ?? ""
                const timedOut =
                  options.timeout !== undefined &&
                  now - startedAt >= Duration.toMillis(Duration.decode(options.timeout))
                return failed(
                  chunks,
                  timedOut
                    ? execError("Timeout", "killed by the server after its timeout")
                    : tellsOfSignal(message)
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
        return Effect.as(ledger.appendAll([...outputEvents(context, seq, chunks), ...resultEvents(newResults)]), more)
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
              if (status.running) return Effect.succeed(lost("the command was still running and is stopped"))
              state.ended = true
              if (Option.isSome(status.exitCode))
                return completed([], status.exitCode.value, { outputIncomplete: true })
              return Effect.succeed(
                tellsOfSignal(status.error)
                  ? failed([], execError("Killed", status.error, cause))
                  : lost(status.error ?? "the server does not know its exit code")
              )
            }
          })
        )
      }

      const onError = (error: Option.Option<OpenSandboxError>): Effect.Effect<Step, ExecFailure> => {
        if (Option.isNone(error) || error.value.reason === "Transport" || error.value.reason === "Timeout") {
          return onLost(Option.getOrUndefined(error))
        }
        const refusal = error.value
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

      const step = (events: typeof pull): Effect.Effect<Step, ExecFailure> =>
        Effect.matchEffect(events, { onFailure: onError, onSuccess: onEvents }).pipe(
          Effect.tapError((error) =>
            Effect.sync(() => {
              state.failure ??= { reason: "ledger", message: error.message }
            })
          )
        )

      const emit = (chunks: ReadonlyArray<OutputChunk>, rest: Execution): Execution =>
        chunks.length === 0 ? rest : Channel.zipRight(Channel.write(Chunk.unsafeFromArray(chunks)), rest)

      const loop = (events: typeof pull): Execution =>
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

/** Where the output of a recorded exec lies. */
export const locationOf = ({ completed, sandboxId, seq, started }: Replay.RecordedExec): Location => ({
  sandboxId,
  seq,
  after: started,
  until: completed
})

/** The recorded exec that answers this one, if there is one. */
export const lookup = (
  context: ExecContext,
  spec: Spec,
  seq: number
): Effect.Effect<Replay.RecordedExec | undefined, ReplayDivergence> =>
  Effect.gen(function* () {
    const asked = {
      seq,
      command: spec.command,
      cwd: spec.options.cwd,
      key: spec.options.key,
      language: spec.language
    }
    const found = Replay.lookup(yield* Ref.get(context.replay), asked)
    if (found._tag === "Replay") return found.exec
    if (found._tag === "Live") return undefined
    const divergence = new ReplayDivergence({
      sandboxId: context.sandbox.id,
      seq,
      recorded: identity(found.recorded),
      asked: identity(asked)
    })
    if (context.onDivergence === "fail") return yield* divergence
    yield* Ref.set(context.replay, Replay.empty)
    yield* Effect.logWarning(`${divergence.message}; running live from here`)
    return undefined
  })

const identity = ({ command, cwd, key, language }: Replay.Identity): typeof ExecIdentity.Type => ({
  command,
  ...(cwd === undefined ? {} : { cwd }),
  ...(key === undefined ? {} : { key }),
  ...(language === undefined ? {} : { language })
})
