import { assert, describe, it } from "@effect/vitest"
import * as WorkflowEngine from "@effect/workflow/WorkflowEngine"
import { Ledger } from "@sandglass/core"
import { Workflow } from "@sandglass/workflow"
import { DurableWorkflow } from "@sandglass/workflow/durable"
import * as Chunk from "effect/Chunk"
import * as Context from "effect/Context"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import { withLocal } from "../support/localSandboxes.js"

class Refused extends Data.TaggedError("Refused")<{ readonly message: string }> {}

const eventsOf = (runId: string) =>
  Effect.flatMap(Ledger.Ledger, (ledger) =>
    Effect.map(Stream.runCollect(ledger.read({ sandboxId: runId })), (entries) =>
      Chunk.toReadonlyArray(entries).map(({ event }) => event)
    )
  )

const greeting = DurableWorkflow.make(
  Workflow.make("greeting").pipe(
    Workflow.sandbox({ image: "node:22" }, (sb) => sb.exec("echo hello | tee out").readFile("/workspace/out", "said")),
    Workflow.sandbox({ image: "node:22" }, (sb) => sb.exec((ctx) => ["printf", "%s again", ctx.vars.said.trim()]))
  )
)

const onMemory = <Vars, E, R>(durable: DurableWorkflow.DurableWorkflow<Vars, E, R>) =>
  DurableWorkflow.layer(durable).pipe(Layer.provideMerge(WorkflowEngine.layerMemory))

describe("a workflow on the engine in memory", () => {
  it.live("gives the result of its run", () =>
    Effect.gen(function* () {
      const result = yield* DurableWorkflow.run(greeting, { runId: "one", resourceId: "ada" })
      assert.strictEqual(result.stdout, "hello\nhello again\n")
      assert.strictEqual(result.vars.said, "hello\n")
      assert.deepStrictEqual(yield* DurableWorkflow.isEnded(greeting, "one"), Option.some(true))
      const ledger = yield* Ledger.Ledger
      const sessions = Chunk.toReadonlyArray(yield* Stream.runCollect(ledger.sandboxes({ runId: "one" })))
      assert.deepStrictEqual(
        sessions.map(({ resourceId }) => resourceId),
        ["ada", "ada"]
      )
    }).pipe(Effect.provide(onMemory(greeting)), withLocal({ mode: "plain" }))
  )

  it.live("is not run again under the same id", () =>
    Effect.gen(function* () {
      const [first, second] = yield* Effect.all(
        [DurableWorkflow.run(greeting, { runId: "same" }), DurableWorkflow.run(greeting, { runId: "same" })],
        { concurrency: 2 }
      )
      assert.deepStrictEqual(second, first)
      const events = yield* eventsOf("same")
      assert.strictEqual(events.filter((event) => event === "run.started").length, 1)
      assert.strictEqual(events.filter((event) => event === "run.resumed").length, 0)
      assert.strictEqual(events.filter((event) => event === "stage.started").length, 2)
    }).pipe(Effect.provide(onMemory(greeting)), withLocal({ mode: "plain" }))
  )

  it.live("is started without waiting, and waited for later", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* DurableWorkflow.isEnded(greeting, "later"), Option.none())
      assert.strictEqual(yield* DurableWorkflow.start(greeting, { runId: "later" }), "later")
      assert.strictEqual((yield* DurableWorkflow.run(greeting, { runId: "later" })).stdout, "hello\nhello again\n")
      const random = yield* DurableWorkflow.start(greeting)
      assert.match(random, /^[0-9a-f]{32}$/)
      yield* DurableWorkflow.run(greeting, { runId: random })
    }).pipe(Effect.provide(onMemory(greeting)), withLocal({ mode: "plain" }))
  )

  it.live("goes on with a run that an earlier process left", () =>
    Effect.gen(function* () {
      const interrupted = DurableWorkflow.make(
        Workflow.make("left").pipe(
          Workflow.sandbox({ image: "node:22", checkpoints: "each-step" }, (sb) =>
            sb.exec("echo once >>marks").exec("sleep 0.2; cat marks")
          )
        )
      )
      const ledger = yield* Ledger.Ledger
      const stepDone = ledger.tail({ events: ["step.completed"] }).pipe(Stream.take(1), Stream.runDrain)
      yield* Effect.raceFirst(Workflow.run(interrupted.workflow, { runId: "left" }), stepDone)
      const result = yield* DurableWorkflow.run(interrupted, { runId: "left" }).pipe(
        Effect.provide(onMemory(interrupted))
      )
      assert.strictEqual(result.stdout, "once\n")
      assert.deepStrictEqual(
        (yield* eventsOf("left")).filter((event) => event.startsWith("run.")),
        ["run.started", "run.interrupted", "run.resumed", "run.completed"]
      )
    }).pipe(withLocal({ mode: "plain" }))
  )

  it.live("fails as its run fails, every time", () =>
    Effect.gen(function* () {
      const failing = DurableWorkflow.make(
        Workflow.make("failing").pipe(Workflow.sandbox({ image: "node:22" }, (sb) => sb.exec("echo no >&2; exit 3")))
      )
      yield* Effect.gen(function* () {
        const first = yield* Effect.flip(DurableWorkflow.run(failing, { runId: "bad" }))
        const second = yield* Effect.flip(DurableWorkflow.run(failing, { runId: "bad" }))
        for (const error of [first, second]) {
          assert.strictEqual(error._tag, "WorkflowError")
          assert.strictEqual(error.reason, "StepFailed")
          assert.deepInclude(error.failure, { _tag: "CommandError", exitCode: 3 })
        }
      }).pipe(Effect.provide(onMemory(failing)))
    }).pipe(withLocal({ mode: "plain" }))
  )

  it.live("tells what the application's own effects failed with by its message", () =>
    Effect.gen(function* () {
      const refusing = DurableWorkflow.make(
        Workflow.make("refusing").pipe(
          Workflow.sandbox({ image: "node:22" }, (sb) =>
            sb.effect("approval", () => Effect.fail(new Refused({ message: "not today" })))
          )
        )
      )
      const error = yield* Effect.flip(DurableWorkflow.run(refusing, { runId: "refused" })).pipe(
        Effect.provide(onMemory(refusing))
      )
      assert.strictEqual(error._tag, "WorkflowError")
      assert.include(error.message, "not today")
    }).pipe(withLocal({ mode: "plain" }))
  )

  it.live("takes what its effects require from the layer's context", () =>
    Effect.gen(function* () {
      class Token extends Context.Tag("test/Token")<Token, string>() {}
      const asking = DurableWorkflow.make(
        Workflow.make("asking").pipe(Workflow.sandbox({ image: "node:22" }, (sb) => sb.effect("token", () => Token)))
      )
      const layer: Layer.Layer<never, never, Token | Layer.Layer.Context<ReturnType<typeof onMemory>>> =
        DurableWorkflow.layer(asking)
      assert.isTrue(Layer.isLayer(layer))
      yield* DurableWorkflow.run(asking, { runId: "token" }).pipe(
        Effect.provide(onMemory(asking)),
        Effect.provideService(Token, "secret")
      )
    }).pipe(withLocal({ mode: "plain" }))
  )

  it.live("refuses an id that the engine could not take, and a workflow that makes no sense", () =>
    Effect.gen(function* () {
      for (const runId of ["", " ", "a "]) {
        const error = yield* Effect.flip(DurableWorkflow.run(greeting, { runId }))
        assert.deepInclude(error, { _tag: "WorkflowError", reason: "InvalidInput" })
      }
      const senseless = DurableWorkflow.make(
        Workflow.make("senseless").pipe(Workflow.sandbox({ image: "node:22" }, (sb) => sb.exec("")))
      )
      const error = yield* Effect.flip(DurableWorkflow.run(senseless, { runId: "senseless" })).pipe(
        Effect.provide(onMemory(senseless))
      )
      assert.deepInclude(error, { _tag: "WorkflowError", reason: "InvalidInput" })
    }).pipe(Effect.provide(onMemory(greeting)), withLocal({ mode: "plain" }))
  )
})
