import * as Channel from "effect/Channel"
import * as Chunk from "effect/Chunk"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Effectable from "effect/Effectable"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as FiberId from "effect/FiberId"
import * as Mailbox from "effect/Mailbox"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import * as Sink from "effect/Sink"
import * as Stream from "effect/Stream"
import type {
  CodeContext,
  CodeExec,
  CodeOptions,
  CodeResult,
  Exec,
  ExecOptions,
  ExecResult,
  OutputChunk,
  RunningExec,
  Session,
  Writable
} from "../../Exec.js"
import type { LedgerError } from "../../LedgerError.js"
import type { Cursor } from "../../LedgerEvent.js"
import type { OpenSandboxError } from "../../OpenSandboxError.js"
import type { SessionOptions } from "../../Sandbox.js"
import type { CodeFailure, ExecFailure, SandboxErrorReason, SandboxFailure } from "../../SandboxError.js"
import { CodeError, CommandError, ExecError, SandboxError } from "../../SandboxError.js"
import { bounded } from "../bounded.js"
import { OutputCollector, OutputTail } from "../output.js"
import type { Driver, ExecContext, ExecSession, Execution, Location, Outcome, RunEvent, Spec } from "./context.js"
import { runScript } from "./drivers.js"
import { execution } from "./execution.js"
import { madeOnServer } from "./onServer.js"
import { recordedOutput, toOutput } from "./record.js"
import * as Script from "./shell.js"
import { commandLine } from "./shell.js"
import { makeTrail } from "./trail.js"
import { pipeError, writerTo } from "./writable.js"

const defaultMaxOutput = 8 * 1024 * 1024

const commandError = (context: ExecContext, spec: Spec, outcome: Outcome, tail: OutputTail) =>
  new CommandError({
    sandboxId: context.sandbox.id,
    seq: outcome.seq,
    command: spec.command,
    exitCode: outcome.exitCode,
    stdout: tail.stdout.text,
    stderr: tail.stderr.text,
    replayed: outcome.replayed
  })

const spanOptions = (context: ExecContext) => ({
  captureStackTrace: false as const,
  attributes: { "sandbox.id": context.sandbox.id }
})

const span =
  (name: string, context: ExecContext) =>
  <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.withSpan(self, name, spanOptions(context))

/** Tells the span of an execution how it ended. */
const annotate = (spec: Spec, { exitCode, replayed, seq }: Outcome): Effect.Effect<void> =>
  Effect.annotateCurrentSpan({
    "sandbox.exec.seq": seq,
    "sandbox.exec.replayed": replayed,
    ...(spec.language === undefined ? { "process.exit.code": exitCode } : { "code.language": spec.language })
  })

const isStrict = (spec: Spec) => spec.options.strict !== false

/**
 * As fast as its consumer takes it; what goes over a terminal's endpoint runs ahead of it, since servers do not wait for a slow reader there, and
 * is told as it is recorded.
 */
const paced = (
  context: ExecContext,
  spec: Spec,
  onStarted: (location: Location) => Effect.Effect<void> = () => Effect.void
): Execution =>
  spec.options.raw !== true
    ? execution(context, spec, onStarted)
    : Channel.unwrapScoped(
        Effect.map(
          recording(context, spec, (begun, advance) =>
            execution(context, spec, (location) => Effect.zipRight(onStarted(location), begun(location))).pipe(
              Channel.mapOutEffect(() => advance),
              Channel.drain,
              Channel.run
            )
          ),
          ({ fiber, output }) => Channel.flatMap(Stream.toChannel(output), () => Channel.fromEffect(Fiber.join(fiber)))
        )
      )

/** The output as a stream that ends like the command did. */
const outputOf = <E = CommandError>(
  context: ExecContext,
  spec: Spec,
  check: (outcome: Outcome, tail: OutputTail) => E | CommandError | undefined = (outcome, tail) =>
    outcome.exitCode === 0 || !isStrict(spec) ? undefined : commandError(context, spec, outcome, tail)
): Stream.Stream<OutputChunk, ExecFailure | E> =>
  Stream.suspend(() => {
    const tail = new OutputTail()
    return Stream.fromChannel(
      paced(context, spec).pipe(
        Channel.mapOut((chunks) => {
          tail.add(chunks)
          return chunks
        }),
        Channel.mapEffect((outcome) => Effect.as(annotate(spec, outcome), outcome)),
        Channel.flatMap((outcome) => {
          const error = check(outcome, tail)
          return error === undefined ? Channel.void : Channel.fail(error)
        })
      )
    )
  })

interface Collected {
  readonly outcome: Outcome
  readonly result: ExecResult
  readonly tail: OutputTail
}

/** Runs an execution to its end, shows each chunk to `observe`, and collects what it gave. */
const collectOutcome = <E = never, R = never>(
  spec: Spec,
  run: Execution,
  observe?: (chunks: Chunk.Chunk<OutputChunk>) => Effect.Effect<unknown, E, R>
): Effect.Effect<Collected, ExecFailure | E, R> =>
  Effect.suspend(() => {
    const collected = new OutputCollector(spec.options.maxOutput ?? defaultMaxOutput)
    const tail = new OutputTail()
    return run.pipe(
      Channel.mapOutEffect((chunks) => {
        collected.add(chunks)
        tail.add(chunks)
        return observe === undefined ? Effect.void : observe(chunks)
      }),
      Channel.drain,
      Channel.run,
      Effect.tap((outcome) => annotate(spec, outcome)),
      Effect.map((outcome) => ({
        outcome,
        tail,
        result: {
          seq: outcome.seq,
          exitCode: outcome.exitCode,
          stdout: collected.stdout.text,
          stderr: collected.stderr.text,
          truncated: collected.stdout.truncated || collected.stderr.truncated,
          stdoutLength: collected.stdout.total,
          stderrLength: collected.stderr.total,
          outputIncomplete: outcome.outputIncomplete,
          replayed: outcome.replayed
        }
      }))
    )
  })

const collectFrom = <E = never, R = never>(
  context: ExecContext,
  spec: Spec,
  run: Execution,
  observe?: (chunks: Chunk.Chunk<OutputChunk>) => Effect.Effect<unknown, E, R>
): Effect.Effect<ExecResult, ExecFailure | E, R> =>
  Effect.flatMap(collectOutcome(spec, run, observe), ({ outcome, result, tail }) =>
    outcome.exitCode === 0 || !isStrict(spec)
      ? Effect.succeed(result)
      : Effect.fail(commandError(context, spec, outcome, tail))
  )

const collect = <E = never, R = never>(
  context: ExecContext,
  spec: Spec,
  observe?: (chunks: Chunk.Chunk<OutputChunk>) => Effect.Effect<unknown, E, R>,
  onStarted?: (location: Location) => Effect.Effect<void>
): Effect.Effect<ExecResult, ExecFailure | E, R> =>
  collectFrom(
    context,
    spec,
    observe === undefined ? execution(context, spec, onStarted) : paced(context, spec, onStarted),
    observe
  )

const textOf = (stream: OutputChunk["stream"]) =>
  Stream.mapChunks(
    Chunk.filterMap((chunk: OutputChunk) => (chunk.stream === stream ? Option.some(chunk.text) : Option.none()))
  )

const views = <E>(output: Stream.Stream<OutputChunk, E>) => {
  const stdout = output.pipe(textOf("stdout"))
  return { output, stdout, stderr: output.pipe(textOf("stderr")), lines: Stream.splitLines(stdout) }
}

const pipeToWritable = (context: ExecContext, spec: Spec, stdout: Writable, stderr: Writable = stdout) =>
  Effect.gen(function* () {
    const writeStdout = yield* writerTo(stdout)
    const writeStderr = stderr === stdout ? writeStdout : yield* writerTo(stderr)
    let seq = 0
    return yield* collect(
      context,
      spec,
      (chunks) =>
        Effect.forEach(chunks, ({ stream, text }) => (stream === "stdout" ? writeStdout(text) : writeStderr(text)), {
          discard: true
        }).pipe(Effect.mapError((cause) => pipeError(context, spec, seq, cause))),
      (location) =>
        Effect.sync(() => {
          seq = location.seq
        })
    )
  }).pipe(Effect.scoped)

/** A sink that is satisfied early does not end the command; one that fails does. */
const pipeToSink = <E, R>(
  context: ExecContext,
  spec: Spec,
  sink: Sink.Sink<unknown, OutputChunk, unknown, E, R>
): Effect.Effect<ExecResult, ExecFailure | E, R> =>
  Effect.gen(function* () {
    const mailbox = yield* Mailbox.make<OutputChunk>({ capacity: 64, strategy: "suspend" })
    const [result] = yield* Effect.all(
      [
        collect(context, spec, (chunks) => mailbox.offerAll(chunks)).pipe(Effect.ensuring(mailbox.end)),
        Stream.run(Mailbox.toStream(mailbox), sink).pipe(Effect.ensuring(mailbox.shutdown))
      ],
      { concurrency: 2 }
    )
    return result
  })

const isSink = (target: object): target is Sink.Sink<unknown, OutputChunk, unknown, unknown, unknown> =>
  Sink.SinkTypeId in target

class ExecImpl extends Effectable.Class<ExecResult, ExecFailure> implements Exec {
  readonly output: Exec["output"]
  readonly stdout: Exec["stdout"]
  readonly stderr: Exec["stderr"]
  readonly lines: Exec["lines"]
  readonly pipeTo: Exec["pipeTo"]

  constructor(
    private readonly context: ExecContext,
    private readonly spec: Spec
  ) {
    super()
    const { lines, output, stderr, stdout } = views(
      Stream.withSpan(outputOf(context, spec), "Sandbox.exec", spanOptions(context))
    )
    this.output = output
    this.stdout = stdout
    this.stderr = stderr
    this.lines = lines
    // The overloads are told apart by the target, which the compiler cannot follow.
    this.pipeTo = ((target: Writable | object, stderr?: Writable) =>
      span(
        "Sandbox.exec",
        context
      )(
        isSink(target) ? pipeToSink(context, spec, target) : pipeToWritable(context, spec, target as Writable, stderr)
      )) as Exec["pipeTo"]
  }

  get command(): string {
    return this.spec.command
  }

  /** Options may hold secrets. */
  toJSON(): unknown {
    return { _id: "Exec", command: this.command }
  }

  commit(): Effect.Effect<ExecResult, ExecFailure> {
    return span("Sandbox.exec", this.context)(collect(this.context, this.spec))
  }
}

export const make = (context: ExecContext, command: string | ReadonlyArray<string>, options: ExecOptions = {}): Exec =>
  new ExecImpl(context, { command: commandLine(command), options })

/** How code is run: in a context of its language. */
const codeDriver =
  (contextId: string | undefined) =>
  ({ execd }: ExecContext, { command, language = "" }: Spec): Driver => ({
    prepare: Effect.succeed(
      Stream.map(execd.runCode({ code: command, context: { language, id: contextId } }), (event): RunEvent => event)
    ),
    stop: execd.interruptCode,
    status: undefined
  })

const codeError = (context: ExecContext, spec: Spec, { codeError, replayed, seq }: Outcome, tail: OutputTail) =>
  codeError === undefined
    ? undefined
    : new CodeError({
        ...codeError,
        sandboxId: context.sandbox.id,
        seq,
        language: spec.language ?? "",
        code: spec.command,
        stdout: tail.stdout.text,
        stderr: tail.stderr.text,
        replayed
      })

class CodeExecImpl extends Effectable.Class<CodeResult, CodeFailure> implements CodeExec {
  readonly output: CodeExec["output"]
  readonly stdout: CodeExec["stdout"]
  readonly stderr: CodeExec["stderr"]
  readonly lines: CodeExec["lines"]

  constructor(
    private readonly context: ExecContext,
    private readonly spec: Spec
  ) {
    super()
    const { lines, output, stderr, stdout } = views(
      Stream.withSpan(
        outputOf(context, spec, (outcome, tail) => codeError(context, spec, outcome, tail)),
        "Sandbox.execCode",
        spanOptions(context)
      )
    )
    this.output = output
    this.stdout = stdout
    this.stderr = stderr
    this.lines = lines
  }

  get code(): string {
    return this.spec.command
  }

  commit(): Effect.Effect<CodeResult, CodeFailure> {
    const { context, spec } = this
    return collectOutcome(spec, execution(context, spec)).pipe(
      Effect.flatMap(({ outcome, result, tail }) => {
        const error = codeError(context, spec, outcome, tail)
        return error === undefined ? Effect.succeed({ ...result, results: outcome.results }) : Effect.fail(error)
      }),
      span("Sandbox.execCode", context)
    )
  }
}

export const makeCode = (context: ExecContext, code: string, options: CodeOptions, contextId?: string): CodeExec =>
  new CodeExecImpl(context, {
    command: code,
    options: { key: options.key, maxOutput: options.maxOutput },
    language: options.language,
    driver: codeDriver(contextId)
  })

/** An interpreter in a scope. */
export const createCodeContext = (
  context: ExecContext,
  language: string
): Effect.Effect<CodeContext, OpenSandboxError, Scope.Scope> =>
  madeOnServer(context.execd.createCodeContext(language), ({ id }) =>
    context.isClosed()
      ? Effect.void
      : bounded("deleting a code context", "5 seconds", context.execd.deleteCodeContext(id))
  ).pipe(
    Effect.map(({ id }) => ({
      language,
      exec: (code, options) => makeCode(context, code, { ...options, language }, id)
    }))
  )

/** A session in a scope. Whoever made it makes the container forget it at the end. */
export const createSession = (
  context: ExecContext,
  options: SessionOptions = {}
): Effect.Effect<Session, SandboxFailure, Scope.Scope> =>
  Effect.gen(function* () {
    const failed = (reason: SandboxErrorReason, description: string) =>
      new SandboxError({ method: "Sandbox.createSession", reason, description, sandboxId: context.sandbox.id })
    if (options.name?.trim() === "") return yield* failed("InvalidOptions", "the name is blank")
    const from = ++context.sequence.sessions
    const { name, place } = yield* madeOnServer(
      Effect.gen(function* () {
        const { exitCode, stderr, stdout } = yield* runScript(
          context,
          Script.createSession({ sandboxId: context.sandbox.id, name: options.name, from, lineage: context.lineage })
        )
        const [how, name, folder] = stdout.split("\n")
        if (exitCode !== 0 || name === undefined || folder === undefined) {
          return yield* failed("StartFailed", `the session could not be set up: ${stderr.trim() || stdout.trim()}`)
        }
        if (options.name === undefined) context.sequence.sessions = Math.max(context.sequence.sessions, Number(name))
        return {
          name: options.name ?? name,
          place: { folder, initial: options.cwd },
          made: how === "made"
        }
      }),
      ({ made, place }) =>
        context.isClosed() || !made
          ? Effect.void
          : bounded("forgetting a session", "5 seconds", runScript(context, Script.forgetSession(place)))
    )
    const session: ExecSession = { name, place, owner: undefined, oneAtATime: yield* Effect.makeSemaphore(1) }
    return {
      name,
      exec: (command, own = {}) => new ExecImpl(context, { command: commandLine(command), options: own, session })
    }
  })

/** Starts a command in a scope. */
export const start = (
  context: ExecContext,
  command: string | ReadonlyArray<string>,
  options: ExecOptions = {}
): Effect.Effect<RunningExec, ExecFailure, Scope.Scope> => {
  const spec: Spec = { command: commandLine(command), options }
  return running(context, spec, (onStarted) => execution(context, spec, onStarted)).pipe(span("Sandbox.start", context))
}

/** Something that runs in a scope, and what is recorded of it. */
interface Recording<A, E> {
  readonly location: Location
  readonly fiber: Fiber.RuntimeFiber<A, E>
  /** What is recorded of its output, to its end, however it ends. */
  readonly output: Stream.Stream<OutputChunk, LedgerError>
}

const textBytes = (chunk: OutputChunk): OutputChunk =>
  chunk.bytes === undefined ? { ...chunk, bytes: new TextEncoder().encode(chunk.text) } : chunk

/** `run` tells where it is recorded, and whenever more of it is. */
const recording = <A>(
  context: ExecContext,
  spec: Spec,
  run: (
    onStarted: (location: Location) => Effect.Effect<void>,
    advance: Effect.Effect<void>
  ) => Effect.Effect<A, ExecFailure>
): Effect.Effect<Recording<A, ExecFailure>, ExecFailure, Scope.Scope> =>
  Effect.gen(function* () {
    let ended = false
    let progress = Deferred.unsafeMake<void>(FiberId.none)
    const advance = Effect.suspend(() => {
      const reached = progress
      progress = Deferred.unsafeMake<void>(FiberId.none)
      return Effect.asVoid(Deferred.succeed(reached, void 0))
    })
    const begun = yield* Deferred.make<Location, ExecFailure>()
    const scope = yield* Effect.scope
    const started = run((location) => Effect.asVoid(Deferred.succeed(begun, location)), advance).pipe(
      Effect.interruptible,
      Effect.onExit((exit) => {
        ended = true
        return Effect.zipRight(
          // Tells a start that failed; of no effect once begun.
          Exit.isFailure(exit) ? Deferred.failCause(begun, exit.cause) : Effect.void,
          advance
        )
      }),
      Effect.forkIn(scope)
    )
    const [fiber, location] = yield* Effect.uninterruptibleMask((restore) =>
      Effect.flatMap(started, (fiber) =>
        restore(Deferred.await(begun)).pipe(
          // Whoever gives up waiting has no handle to stop it with.
          Effect.onInterrupt(() => Fiber.interrupt(fiber)),
          Effect.map((location) => [fiber, location] as const)
        )
      )
    )
    const output = Stream.suspend(() => {
      const trail = makeTrail()
      return Stream.paginateChunkEffect(location.after, (after) =>
        Effect.gen(function* () {
          // Both are looked at before the ledger is: what comes later shows up as progress.
          const next = progress
          const over = ended
          const entries = yield* recordedOutput(context.ledger, { ...location, after }, undefined, trail).pipe(
            Stream.take(256),
            Stream.runCollect
          )
          if (Chunk.isNonEmpty(entries)) {
            const { id, ts } = Chunk.lastNonEmpty(entries)
            const chunks = Chunk.filterMap(entries, toOutput)
            return [spec.options.raw === true ? Chunk.map(chunks, textBytes) : chunks, Option.some({ ts, id })] as const
          }
          if (over) return [Chunk.empty<OutputChunk>(), Option.none<Cursor>()] as const
          yield* Deferred.await(next)
          return [Chunk.empty<OutputChunk>(), Option.some(after)] as const
        })
      )
    })
    return { location, fiber, output }
  })

/** Runs an execution in a scope; its consumers read what is recorded. */
export const running = (
  context: ExecContext,
  spec: Spec,
  run: (onStarted: (location: Location) => Effect.Effect<void>) => Execution
): Effect.Effect<RunningExec & { readonly location: Location }, ExecFailure, Scope.Scope> =>
  Effect.gen(function* () {
    const {
      fiber,
      location,
      output: recorded
    } = yield* recording(context, spec, (onStarted, advance) =>
      span("Sandbox.exec", context)(collectFrom(context, spec, run(onStarted), () => advance))
    )
    const interrupted = Effect.fail(
      new ExecError({
        sandboxId: context.sandbox.id,
        seq: location.seq,
        command: spec.command,
        reason: "Interrupted",
        description: "the command was stopped",
        stdout: "",
        stderr: ""
      })
    )
    const result = Effect.flatMap(Fiber.await(fiber), (exit) => (Exit.isInterrupted(exit) ? interrupted : exit))
    const output: Stream.Stream<OutputChunk, ExecFailure> = Stream.concat(
      recorded,
      Stream.drain(Stream.fromEffect(result))
    )
    return {
      ...views(output),
      location,
      seq: location.seq,
      command: spec.command,
      result,
      interrupt: Effect.asVoid(Fiber.interrupt(fiber))
    }
  })
