/**
 * The error of workflows. What the effects and predicates of the application fail with arrives as it is, beside it.
 *
 * @since 0.1.0
 */
import { LedgerError } from "@sandglass/core/LedgerError"
import { OpenSandboxError } from "@sandglass/core/OpenSandboxError"
import { CodeError, CommandError, ExecError, ReplayDivergence, SandboxError } from "@sandglass/core/SandboxError"
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"

/**
 * @since 0.1.0
 * @category type ids
 */
export const TypeId = "~@sandglass/workflow/WorkflowError"

/**
 * What a sandbox, its server or the ledger failed with.
 *
 * @since 0.1.0
 * @category schemas
 */
export const Failure = Schema.Union(
  CommandError,
  CodeError,
  ExecError,
  ReplayDivergence,
  SandboxError,
  OpenSandboxError,
  LedgerError
)

/**
 * @since 0.1.0
 * @category models
 */
export type Failure = typeof Failure.Type

/**
 * Why a workflow failed.
 *
 * - `InvalidInput`: the workflow makes no sense as it is written (a count of 0, an empty command, …); nothing has run
 * - `StepFailed`: an operation failed; `failure` says how
 * - `SandboxFailed`: a sandbox could not be created, taken up again or restored; `failure` says how
 * - `LedgerFailed`: the ledger failed, or does not hold what it should; nothing is undone, and the run can be resumed
 * - `RunExists`: there is a run of this id already: resume it
 * - `RunNotFound`: the ledger knows no run of this id
 * - `RunFailed`: the run had failed already, with an error that only its own process knew; the description tells its message
 * - `DefinitionChanged`: the workflow is not the one that the run was started with; `difference` tells where
 * - `StepsLost`: finished steps would have to run again, and `rerun: false` forbids it
 * - `Superseded`: another process has taken up the run
 *
 * @since 0.1.0
 * @category models
 */
export const WorkflowErrorReason = Schema.Literal(
  "InvalidInput",
  "StepFailed",
  "SandboxFailed",
  "LedgerFailed",
  "RunExists",
  "RunNotFound",
  "RunFailed",
  "DefinitionChanged",
  "StepsLost",
  "Superseded"
)

/**
 * @since 0.1.0
 * @category models
 */
export type WorkflowErrorReason = typeof WorkflowErrorReason.Type

/**
 * A workflow failed, could not be started, or could not be resumed.
 *
 * @since 0.1.0
 * @category errors
 */
export class WorkflowError extends Schema.TaggedError<WorkflowError>("@sandglass/workflow/WorkflowError")(
  "WorkflowError",
  {
    workflow: Schema.String,
    runId: Schema.optional(Schema.String),
    reason: WorkflowErrorReason,
    description: Schema.String,
    /** Which stage, counted from 0. */
    stage: Schema.optional(Schema.Number),
    /** Which branch of a parallel stage, counted from 0. */
    branch: Schema.optional(Schema.Number),
    /** The step's id within its stage, as in `Workflow.plan`, with the attempt of each `retry` around it: `2@3.0`. */
    step: Schema.optional(Schema.String),
    failure: Schema.optional(Failure),
    /** Of `DefinitionChanged`: lines that are gone begin with `-`, new ones with `+`. */
    difference: Schema.optional(Schema.Array(Schema.String))
  }
) {
  /**
   * @since 0.1.0
   */
  readonly [TypeId] = TypeId

  override get message(): string {
    const place = [
      this.stage === undefined ? undefined : `stage ${this.stage}`,
      this.branch === undefined ? undefined : `branch ${this.branch}`,
      this.step === undefined ? undefined : `step ${this.step}`
    ].filter((part) => part !== undefined)
    const where = place.length === 0 ? "" : ` (${place.join(", ")})`
    const difference = this.difference === undefined ? "" : `\n${this.difference.join("\n")}`
    return `${this.workflow}: ${this.reason}: ${this.description}${where}${difference}`
  }
}

/**
 * @since 0.1.0
 * @category guards
 */
export const isWorkflowError = (u: unknown): u is WorkflowError => Predicate.hasProperty(u, TypeId)
