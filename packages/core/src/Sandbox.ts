/**
 * A sandbox: a running container, its commands and files, and the session of the ledger that records it.
 *
 * @since 0.1.0
 */
import type * as HttpClient from "@effect/platform/HttpClient"
import type * as Duration from "effect/Duration"
import type * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import type * as Stream from "effect/Stream"
import type { Credential, CredentialBinding, CredentialVault, CredentialVaultMutation, PolicyStatus } from "./Egress.js"
import type {
  CodeContext,
  CodeExec,
  CodeOptions,
  DetachedExec,
  Exec,
  ExecOptions,
  RunningExec,
  Session,
  Terminal,
  TerminalOptions
} from "./Exec.js"
import type { ExecdClient, Metrics } from "./Execd.js"
import type { contextKey } from "./internal/contextKey.js"
import type { ExecContext } from "./internal/exec/context.js"
import type { Checkpoint } from "./Ledger.js"
import type { LedgerError } from "./LedgerError.js"
import type { Json, LedgerEntry } from "./LedgerEvent.js"
import type { CreateRequest, Diagnostic, Endpoint, NetworkRule, SandboxInfo } from "./OpenSandbox.js"
import type { OpenSandboxError } from "./OpenSandboxError.js"
import type { ExecFailure, SandboxFailure } from "./SandboxError.js"
import type { SandboxFiles } from "./SandboxFiles.js"
import type { SandboxHooks } from "./SandboxHooks.js"

/**
 * @since 0.1.0
 * @category type ids
 */
export const TypeId = "~@sandglass/core/Sandbox"

/**
 * How the container of a fork is made. What is not given is as this sandbox was created, its network policy, secure access, volumes and lifetime included; rules that
 * changed since, the vault and metadata are not part of it. Of a sandbox that was connected to only what is given is known.
 *
 * @since 0.1.0
 * @category models
 */
export interface ForkOptions extends Omit<CreateRequest, "image" | "snapshotId"> {
  /** Default: `fork-<name>-<random>`. */
  readonly name?: string | undefined
  /** Default: that of this sandbox. */
  readonly resourceId?: string | undefined
  /** True: the fork outlives the scope. Default false. */
  readonly detached?: boolean | undefined
  /** In addition to those of this sandbox, which the fork has as well. */
  readonly hooks?: SandboxHooks | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface SessionOptions {
  /** Default: `1`, `2`, … in the order in which they are made. A name that is in use joins that session. */
  readonly name?: string | undefined
  /** Where its first command starts. Default: the container's. */
  readonly cwd?: string | undefined
}

/**
 * The network rules and credentials of a sandbox at run time. Every change is recorded, whoever interrupts: rules as `egress.rule_added` and
 * `egress.rule_removed`, credentials of the vault as `credential.added`, `credential.replaced` and `credential.removed`, their bindings as
 * `credential.bound` and `credential.revoked`. That is names and hosts, never a credential's value. A change whose answer was lost is recorded
 * with an `error` that says so.
 *
 * @since 0.1.0
 * @category models
 */
export interface SandboxEgress {
  readonly policy: Effect.Effect<PolicyStatus, OpenSandboxError>
  /** They come before the present ones; of several for one target the first wins. */
  readonly addRules: (rules: ReadonlyArray<NetworkRule>) => Effect.Effect<PolicyStatus, SandboxFailure>
  /** By target; one that has no rule is fine. */
  readonly removeRules: (targets: ReadonlyArray<string>) => Effect.Effect<PolicyStatus, SandboxFailure>
  readonly vault: Effect.Effect<CredentialVault, OpenSandboxError>
  /** Needs `credentialProxy` at creation. */
  readonly createVault: (vault: {
    readonly credentials: ReadonlyArray<Credential>
    readonly bindings: ReadonlyArray<CredentialBinding>
  }) => Effect.Effect<CredentialVault, SandboxFailure>
  /** All or nothing; `Conflict` when the vault is at another than the expected revision. */
  readonly mutateVault: (mutation: CredentialVaultMutation) => Effect.Effect<CredentialVault, SandboxFailure>
  /** Where there is none it is deleted already. */
  readonly deleteVault: Effect.Effect<void, SandboxFailure>
}

/**
 * A port of a sandbox, as it is reached from here.
 *
 * @since 0.1.0
 * @category models
 */
export interface SandboxPort extends Endpoint {
  /**
   * Prepends the address and adds the headers: `client.get("/health")`. Nothing is repeated, and redirects are not followed (`HttpClient.followRedirects`
   * does that). A whole address is refused, unless it is one of this port.
   */
  readonly client: HttpClient.HttpClient
}

/**
 * A handle of one sandbox. Made by `Sandboxes`; when its scope closes, the container is deleted and `sandbox.closed` recorded
 * (unless it is detached).
 *
 * @since 0.1.0
 * @category models
 */
export interface Sandbox {
  readonly [TypeId]: typeof TypeId
  /** @internal */
  readonly [contextKey]: ExecContext
  readonly id: string
  readonly name: string
  /** Shared by everything that belongs to one run: inherited by resume, restore and fork. */
  readonly runId: string
  readonly resourceId?: string | undefined
  readonly teamId?: string | undefined
  /**
   * A command, not yet run. A string is a command line for the shell; a list of words is passed as just these words.
   *
   * @example
   * ```ts
   * import type { Sandbox } from "@sandglass/core"
   * import { Effect, Stream } from "effect"
   *
   * const program = (sandbox: Sandbox.Sandbox) =>
   *   Effect.gen(function*() {
   *     const { stdout } = yield* sandbox.exec("node --version")
   *     yield* sandbox.exec(["touch", "a file with spaces"])
   *     yield* Stream.runForEach(sandbox.exec("npm test").lines, Effect.log)
   *     const { exitCode } = yield* sandbox.exec("npm run lint", { strict: false }).pipeTo(process.stdout)
   *     return { stdout, exitCode }
   *   })
   * ```
   */
  readonly exec: (command: string | ReadonlyArray<string>, options?: ExecOptions) => Exec
  /** Starts a command now; closing the scope stops it. */
  readonly start: (
    command: string | ReadonlyArray<string>,
    options?: ExecOptions
  ) => Effect.Effect<RunningExec, ExecFailure, Scope.Scope>
  /**
   * Opens a terminal in a scope, recorded in both directions. On a resumed sandbox one that had ended answers from the ledger, and one that
   * was open at the checkpoint is opened again and told what had been typed.
   */
  readonly openTerminal: (options?: TerminalOptions) => Effect.Effect<Terminal, ExecFailure, Scope.Scope>
  /** Code for an interpreter of the sandbox, not yet run; without a context of its own it runs in the language's default one. */
  readonly execCode: (code: string, options: CodeOptions) => CodeExec
  /** An interpreter of its own, ended with the scope. */
  readonly createCodeContext: (language: string) => Effect.Effect<CodeContext, SandboxFailure, Scope.Scope>
  /**
   * Starts a command that survives the loss of this process. Its exit code and output are learnt by attaching to it, now or later,
   * from here or from another process that connected to the sandbox.
   */
  readonly startDetached: (
    command: string | ReadonlyArray<string>,
    options?: ExecOptions
  ) => Effect.Effect<DetachedExec, ExecFailure>
  /** The detached commands of this session whose end is not recorded yet. */
  readonly commands: Stream.Stream<DetachedExec, LedgerError>
  /**
   * A session: its commands share directory and environment, and are recorded and replayed like others. On a resumed sandbox the
   * session of the same name (by default the same number) goes on where the checkpoint left it; a fork has none of its parent's.
   */
  readonly createSession: (options?: SessionOptions) => Effect.Effect<Session, SandboxFailure, Scope.Scope>
  readonly files: SandboxFiles
  /** Takes a snapshot, waits until it is ready, and records it, under a tag if given: a place to resume from. */
  readonly checkpoint: (tag?: string) => Effect.Effect<Checkpoint, SandboxFailure>
  /** A second sandbox with the state of this one, in a session of its own. */
  readonly fork: (options?: ForkOptions) => Effect.Effect<Sandbox, SandboxFailure, Scope.Scope>
  /** Stops its processes, keeping their state. */
  readonly pause: Effect.Effect<void, SandboxFailure>
  readonly resume: Effect.Effect<void, SandboxFailure>
  /**
   * Moves its expiry to `duration` from now, by the server's clock; returns it in epoch milliseconds. One that is later already stays: servers
   * do not shorten a life.
   */
  readonly renew: (duration: Duration.DurationInput) => Effect.Effect<number, SandboxFailure>
  readonly info: Effect.Effect<SandboxInfo, OpenSandboxError>
  /**
   * Where a port inside the sandbox is reached from here, with an `HttpClient` bound to it. Nothing need listen yet. Ask again after a pause, which may change
   * the address.
   */
  readonly proxy: (port: number) => Effect.Effect<SandboxPort, OpenSandboxError>
  readonly egress: SandboxEgress
  /** The agent in it, without a ledger in between: what is done through it is neither recorded nor replayed. */
  readonly execd: ExecdClient
  /** What it uses at this moment. */
  readonly metrics: Effect.Effect<Metrics, OpenSandboxError>
  /** The same, every second, until the sandbox is closed. */
  readonly watchMetrics: Stream.Stream<Metrics, OpenSandboxError>
  /** What the server knows of the sandbox, as text for a person; `scope` is e.g. `container`, `lifecycle`, `runtime`, or `all` (default). */
  readonly diagnosticLogs: (scope?: string) => Effect.Effect<Diagnostic, OpenSandboxError>
  readonly diagnosticEvents: (scope?: string) => Effect.Effect<Diagnostic, OpenSandboxError>
  /** Appends an event of the application to this session. */
  readonly append: (
    event: string,
    payload?: Json,
    options?: { readonly stepIdx?: number | undefined; readonly branch?: number | undefined }
  ) => Effect.Effect<LedgerEntry, LedgerError>
  /** This session's entries, oldest first. */
  readonly history: Stream.Stream<LedgerEntry, LedgerError>
  /** Deletes the container and records `sandbox.closed`; within a bounded time, and once however often it is called. */
  readonly close: Effect.Effect<void>
}
