/**
 * The errors of sandboxes and of the commands that run in them. What the server or the ledger refused arrives as
 * `OpenSandboxError` or `LedgerError`.
 *
 * @since 0.1.0
 */
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"
import type { LedgerError } from "./LedgerError.js"
import type { OpenSandboxError } from "./OpenSandboxError.js"

/**
 * @since 0.1.0
 * @category type ids
 */
export const TypeId = "~@sandglass/core/SandboxError"

/**
 * Why an operation on a sandbox as a whole failed.
 *
 * - `InvalidOptions`: an option makes no sense; nothing was sent
 * - `NotFound`: neither the ledger nor the server knows the sandbox
 * - `NoCheckpoint`: there is nothing to resume from, or no checkpoint with that tag
 * - `LineageIncomplete`: the ledger no longer holds an earlier generation of a resumed sandbox
 * - `StartFailed`: the container failed, or vanished, before it was usable; or a session could not be set up in it
 * - `NotReady`: it did not become usable, paused or running in time
 * - `SnapshotFailed`: the snapshot failed, or was not ready in time
 * - `Closed`: the sandbox was closed already
 * - `StillRunning`: refused because the container is alive
 *
 * @since 0.1.0
 * @category models
 */
export const SandboxErrorReason = Schema.Literal(
  "InvalidOptions",
  "NotFound",
  "NoCheckpoint",
  "LineageIncomplete",
  "StartFailed",
  "NotReady",
  "SnapshotFailed",
  "Closed",
  "StillRunning"
)

/**
 * @since 0.1.0
 * @category models
 */
export type SandboxErrorReason = typeof SandboxErrorReason.Type

/**
 * An operation on a sandbox as a whole failed.
 *
 * @since 0.1.0
 * @category errors
 */
export class SandboxError extends Schema.TaggedError<SandboxError>("@sandglass/core/SandboxError")("SandboxError", {
  /** The operation, e.g. `Sandboxes.resume`. */
  method: Schema.String,
  reason: SandboxErrorReason,
  description: Schema.String,
  sandboxId: Schema.optional(Schema.String),
  cause: Schema.optional(Schema.Defect)
}) {
  /**
   * @since 0.1.0
   */
  readonly [TypeId] = TypeId

  override get message(): string {
    return `${this.method}: ${this.reason}: ${this.description}${
      this.sandboxId === undefined ? "" : ` (${this.sandboxId})`
    }`
  }
}

/**
 * A command ran to its end with an exit code other than 0.
 *
 * @since 0.1.0
 * @category errors
 */
export class CommandError extends Schema.TaggedError<CommandError>("@sandglass/core/CommandError")("CommandError", {
  sandboxId: Schema.String,
  seq: Schema.Number,
  command: Schema.String,
  exitCode: Schema.Number,
  /** The end of what it printed, at most 4,096 characters. */
  stdout: Schema.String,
  stderr: Schema.String,
  /** True when the failure comes from the ledger, not from a run just now. */
  replayed: Schema.Boolean
}) {
  /**
   * @since 0.1.0
   */
  readonly [TypeId] = TypeId

  override get message(): string {
    const said = (this.stderr.trim() === "" ? this.stdout : this.stderr).trimEnd()
    return `exit code ${this.exitCode}: ${this.command}${said === "" ? "" : `\n${said}`}`
  }
}

/**
 * Why a command has no exit code that can be trusted.
 *
 * - `Timeout`: killed by the server after its `timeout`
 * - `Killed`: ended by a signal
 * - `Interrupted`: stopped through `RunningExec.interrupt`
 * - `Lost`: the connection broke and the server could not say how the command ended; it may have run
 * - `Failed`: the server reported a failure instead of an exit code, or what is done around the command failed
 * - `Protocol`: the answer was no event stream
 * - `Pipe`: what `pipeTo` wrote to failed
 * - `Closed`: the sandbox was closed while it ran
 * - `TakenOver`: another client took the terminal; it goes on there
 *
 * @since 0.1.0
 * @category models
 */
export const ExecErrorReason = Schema.Literal(
  "Timeout",
  "Killed",
  "Interrupted",
  "Lost",
  "Failed",
  "Protocol",
  "Pipe",
  "Closed",
  "TakenOver"
)

/**
 * @since 0.1.0
 * @category models
 */
export type ExecErrorReason = typeof ExecErrorReason.Type

/**
 * A command ended without an exit code that can be trusted. Never replayed.
 *
 * @since 0.1.0
 * @category errors
 */
export class ExecError extends Schema.TaggedError<ExecError>("@sandglass/core/ExecError")("ExecError", {
  sandboxId: Schema.String,
  seq: Schema.Number,
  command: Schema.String,
  reason: ExecErrorReason,
  description: Schema.String,
  /** The server's own code, where it gave one. */
  code: Schema.optional(Schema.String),
  /** The end of what it printed, at most 4,096 characters. */
  stdout: Schema.String,
  stderr: Schema.String,
  cause: Schema.optional(Schema.Defect)
}) {
  /**
   * @since 0.1.0
   */
  readonly [TypeId] = TypeId

  override get message(): string {
    return `${this.reason}: ${this.command}: ${this.code === undefined ? "" : `${this.code}: `}${this.description}`
  }
}

/**
 * An error of the language that ended code.
 *
 * @since 0.1.0
 * @category models
 */
export interface LanguageError {
  /** E.g. `NameError`. */
  readonly name: string
  readonly value: string
  readonly traceback: ReadonlyArray<string>
}

/**
 * Code ended with an error of its language, such as an exception that nobody caught.
 *
 * @since 0.1.0
 * @category errors
 */
export class CodeError extends Schema.TaggedError<CodeError>("@sandglass/core/CodeError")("CodeError", {
  sandboxId: Schema.String,
  seq: Schema.Number,
  language: Schema.String,
  code: Schema.String,
  /** E.g. `NameError`. */
  name: Schema.String,
  value: Schema.String,
  traceback: Schema.Array(Schema.String),
  /** The end of what it printed, at most 4,096 characters. */
  stdout: Schema.String,
  stderr: Schema.String,
  /** True when the failure comes from the ledger, not from a run just now. */
  replayed: Schema.Boolean
}) {
  /**
   * @since 0.1.0
   */
  readonly [TypeId] = TypeId

  override get message(): string {
    const shown = this.traceback.join("\n").trimEnd()
    return `${this.name}: ${this.value}${shown === "" ? "" : `\n${shown}`}`
  }
}

/**
 * What a replay compares of an exec.
 *
 * @since 0.1.0
 * @category models
 */
export const ExecIdentity = Schema.Struct({
  command: Schema.String,
  cwd: Schema.optional(Schema.String),
  key: Schema.optional(Schema.String),
  /** Of code; then `command` is the code. */
  language: Schema.optional(Schema.String),
  /** Of shell, session, user, names of variables and input. */
  fingerprint: Schema.optional(Schema.String)
})

/**
 * A resumed program asked for another command than the one that the ledger holds at this place.
 *
 * @since 0.1.0
 * @category errors
 */
export class ReplayDivergence extends Schema.TaggedError<ReplayDivergence>("@sandglass/core/ReplayDivergence")(
  "ReplayDivergence",
  {
    sandboxId: Schema.String,
    seq: Schema.Number,
    recorded: ExecIdentity,
    asked: ExecIdentity
  }
) {
  /**
   * @since 0.1.0
   */
  readonly [TypeId] = TypeId

  override get message(): string {
    const show = (identity: typeof ExecIdentity.Type) =>
      JSON.stringify(identity.command) +
      (identity.cwd === undefined ? "" : ` in ${identity.cwd}`) +
      (identity.key === undefined ? "" : ` (key ${JSON.stringify(identity.key)})`)
    const [recorded, asked] = [show(this.recorded), show(this.asked)]
    return recorded === asked
      ? `exec ${this.seq}, ${recorded}, was recorded with another shell, session, user, environment or input`
      : `exec ${this.seq} was recorded as ${recorded}, asked for was ${asked}`
  }
}

/**
 * @since 0.1.0
 * @category guards
 */
export const isSandboxError = (
  u: unknown
): u is SandboxError | CommandError | CodeError | ExecError | ReplayDivergence => Predicate.hasProperty(u, TypeId)

/**
 * What an operation on a sandbox can fail with.
 *
 * @since 0.1.0
 * @category models
 */
export type SandboxFailure = SandboxError | OpenSandboxError | LedgerError

/**
 * What an exec can fail with.
 *
 * @since 0.1.0
 * @category models
 */
export type ExecFailure = CommandError | ExecError | ReplayDivergence | SandboxFailure

/**
 * What code can fail with.
 *
 * @since 0.1.0
 * @category models
 */
export type CodeFailure = CodeError | ExecFailure
