import type { Plan } from "./data.js"
import type { PlanStep } from "./describe.js"

/** As a label of Mermaid, which gives several characters a meaning of their own. */
const quoted = (text: string): string =>
  `"${text.replace(/[#&<>"`\\]/g, (character) => entities[character] ?? `#${character.charCodeAt(0)};`).replace(/[\r\n]+/g, " ")}"`

const entities: { readonly [character: string]: string } = { "&": "#amp;", "<": "#lt;", ">": "#gt;", '"': "#quot;" }

/** A flowchart of a plan: a box for each sandbox and loop, a diamond for each decision, dotted lines to what undoes a step. */
export const mermaid = ({ name, stages }: Plan): string => {
  const lines: Array<string> = ["flowchart TD"]
  // After the boxes: a node belongs to the first box in which it is named.
  const edges: Array<string> = []
  let count = 0
  const node = (text: string, [open, close]: readonly [string, string], indent: string): string => {
    const id = `n${count++}`
    lines.push(`${indent}${id}${open}${quoted(text)}${close}`)
    return id
  }

  /** Where the arrows to what comes next begin; some say which way it is. */
  type Ends = ReadonlyArray<readonly [id: string, label?: string]>

  const connect = (from: Ends, to: string) => {
    for (const [id, label] of from) {
      edges.push(`  ${id} -->${label === undefined ? "" : `|${quoted(label)}|`} ${to}`)
    }
  }

  const box = (text: string, indent: string, body: () => Ends): Ends => {
    lines.push(`${indent}subgraph g${count++}[${quoted(text)}]`)
    const ends = body()
    lines.push(`${indent}end`)
    return ends
  }

  const list = (steps: ReadonlyArray<PlanStep>, from: Ends, indent: string): Ends =>
    steps.reduce((ends, step) => one(step, ends, indent), from)

  const one = (step: PlanStep, from: Ends, indent: string): Ends => {
    switch (step.kind) {
      case "when": {
        const id = node(step.label, ["{", "}"], indent)
        connect(from, id)
        const [then, otherwise] = step.groups
        return [
          ...list(then?.steps ?? [], [[id, "then"]], indent),
          ...list(otherwise?.steps ?? [], [[id, "else"]], indent)
        ]
      }
      case "retry":
        return box(`retry: ${step.label}`, indent, () => list(step.groups[0]?.steps ?? [], from, `${indent}  `))
      case "forEach": {
        if (step.groups.length === 0) return from
        return box(`for each: ${step.label}`, indent, () => {
          const inner = `${indent}  `
          if (step.detail === "concurrency=1") {
            return step.groups.reduce(
              (ends, { label, steps }) => box(label, inner, () => list(steps, ends, `${inner}  `)),
              from
            )
          }
          return step.groups.flatMap(({ label, steps }) => box(label, inner, () => list(steps, from, `${inner}  `)))
        })
      }
      default: {
        const id = node(step.label, step.kind === "checkpoint" ? ["[(", ")]"] : ["[", "]"], indent)
        connect(from, id)
        if (step.rollback.length > 0) {
          const undo = node(`undo: ${step.rollback.map(({ label }) => label).join(", ")}`, ["([", "])"], indent)
          edges.push(`  ${id} -.-> ${undo}`)
        }
        return [[id]]
      }
    }
  }

  let ends: Ends = [[node(name, ["([", "])"], "  ")]]
  for (const { branches, stage } of stages) {
    const from = ends
    const next = branches.flatMap(({ branch, label, steps }) =>
      box(`stage ${stage}${branch === undefined ? "" : `, branch ${branch}`}: ${label}`, "  ", () => {
        if (steps === undefined) {
          const id = node("known when the stage before has ended", ["[/", "/]"], "    ")
          connect(from, id)
          return [[id]]
        }
        if (steps.length === 0) {
          const id = node("nothing", ["[", "]"], "    ")
          connect(from, id)
          return [[id]]
        }
        return list(steps, from, "    ")
      })
    )
    if (branches.length > 0) ends = next
  }
  const done = node("done", ["([", "])"], "  ")
  connect(ends, done)
  return `${[...lines, ...edges].join("\n")}\n`
}
