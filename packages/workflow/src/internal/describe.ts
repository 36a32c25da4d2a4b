/**
 * What steps do, in words: for plans and graphs, and to tell whether a workflow is still the one that a run was started with. Functions
 * are told by their source, contents of files by their hash, secrets not at all.
 */
import { createHash } from "node:crypto"
import * as Duration from "effect/Duration"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import type { Command, Content, Dynamic, LeafStep, Step } from "./operation.js"

/** A step of a plan. */
export interface PlanStep {
  readonly id: string
  readonly idx: number
  readonly kind: string
  /** What it is called: its label, or what it does. */
  readonly label: string
  /** Everything that decides what it does. */
  readonly detail: string
  /** The lists of steps in it: the body of a retry, the two ways of a when, the items of a loop. */
  readonly groups: ReadonlyArray<{ readonly label: string; readonly steps: ReadonlyArray<PlanStep> }>
  readonly rollback: ReadonlyArray<PlanStep>
}

const hash = (content: string | Uint8Array): string => createHash("sha256").update(content).digest("hex").slice(0, 16)

const sourceLimit = 160

/** The source of a function, on one line. */
export const sourceOf = (fn: (...args: never) => unknown): string => {
  const source = String(fn).replace(/\s+/g, " ")
  return source.length <= sourceLimit ? source : `${source.slice(0, sourceLimit)}… (${hash(source)})`
}

/** Runs of white space as one blank; no longer than fits a line. */
export const oneLine = (text: string, limit = 100): string => {
  const line = text.trim().replace(/\s+/g, " ")
  return line.length <= limit ? line : `${line.slice(0, limit - 1)}…`
}

const isDynamic = <A>(value: Dynamic<A>): value is Exclude<Dynamic<A>, A> => typeof value === "function"

const textOf = (value: Dynamic<string>): string => (isDynamic(value) ? sourceOf(value) : JSON.stringify(value))

export const shownCommand = (command: Command): string =>
  typeof command === "string"
    ? command
    : command.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : JSON.stringify(word))).join(" ")

const commandOf = (command: Dynamic<Command>): string =>
  isDynamic(command) ? sourceOf(command) : JSON.stringify(command)

const contentOf = (content: Dynamic<Content>): string => {
  if (isDynamic(content)) return sourceOf(content)
  if (Redacted.isRedacted(content)) return "<redacted>"
  return `${content.length} ${typeof content === "string" ? "characters" : "bytes"} (${hash(content)})`
}

/** The options that are set, as `name=value`. */
export const optionsOf = (options: { readonly [name: string]: unknown }): string =>
  Object.entries(options)
    .filter(([, value]) => value !== undefined)
    .map(
      ([name, value]) =>
        ` ${name}=${typeof value === "string" ? JSON.stringify(value) : (JSON.stringify(value) ?? String(value))}`
    )
    .join("")

export const millis = (duration: Duration.DurationInput | undefined): number | undefined =>
  duration === undefined
    ? undefined
    : Option.getOrUndefined(Option.map(Duration.decodeUnknown(duration), Duration.toMillis))

export const namesOf = (env: object | undefined): ReadonlyArray<string> | undefined =>
  env === undefined ? undefined : Object.keys(env).sort()

const kinds = {
  Exec: "exec",
  Code: "execCode",
  WriteFile: "writeFile",
  ReadFile: "readFile",
  DeleteFile: "deleteFile",
  MoveFile: "moveFile",
  Checkpoint: "checkpoint",
  Effect: "effect",
  Retry: "retry",
  When: "when",
  ForEach: "forEach"
} as const satisfies { readonly [Tag in Step["_tag"]]: string }

export const kindOf = (step: Step): string => kinds[step._tag]

const leafLabel = (step: LeafStep): string => {
  if (step.label !== undefined) return oneLine(step.label)
  switch (step._tag) {
    case "Exec":
      return oneLine(isDynamic(step.command) ? sourceOf(step.command) : shownCommand(step.command))
    case "Code":
      return oneLine(`${step.language}: ${isDynamic(step.code) ? sourceOf(step.code) : step.code}`)
    case "WriteFile":
      return oneLine(`write ${textOf(step.path)}`)
    case "ReadFile":
      return oneLine(`${step.as} = read ${textOf(step.path)}`)
    case "DeleteFile":
      return oneLine(`delete ${textOf(step.path)}`)
    case "MoveFile":
      return oneLine(`move ${textOf(step.from)} to ${textOf(step.to)}`)
    case "Checkpoint":
      return step.tag === undefined ? "checkpoint" : `checkpoint ${step.tag}`
    case "Effect":
      return oneLine(step.label)
  }
}

const octal = (mode: number | string | undefined): string | undefined =>
  typeof mode === "number" ? mode.toString(8) : mode

const leafDetail = (step: LeafStep): string => {
  const label = optionsOf({ label: step.label })
  switch (step._tag) {
    case "Exec": {
      const { env, stdin, timeout, ...options } = step.options
      const known = {
        ...options,
        once: step.once,
        env: namesOf(env),
        timeout: millis(timeout),
        stdin: typeof stdin === "string" || stdin instanceof Uint8Array ? contentOf(stdin) : undefined
      }
      return `${commandOf(step.command)}${optionsOf(known)}${label}`
    }
    case "Code":
      return `${textOf(step.code)} language=${step.language}${label}`
    case "WriteFile":
      return `${textOf(step.path)} ${contentOf(step.content)}${optionsOf({ ...step.permission, mode: octal(step.permission.mode) })}${label}`
    case "ReadFile":
      return `${textOf(step.path)} as=${step.as}${label}`
    case "DeleteFile":
      return `${textOf(step.path)}${label}`
    case "MoveFile":
      return `${textOf(step.from)} to ${textOf(step.to)}${label}`
    case "Checkpoint":
      return step.tag ?? ""
    case "Effect":
      return `${JSON.stringify(step.label)} ${sourceOf(step.run)}${optionsOf({ as: step.as })}`
  }
}

export const labelOf = (step: Step): string => {
  switch (step._tag) {
    case "Retry":
      return `up to ${step.times} more ${step.times === 1 ? "time" : "times"}`
    case "When":
      return oneLine(sourceOf(step.predicate).replace(/^\(?\w*\)? => /, ""))
    case "ForEach":
      return step.concurrency === 1 ? "one after another" : `${step.concurrency} at once`
    default:
      return leafLabel(step)
  }
}

/** How an item of a loop is called. */
export const itemLabel = (item: string): string => oneLine(item, 60)

const plans = (steps: ReadonlyArray<Step>): ReadonlyArray<PlanStep> => steps.map(plan)

export const plan = (step: Step): PlanStep => {
  const base = { id: step.id, idx: step.idx, kind: kindOf(step), label: labelOf(step) }
  switch (step._tag) {
    case "Retry":
      return {
        ...base,
        detail: `times=${step.times}${step.schedule === undefined ? "" : " schedule"}${step.unknownOutcome ? " unknownOutcome" : ""}`,
        groups: [{ label: "steps", steps: plans(step.body) }],
        rollback: []
      }
    case "When":
      return {
        ...base,
        detail: sourceOf(step.predicate),
        groups: [
          { label: "then", steps: plans(step.yes) },
          ...(step.no === undefined ? [] : [{ label: "else", steps: plans(step.no) }])
        ],
        rollback: []
      }
    case "ForEach":
      return {
        ...base,
        detail: `concurrency=${step.concurrency}`,
        groups: step.iterations.map((steps, index) => ({
          label: itemLabel(step.items[index] ?? ""),
          steps: plans(steps)
        })),
        rollback: []
      }
    default:
      return {
        ...base,
        detail: leafDetail(step),
        groups: [],
        rollback: step.rollback === undefined ? [] : plans(step.rollback)
      }
  }
}

/** A list of steps as lines, inner ones indented. */
export const lines = (steps: ReadonlyArray<PlanStep>, indent: string): ReadonlyArray<string> =>
  steps.flatMap((step) => [
    `${indent}${step.kind} ${step.detail}`.trimEnd(),
    ...step.groups.flatMap(({ label, steps }) => [`${indent}  ${label}:`, ...lines(steps, `${indent}    `)]),
    ...(step.rollback.length === 0 ? [] : [`${indent}  rollback:`, ...lines(step.rollback, `${indent}    `)])
  ])

const context = 2

/** What is gone (`-`) and what is new (`+`) between two lists of lines, with two lines before and after. */
export const difference = (before: ReadonlyArray<string>, after: ReadonlyArray<string>): ReadonlyArray<string> => {
  let start = 0
  while (start < before.length && start < after.length && before[start] === after[start]) start++
  let end = 0
  while (
    end < before.length - start &&
    end < after.length - start &&
    before[before.length - 1 - end] === after[after.length - 1 - end]
  ) {
    end++
  }
  const gone = before.slice(start, before.length - end)
  const come = after.slice(start, after.length - end)
  if (gone.length === 0 && come.length === 0) return []
  const limit = 20
  const shown = (mark: string, lines: ReadonlyArray<string>) => [
    ...lines.slice(0, limit).map((line) => `${mark} ${line}`),
    ...(lines.length > limit ? [`${mark} … ${lines.length - limit} more lines`] : [])
  ]
  return [
    ...before.slice(Math.max(0, start - context), start).map((line) => `  ${line}`),
    ...shown("-", gone),
    ...shown("+", come),
    ...before.slice(before.length - end, before.length - end + context).map((line) => `  ${line}`)
  ]
}
