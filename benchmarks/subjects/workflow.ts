/** Workflows: what a step costs beside calling the sandbox directly, and how building grows with the number of operations. */
import { Sandboxes } from "@sandglass/core"
import type { Steps } from "@sandglass/workflow"
import { Workflow } from "@sandglass/workflow"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { Figure, Subject } from "../harness.js"
import { interleaved, live, median, scratch, server, timed } from "../harness.js"

const commands = (count: number, once: boolean) =>
  Workflow.make("bench").pipe(
    Workflow.sandbox({ image: "bench", once }, (sb) => {
      let steps = sb
      for (let n = 0; n < count; n++) steps = steps.exec("true")
      return steps
    })
  )

/** Builds and plans so many operations; the milliseconds that it takes. */
const built = (count: number) =>
  Effect.sync(() => {
    const start = performance.now()
    const workflow = Workflow.make("bench").pipe(
      Workflow.sandbox({ image: "bench" }, (sb) => {
        let steps: Steps.Steps = sb
        for (let n = 0; n < count; n++) steps = steps.exec(`echo ${n}`)
        return steps
      })
    )
    Workflow.plan(workflow)
    return performance.now() - start
  })

export const workflow: Subject = {
  name: "workflow",
  title: "workflow: a step, and building",
  run: ({ quick }) =>
    Effect.gen(function* () {
      const directory = yield* scratch
      const at = yield* server("local", "plain")
      const context = yield* Layer.build(live(at, `${directory}/ledger.db`))
      const steps = quick ? 2 : 20
      const rounds = quick ? { warmUp: 0, counted: 1 } : { warmUp: 2, counted: 9 }
      const figures: Array<Figure> = []

      yield* Effect.gen(function* () {
        const sandboxes = yield* Sandboxes.Sandboxes
        const direct = Effect.scoped(
          Effect.flatMap(sandboxes.create({ image: "bench", name: "bench" }), (sandbox) =>
            Effect.repeatN(sandbox.exec("true"), steps - 1)
          )
        )
        const directOnce = Effect.scoped(
          Effect.flatMap(sandboxes.create({ image: "bench", name: "bench" }), (sandbox) =>
            Effect.forEach(
              Array.from({ length: steps }, (_, n) => `step-${n}`),
              (key) => sandbox.exec("true", { key, idempotencyKey: key }),
              { discard: true }
            )
          )
        )
        const times = yield* interleaved(rounds, {
          direct: timed(direct),
          workflow: timed(Effect.orDie(Workflow.run(commands(steps, false)))),
          directOnce: timed(directOnce),
          workflowOnce: timed(Effect.orDie(Workflow.run(commands(steps, true))))
        })
        const perStep = (values: ReadonlyArray<number>) => median(values) / steps
        const ratio = (a: ReadonlyArray<number>, b: ReadonlyArray<number>) =>
          median(a.map((value, round) => value / (b[round] ?? Number.NaN)))
        figures.push(
          { what: `${steps} commands by the sandbox, each`, value: perStep(times.direct), unit: "ms" },
          { what: "as steps, once: false, each", value: perStep(times.workflow), unit: "ms" },
          {
            what: "a step / by the sandbox",
            value: ratio(times.workflow, times.direct),
            unit: "ratio",
            note: "sandbox included on both sides"
          },
          { what: "run once by the sandbox, each", value: perStep(times.directOnce), unit: "ms" },
          { what: "as steps, each", value: perStep(times.workflowOnce), unit: "ms" },
          {
            what: "a step / by the sandbox, both once",
            value: ratio(times.workflowOnce, times.directOnce),
            unit: "ratio"
          }
        )
      }).pipe(Effect.provide(context))

      const [few, many] = quick ? [100, 1_000] : [1_000, 10_000]
      const building = yield* interleaved(quick ? rounds : { warmUp: 5, counted: 15 }, {
        few: built(few),
        many: built(many)
      })
      const growth = median(building.many.map((value, round) => value / (building.few[round] ?? Number.NaN)))
      figures.push(
        { what: `building and planning ${few} operations`, value: median(building.few), unit: "ms" },
        { what: `building and planning ${many} operations`, value: median(building.many), unit: "ms" },
        {
          what: "growth for ten times the operations",
          value: growth,
          unit: "times",
          aim: { atMost: 15 },
          note: "10 is linear, 100 quadratic"
        }
      )
      return figures
    })
}
