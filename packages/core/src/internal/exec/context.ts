import type * as Channel from "effect/Channel"
import type * as Chunk from "effect/Chunk"
import type * as Context from "effect/Context"
import type * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import type * as Ref from "effect/Ref"
import type * as Scope from "effect/Scope"
import type * as Stream from "effect/Stream"
import type { ExecOptions, OutputChunk } from "../../Exec.js"
import type { CodeEvent, CommandStatus, ExecdClient } from "../../Execd.js"
import type { Ledger } from "../../Ledger.js"
import type { Cursor, Json } from "../../LedgerEvent.js"
import type { OpenSandboxError } from "../../OpenSandboxError.js"
import type * as Replay from "../../Replay.js"
import type { ExecFailure, LanguageError } from "../../SandboxError.js"
import { SandboxError } from "../../SandboxError.js"
import type { ComposedHooks, HookSandbox } from "../../SandboxHooks.js"
import type { SessionPlace } from "./shell.js"

/** What the execs of one sandbox handle share. The mutable parts are touched only in synchronous steps. */
export interface ExecContext {
  readonly sandbox: HookSandbox
  readonly ledger: Context.Tag.Service<Ledger>
  readonly execd: ExecdClient
  readonly hooks: ComposedHooks
  readonly replay: Ref.Ref<Replay.ReplayIndex>
  readonly onDivergence: "fail" | "live"
  readonly sequence: { last: number; sessions: number }
  /** The sandboxes that this one was resumed from, newest first. */
  readonly lineage: ReadonlyArray<string>
  /** How many execs of each key have completed or were replayed. */
  readonly keyUses: Map<string, number>
  /** Set when the program has diverged: the keys it had used, for the next `exec.started`. */
  readonly divergence: { keys: ReadonlyArray<string> | undefined }
  /** What could not be stopped, as while the sandbox is paused: tried again when it resumes. */
  readonly unstopped: Set<Effect.Effect<void, OpenSandboxError>>
  readonly nextId: Effect.Effect<string>
  readonly isClosed: () => boolean
  /** Completes when the sandbox is closed. */
  readonly closed: Deferred.Deferred<void>
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
  readonly execId?: string | undefined
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
  readonly driver?: ((context: ExecContext, spec: Spec, execId: string) => Driver) | undefined
  /** The language, for code: then `command` is the code. */
  readonly language?: string | undefined
  /** True for a terminal that somebody types into. */
  readonly interactive?: boolean | undefined
}

/** What a running thing tells: a command's events, code's, or those of a terminal, with its bytes. */
export type RunEvent = Exclude<CodeEvent, { readonly _tag: "Output" }> | (OutputChunk & { readonly _tag: "Output" })

/**
 * A way to run something. What `prepare` gives starts it when it is run; `Init` carries the id by which `stop` and `status` know it.
 */
export interface Driver {
  /** Does what has to be done before anything is started, such as sending its input. Where it fails, nothing has run. */
  readonly prepare: Effect.Effect<Stream.Stream<RunEvent, OpenSandboxError>, OpenSandboxError, Scope.Scope>
  /** Undefined where the end of the events stops it. */
  readonly stop: ((id: string) => Effect.Effect<void, OpenSandboxError>) | undefined
  /** How it ended, when the connection was lost; undefined where the server keeps no such thing. */
  readonly status: ((id: string) => Effect.Effect<CommandStatus, OpenSandboxError>) | undefined
}

/** What makes the commands of one session a sequence: the state that each leaves to the next. */
export interface ExecSession {
  readonly name: string
  readonly place: SessionPlace
  /** The user that its state was last given to. Undefined: the sandbox's own. */
  owner: number | undefined
  readonly oneAtATime: Effect.Semaphore
}

const isId = (id: number | undefined): boolean => id === undefined || (Number.isInteger(id) && id >= 0)

const holdsNul = (value: string | Redacted.Redacted): boolean =>
  (typeof value === "string" ? value : Redacted.value(value)).includes("\0")

/** What makes no sense of what is asked for. */
const problemOf = ({ command, language, options, session }: Spec): string | undefined => {
  const { cwd, env = {}, gid, idempotencyKey, key, maxOutput, raw, timeout, uid } = options
  if (command.trim() === "") return language === undefined ? "an empty command" : "no code"
  if (language === "") return "the language is empty"
  if (language === undefined && command.includes("\0")) return "a command cannot hold NUL"
  if (cwd?.includes("\0") === true) return "a directory cannot hold NUL"
  // A script handles the variables by name.
  const variable = session !== undefined || raw === true ? /^[A-Za-z_][A-Za-z0-9_]*$/ : /^[^=\0]+$/
  if (!Object.keys(env).every((name) => variable.test(name))) return "the name of an environment variable is malformed"
  // Where the server says so, it may say what the value is.
  if (Object.values(env).some(holdsNul)) return "the value of an environment variable cannot hold NUL"
  if (key === "" || idempotencyKey === "") return "an empty key"
  if (maxOutput !== undefined && !(maxOutput >= 0)) return "maxOutput must not be negative"
  if (!isId(uid) || !isId(gid)) return "uid and gid are whole numbers from 0 on"
  if (gid !== undefined && uid === undefined) return "gid needs uid"
  if (raw === true && uid !== undefined) return "raw commands run as the sandbox's own user"
  if (timeout === undefined) return undefined
  const duration = Duration.decodeUnknown(timeout)
  if (Option.isNone(duration)) return "timeout is no duration"
  return Duration.toMillis(duration.value) > 0 ? undefined : "the timeout must be positive"
}

/** Refuses what makes no sense, and what comes after the sandbox was closed. */
export const validate = (context: ExecContext, spec: Spec): Effect.Effect<void, SandboxError> => {
  const problem = problemOf(spec)
  const refuse = (reason: "InvalidOptions" | "Closed", description: string) =>
    Effect.fail(new SandboxError({ method: "Sandbox.exec", reason, description, sandboxId: context.sandbox.id }))
  return problem !== undefined
    ? refuse("InvalidOptions", problem)
    : context.isClosed()
      ? refuse("Closed", "the sandbox is closed")
      : Effect.void
}
