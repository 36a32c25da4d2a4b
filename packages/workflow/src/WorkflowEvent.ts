/**
 * What happens while a workflow runs: as it is told live, and as it is recorded.
 *
 * @since 0.1.0
 */
import * as Events from "./internal/events.js"

/**
 * The names under which a run is recorded. Events of the run and its stages are in the session whose id is the run's id; those of steps are in the
 * session of the sandbox that they ran in.
 *
 * @since 0.1.0
 * @category models
 */
export const EventName: {
  readonly runStarted: "run.started"
  readonly runResumed: "run.resumed"
  readonly runFailing: "run.failing"
  readonly runInterrupted: "run.interrupted"
  readonly runCompleted: "run.completed"
  readonly runFailed: "run.failed"
  readonly stageStarted: "stage.started"
  readonly stageCompleted: "stage.completed"
  readonly stepStarted: "step.started"
  readonly stepCompleted: "step.completed"
  readonly stepFailed: "step.failed"
  readonly stepRolledBack: "step.rolled_back"
} = Events.EventName

/**
 * Where something happened.
 *
 * @since 0.1.0
 * @category models
 */
export interface Site {
  /** Which stage, counted from 0. */
  readonly stage: number
  /** Which branch of a parallel stage, counted from 0; undefined elsewhere. */
  readonly branch: number | undefined
}

/**
 * A step, in a run.
 *
 * @since 0.1.0
 * @category models
 */
export interface StepSite extends Site {
  /** Its id within its stage, as in `Workflow.plan`, with the attempt of each `retry` around it: `2@3.0`. */
  readonly step: string
  /** Its number within its stage, counted from 0. */
  readonly idx: number
  readonly kind: string
  readonly label: string
}

/**
 * Live output of a command or of code, labelled by where it comes from.
 *
 * @since 0.1.0
 * @category models
 */
export interface Output extends StepSite {
  readonly _tag: "Output"
  readonly stream: "stdout" | "stderr"
  /** What arrived together; it need not end at a line end. */
  readonly text: string
}

/**
 * @since 0.1.0
 * @category models
 */
export type WorkflowEvent =
  | { readonly _tag: "RunStarted"; readonly runId: string; readonly resumed: boolean }
  | (Site & {
      readonly _tag: "StageStarted"
      readonly label: string
      readonly sandboxId: string
      /** How many steps it has, inner ones included. */
      readonly steps: number
    })
  | (Site & { readonly _tag: "StageCompleted" })
  | (StepSite & { readonly _tag: "StepStarted" })
  | Output
  | (StepSite & {
      readonly _tag: "StepCompleted"
      readonly exitCode: number | undefined
      /** True where it was known from the ledger, and did not run. */
      readonly recorded: boolean
    })
  | (StepSite & { readonly _tag: "StepFailed"; readonly message: string })
  | (StepSite & { readonly _tag: "StepRolledBack" })
  | { readonly _tag: "RunCompleted"; readonly runId: string }
  | { readonly _tag: "RunFailed"; readonly runId: string; readonly message: string }
