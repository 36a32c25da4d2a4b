import * as Equal from "effect/Equal"
import * as Hash from "effect/Hash"
import * as Pipeable from "effect/Pipeable"
import type { Workflow } from "../Workflow.js"
import type { Data, Stage } from "./data.js"
import { definitionOf } from "./data.js"

const covariant = { _Vars: (_: never) => _, _E: (_: never) => _, _R: (_: never) => _ }

class WorkflowImpl extends Pipeable.Class() implements Workflow {
  readonly "~@sandglass/workflow/Workflow" = covariant
  private text: string | undefined

  constructor(readonly data: Data) {
    super()
  }

  get name(): string {
    return this.data.name
  }

  /** Everything by which it is known again. */
  get definition(): string {
    this.text ??= definitionOf(this.data).join("\n")
    return this.text
  }

  [Equal.symbol](that: unknown): boolean {
    return that instanceof WorkflowImpl && (this === that || this.definition === that.definition)
  }

  [Hash.symbol](): number {
    return Hash.string(this.definition)
  }

  toJSON(): unknown {
    return { _id: "Workflow", name: this.name, definition: definitionOf(this.data) }
  }

  override toString(): string {
    return this.definition
  }
}

/** The types of variables, errors and requirements are the caller's to say. */
export const make = <W>(data: Data): W => new WorkflowImpl(data) as unknown as W

export const dataOf = (self: unknown): Data => {
  if (self instanceof WorkflowImpl) return self.data
  throw new TypeError("not a workflow")
}

/** With one more stage. */
export const add = <W>(self: unknown, stage: Stage): W => {
  const { name, stages } = dataOf(self)
  return make({ name, stages: [...stages, stage] })
}
