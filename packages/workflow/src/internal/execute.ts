/**
 * Carries one step out in a sandbox. A function of the step, the sandbox and what is known: whoever runs workflows can call it.
 */
import type { OutputChunk } from "@sandglass/core/Exec"
import type { Json } from "@sandglass/core/LedgerEvent"
import type { OpenSandboxError } from "@sandglass/core/OpenSandboxError"
import type { Sandbox } from "@sandglass/core/Sandbox"
import type { CodeError } from "@sandglass/core/SandboxError"
import { CommandError, SandboxError } from "@sandglass/core/SandboxError"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as Sink from "effect/Sink"
import * as Stream from "effect/Stream"
import { defaultMaxOutput } from "./build.js"
import { toPlainJson } from "./failure.js"
import type { Outcome } from "./interpret.js"
import type { JsonObject } from "./json.js"
import { field, stringField } from "./json.js"
import type {
  Checkpoint,
  Code,
  Command,
  Content,
  Context,
  Dynamic,
  Exec,
  LeafStep,
  ReadFile,
  Run,
  WriteFile
} from "./operation.js"
import type { Text } from "./text.js"
import * as Texts from "./text.js"

/** What a step does, with what was left to the moment of its run. */
export type Resolved =
  | { readonly _tag: "Exec"; readonly step: Exec; readonly command: Command }
  | { readonly _tag: "Code"; readonly step: Code; readonly code: string }
  | { readonly _tag: "WriteFile"; readonly step: WriteFile; readonly path: string; readonly content: Content }
  | { readonly _tag: "ReadFile"; readonly step: ReadFile; readonly path: string }
  | { readonly _tag: "DeleteFile"; readonly path: string }
  | { readonly _tag: "MoveFile"; readonly from: string; readonly to: string }
  | { readonly _tag: "Checkpoint"; readonly step: Checkpoint }
  | { readonly _tag: "Effect"; readonly step: Run }

const settle = <A>(value: Dynamic<A>, ctx: Context): A =>
  // A function is never a value of its own here.
  typeof value === "function" ? (value as (ctx: Context) => A)(ctx) : value

/** Calls the application's functions: what they throw is a defect. */
export const resolve = (step: LeafStep, ctx: Context): Effect.Effect<Resolved> =>
  Effect.sync((): Resolved => {
    switch (step._tag) {
      case "Exec":
        return { _tag: "Exec", step, command: settle(step.command, ctx) }
      case "Code":
        return { _tag: "Code", step, code: settle(step.code, ctx) }
      case "WriteFile":
        return { _tag: "WriteFile", step, path: settle(step.path, ctx), content: settle(step.content, ctx) }
      case "ReadFile":
        return { _tag: "ReadFile", step, path: settle(step.path, ctx) }
      case "DeleteFile":
        return { _tag: "DeleteFile", path: settle(step.path, ctx) }
      case "MoveFile":
        return { _tag: "MoveFile", from: settle(step.from, ctx), to: settle(step.to, ctx) }
      case "Checkpoint":
        return { _tag: "Checkpoint", step }
      case "Effect":
        return { _tag: "Effect", step }
    }
  })

/** What a step does, for the ledger; contents of files are left out. */
export const describeResolved = (resolved: Resolved): { readonly [name: string]: Json } => {
  switch (resolved._tag) {
    case "Exec":
      return { cmd: resolved.command }
    case "Code":
      return { code: resolved.code }
    case "WriteFile":
    case "ReadFile":
    case "DeleteFile":
      return { path: resolved.path }
    case "MoveFile":
      return { from: resolved.from, to: resolved.to }
    case "Checkpoint":
    case "Effect":
      return {}
  }
}

export interface Execution {
  readonly sandbox: Sandbox
  /** What the step's execs are known by, and run once by. Unique in the sandbox's lineage. */
  readonly key: string
  /** Of the execs in an effect: new whenever it starts from its beginning. */
  readonly effectKey: string
  /** True where it may have been begun before, on the same files. */
  readonly again: boolean
  /** Whether a command runs at most once in the container. */
  readonly once: boolean
  readonly onOutput: ((chunks: ReadonlyArray<OutputChunk>) => Effect.Effect<void>) | undefined
}

/** Collects the output of a step within its limit. */
export class Output {
  private stdoutText: Text = Texts.empty
  private stderrText: Text = Texts.empty
  constructor(private readonly limit: number) {}

  add(chunks: Iterable<OutputChunk>): void {
    for (const { stream, text } of chunks) {
      if (stream === "stdout") this.stdoutText = Texts.append(this.stdoutText, text, this.limit)
      else this.stderrText = Texts.append(this.stderrText, text, this.limit)
    }
  }

  get outcome(): { readonly stdout: string; readonly stderr: string; readonly truncated?: true } {
    const [stdout, stderr] = [this.stdoutText, this.stderrText]
    return {
      stdout: Texts.render(stdout, this.limit),
      stderr: Texts.render(stderr, this.limit),
      ...(Texts.isTruncated(stdout) || Texts.isTruncated(stderr) ? { truncated: true } : {})
    }
  }
}

export const outputLimit = (step: Exec | Code): number =>
  (step._tag === "Exec" ? step.options.maxOutput : step.maxOutput) ?? defaultMaxOutput

/** What became of a step: of a command with an exit code other than 0 also the error that it is, should it count as one. */
export interface Executed {
  readonly outcome: Outcome
  readonly error?: CommandError | CodeError | undefined
  /** The captured variables as they are recorded. */
  readonly recorded?: JsonObject | undefined
  /** The checkpoint that it made. */
  readonly snapshotId?: string | undefined
}

/** The result of an effect does not come back from the ledger as it was. */
export class Unrecordable {
  readonly _tag = "Unrecordable"
  constructor(readonly description: string) {}
}

const done: Executed = { outcome: {} }

const tailLength = 4096

const exec = (step: Exec, command: Command, { key, onOutput, once, sandbox }: Execution) =>
  Effect.gen(function* () {
    const output = new Output(outputLimit(step))
    const execution = sandbox.exec(command, {
      ...step.options,
      strict: false,
      // It is collected here.
      maxOutput: 0,
      key,
      ...(once ? { idempotencyKey: key } : {})
    })
    const { exitCode, replayed, seq } = yield* execution.pipeTo(
      Sink.forEachChunk((chunks: Chunk.Chunk<OutputChunk>) => {
        output.add(chunks)
        return onOutput === undefined ? Effect.void : onOutput(Chunk.toReadonlyArray(chunks))
      })
    )
    const executed: Executed = { outcome: { exitCode, ...output.outcome } }
    if (exitCode === 0 || step.options.strict === false) return executed
    const error = new CommandError({
      sandboxId: sandbox.id,
      seq,
      command: execution.command,
      exitCode,
      stdout: Texts.lastOf(output.outcome.stdout, tailLength),
      stderr: Texts.lastOf(output.outcome.stderr, tailLength),
      replayed
    })
    return { ...executed, error }
  })

/** Code of an earlier attempt of ours may still be running in the interpreter, which runs one piece at a time. */
const whileBusy = Schedule.intersect(Schedule.spaced("200 millis"), Schedule.recurs(3000))

const code = (step: Code, source: string, { again, key, onOutput, sandbox }: Execution) =>
  Effect.suspend(() => {
    const output = new Output(outputLimit(step))
    const ended = (exitCode: number, error?: CodeError): Executed => ({
      outcome: { exitCode, ...output.outcome },
      error
    })
    return sandbox.execCode(source, { language: step.language, key, maxOutput: 0 }).output.pipe(
      Stream.runForEachChunk((chunks) => {
        output.add(chunks)
        return onOutput === undefined ? Effect.void : onOutput(Chunk.toReadonlyArray(chunks))
      }),
      Effect.retry({
        while: (error) => again && error._tag === "OpenSandboxError" && error.reason === "Conflict",
        schedule: whileBusy
      }),
      Effect.map(() => ended(0)),
      Effect.catchTag("CodeError", (error) => Effect.succeed(ended(1, error)))
    )
  })

/** What an earlier attempt of ours may have done already counts as done. */
const orDoneBefore = (
  self: Effect.Effect<void, OpenSandboxError>,
  again: boolean,
  isDone: Effect.Effect<boolean, OpenSandboxError>
): Effect.Effect<void, OpenSandboxError> =>
  again
    ? Effect.catchIf(
        self,
        (error) => error.reason === "NotFound",
        (error) => Effect.flatMap(isDone, (yes) => (yes ? Effect.void : Effect.fail(error)))
      )
    : self

/** The sandbox for an effect: its execs have keys, so that they are told from the steps'. */
const keyed = (sandbox: Sandbox, prefix: string): Sandbox => {
  let count = 0
  const own = <O extends { readonly key?: string | undefined }>(options: O | undefined): O & { readonly key: string } =>
    // The options with one more field are the options with that field.
    ({ ...options, key: `${prefix}/${options?.key ?? ++count}` }) as O & { readonly key: string }
  return {
    ...sandbox,
    exec: (command, options) => sandbox.exec(command, own(options)),
    start: (command, options) => Effect.suspend(() => sandbox.start(command, own(options))),
    startDetached: (command, options) => Effect.suspend(() => sandbox.startDetached(command, own(options))),
    execCode: (code, options) => sandbox.execCode(code, own(options)),
    createCodeContext: (language) =>
      Effect.map(sandbox.createCodeContext(language), (context) => ({
        ...context,
        exec: (code, options) => context.exec(code, own(options))
      })),
    createSession: (options) =>
      Effect.map(sandbox.createSession(options), (session) => ({
        ...session,
        exec: (command, options) => session.exec(command, own(options))
      }))
  }
}

const decodeRecorded = (schema: Schema.Schema<unknown, unknown>, as: string, recorded: unknown) =>
  Effect.mapError(
    Schema.decodeUnknown(schema)(recorded),
    (cause) => new Unrecordable(`what is recorded as ${as} does not fit its schema: ${cause.message}`)
  )

/** A variable as it is recorded, and as it will be read back: the same for those who go on now and for those who resume. */
const record = (schema: Schema.Schema<unknown, unknown>, as: string, value: unknown) =>
  Effect.gen(function* () {
    const encoded = yield* Effect.mapError(
      Schema.encode(schema)(value),
      (cause) => new Unrecordable(`the result does not fit the schema of ${as}: ${cause.message}`)
    )
    const recorded = toPlainJson(encoded)
    if (recorded === undefined) return yield* Effect.fail(new Unrecordable(`the schema of ${as} does not make JSON`))
    const executed: Executed = {
      outcome: { vars: { [as]: yield* decodeRecorded(schema, as, recorded) } },
      recorded: { [as]: recorded }
    }
    return executed
  })

/** The variables of a step, from the ledger. */
export const recordedVars = (
  step: LeafStep,
  recorded: Json | undefined
): Effect.Effect<{ readonly [name: string]: unknown } | undefined, Unrecordable> => {
  if (step._tag === "ReadFile") {
    const text = stringField(recorded, step.as)
    return text === undefined
      ? Effect.fail(new Unrecordable(`${step.as} is not recorded`))
      : Effect.succeed({ [step.as]: text })
  }
  if (step._tag !== "Effect" || step.as === undefined || step.schema === undefined) return Effect.succeed(undefined)
  const { as, schema } = step
  return Effect.map(decodeRecorded(schema, as, field(recorded, as)), (value) => ({ [as]: value }))
}

const readFile = ({ as, maxBytes }: ReadFile, path: string, sandbox: Sandbox) =>
  Effect.flatMap(sandbox.files.readBytes(path, { length: maxBytes + 1 }), (bytes) =>
    bytes.length > maxBytes
      ? Effect.fail(
          new SandboxError({
            method: "Workflow.readFile",
            reason: "InvalidOptions",
            description: `${path} has more than ${maxBytes} bytes: give maxBytes, or read it with an effect`,
            sandboxId: sandbox.id
          })
        )
      : Effect.sync((): Executed => {
          const vars = { [as]: new TextDecoder().decode(bytes) }
          return { outcome: { vars }, recorded: vars }
        })
  )

/** Carries a step out. Its failures are what the sandbox, or the application's effect, failed with. */
export const execute = (
  resolved: Resolved,
  ctx: Context,
  execution: Execution
): Effect.Effect<Executed, unknown, unknown> => {
  const { again, effectKey, sandbox } = execution
  switch (resolved._tag) {
    case "Exec":
      return exec(resolved.step, resolved.command, execution)
    case "Code":
      return code(resolved.step, resolved.code, execution)
    case "WriteFile": {
      const { content, path, step } = resolved
      const plain = Redacted.isRedacted(content) ? Redacted.value(content) : content
      return Effect.as(sandbox.files.write(path, plain, step.permission), done)
    }
    case "ReadFile":
      return readFile(resolved.step, resolved.path, sandbox)
    case "DeleteFile":
      return Effect.as(orDoneBefore(sandbox.files.remove(resolved.path), again, Effect.succeed(true)), done)
    case "MoveFile": {
      const { from, to } = resolved
      return Effect.as(orDoneBefore(sandbox.files.move(from, to), again, sandbox.files.exists(to)), done)
    }
    case "Checkpoint":
      return Effect.map(
        sandbox.checkpoint(resolved.step.tag),
        ({ snapshotId }): Executed => ({ outcome: {}, snapshotId })
      )
    case "Effect": {
      const { as, run, schema } = resolved.step
      return Effect.suspend(() => run(keyed(sandbox, effectKey), ctx)).pipe(
        Effect.scoped,
        Effect.flatMap((value) =>
          as === undefined || schema === undefined ? Effect.succeed(done) : record(schema, as, value)
        )
      )
    }
  }
}
