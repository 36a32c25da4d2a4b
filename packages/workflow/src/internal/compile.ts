/**
 * Gives operations their places, finds the commands that a `when` decides on, and the mistakes.
 */
import * as Duration from "effect/Duration"
import * as Option from "effect/Option"
import type { LeafOperation, LeafStep, Operation, Step } from "./operation.js"

export interface Compiled {
  readonly steps: ReadonlyArray<Step>
  /** How many steps there are, inner ones included. */
  readonly size: number
  readonly problems: ReadonlyArray<string>
}

type Mutable<A> = { -readonly [K in keyof A]: A[K] }

/** A command whose exit code is the last one, and how many retries have closed around it since. */
interface Candidate {
  readonly step: Mutable<LeafStep>
  readonly crossed: number
}

const isText = (value: unknown): boolean => typeof value === "string" && value !== ""
const isPath = (value: unknown): boolean => typeof value === "function" || isText(value)

const isCommand = (command: unknown): boolean =>
  typeof command === "function" ||
  (typeof command === "string" && command.trim() !== "") ||
  (Array.isArray(command) &&
    command.length > 0 &&
    command.every((word) => typeof word === "string") &&
    command[0]?.trim() !== "")

const isCount = (value: unknown): boolean => typeof value === "number" && Number.isSafeInteger(value) && value >= 1

const leafProblem = (operation: LeafOperation): string | undefined => {
  if (operation.label !== undefined && !isText(operation.label)) return "an empty label"
  switch (operation._tag) {
    case "Exec": {
      const { maxOutput, timeout } = operation.options
      if (!isCommand(operation.command)) return "an empty command"
      if (maxOutput !== undefined && !(maxOutput >= 0)) return `maxOutput is ${maxOutput}`
      return timeout !== undefined && Option.isNone(Duration.decodeUnknown(timeout))
        ? "timeout is no duration"
        : undefined
    }
    case "Code": {
      const { code, language, maxOutput } = operation
      if (typeof code !== "function" && (typeof code !== "string" || code.trim() === "")) return "empty code"
      if (maxOutput !== undefined && !(maxOutput >= 0)) return `maxOutput is ${maxOutput}`
      return isText(language) ? undefined : "code without a language"
    }
    case "WriteFile":
    case "DeleteFile":
      return isPath(operation.path) ? undefined : "an empty path"
    case "ReadFile":
      if (!isPath(operation.path)) return "an empty path"
      if (!isText(operation.as)) return "a variable without a name"
      return isCount(operation.maxBytes)
        ? undefined
        : `maxBytes is ${operation.maxBytes}, not a whole number of 1 or more`
    case "MoveFile":
      return isPath(operation.from) && isPath(operation.to) ? undefined : "an empty path"
    case "Checkpoint":
      return operation.tag === undefined || isText(operation.tag) ? undefined : "an empty tag"
    case "Effect":
      if (typeof operation.run !== "function") return "an effect that is no function of the sandbox"
      if (operation.as === undefined) return undefined
      if (!isText(operation.as)) return "a variable without a name"
      return operation.schema === undefined ? `the variable ${operation.as} has no schema to record it with` : undefined
  }
}

export const compile = (operations: ReadonlyArray<Operation>): Compiled => {
  const problems: Array<string> = []
  let size = 0

  const note = (id: string, problem: string | undefined) => {
    if (problem !== undefined) problems.push(`step ${id}: ${problem}`)
  }

  /** Steps of one list, and the commands that may be the last to have run when it has ended. */
  const list = (
    operations: ReadonlyArray<Operation>,
    prefix: string,
    before: ReadonlyArray<Candidate>
  ): { readonly steps: ReadonlyArray<Step>; readonly last: ReadonlyArray<Candidate> } => {
    const steps: Array<Step> = []
    let last = before
    operations.forEach((operation, position) => {
      const segment = String(position)
      const place = { idx: size++, id: prefix + segment, segment }
      switch (operation._tag) {
        case "Invalid":
          note(place.id, operation.problem)
          return
        case "Retry": {
          note(
            place.id,
            isCount(operation.times)
              ? undefined
              : `the count of a retry is ${operation.times}, not a whole number of 1 or more`
          )
          const { last: inner, steps: body } = list(operation.body, `${place.id}.`, last)
          last = inner.map((candidate) =>
            last.includes(candidate) ? candidate : { ...candidate, crossed: candidate.crossed + 1 }
          )
          steps.push({ ...operation, ...place, body })
          return
        }
        case "When": {
          note(place.id, typeof operation.predicate === "function" ? undefined : "the predicate is no function")
          for (const { crossed, step } of last) step.decided = Math.min(step.decided ?? crossed, crossed)
          const yes = list(operation.yes, `${place.id}.then.`, last)
          const no = operation.no === undefined ? undefined : list(operation.no, `${place.id}.else.`, last)
          last = [...new Set([...yes.last, ...(no?.last ?? last)])]
          steps.push({ ...operation, ...place, yes: yes.steps, no: no?.steps })
          return
        }
        case "ForEach": {
          const { concurrency } = operation
          note(
            place.id,
            concurrency === "unbounded" || isCount(concurrency)
              ? undefined
              : `the concurrency of a loop is ${concurrency}, not a whole number of 1 or more`
          )
          const start = last
          const iterations = operation.iterations.map((body, index) => {
            const inner = list(body, `${place.id}[${index}].`, start)
            const own = inner.last.filter((candidate) => !start.includes(candidate))
            // The last item whose commands have run says the exit code.
            if (own.length > 0) last = own.length < inner.last.length ? [...new Set([...last, ...own])] : own
            return inner.steps
          })
          steps.push({ ...operation, ...place, iterations })
          return
        }
        default: {
          note(place.id, leafProblem(operation))
          const step: Mutable<LeafStep> = { ...operation, ...place, rollback: undefined, decided: undefined }
          if (step._tag === "Exec" || step._tag === "Code") last = [{ step, crossed: 0 }]
          if (operation.rollback !== undefined) step.rollback = list(operation.rollback, `${place.id}!`, []).steps
          steps.push(step)
        }
      }
    })
    return { steps, last }
  }

  const { steps } = list(operations, "", [])
  return { steps, size, problems }
}
