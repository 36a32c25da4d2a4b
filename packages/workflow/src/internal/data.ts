/**
 * A workflow as data: its stages, their branches, and the steps of each.
 */
import type { CreateOptions } from "@sandglass/core/Sandboxes"
import type { Compiled } from "./compile.js"
import { compile } from "./compile.js"
import type { PlanStep } from "./describe.js"
import { difference, lines, millis, namesOf, oneLine, optionsOf, plan, sourceOf } from "./describe.js"
import type { Operation, Vars } from "./operation.js"

/** The sandbox of a branch. */
export interface SandboxOptions
  extends Omit<CreateOptions, "runId" | "resourceId" | "teamId" | "detached" | "idempotencyKey"> {
  readonly checkpoints?: "manual" | "each-step" | undefined
  readonly once?: boolean | undefined
}

/** What the stage before came to. */
export interface Previous {
  readonly stdout: string
  readonly exitCode: number | undefined
  readonly vars: Vars
}

export interface Branch {
  readonly options: SandboxOptions
  /** Its steps, or how they are made of what the stage before came to. */
  readonly body: Compiled | ((previous: Previous) => Compiled)
  /** The source of the callback that makes them. */
  readonly source: string
}

export type StageKind = "sandbox" | "parallel" | "sequence"

export interface Stage {
  readonly kind: StageKind
  readonly branches: ReadonlyArray<Branch>
  readonly concurrency: number | "unbounded"
}

export interface Data {
  readonly name: string
  readonly stages: ReadonlyArray<Stage>
}

export const staticBranch = (options: SandboxOptions, operations: ReadonlyArray<Operation>): Branch => ({
  options,
  body: compile(operations),
  source: ""
})

export const dynamicBranch = (
  options: SandboxOptions,
  build: (previous: Previous) => ReadonlyArray<Operation>,
  source: (...args: never) => unknown
): Branch => ({
  options,
  body: (previous) => compile(build(previous)),
  source: typeof source === "function" ? sourceOf(source) : ""
})

/** The image, or whatever else a sandbox is made of. */
export const imageOf = ({ extensions, image }: SandboxOptions): string =>
  image === undefined ? (extensions?.["poolRef"] ?? "sandbox") : typeof image === "string" ? image : image.uri

/** What a branch is called. */
export const branchLabel = (options: SandboxOptions): string => oneLine(options.name ?? imageOf(options), 60)

/** A branch of a plan. */
export interface PlanBranch {
  /** Its number, in a parallel stage. */
  readonly branch: number | undefined
  readonly label: string
  /** The sandbox: image and options. */
  readonly detail: string
  /** Undefined where they are known only when the stage before has ended. */
  readonly steps: ReadonlyArray<PlanStep> | undefined
}

export interface PlanStage {
  readonly stage: number
  readonly kind: StageKind
  readonly branches: ReadonlyArray<PlanBranch>
}

export interface Plan {
  readonly name: string
  readonly stages: ReadonlyArray<PlanStage>
}

/** Stands for what the stage before will come to, in plans. */
const placeholder = (stage: number): Previous => ({
  stdout: `‹stdout of stage ${stage - 1}›`,
  exitCode: 0,
  vars: new Proxy<Vars>(
    {},
    {
      get: (_, name) => (typeof name === "string" ? `‹${name}›` : undefined),
      has: () => true
    }
  )
})

/** The steps as they are known before a run; undefined where they depend on more than the text of what came before. */
const foreseen = ({ body }: Branch, stage: number): Compiled | undefined => {
  if (typeof body !== "function") return body
  try {
    const compiled = body(placeholder(stage))
    return compiled.problems.length === 0 ? compiled : undefined
  } catch {
    return undefined
  }
}

const sandboxDetail = (options: SandboxOptions): string => {
  const { credentialProxy, env, hooks: _hooks, image: _image, metadata, name, timeout, ...rest } = options
  return `${imageOf(options)}${optionsOf({ name, env: namesOf(env), timeout: millis(timeout), metadata, credentialProxy, ...rest })}`
}

export const planOf = ({ name, stages }: Data): Plan => ({
  name,
  stages: stages.map(({ branches, kind }, stage) => ({
    stage,
    kind,
    branches: branches.map((branch, index) => ({
      branch: kind === "parallel" ? index : undefined,
      label: branchLabel(branch.options),
      detail: sandboxDetail(branch.options),
      steps: foreseen(branch, stage)?.steps.map(plan)
    }))
  }))
})

/** A plan as lines of text. */
export const planLines = ({ name, stages }: Plan): ReadonlyArray<string> => [
  `workflow ${name}`,
  ...stages.flatMap(({ branches, kind, stage }) =>
    branches.flatMap(({ branch, detail, steps }) => [
      `stage ${stage}${branch === undefined ? "" : `, branch ${branch}`}: ${kind === "parallel" ? "sandbox" : kind} ${detail}`,
      ...(steps === undefined ? ["  known when the stage before has ended"] : lines(steps, "  "))
    ])
  )
]

/** Everything by which a workflow is known again. */
export const definitionOf = (data: Data): ReadonlyArray<string> => {
  const sources = data.stages.flatMap(({ branches }, stage) =>
    branches.flatMap(({ source }) => (source === "" ? [] : [`stage ${stage}: ${source}`]))
  )
  return [...planLines(planOf(data)), ...sources]
}

/** The steps of a branch, as lines. */
export const stepLines = ({ steps }: Compiled): ReadonlyArray<string> => lines(steps.map(plan), "  ")

/** The mistakes that can be known before a run. */
export const problemsOf = ({ name, stages }: Data): ReadonlyArray<string> => [
  ...(typeof name === "string" && name.trim() !== "" ? [] : ["the workflow has no name"]),
  ...stages.flatMap(({ branches, concurrency }, stage) => [
    ...(concurrency === "unbounded" || (Number.isSafeInteger(concurrency) && concurrency >= 1)
      ? []
      : [`stage ${stage}: the concurrency is ${concurrency}, not a whole number of 1 or more`]),
    ...branches.flatMap(({ body, options }, branch) => {
      const place = `stage ${stage}${branches.length > 1 ? `, branch ${branch}` : ""}`
      const blank =
        imageOf(options).trim() === "" ? ["a blank image"] : options.name?.trim() === "" ? ["a blank name"] : []
      return [...blank, ...(typeof body === "function" ? [] : body.problems)].map((problem) => `${place}: ${problem}`)
    })
  ])
]

export { difference }
