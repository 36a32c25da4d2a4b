/**
 * What a run writes to the ledger. The events of the run as a whole are in a session of its own, whose id is the run's; those of steps are in
 * the session of the sandbox that they ran in, so that a checkpoint covers them as it covers execs.
 */

/** The names of a workflow's events. */
export const EventName = {
  runStarted: "run.started",
  runResumed: "run.resumed",
  runFailing: "run.failing",
  runInterrupted: "run.interrupted",
  runCompleted: "run.completed",
  runFailed: "run.failed",
  stageStarted: "stage.started",
  stageCompleted: "stage.completed",
  stepStarted: "step.started",
  stepCompleted: "step.completed",
  stepFailed: "step.failed",
  stepRolledBack: "step.rolled_back"
} as const

export const stepEvents: ReadonlyArray<string> = [
  EventName.stepStarted,
  EventName.stepCompleted,
  EventName.stepFailed,
  EventName.stepRolledBack
]
