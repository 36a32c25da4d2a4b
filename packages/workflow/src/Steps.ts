/**
 * What is done in one sandbox of a workflow: a list of operations, built by a callback, run later.
 *
 * @since 0.1.0
 */
import type { ExecOptions } from "@sandglass/core/Exec"
import type { Sandbox } from "@sandglass/core/Sandbox"
import type { Permission } from "@sandglass/core/SandboxFiles"
import type * as Effect from "effect/Effect"
import type * as Redacted from "effect/Redacted"
import type * as Schedule from "effect/Schedule"
import type * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import type * as Types from "effect/Types"
import * as Build from "./internal/build.js"
import type { Failure } from "./WorkflowError.js"

/**
 * @since 0.1.0
 * @category type ids
 */
export const TypeId = "~@sandglass/workflow/Steps"

/**
 * @since 0.1.0
 * @category type ids
 */
export type TypeId = typeof TypeId

/**
 * What is known when a step is about to run.
 *
 * @since 0.1.0
 * @category models
 */
export interface Context<out Vars> {
  /** What the commands of this sandbox have printed to stdout so far, in order; the middle is left out where it is too long. */
  readonly stdout: string
  /** Of the last command or code of this sandbox; undefined before the first. */
  readonly exitCode: number | undefined
  /** What was captured so far, by earlier stages too. */
  readonly vars: Vars
}

/**
 * A value, or how to make it of what is known when the step runs.
 *
 * @since 0.1.0
 * @category models
 */
export type Dynamic<Vars, A> = A | ((ctx: Context<Vars>) => A)

/**
 * @since 0.1.0
 * @category models
 */
export interface StepOptions<Vars, E = never, R = never> {
  /** What the step is called in plans, graphs and progress. Default: what it does. */
  readonly label?: string | undefined
  /**
   * How to undo the step, when a later one fails and the workflow with it: rollbacks run one after another, the last step's first. Before
   * a `retry` repeats its steps, those that had completed are undone as well.
   */
  readonly rollback?: ((sandbox: Steps<Vars>) => Steps<unknown, E, R>) | undefined
}

/**
 * As the options of `Sandbox.exec`, without the keys: those are the workflow's own.
 *
 * @since 0.1.0
 * @category models
 */
export interface ExecStepOptions<Vars, E = never, R = never>
  extends StepOptions<Vars, E, R>,
    Omit<ExecOptions, "key" | "idempotencyKey" | "stdin" | "maxOutput"> {
  readonly stdin?: string | Uint8Array | undefined
  /** How many characters of stdout, and of stderr, the result keeps: head and tail. Default: 1,048,576. The ledger has all. */
  readonly maxOutput?: number | undefined
  /** Overrides the `once` of the stage. */
  readonly once?: boolean | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface CodeStepOptions<Vars, E = never, R = never> extends StepOptions<Vars, E, R> {
  /** As the server calls it: `python`, `javascript`, `bash`, … */
  readonly language: string
  readonly maxOutput?: number | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface WriteStepOptions<Vars, E = never, R = never> extends StepOptions<Vars, E, R>, Permission {}

/**
 * @since 0.1.0
 * @category models
 */
export interface RetryOptions<R = never> {
  /** How often at most the steps are tried again: `3` means up to four attempts. A whole number, at least 1. */
  readonly times: number
  /** When to try again, and whether at all; it is given the failure. Default: at once. */
  readonly schedule?: Schedule.Schedule<unknown, Failure, R> | undefined
  /** True: also where it is unknown whether the command has run (a lost connection, an answer that says nothing). Default false. */
  readonly unknownOutcome?: boolean | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface ForEachOptions {
  /** How many items at once. Default 1. */
  readonly concurrency?: number | "unbounded" | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface ReadFileOptions {
  readonly label?: string | undefined
  /** How many bytes the file may have. Default 1,048,576. */
  readonly maxBytes?: number | undefined
}

/**
 * `Vars` with one more name.
 *
 * @since 0.1.0
 * @category models
 */
export type SetVar<Vars, Name extends string, A> = string extends Name
  ? Vars & { readonly [name: string]: unknown }
  : Types.Simplify<Omit<Vars, Name> & { readonly [K in Name]: A }>

/**
 * The names of variables that may be missing.
 *
 * @since 0.1.0
 * @category models
 */
export type OptionalNames<Vars> = {
  [K in keyof Vars]-?: object extends Pick<Vars, K> ? K : never
}[keyof Vars]

/**
 * The variables after one of two ways was taken: what only one of them sets may be missing.
 *
 * @since 0.1.0
 * @category models
 */
export type OneOf<A, B> = [A, B] extends [B, A]
  ? A
  : Types.Simplify<
      {
        readonly [K in Exclude<keyof A & keyof B, OptionalNames<A> | OptionalNames<B>>]: A[K] | B[K]
      } & {
        readonly [K in Exclude<keyof A, keyof B> | Exclude<keyof B, keyof A> | OptionalNames<A> | OptionalNames<B>]?:
          | (K extends keyof A ? A[K] : never)
          | (K extends keyof B ? B[K] : never)
          | undefined
      }
    >

/**
 * The operations of one sandbox, in order. Immutable: each method returns a new value, and nothing runs.
 *
 * `Vars` are the variables captured so far, `E` and `R` what the effects and predicates in it can fail with and require.
 *
 * @example
 * ```ts
 * import { Workflow } from "@sandglass/workflow"
 * import { Schedule } from "effect"
 *
 * const ci = Workflow.make("ci").pipe(
 *   Workflow.sandbox({ image: "node:22" }, (sb) => sb
 *     .exec("npm ci")
 *     .checkpoint("installed")
 *     .retry({ times: 3, schedule: Schedule.exponential("1 second") }, (sb) => sb.exec("npm test"))
 *     .when((ctx) => ctx.exitCode === 0, (sb) => sb.exec("npm run report"), (sb) => sb.exec("npm run explain"))
 *     .forEach(["web", "api"], { concurrency: 2 }, (sb, service) => sb.exec(`deploy ${service}`))
 *     .readFile("/tmp/version.txt", "version")
 *     .exec((ctx) => ["git", "tag", ctx.vars.version.trim()]))
 * )
 * ```
 *
 * @since 0.1.0
 * @category models
 */
export interface Steps<out Vars = object, out E = never, out R = never> {
  readonly [TypeId]: { readonly _E: Types.Covariant<E>; readonly _R: Types.Covariant<R> }
  /**
   * A command. An exit code other than 0 fails the workflow, unless a `when` decides on it or `strict` is false. In one container it runs
   * at most once, whatever happens to this process: see `once`.
   */
  exec<E2 = never, R2 = never>(
    command: Dynamic<Vars, string | ReadonlyArray<string>>,
    options?: ExecStepOptions<Vars, E2, R2>
  ): Steps<Vars, E | E2, R | R2>
  /** Code for an interpreter of the sandbox, run in the language's default context. Its exit code is 0, or 1 for an error of the language. */
  execCode<E2 = never, R2 = never>(
    code: Dynamic<Vars, string>,
    options: CodeStepOptions<Vars, E2, R2>
  ): Steps<Vars, E | E2, R | R2>
  /** Writes a file, in place of one that is there; missing directories are made. The content is not recorded. */
  writeFile<E2 = never, R2 = never>(
    path: Dynamic<Vars, string>,
    content: Dynamic<Vars, string | Uint8Array | Redacted.Redacted>,
    options?: WriteStepOptions<Vars, E2, R2>
  ): Steps<Vars, E | E2, R | R2>
  /** Captures a small text file as the variable `as`. Its content is recorded in the ledger. */
  readFile<const Name extends string>(
    path: Dynamic<Vars, string>,
    as: Name,
    options?: ReadFileOptions
  ): Steps<SetVar<Vars, Name, string>, E, R>
  deleteFile<E2 = never, R2 = never>(
    path: Dynamic<Vars, string>,
    options?: StepOptions<Vars, E2, R2>
  ): Steps<Vars, E | E2, R | R2>
  /** Renames or moves; the target's directory must exist. */
  moveFile<E2 = never, R2 = never>(
    from: Dynamic<Vars, string>,
    to: Dynamic<Vars, string>,
    options?: StepOptions<Vars, E2, R2>
  ): Steps<Vars, E | E2, R | R2>
  /** A snapshot to resume from, should the container be lost. */
  checkpoint(tag?: string): Steps<Vars, E, R>
  /**
   * Repeats its steps after a failure of the sandbox: a command's, code's, a file operation's. Never after an interruption, a defect, an
   * error of an application's effect, or an unknown outcome (unless `unknownOutcome` is set). `stdout` and `vars` are those of the
   * attempt that succeeded.
   */
  retry<Vars2, E2, R2, R3 = never>(
    options: RetryOptions<R3>,
    build: (sandbox: Steps<Vars>) => Steps<Vars2, E2, R2>
  ): Steps<Vars2, E | E2, R | R2 | R3>
  /**
   * Goes one of two ways. The command before it does not fail the workflow for its exit code: this decides on it. Where that command is in a
   * `retry` of its own, it is tried again first.
   */
  when<Vars2, E2 = never, R2 = never, E3 = never, R3 = never>(
    predicate: (ctx: Context<Vars>) => boolean | Effect.Effect<boolean, E3, R3>,
    then: (sandbox: Steps<Vars>) => Steps<Vars2, E2, R2>
  ): Steps<OneOf<Vars2, Vars>, E | E2 | E3, R | R2 | R3>
  when<Vars2, Vars3, E2 = never, R2 = never, E3 = never, R3 = never, E4 = never, R4 = never>(
    predicate: (ctx: Context<Vars>) => boolean | Effect.Effect<boolean, E3, R3>,
    then: (sandbox: Steps<Vars>) => Steps<Vars2, E2, R2>,
    otherwise: (sandbox: Steps<Vars>) => Steps<Vars3, E4, R4>
  ): Steps<OneOf<Vars2, Vars3>, E | E2 | E3 | E4, R | R2 | R3 | R4>
  /**
   * The same for every item. Each sees the context as it was before the loop; results, output and `vars` are put together in the order of the
   * items, whatever finished first, so that of several values of one name the last item's stays.
   */
  forEach<const Items extends ReadonlyArray<unknown>, Vars2, E2, R2>(
    items: Items,
    build: (sandbox: Steps<Vars>, item: Items[number], index: number) => Steps<Vars2, E2, R2>
  ): Steps<Items extends readonly [unknown, ...ReadonlyArray<unknown>] ? Vars2 : OneOf<Vars2, Vars>, E | E2, R | R2>
  forEach<const Items extends ReadonlyArray<unknown>, Vars2, E2, R2>(
    items: Items,
    options: ForEachOptions,
    build: (sandbox: Steps<Vars>, item: Items[number], index: number) => Steps<Vars2, E2, R2>
  ): Steps<Items extends readonly [unknown, ...ReadonlyArray<unknown>] ? Vars2 : OneOf<Vars2, Vars>, E | E2, R | R2>
  /**
   * Any effect on the sandbox. Its result is captured as the variable `as`, recorded through `schema`. What it runs is recorded like other
   * commands, but an effect that was under way when the process died starts again from its beginning: it has to bear that.
   */
  effect<E2, R2, E3 = never, R3 = never>(
    label: string,
    run: (sandbox: Sandbox, ctx: Context<Vars>) => Effect.Effect<unknown, E2, R2>,
    options?: Omit<StepOptions<Vars, E3, R3>, "label">
  ): Steps<Vars, E | E2 | E3, R | Exclude<R2, Scope.Scope> | R3>
  effect<A, I, const Name extends string, E2, R2, E3 = never, R3 = never>(
    label: string,
    run: (sandbox: Sandbox, ctx: Context<Vars>) => Effect.Effect<A, E2, R2>,
    options: Omit<StepOptions<Vars, E3, R3>, "label"> & { readonly as: Name; readonly schema: Schema.Schema<A, I> }
  ): Steps<SetVar<Vars, Name, A>, E | E2 | E3, R | Exclude<R2, Scope.Scope> | R3>
}

/**
 * No steps: what a callback starts from. Of use for parts that several workflows share, and in tests.
 *
 * @since 0.1.0
 * @category constructors
 */
export const empty: Steps = Build.empty
