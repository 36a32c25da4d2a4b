/**
 * A workflow's progress, for people: lines, or a view that is redrawn in place.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Schedule from "effect/Schedule"
import type { ProgressTarget } from "../Workflow.js"
import type { Site, StepSite, WorkflowEvent } from "../WorkflowEvent.js"
import type { Plan } from "./data.js"
import { branchKey } from "./history.js"

interface View {
  readonly onEvent: (event: WorkflowEvent, now: number) => void
  readonly draw: (now: number) => void
  readonly end: (now: number) => void
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is taken out.
const escapes = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[@-Z\\-_])/g
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is taken out.
const controls = /[\u0000-\u001f\u007f-\u009f]/g

/** What a command printed must not move the cursor about. */
const printable = (text: string): string => text.replace(escapes, "").replaceAll("\t", "  ").replace(controls, "")

const seconds = (millis: number): string =>
  millis < 60_000
    ? `${(millis / 1000).toFixed(1)} s`
    : `${Math.floor(millis / 60_000)} min ${Math.floor((millis % 60_000) / 1000)} s`

/** Pieces of output as whole lines. */
class Lines {
  private rest = ""

  add(text: string): ReadonlyArray<string> {
    const lines = (this.rest + text).split(/\r\n|\n|\r(?!$)/)
    this.rest = lines.pop() ?? ""
    return lines
  }

  get unfinished(): string {
    return this.rest
  }

  end(): ReadonlyArray<string> {
    const { rest } = this
    this.rest = ""
    return rest === "" ? [] : [rest]
  }
}

const stepKey = (site: StepSite): string => `${branchKey(site.stage, site.branch)} ${site.step}`

/** The label of a branch, for the lines that are about it. */
const titles = (plan: Plan): ((site: Site) => string) => {
  const labels = new Map<string, string>()
  for (const { branches, stage } of plan.stages) {
    for (const { branch, label } of branches) labels.set(branchKey(stage, branch), label)
  }
  return ({ branch, stage }) => {
    const key = branchKey(stage, branch)
    return `${key} ${labels.get(key) ?? ""}`.trim()
  }
}

const ending = (event: WorkflowEvent & { readonly _tag: "StepCompleted" }, took: string): string =>
  event.recorded
    ? "from the ledger"
    : event.exitCode === undefined || event.exitCode === 0
      ? took
      : `exit code ${event.exitCode}, ${took}`

const plainView = (plan: Plan, write: (text: string) => void): View => {
  const title = titles(plan)
  const started = new Map<string, number>()
  const outputs = new Map<string, Lines>()
  const line = (site: Site, text: string) => write(`[${title(site)}] ${text}\n`)
  const flush = (event: StepSite) => {
    for (const stream of ["stdout", "stderr"]) {
      const key = `${stepKey(event)} ${stream}`
      for (const text of outputs.get(key)?.end() ?? []) line(event, `  ${printable(text)}`)
      outputs.delete(key)
    }
  }
  const took = (event: StepSite, now: number) => seconds(now - (started.get(stepKey(event)) ?? now))
  return {
    draw: () => {},
    end: () => {},
    onEvent: (event, now) => {
      switch (event._tag) {
        case "RunStarted":
          return write(`${plan.name}: run ${event.runId}${event.resumed ? ", resumed" : ""}\n`)
        case "StageStarted":
          return line(event, `sandbox ${event.sandboxId}`)
        case "StageCompleted":
          return line(event, "done")
        case "StepStarted":
          started.set(stepKey(event), now)
          return line(event, `> ${event.label}`)
        case "Output": {
          const key = `${stepKey(event)} ${event.stream}`
          const lines = outputs.get(key) ?? new Lines()
          outputs.set(key, lines)
          for (const text of lines.add(event.text)) line(event, `  ${printable(text)}`)
          return
        }
        case "StepCompleted":
          flush(event)
          return line(event, `ok ${event.label} (${ending(event, took(event, now))})`)
        case "StepFailed":
          flush(event)
          return line(
            event,
            `failed ${event.label}: ${printable(event.message.split("\n")[0] ?? "")} (${took(event, now)})`
          )
        case "StepRolledBack":
          return line(event, `undone ${event.label}`)
        case "RunCompleted":
          return write(`${plan.name}: completed\n`)
        case "RunFailed":
          return write(`${plan.name}: failed: ${printable(event.message.split("\n")[0] ?? "")}\n`)
      }
    }
  }
}

interface Active {
  readonly site: Site
  readonly total: number
  done: number
  readonly steps: Map<string, { readonly label: string; readonly since: number }>
  last: string
  readonly lines: Lines
}

const frames = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"]

/** As many characters as fit the width; wide ones count as two. */
const fitted = (text: string, width: number): string => {
  let used = 0
  let out = ""
  for (const character of text) {
    const code = character.codePointAt(0) ?? 0
    const size =
      code >= 0x1100 &&
      (code <= 0x115f ||
        (code >= 0x2e80 && code <= 0xa4cf) ||
        (code >= 0xac00 && code <= 0xd7a3) ||
        (code >= 0xf900 && code <= 0xfaff) ||
        (code >= 0xfe30 && code <= 0xfe6f) ||
        (code >= 0xff00 && code <= 0xff60) ||
        (code >= 0x1f300 && code <= 0x1faff) ||
        code >= 0x20000)
        ? 2
        : 1
    if (used + size > width) return out
    used += size
    out += character
  }
  return out
}

const terminalView = (plan: Plan, target: ProgressTarget): View => {
  const title = titles(plan)
  const active = new Map<string, Active>()
  const started = new Map<string, number>()
  let drawn = 0
  let waiting: Array<string> = []
  let frame = 0
  const keyOf = ({ branch, stage }: Site) => branchKey(stage, branch)
  const say = (text: string) => waiting.push(text)
  const took = (event: StepSite, now: number) => seconds(now - (started.get(stepKey(event)) ?? now))

  const draw = (now: number) => {
    const width = Math.max(20, target.columns ?? 80) - 1
    const height = Math.max(3, target.rows ?? 24) - 1
    const region: Array<string> = []
    for (const { done, last, lines, site, steps, total } of active.values()) {
      const [step] = [...steps.values()].reverse()
      const at = total === 0 ? "" : ` ${Math.min(done, total)}/${total}`
      const what = step === undefined ? "" : `  ${step.label}  ${seconds(now - step.since)}`
      const more = steps.size > 1 ? ` (and ${steps.size - 1} more)` : ""
      region.push(`${frames[frame % frames.length]} ${title(site)}${at}${what}${more}`)
      const output = printable(lines.unfinished.trim() === "" ? last : lines.unfinished)
      if (output.trim() !== "") region.push(`    ${output}`)
    }
    if (region.length > height) region.splice(height - 1, region.length, `… ${region.length - height + 1} more lines`)
    const up = drawn === 0 ? "" : `\u001b[${drawn}A\r\u001b[J`
    const text = [...waiting, ...region].map((line) => `${fitted(line, width)}\n`).join("")
    waiting = []
    drawn = region.length
    if (up !== "" || text !== "") target.write(up + text)
  }

  return {
    draw: (now) => {
      frame++
      draw(now)
    },
    end: (now) => {
      active.clear()
      draw(now)
    },
    onEvent: (event, now) => {
      switch (event._tag) {
        case "RunStarted":
          say(`${plan.name}: run ${event.runId}${event.resumed ? ", resumed" : ""}`)
          break
        case "StageStarted":
          active.set(keyOf(event), {
            site: event,
            total: event.steps,
            done: 0,
            steps: new Map(),
            last: "",
            lines: new Lines()
          })
          break
        case "StageCompleted":
          active.delete(keyOf(event))
          say(`✓ ${title(event)}`)
          break
        case "StepStarted":
          started.set(stepKey(event), now)
          active.get(keyOf(event))?.steps.set(event.step, { label: event.label, since: now })
          break
        case "Output": {
          const view = active.get(keyOf(event))
          // Drawn by the clock, not by every line.
          if (view !== undefined)
            view.last = view.lines.add(event.text).findLast((line) => line.trim() !== "") ?? view.last
          return
        }
        case "StepCompleted": {
          const view = active.get(keyOf(event))
          view?.steps.delete(event.step)
          if (view !== undefined) view.done++
          say(`  ✓ ${title(event)}  ${event.label}  ${ending(event, took(event, now))}`)
          break
        }
        case "StepFailed":
          active.get(keyOf(event))?.steps.delete(event.step)
          say(`  ✗ ${title(event)}  ${event.label}: ${printable(event.message.split("\n")[0] ?? "")}`)
          break
        case "StepRolledBack":
          say(`  ↶ ${title(event)}  ${event.label}`)
          break
        case "RunCompleted":
          active.clear()
          say(`${plan.name}: completed`)
          break
        case "RunFailed":
          active.clear()
          say(`${plan.name}: failed: ${printable(event.message.split("\n")[0] ?? "")}`)
      }
      draw(now)
    }
  }
}

const interval = "100 millis"

/** Runs something that tells what happens, and shows it. */
export const show = <A, E, R>(
  plan: Plan,
  target: ProgressTarget,
  run: (emit: (event: WorkflowEvent) => Effect.Effect<void>) => Effect.Effect<A, E, R>
): Effect.Effect<A, E, R> =>
  Effect.suspend(() => {
    const view = target.isTTY === true ? terminalView(plan, target) : plainView(plan, (text) => target.write(text))
    const now = (f: (now: number) => void) => Effect.map(Clock.currentTimeMillis, f)
    const showing = run((event) => now((millis) => view.onEvent(event, millis))).pipe(
      Effect.onExit(() => now(view.end))
    )
    if (target.isTTY !== true) return showing
    const ticking = Effect.repeat(now(view.draw), Schedule.spaced(interval))
    return Effect.flatMap(Effect.fork(ticking), (ticker) => Effect.ensuring(showing, Fiber.interrupt(ticker)))
  })
