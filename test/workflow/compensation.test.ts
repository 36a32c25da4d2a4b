import { assert, describe, it } from "@effect/vitest"
import type { Steps } from "@sandglass/workflow"
import { Workflow } from "@sandglass/workflow"
import * as Cause from "effect/Cause"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Schema from "effect/Schema"
import { withLocal } from "../support/localSandboxes.js"
import { all, onServer, sandbox, scripted } from "./support.js"

class Refused extends Data.TaggedError("Refused") {}

describe("compensation", () => {
  it.scopedLive("undoes the completed steps, the last first, when a later one fails", () =>
    Effect.gen(function* () {
      const { commands, left, ledger, provide, server } = yield* scripted()
      const deletedAt: Array<number> = []
      const workflow = Workflow.make("w").pipe(
        Workflow.sandbox(sandbox, (sb) =>
          sb
            .exec("say one", { rollback: (sb) => sb.exec("say undo one").exec("say really") })
            .exec("say between")
            .exec("say two", {
              rollback: (sb) =>
                sb
                  .effect("note", () => Effect.sync(() => deletedAt.push(server.deleted.length)))
                  .exec((ctx) => `say undo two ${ctx.stdout.split("\n").length}`)
            })
            .exec("exit 1", { rollback: (sb) => sb.exec("say never") })
            .exec("say never", { rollback: (sb) => sb.exec("say never") })
        )
      )
      const error = yield* Effect.flip(provide(Workflow.run(workflow, { runId: "r" })))
      assert.deepInclude(error, { reason: "StepFailed", step: "3" })
      assert.deepStrictEqual(commands(), [
        "say one",
        "say between",
        "say two",
        "exit 1",
        "say undo two 4",
        "say undo one",
        "say really"
      ])
      assert.deepStrictEqual(deletedAt, [0], "in the sandbox that the steps ran in")
      assert.strictEqual(left(), 0)
      const undone = yield* all(ledger.read({ events: ["step.rolled_back"] }))
      assert.deepStrictEqual(
        undone.map(({ payload, stepIdx }) => [stepIdx, (payload as { readonly step: string }).step]),
        [
          [4, "2"],
          [0, "0"]
        ]
      )
      const run = yield* all(ledger.read({ sandboxId: "r" }))
      assert.deepStrictEqual(
        run.map(({ event }) => event),
        ["run.started", "stage.started", "run.failing", "run.failed"]
      )
    })
  )

  it.scopedLive("not after success, nor after an interruption: that run can go on", () =>
    Effect.gen(function* () {
      const { commands, provide } = yield* scripted()
      const workflow = (last: string) =>
        Workflow.make("w").pipe(
          Workflow.sandbox(sandbox, (sb) => sb.exec("say one", { rollback: (sb) => sb.exec("say undo") }).exec(last))
        )
      yield* provide(Workflow.run(workflow("say two")))
      const fiber = yield* Effect.fork(provide(Workflow.run(workflow("hang"))))
      while (!commands().includes("hang")) yield* Effect.sleep(10)
      yield* Fiber.interrupt(fiber)
      assert.notInclude(commands(), "say undo")
    })
  )

  it.scopedLive("an application's error, a defect and a failing predicate undo as well", () =>
    Effect.gen(function* () {
      const { commands, provide } = yield* scripted()
      const workflow = (self: Effect.Effect<unknown, Refused>) =>
        Workflow.make("w").pipe(
          Workflow.sandbox(sandbox, (sb) =>
            sb.exec("say one", { rollback: (sb) => sb.exec("say undo") }).effect("e", () => self)
          )
        )
      const refused = yield* Effect.flip(provide(Workflow.run(workflow(new Refused()))))
      assert.strictEqual(refused._tag, "Refused")
      const died = yield* Effect.exit(provide(Workflow.run(workflow(Effect.die("broken")))))
      assert.isTrue(Exit.isFailure(died) && Cause.isDie(died.cause))
      assert.deepStrictEqual(commands(), ["say one", "say undo", "say one", "say undo"])
    })
  )

  it.scopedLive("of parallel branches: what any of them has completed", () =>
    Effect.gen(function* () {
      const { commands, left, provide } = yield* scripted()
      const workflow = Workflow.make("w").pipe(
        Workflow.parallel([sandbox, sandbox, sandbox], (sb, _, branch) => {
          const begun = sb.exec(`say ${branch}`, { rollback: (sb) => sb.exec(`say undo ${branch}`) })
          return branch === 0 ? begun : branch === 1 ? begun.exec("slow 200 x").exec("exit 1") : begun.exec("hang")
        })
      )
      const error = yield* Effect.flip(provide(Workflow.run(workflow)))
      assert.deepInclude(error, { stage: 0, branch: 1, step: "2" })
      assert.deepStrictEqual(
        commands().filter((command) => command.includes("undo")),
        ["say undo 2", "say undo 1", "say undo 0"]
      )
      assert.strictEqual(left(), 0)
    })
  )

  it.live(
    "of a stage that has ended: in a new sandbox, from its last checkpoint if it has one",
    () =>
      Effect.gen(function* () {
        const outputs: Array<string> = []
        const see = (name: string) => (sb: Steps.Steps) =>
          sb
            .exec("ls")
            .effect("see", (_, ctx) => Effect.sync(() => outputs.push(`${name}: ${ctx.stdout.replaceAll("\n", " ")}`)))
        const workflow = Workflow.make("w").pipe(
          Workflow.sandbox({ image: "a" }, (sb) => sb.exec("touch a1", { rollback: see("a") }).exec("touch a2")),
          Workflow.sandbox({ image: "b" }, (sb) =>
            sb
              .exec("touch b1")
              .checkpoint()
              .exec("touch b2", { rollback: see("b") })
          ),
          Workflow.sandbox({ image: "c" }, (sb) => sb.exec("touch c1", { rollback: see("c") }).exec("exit 3"))
        )
        const error = yield* Effect.flip(Workflow.run(workflow, { runId: "r" }))
        assert.deepInclude(error, { reason: "StepFailed", stage: 2, step: "1" })
        assert.deepStrictEqual(outputs, ["c: c1 ", "b: b1 ", "a: "])
        assert.deepStrictEqual(yield* onServer, [])
      }).pipe(withLocal({ mode: "plain" })),
    60_000
  )

  it.scopedLive("goes on when an undoing fails, and reports both", () =>
    Effect.gen(function* () {
      const { commands, left, provide } = yield* scripted()
      const workflow = Workflow.make("w").pipe(
        Workflow.sandbox(sandbox, (sb) =>
          sb
            .exec("say one", { rollback: (sb) => sb.exec("say undo one") })
            .exec("say two", { rollback: (sb) => sb.exec("exit 9").exec("say never") })
            .exec("exit 1")
        )
      )
      const exit = yield* Effect.exit(provide(Workflow.run(workflow)))
      assert.isTrue(Exit.isFailure(exit))
      if (Exit.isFailure(exit)) {
        const failures = [...Cause.failures(exit.cause)]
        assert.deepStrictEqual(
          failures.map((failure) => failure.step),
          ["2", "1!0"]
        )
      }
      assert.deepStrictEqual(commands().slice(2), ["exit 1", "exit 9", "say undo one"])
      assert.strictEqual(left(), 0)
    })
  )

  it.scopedLive("before a retry repeats its steps, the completed ones are undone", () =>
    Effect.gen(function* () {
      const { commands, provide } = yield* scripted()
      const workflow = (failures: number) =>
        Workflow.make("w").pipe(
          Workflow.sandbox(sandbox, (sb) =>
            sb
              .exec("say outer", { rollback: (sb) => sb.exec("say undo outer") })
              .retry({ times: 1 }, (sb) =>
                sb
                  .forEach(["a", "b"], (sb, name) =>
                    sb.exec(`say ${name}`, { rollback: (sb) => sb.exec(`say undo ${name}`) })
                  )
                  .exec(`flaky k${failures} ${failures}`)
              )
          )
        )
      yield* provide(Workflow.run(workflow(1)))
      const repeated = ["say a", "say b"]
      assert.deepStrictEqual(commands(), [
        "say outer",
        ...repeated,
        "flaky k1 1",
        "say undo b",
        "say undo a",
        ...repeated,
        "flaky k1 1"
      ])
      const before = commands().length
      yield* Effect.flip(provide(Workflow.run(workflow(2))))
      assert.deepStrictEqual(commands().slice(before), [
        "say outer",
        ...repeated,
        "flaky k2 2",
        "say undo b",
        "say undo a",
        ...repeated,
        "flaky k2 2",
        "say undo b",
        "say undo a",
        "say undo outer"
      ])
    })
  )

  it.scopedLive("knows what was known when the step had completed", () =>
    Effect.gen(function* () {
      const { commands, provide } = yield* scripted()
      const workflow = Workflow.make("w").pipe(
        Workflow.sandbox(sandbox, (sb) =>
          sb
            .effect("v", () => Effect.succeed("first"), { as: "v", schema: Schema.String })
            .exec("say x", {
              rollback: (sb) => sb.exec((ctx) => `say ${ctx.vars.v} ${ctx.stdout.trim()} ${ctx.exitCode}`)
            })
            .effect("v", () => Effect.succeed("second"), { as: "v", schema: Schema.String })
            .exec("exit 1")
        )
      )
      yield* Effect.flip(provide(Workflow.run(workflow)))
      assert.strictEqual(commands().at(-1), "say first x 0")
    })
  )

  it.scopedLive("needs no more sandboxes at once than the cap allows", () =>
    Effect.gen(function* () {
      const { commands, left, provide } = yield* scripted({}, { maxConcurrent: 1 })
      const stage = (name: string) =>
        Workflow.sandbox(sandbox, (sb) => sb.exec(`say ${name}`, { rollback: (sb) => sb.exec(`say undo ${name}`) }))
      const workflow = Workflow.make("w").pipe(
        stage("a"),
        stage("b"),
        Workflow.sandbox(sandbox, (sb) => sb.exec("exit 1"))
      )
      yield* Effect.flip(provide(Workflow.run(workflow)))
      assert.deepStrictEqual(commands(), ["say a", "say b", "exit 1", "say undo b", "say undo a"])
      assert.strictEqual(left(), 0)
    })
  )
})
