/**
 * Workflows: what is done in sandboxes, written down first and run later, any number of times. Runs are recorded, and taken up again where
 * their process died.
 *
 * @since 0.1.0
 */
import { Ledger } from "@sandglass/core/Ledger"
import type { LedgerError } from "@sandglass/core/LedgerError"
import type * as Sandboxes from "@sandglass/core/Sandboxes"
import * as Effect from "effect/Effect"
import type * as Equal from "effect/Equal"
import type { Pipeable } from "effect/Pipeable"
import * as Predicate from "effect/Predicate"
import * as Stream from "effect/Stream"
import type * as Types from "effect/Types"
import * as Build from "./internal/build.js"
import type { Plan, PlanBranch, PlanStage, StageKind } from "./internal/data.js"
import * as Data from "./internal/data.js"
import type { PlanStep } from "./internal/describe.js"
import type { StepResult } from "./internal/interpret.js"
import * as Lifecycle from "./internal/lifecycle.js"
import * as Live from "./internal/live.js"
import { mermaid } from "./internal/mermaid.js"
import * as Progress from "./internal/progress.js"
import * as Runs from "./internal/runs.js"
import * as Impl from "./internal/workflow.js"
import type { Steps } from "./Steps.js"
import type { WorkflowError } from "./WorkflowError.js"
import type { Output, WorkflowEvent } from "./WorkflowEvent.js"

/**
 * @since 0.1.0
 * @category type ids
 */
export const TypeId = "~@sandglass/workflow/Workflow"

/**
 * @since 0.1.0
 * @category type ids
 */
export type TypeId = typeof TypeId

/**
 * What is to be done, in which sandboxes. An immutable value: it can be run any number of times, looked at with `plan`, drawn with `toMermaid`,
 * and compared with `Equal.equals` (functions by their source, contents of files by their hash).
 *
 * `Vars` are the variables that a run captures, `E` and `R` what the effects and predicates in it can fail with and require.
 *
 * @since 0.1.0
 * @category models
 */
export interface Workflow<out Vars = object, out E = never, out R = never> extends Pipeable, Equal.Equal {
  readonly [TypeId]: {
    readonly _Vars: Types.Covariant<Vars>
    readonly _E: Types.Covariant<E>
    readonly _R: Types.Covariant<R>
  }
  readonly name: string
}

/**
 * The sandbox of a stage. What goes to the server is that of `Sandboxes.create`; run, resource and lifetime are the workflow's to say.
 *
 * @since 0.1.0
 * @category models
 */
export interface SandboxOptions
  extends Omit<Sandboxes.CreateOptions, "runId" | "resourceId" | "teamId" | "detached" | "idempotencyKey"> {
  /** What the stage is called, and the session in the ledger. Default: the image, and the workflow's name. */
  readonly name?: string | undefined
  /**
   * `each-step`: a snapshot after every step that changes something, so that no finished step runs again even if the container is lost. Each
   * costs a snapshot's time, and stays on the server. Default `manual`: only where the workflow says `checkpoint`.
   */
  readonly checkpoints?: "manual" | "each-step" | undefined
  /**
   * True (default): a command runs at most once in its container. A run that is resumed while the container lives waits for the command
   * that its dead process had started, and gets its output. False saves a few milliseconds per command; a command that was under way
   * then runs again.
   */
  readonly once?: boolean | undefined
}

/**
 * A branch of a parallel stage that has steps of its own.
 *
 * @since 0.1.0
 * @category models
 */
export interface ParallelBranch<Vars, Vars2, E, R> extends SandboxOptions {
  readonly run: (sandbox: Steps<Vars>) => Steps<Vars2, E, R>
}

/**
 * @since 0.1.0
 * @category models
 */
export interface ParallelOptions {
  /** How many branches at once. Default: all. */
  readonly concurrency?: number | "unbounded" | undefined
}

/**
 * What the stage before came to.
 *
 * @since 0.1.0
 * @category models
 */
export interface Previous<out Vars> {
  /** Of all its commands, in order; of all branches in the order in which they are written. */
  readonly stdout: string
  /** Of its last command. */
  readonly exitCode: number | undefined
  /** What was captured so far, by all stages. */
  readonly vars: Vars
}

/**
 * A stage whose steps depend on the stage before it.
 *
 * @since 0.1.0
 * @category models
 */
export interface SequenceStage<Vars, Vars2, E, R> extends SandboxOptions {
  /** Called when the stage starts; and, for plans, with placeholders: it must do nothing but build. */
  readonly run: (sandbox: Steps<Vars>, previous: Previous<Vars>) => Steps<Vars2, E, R>
}

/**
 * What a branch came to. The same whether the run was resumed or not.
 *
 * @since 0.1.0
 * @category models
 */
export interface BranchResult {
  readonly label: string
  readonly exitCode: number | undefined
  readonly stdout: string
  readonly vars: { readonly [name: string]: unknown }
  /** In the order in which the steps are written, items of loops in theirs. */
  readonly steps: ReadonlyArray<StepResult>
}

/**
 * What a stage came to.
 *
 * @since 0.1.0
 * @category models
 */
export interface StageResult {
  readonly kind: StageKind
  readonly exitCode: number | undefined
  readonly stdout: string
  readonly vars: { readonly [name: string]: unknown }
  /** One, or those of a parallel stage in the order in which they are written. */
  readonly branches: ReadonlyArray<BranchResult>
}

/**
 * What a run came to.
 *
 * @since 0.1.0
 * @category models
 */
export interface Result<out Vars> {
  readonly runId: string
  /** What all commands and code printed to stdout, in the order in which the steps are written. */
  readonly stdout: string
  /** True where it, or the output of a step, was longer than is kept. The ledger has all of it. */
  readonly truncated: boolean
  readonly vars: Vars
  readonly stages: ReadonlyArray<StageResult>
}

export type { Plan, PlanBranch, PlanStage, PlanStep, StageKind, StepResult }

/**
 * @since 0.1.0
 * @category models
 */
export interface ResumeOptions {
  /** How many characters of stdout the result keeps: head and tail. Default: 8,388,608. */
  readonly maxOutput?: number | undefined
  /**
   * What to do where a sandbox is gone and no checkpoint covers steps that had finished. True (default): they run again, in a new sandbox;
   * what they had done was lost with theirs. False: it fails with `StepsLost`.
   */
  readonly rerun?: boolean | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export interface RunOptions {
  /** Default: a random id. One that is in use is refused with `RunExists`. */
  readonly runId?: string | undefined
  /** Who the work is for: goes to every sandbox. */
  readonly resourceId?: string | undefined
  readonly teamId?: string | undefined
  /** How many characters of stdout the result keeps: head and tail. Default: 8,388,608. */
  readonly maxOutput?: number | undefined
}

/**
 * For live views: start a run, or take one up.
 *
 * @since 0.1.0
 * @category models
 */
export type LiveOptions = RunOptions | (ResumeOptions & { readonly resume: string })

/**
 * @since 0.1.0
 * @category guards
 */
export const isWorkflow = (u: unknown): u is Workflow<unknown, unknown, unknown> => Predicate.hasProperty(u, TypeId)

/**
 * A workflow without stages. Runs of it are found in the ledger by this name.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (name: string): Workflow => Impl.make({ name, stages: [] })

/**
 * Adds a stage: one sandbox, created when the stage starts and closed when it ends.
 *
 * @since 0.1.0
 * @category combinators
 */
export const sandbox =
  <Vars, Vars2, E2, R2>(
    options: SandboxOptions,
    build: (sandbox: Steps<Vars>) => Steps<Vars2, E2, R2>
  ): (<E, R>(self: Workflow<Vars, E, R>) => Workflow<Vars2, E | E2, R | R2>) =>
  (self) => {
    const branches = [Data.staticBranch(options, Build.operations(build))]
    return Impl.add(self, { kind: "sandbox", branches, concurrency: 1 })
  }

/**
 * Adds a stage of several sandboxes at once, which do the same, or each its own. If one fails, the others are interrupted; all are closed
 * before the failure is reported.
 *
 * @example
 * ```ts
 * import { Workflow } from "@sandglass/workflow"
 *
 * const matrix = Workflow.make("matrix").pipe(
 *   Workflow.parallel([{ image: "node:20" }, { image: "node:22" }], (sb) => sb.exec("npm ci").exec("npm test"))
 * )
 * const apart = Workflow.make("apart").pipe(
 *   Workflow.parallel([
 *     { image: "node:22", run: (sb) => sb.exec("npm test") },
 *     { image: "python:3.13", run: (sb) => sb.exec("pytest") }
 *   ])
 * )
 * ```
 *
 * @since 0.1.0
 * @category combinators
 */
export const parallel: {
  <Vars, const Branches extends ReadonlyArray<SandboxOptions>, Vars2, E2, R2>(
    branches: Branches,
    build: (sandbox: Steps<Vars>, branch: Branches[number], index: number) => Steps<Vars2, E2, R2>,
    options?: ParallelOptions
  ): <E, R>(self: Workflow<Vars, E, R>) => Workflow<Vars2, E | E2, R | R2>
  <Vars, Vars2, E2, R2>(
    branches: ReadonlyArray<ParallelBranch<Vars, Vars2, E2, R2>>,
    options?: ParallelOptions
  ): <E, R>(self: Workflow<Vars, E, R>) => Workflow<Vars2, E | E2, R | R2>
} = ((
  branches: ReadonlyArray<SandboxOptions & { readonly run?: unknown }>,
  ...rest: ReadonlyArray<unknown>
): ((self: Workflow<unknown, unknown, unknown>) => unknown) =>
  (self) => {
    const [build, options] = typeof rest[0] === "function" ? [rest[0], rest[1]] : [undefined, rest[0]]
    return Impl.add(self, {
      kind: "parallel",
      branches: branches.map(({ run, ...own }, index) =>
        Data.staticBranch(own, Build.erased(build ?? run, branches[index], index))
      ),
      // The overloads say what it is.
      concurrency: (options as ParallelOptions | undefined)?.concurrency ?? "unbounded"
    })
  }) as never

/**
 * Adds stages one after another, each with a sandbox of its own, whose steps may depend on what the stage before came to.
 *
 * @example
 * ```ts
 * import { Workflow } from "@sandglass/workflow"
 *
 * const release = Workflow.make("release").pipe(
 *   Workflow.sandbox({ image: "node:22" }, (sb) => sb.exec("npm version patch").readFile("package.json", "manifest")),
 *   Workflow.sequence([
 *     { image: "node:22", run: (sb, previous) => sb.writeFile("package.json", previous.vars.manifest).exec("npm publish") },
 *     { image: "alpine", run: (sb, previous) => sb.exec(["echo", previous.stdout.trim()]) }
 *   ])
 * )
 * ```
 *
 * @since 0.1.0
 * @category combinators
 */
export const sequence: {
  <V0, V1, E1, R1>(
    stages: readonly [SequenceStage<V0, V1, E1, R1>]
  ): <E, R>(self: Workflow<V0, E, R>) => Workflow<V1, E | E1, R | R1>
  <V0, V1, E1, R1, V2, E2, R2>(
    stages: readonly [SequenceStage<V0, V1, E1, R1>, SequenceStage<V1, V2, E2, R2>]
  ): <E, R>(self: Workflow<V0, E, R>) => Workflow<V2, E | E1 | E2, R | R1 | R2>
  <V0, V1, E1, R1, V2, E2, R2, V3, E3, R3>(
    stages: readonly [SequenceStage<V0, V1, E1, R1>, SequenceStage<V1, V2, E2, R2>, SequenceStage<V2, V3, E3, R3>]
  ): <E, R>(self: Workflow<V0, E, R>) => Workflow<V3, E | E1 | E2 | E3, R | R1 | R2 | R3>
  <V0, V1, E1, R1, V2, E2, R2, V3, E3, R3, V4, E4, R4>(
    stages: readonly [
      SequenceStage<V0, V1, E1, R1>,
      SequenceStage<V1, V2, E2, R2>,
      SequenceStage<V2, V3, E3, R3>,
      SequenceStage<V3, V4, E4, R4>
    ]
  ): <E, R>(self: Workflow<V0, E, R>) => Workflow<V4, E | E1 | E2 | E3 | E4, R | R1 | R2 | R3 | R4>
  <Vars, E2, R2>(
    stages: ReadonlyArray<SequenceStage<Vars, Vars, E2, R2>>
  ): <E, R>(self: Workflow<Vars, E, R>) => Workflow<Vars, E | E2, R | R2>
} = ((
  stages: ReadonlyArray<SequenceStage<unknown, unknown, unknown, unknown>>
): ((self: Workflow<unknown, unknown, unknown>) => unknown) =>
  (self) =>
    stages.reduce(
      (workflow, { run, ...options }) =>
        Impl.add(workflow, {
          kind: "sequence",
          branches: [Data.dynamicBranch(options, (previous) => Build.erased(run, previous), run)],
          concurrency: 1
        }),
      self
    )) as never

/**
 * What a run of the workflow would do, as plain data. Steps that depend on the stage before are shown with placeholders.
 *
 * @since 0.1.0
 * @category inspection
 */
export const plan = <Vars, E, R>(self: Workflow<Vars, E, R>): Plan => Data.planOf(Impl.dataOf(self))

/**
 * The plan as text, for people.
 *
 * @since 0.1.0
 * @category inspection
 */
export const toText = <Vars, E, R>(self: Workflow<Vars, E, R>): string => Data.planLines(plan(self)).join("\n")

/**
 * The plan as a Mermaid flowchart.
 *
 * @since 0.1.0
 * @category inspection
 */
export const toMermaid = <Vars, E, R>(self: Workflow<Vars, E, R>): string => mermaid(plan(self))

/**
 * Runs the workflow. Sandboxes are created when their stage starts and closed when it ends; after a failure completed steps are undone,
 * and all sandboxes are closed, before it is reported. Interrupted, it closes all sandboxes; the run can be resumed.
 *
 * It fails with a `WorkflowError`, or with what an effect or a predicate of the application failed with.
 *
 * @example
 * ```ts
 * import { Ledger, OpenSandbox, Sandboxes } from "@sandglass/core"
 * import { Workflow } from "@sandglass/workflow"
 * import { Effect } from "effect"
 *
 * const hello = Workflow.make("hello").pipe(
 *   Workflow.sandbox({ image: "node:22" }, (sb) => sb.exec("node --version > /tmp/v").readFile("/tmp/v", "version"))
 * )
 *
 * const program = Workflow.run(hello).pipe(
 *   Effect.map(({ vars }) => vars.version.trim()),
 *   Effect.provide(Sandboxes.layer),
 *   Effect.provide(OpenSandbox.layerConfig()),
 *   Effect.provide(Ledger.layerMemory)
 * )
 * ```
 *
 * @since 0.1.0
 * @category running
 */
export const run = <Vars, E, R>(
  self: Workflow<Vars, E, R>,
  options: RunOptions = {}
): Effect.Effect<Result<Vars>, WorkflowError | E, Sandboxes.Sandboxes | Ledger | R> =>
  typed(Lifecycle.execute(Impl.dataOf(self), options))

/**
 * Takes up a run whose process died, or that was interrupted, and brings it to its end. Say it only of runs that nobody works on: whoever
 * does stops with `Superseded`.
 *
 * Stages and steps that had finished are not run again: their results come from the ledger. The stage that was interrupted goes on in its
 * sandbox if that still lives, waiting for the command that was under way; otherwise in a new one, restored from its last checkpoint. A run
 * that had completed gives its result again; one that had failed fails again.
 *
 * The workflow must be the one that the run was started with: otherwise it fails with `DefinitionChanged`.
 *
 * @since 0.1.0
 * @category running
 */
export const resume = <Vars, E, R>(
  self: Workflow<Vars, E, R>,
  runId: string,
  options: ResumeOptions = {}
): Effect.Effect<Result<Vars>, WorkflowError | E, Sandboxes.Sandboxes | Ledger | R> =>
  typed(Lifecycle.execute(Impl.dataOf(self), { ...options, runId, resume: true }))

/** What the erased interpreter gives is what the workflow's type says. */
const typed = <Vars, E, R>(self: Effect.Effect<Lifecycle.Result, unknown, unknown>) =>
  // @effect-diagnostics-next-line unsafeEffectTypeAssertion:off
  self as Effect.Effect<Result<Vars>, WorkflowError | E, Sandboxes.Sandboxes | Ledger | R>

const lifecycleOptions = (options: LiveOptions): Lifecycle.Options =>
  "resume" in options ? { ...options, runId: options.resume, resume: true } : options

/**
 * Runs the workflow when the stream is run, and tells what happens: stages, steps, output, the end. A slow consumer slows the workflow down.
 * Ending the stream early interrupts the run. Fails like `run`.
 *
 * @since 0.1.0
 * @category running
 */
export const events = <Vars, E, R>(
  self: Workflow<Vars, E, R>,
  options: LiveOptions = {}
): Stream.Stream<WorkflowEvent, WorkflowError | E, Sandboxes.Sandboxes | Ledger | R> =>
  // What the erased interpreter gives is what the workflow's type says.
  // @effect-diagnostics-next-line unsafeEffectTypeAssertion:off
  Live.events((emit) => Lifecycle.execute(Impl.dataOf(self), { ...lifecycleOptions(options), emit })) as Stream.Stream<
    WorkflowEvent,
    WorkflowError | E,
    Sandboxes.Sandboxes | Ledger | R
  >

/**
 * Runs the workflow when the stream is run, and gives the live output of its commands and code, labelled by stage, branch and step.
 *
 * @example
 * ```ts
 * import { Workflow } from "@sandglass/workflow"
 * import { Effect, Stream } from "effect"
 *
 * const ci = Workflow.make("ci").pipe(Workflow.sandbox({ image: "node:22" }, (sb) => sb.exec("npm ci").exec("npm test")))
 *
 * const program = Workflow.stream(ci).pipe(
 *   Stream.runForEach(({ branch, stage, text }) => Effect.log(`${stage}.${branch ?? 0}: ${text}`))
 * )
 * ```
 *
 * @since 0.1.0
 * @category running
 */
export const stream = <Vars, E, R>(
  self: Workflow<Vars, E, R>,
  options: LiveOptions = {}
): Stream.Stream<Output, WorkflowError | E, Sandboxes.Sandboxes | Ledger | R> =>
  Stream.filter(events(self, options), (event): event is Output => event._tag === "Output")

/**
 * Where progress is shown: a Node writable such as `process.stdout`.
 *
 * @since 0.1.0
 * @category models
 */
export interface ProgressTarget {
  write(text: string): unknown
  /** True where it is a terminal: then the view is redrawn in place. */
  readonly isTTY?: boolean | undefined
  readonly columns?: number | undefined
  readonly rows?: number | undefined
}

/**
 * @since 0.1.0
 * @category models
 */
export type ProgressOptions = LiveOptions & {
  /** Default: `process.stdout`. */
  readonly output?: ProgressTarget | undefined
}

/**
 * Runs the workflow and shows its progress: in a terminal live, a line for each branch with the step it is at and the last line that it
 * printed; elsewhere as plain lines, with all output.
 *
 * @since 0.1.0
 * @category running
 */
export const runWithProgress = <Vars, E, R>(
  self: Workflow<Vars, E, R>,
  options: ProgressOptions = {}
): Effect.Effect<Result<Vars>, WorkflowError | E, Sandboxes.Sandboxes | Ledger | R> => {
  const { output = process.stdout, ...rest } = options
  return Progress.show(plan(self), output, (emit) =>
    typed<Vars, E, R>(Lifecycle.execute(Impl.dataOf(self), { ...lifecycleOptions(rest), emit }))
  )
}

/**
 * What the ledger knows of a run.
 *
 * - `running`: it has not ended; if its process has died, it can be resumed
 * - `interrupted`: its process has left it in order; it can be resumed
 *
 * @since 0.1.0
 * @category models
 */
export interface RunDetails {
  readonly runId: string
  /** The workflow's name. */
  readonly name: string
  readonly status: "running" | "interrupted" | "completed" | "failed"
  /** Epoch milliseconds. */
  readonly startedAt: number
}

/**
 * The runs that the ledger knows, the last started first; of one workflow by its name.
 *
 * @since 0.1.0
 * @category inspection
 */
export const runs = (
  filter: { readonly name?: string | undefined } = {}
): Stream.Stream<RunDetails, LedgerError, Ledger> =>
  Stream.unwrap(Effect.map(Ledger, (ledger) => Runs.runs(ledger, filter)))
