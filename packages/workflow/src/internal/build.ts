import * as Effect from "effect/Effect"
import type * as Schedule from "effect/Schedule"
import type * as Schema from "effect/Schema"
import type {
  CodeStepOptions,
  ExecStepOptions,
  ForEachOptions,
  ReadFileOptions,
  RetryOptions,
  StepOptions,
  Steps,
  WriteStepOptions
} from "../Steps.js"
import type {
  Command,
  Content,
  Context,
  Dynamic,
  ForEach,
  LeafOperation,
  Operation,
  Retry,
  Run,
  Vars,
  When
} from "./operation.js"

/** Where a list of steps began: a callback has to return what it built on its own argument. */
class Root {}

type AnyOptions = StepOptions<Vars, unknown, unknown>
type Build = (sandbox: StepsImpl, ...rest: ReadonlyArray<unknown>) => unknown

const covariant = { _E: (_: never) => _, _R: (_: never) => _ }

/** The default of what a file captured by `readFile` may hold, and of what a step's result keeps of its output. */
export const defaultMaxBytes = 1_048_576
export const defaultMaxOutput = 1_048_576

/** A list that grows at its end without being copied. */
export class StepsImpl {
  readonly "~@sandglass/workflow/Steps" = covariant

  constructor(
    readonly root: Root,
    private readonly before: StepsImpl | undefined,
    private readonly operation: Operation | undefined
  ) {}

  get operations(): ReadonlyArray<Operation> {
    const operations: Array<Operation> = []
    for (let at: StepsImpl | undefined = this; at !== undefined; at = at.before) {
      if (at.operation !== undefined) operations.push(at.operation)
    }
    return operations.reverse()
  }

  private add(operation: Operation): StepsImpl {
    return new StepsImpl(this.root, this, operation)
  }

  private leaf(operation: LeafOperation, { rollback }: Pick<AnyOptions, "rollback">): StepsImpl {
    return this.add({ ...operation, rollback: rollback === undefined ? undefined : erased(rollback) })
  }

  exec(command: Dynamic<Command>, options: ExecStepOptions<Vars, unknown, unknown> = {}): StepsImpl {
    const { label, once, rollback, ...rest } = options
    return this.leaf({ _tag: "Exec", command, options: rest, once, label }, { rollback })
  }

  execCode(code: Dynamic<string>, options: CodeStepOptions<Vars, unknown, unknown>): StepsImpl {
    const { label, language, maxOutput } = options
    return this.leaf({ _tag: "Code", code, language, maxOutput, label }, options)
  }

  writeFile(
    path: Dynamic<string>,
    content: Dynamic<Content>,
    options: WriteStepOptions<Vars, unknown, unknown> = {}
  ): StepsImpl {
    const { label, rollback, ...permission } = options
    return this.leaf({ _tag: "WriteFile", path, content, permission, label }, { rollback })
  }

  readFile(path: Dynamic<string>, as: string, options: ReadFileOptions = {}): StepsImpl {
    const { label, maxBytes = defaultMaxBytes } = options
    return this.leaf({ _tag: "ReadFile", path, as, maxBytes, label }, {})
  }

  deleteFile(path: Dynamic<string>, options: AnyOptions = {}): StepsImpl {
    return this.leaf({ _tag: "DeleteFile", path, label: options.label }, options)
  }

  moveFile(from: Dynamic<string>, to: Dynamic<string>, options: AnyOptions = {}): StepsImpl {
    return this.leaf({ _tag: "MoveFile", from, to, label: options.label }, options)
  }

  checkpoint(tag?: string): StepsImpl {
    return this.leaf({ _tag: "Checkpoint", tag, label: undefined }, {})
  }

  effect(
    label: string,
    run: Run["run"],
    options: AnyOptions & {
      readonly as?: string | undefined
      readonly schema?: Schema.Schema<unknown, unknown> | undefined
    } = {}
  ): StepsImpl {
    return this.leaf({ _tag: "Effect", label, run, as: options.as, schema: options.schema }, options)
  }

  retry(options: RetryOptions<unknown>, build: Build): StepsImpl {
    return this.add({
      _tag: "Retry",
      times: options.times,
      // It is given nothing but what it is declared for.
      schedule: options.schedule as Schedule.Schedule<unknown, unknown, unknown> | undefined,
      unknownOutcome: options.unknownOutcome ?? false,
      body: erased(build)
    })
  }

  when(predicate: When<unknown>["predicate"], then: Build, otherwise?: Build): StepsImpl {
    return this.add({
      _tag: "When",
      predicate,
      yes: erased(then),
      no: otherwise === undefined ? undefined : erased(otherwise)
    })
  }

  forEach(items: ReadonlyArray<unknown>, ...rest: readonly [Build] | readonly [ForEachOptions, Build]): StepsImpl {
    const [options, build] = rest.length === 1 ? [{}, rest[0]] : rest
    return this.add({
      _tag: "ForEach",
      concurrency: options.concurrency ?? 1,
      items: items.map(shown),
      iterations: items.map((item, index) => erased(build, item, index))
    })
  }
}

const shown = (item: unknown): string => {
  if (typeof item === "string") return item
  try {
    return JSON.stringify(item) ?? String(item)
  } catch {
    return String(item)
  }
}

/** Runs a callback, and takes what it built. */
export const erased = (build: unknown, ...rest: ReadonlyArray<unknown>): ReadonlyArray<Operation> => {
  const start = new StepsImpl(new Root(), undefined, undefined)
  if (typeof build !== "function") return [{ _tag: "Invalid", problem: "a callback that builds steps is missing" }]
  const built: unknown = build(start, ...rest)
  return built instanceof StepsImpl && built.root === start.root
    ? built.operations
    : [{ _tag: "Invalid", problem: "a callback did not return the steps that it built on its own argument" }]
}

/** As `erased`. The class has no types of variables, so that it fits them all. */
export const operations = <Vars, Rest extends ReadonlyArray<unknown>>(
  build: (sandbox: Steps<Vars>, ...rest: Rest) => unknown,
  ...rest: Rest
): ReadonlyArray<Operation> => erased(build, ...rest)

export const empty = new StepsImpl(new Root(), undefined, undefined) as unknown as Steps

/** The answer of a predicate. */
export const decide = (predicate: When<unknown>["predicate"], ctx: Context): Effect.Effect<boolean, unknown, unknown> =>
  Effect.suspend(() => {
    const answer = predicate(ctx)
    return typeof answer === "boolean" ? Effect.succeed(answer) : answer
  })

export type { ForEach, Retry }
