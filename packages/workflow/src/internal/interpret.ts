/**
 * Walks through the steps of a sandbox: order, loops, ways, attempts. It knows neither sandboxes nor ledgers: how a single step is carried
 * out, once and durably, is the driver's business.
 */
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as ScheduleDecision from "effect/ScheduleDecision"
import * as ScheduleIntervals from "effect/ScheduleIntervals"
import type { Failure } from "../WorkflowError.js"
import { kindOf, labelOf } from "./describe.js"
import type { InterpreterError } from "./failure.js"
import { failuresOf, isRepeatable, StepFailure } from "./failure.js"
import type { Context, ForEachStep, LeafStep, RetryStep, Step, Vars, WhenStep } from "./operation.js"
import type { Text } from "./text.js"
import * as Texts from "./text.js"

/** What a step came to: plain data, as it can be recorded. */
export interface Outcome {
  /** Of commands and code. */
  readonly exitCode?: number | undefined
  readonly stdout?: string | undefined
  readonly stderr?: string | undefined
  /** True where `stdout` or `stderr` had more than the step's limit. */
  readonly truncated?: boolean | undefined
  /** What it captured. */
  readonly vars?: Vars | undefined
}

/** The result of a step, for those who ran the workflow. */
export interface StepResult {
  readonly id: string
  readonly kind: string
  readonly label: string
  readonly exitCode?: number | undefined
  readonly stdout?: string | undefined
  readonly stderr?: string | undefined
  readonly truncated?: boolean | undefined
}

/** What is known when a step runs, as data. */
export interface Snapshot {
  readonly stdout: Text
  readonly exitCode: number | undefined
  readonly vars: Vars
}

/** What a list of steps adds to it. */
export interface Progress extends Snapshot {
  readonly results: ReadonlyArray<StepResult>
  readonly truncated: boolean
}

/** Where a step stands in a run. */
export interface Position {
  /** The step's id, with the number of the attempt after each retry: `2@3.0`. */
  readonly instance: string
  /** Of the innermost retry; 1 outside of any. */
  readonly attempt: number
}

/** Whether a command's exit code fails the step: asked only where it is not 0. */
export type Verdict = (failure: StepFailure) => Effect.Effect<boolean, InterpreterError, unknown>

export interface Driver {
  /** Carries a step out, or tells what it came to when it was carried out before. */
  readonly leaf: (
    step: LeafStep,
    at: Position,
    snapshot: Snapshot,
    verdict: Verdict
  ) => Effect.Effect<Outcome, InterpreterError, unknown>
  /** Which way to go: true for `then`. */
  readonly decide: (
    step: WhenStep,
    at: Position,
    snapshot: Snapshot
  ) => Effect.Effect<boolean, InterpreterError, unknown>
  /** Waits before another attempt, whose steps have this prefix. */
  readonly pause: (prefix: string, millis: number) => Effect.Effect<void, InterpreterError, unknown>
  /** Undoes the completed steps of an attempt that is about to be repeated. */
  readonly undo: (prefix: string) => Effect.Effect<void, InterpreterError, unknown>
  /** True: nothing is carried out; every list is followed as far as it was, whatever fails beside it. */
  readonly walk: boolean
  /** How many characters of stdout are kept. */
  readonly maxOutput: number
}

interface Controller {
  /** Whether the retry tries again after this failure. The answer is kept for when the failure arrives. */
  readonly claims: (failure: StepFailure) => Effect.Effect<boolean, never, unknown>
}

interface Env {
  readonly driver: Driver
  readonly prefix: string
  readonly attempt: number
  /** The retries around, innermost first. */
  readonly retries: ReadonlyArray<Controller>
}

type Interpreted<A> = Effect.Effect<A, InterpreterError, unknown>

export const start: Snapshot = { stdout: Texts.empty, exitCode: undefined, vars: {} }

const nothing: Progress = { ...start, results: [], truncated: false }

/** What is known after more has been done. */
export const after = (before: Snapshot, done: Snapshot, maxOutput: number): Snapshot => ({
  stdout: Texts.concat(before.stdout, done.stdout, maxOutput),
  exitCode: done.exitCode ?? before.exitCode,
  vars: done.vars === start.vars ? before.vars : { ...before.vars, ...done.vars }
})

/** For the functions of the application. */
export const contextOf = ({ exitCode, stdout, vars }: Snapshot, maxOutput: number): Context => ({
  get stdout() {
    return Texts.render(stdout, maxOutput)
  },
  exitCode,
  vars
})

const fromOutcome = (step: LeafStep, at: Position, outcome: Outcome, maxOutput: number): Progress => {
  const { exitCode, stderr, stdout, truncated, vars } = outcome
  return {
    stdout: stdout === undefined ? Texts.empty : Texts.append(Texts.empty, stdout, maxOutput),
    exitCode,
    vars: vars ?? start.vars,
    results: [
      {
        id: at.instance,
        kind: kindOf(step),
        label: labelOf(step),
        ...(exitCode === undefined ? {} : { exitCode }),
        ...(stdout === undefined ? {} : { stdout }),
        ...(stderr === undefined ? {} : { stderr }),
        ...(truncated === true ? { truncated } : {})
      }
    ],
    truncated: truncated === true
  }
}

/** Puts together what was done one after another, or what counts as such. */
const joined = (parts: ReadonlyArray<Progress>, maxOutput: number): Progress => {
  let all: Snapshot = start
  const results: Array<StepResult> = []
  let truncated = false
  for (const part of parts) {
    all = after(all, part, maxOutput)
    for (const result of part.results) results.push(result)
    truncated ||= part.truncated
  }
  return { ...all, results, truncated }
}

/** A list of steps, begun with what is known before it. */
export const list = (steps: ReadonlyArray<Step>, env: Env, before: Snapshot): Interpreted<Progress> => {
  const only = steps[0]
  if (only === undefined) return Effect.succeed(nothing)
  const { maxOutput } = env.driver
  if (steps.length === 1) return one(only, env, before)
  return Effect.gen(function* () {
    let now = before
    const parts: Array<Progress> = []
    for (const step of steps) {
      const part = yield* one(step, env, now)
      now = after(now, part, maxOutput)
      parts.push(part)
    }
    return joined(parts, maxOutput)
  })
}

const one = (step: Step, env: Env, now: Snapshot): Interpreted<Progress> => {
  switch (step._tag) {
    case "Retry":
      return retry(step, env, now)
    case "When":
      return when(step, env, now)
    case "ForEach":
      return forEach(step, env, now)
    default:
      return leaf(step, env, now)
  }
}

const positionOf = (step: Step, env: Env): Position => ({
  instance: env.prefix + step.segment,
  attempt: env.attempt
})

const leaf = (step: LeafStep, env: Env, now: Snapshot): Interpreted<Progress> => {
  const at = positionOf(step, env)
  const { driver, retries } = env
  const { decided } = step
  const verdict: Verdict = (failure) =>
    decided === undefined
      ? Effect.succeed(true)
      : Effect.gen(function* () {
          for (const controller of retries.slice(0, decided)) if (yield* controller.claims(failure)) return true
          return false
        })
  return Effect.map(driver.leaf(step, at, now, verdict), (outcome) => fromOutcome(step, at, outcome, driver.maxOutput))
}

const when = (step: WhenStep, env: Env, now: Snapshot): Interpreted<Progress> => {
  const at = positionOf(step, env)
  return Effect.flatMap(env.driver.decide(step, at, now), (yes) => {
    const way = yes ? step.yes : step.no
    return way === undefined
      ? Effect.succeed(nothing)
      : list(way, { ...env, prefix: `${at.instance}.${yes ? "then" : "else"}.` }, now)
  })
}

const forEach = (step: ForEachStep, env: Env, now: Snapshot): Interpreted<Progress> => {
  const { driver } = env
  const iteration = (steps: ReadonlyArray<Step>, index: number) =>
    list(steps, { ...env, prefix: `${env.prefix}${step.segment}[${index}].` }, now)
  const parts = driver.walk
    ? Effect.flatMap(
        Effect.forEach(step.iterations, (steps, index) => Effect.exit(iteration(steps, index))),
        (exits) => Option.getOrElse(Exit.all(exits), () => Exit.succeed<Array<Progress>>([]))
      )
    : Effect.forEach(step.iterations, iteration, { concurrency: step.concurrency })
  return Effect.map(parts, (parts) => joined(parts, driver.maxOutput))
}

/** Where a schedule stands. */
interface Driven {
  state: unknown
}

/** How long to wait before the next attempt; undefined where there is none. */
const nextDelay = (
  step: RetryStep,
  attempt: number,
  driven: Driven,
  failure: Failure
): Effect.Effect<number | undefined, never, unknown> =>
  Effect.gen(function* () {
    if (attempt > step.times) return undefined
    if (step.schedule === undefined) return 0
    const now = yield* Clock.currentTimeMillis
    const [state, , decision] = yield* step.schedule.step(now, failure, driven.state)
    driven.state = state
    return ScheduleDecision.isDone(decision)
      ? undefined
      : Math.max(0, ScheduleIntervals.start(decision.intervals) - now)
  })

const retry = (step: RetryStep, env: Env, now: Snapshot): Interpreted<Progress> => {
  const { driver } = env
  const instance = env.prefix + step.segment
  const driven: Driven = { state: step.schedule?.initial }
  const attemptFrom = (attempt: number): Interpreted<Progress> =>
    Effect.suspend(() => {
      const prefix = `${instance}@${attempt}.`
      let answered: { readonly failure: StepFailure; readonly delay: number | undefined } | undefined
      const ask = (failure: StepFailure): Effect.Effect<number | undefined, never, unknown> => {
        if (answered?.failure === failure) return Effect.succeed(answered.delay)
        if (!isRepeatable(failure, step)) return Effect.succeed(undefined)
        // What is repeatable is a failure of the sandbox.
        return Effect.tap(nextDelay(step, attempt, driven, failure.error as Failure), (delay) =>
          Effect.sync(() => {
            answered = { failure, delay }
          })
        )
      }
      const controller: Controller = { claims: (failure) => Effect.map(ask(failure), (delay) => delay !== undefined) }
      const inner: Env = { driver, prefix, attempt, retries: [controller, ...env.retries] }
      return Effect.catchAllCause(list(step.body, inner, now), (cause) =>
        Effect.gen(function* () {
          const failures = failuresOf(cause)
          const [failure] = failures
          if (!(failure instanceof StepFailure)) return yield* Effect.failCause(cause)
          for (const other of failures) {
            if (!(other instanceof StepFailure && isRepeatable(other, step))) return yield* Effect.failCause(cause)
          }
          const delay = yield* ask(failure)
          if (delay === undefined) return yield* Effect.failCause(cause)
          yield* Effect.catchAllCause(driver.undo(prefix), (undoing) =>
            Effect.failCause(Cause.sequential(cause, undoing))
          )
          yield* driver.pause(`${instance}@${attempt + 1}.`, delay)
          return yield* attemptFrom(attempt + 1)
        })
      )
    })
  return attemptFrom(1)
}

/** All steps of a sandbox. */
export const interpret = (
  steps: ReadonlyArray<Step>,
  driver: Driver,
  before: Snapshot,
  prefix = ""
): Interpreted<Progress> => list(steps, { driver, prefix, attempt: 1, retries: [] }, before)
