import { assert, describe, it } from "@effect/vitest"
import { Ledger, LedgerError } from "@sandglass/core"
import type { WorkflowError } from "@sandglass/workflow"
import { Workflow } from "@sandglass/workflow"
import * as Cause from "effect/Cause"
import * as Data from "effect/Data"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/TestClock"
import * as ScriptedServer from "../support/ScriptedServer.js"
import { all, sandbox, scripted } from "./support.js"

class Refused extends Data.TaggedError("Refused") {}

/** Real time, whatever clock the test has. */
const pass = (millis: number) => Effect.promise(() => new Promise<void>((resolve) => setTimeout(resolve, millis)))

/** Until a number has grown to this, in real time. */
const until = (count: () => number, wanted: number): Effect.Effect<void> =>
  Effect.suspend(() => (count() >= wanted ? Effect.void : Effect.zipRight(pass(5), until(count, wanted))))

interface Options {
  readonly times?: number
  readonly schedule?: Schedule.Schedule<unknown, WorkflowError.Failure>
  readonly unknownOutcome?: boolean
}

const retried = (command: string, options: Options = {}) =>
  Workflow.make("w").pipe(
    Workflow.sandbox(sandbox, (sb) => sb.retry({ times: 3, ...options }, (sb) => sb.exec(command)).exec("say after"))
  )

describe("retry", () => {
  it.scopedLive("repeats a failing command so many times more", () =>
    Effect.gen(function* () {
      const { commands, provide } = yield* scripted()
      const result = yield* provide(Workflow.run(retried("flaky a 3")))
      assert.strictEqual(result.stdout, "a\nafter\n", "the output is that of the attempt that succeeded")
      assert.deepStrictEqual(
        result.stages[0]?.branches[0]?.steps.map(({ id }) => id),
        ["0@4.0", "1"]
      )
      const error = yield* Effect.flip(provide(Workflow.run(retried("flaky b 4"))))
      assert.deepInclude(error, { reason: "StepFailed", step: "0@4.0" })
      assert.deepInclude(error.failure, { _tag: "CommandError", exitCode: 1 })
      assert.deepStrictEqual(commands(), [...Array(4).fill("flaky a 3"), "say after", ...Array(4).fill("flaky b 4")])
    })
  )

  it.effect("waits as its schedule says", () =>
    Effect.gen(function* () {
      const { commands, ledger, provide } = yield* scripted()
      const failures: Array<string> = []
      const schedule = Schedule.exponential("100 millis").pipe(
        Schedule.tapInput((failure: WorkflowError.Failure) => Effect.sync(() => failures.push(failure._tag)))
      )
      const fiber = yield* Effect.fork(provide(Workflow.run(retried("flaky a 3", { schedule }))))
      for (const [attempt, delay] of [100, 200, 400].entries()) {
        yield* until(() => commands().length, attempt + 1)
        const failed = () => all(ledger.read({ events: ["step.failed"] }))
        while ((yield* failed()).length <= attempt) yield* pass(5)
        yield* pass(50)
        yield* TestClock.adjust(delay - 1)
        yield* pass(50)
        assert.strictEqual(commands().length, attempt + 1, `not before ${delay} ms have passed`)
        yield* TestClock.adjust(1)
      }
      const result = yield* Fiber.join(fiber)
      assert.strictEqual(result.stdout, "a\nafter\n")
      assert.deepStrictEqual(failures, ["CommandError", "CommandError", "CommandError"])
    }).pipe(Effect.scoped)
  )

  it.scopedLive("ends when its schedule does, or when the count is used up, whichever comes first", () =>
    Effect.gen(function* () {
      const { commands, provide } = yield* scripted()
      yield* Effect.flip(provide(Workflow.run(retried("flaky a 9", { times: 5, schedule: Schedule.recurs(2) }))))
      assert.strictEqual(commands().length, 3)
      yield* Effect.flip(provide(Workflow.run(retried("flaky b 9", { times: 1, schedule: Schedule.recurs(7) }))))
      assert.strictEqual(commands().length, 5)
      const picky = Schedule.recurWhile((failure: WorkflowError.Failure) => failure._tag !== "CommandError")
      yield* Effect.flip(provide(Workflow.run(retried("flaky c 9", { schedule: picky }))))
      assert.strictEqual(commands().length, 6)
    })
  )

  it.scopedLive("repeats what was killed; an outcome that is unknown only where it is asked to", () =>
    Effect.gen(function* () {
      const { commands, provide } = yield* scripted()
      const tried = (command: string, unknownOutcome: boolean) =>
        Effect.gen(function* () {
          const before = commands().length
          const error = yield* Effect.flip(provide(Workflow.run(retried(command, { times: 1, unknownOutcome }))))
          return [
            error.failure?._tag === "ExecError" ? error.failure.reason : error.failure?._tag,
            commands().length - before
          ]
        })
      assert.deepStrictEqual(yield* tried("killed", false), ["Killed", 2])
      assert.deepStrictEqual(yield* tried("lost", false), ["Lost", 1])
      assert.deepStrictEqual(yield* tried("lost", true), ["Lost", 2])
      assert.deepStrictEqual(yield* tried("page", false), ["Protocol", 1])
    })
  )

  it.scopedLive("never an error of an application's effect, a defect, or an interruption", () =>
    Effect.gen(function* () {
      const { provide } = yield* scripted()
      let runs = 0
      const workflow = <E>(self: Effect.Effect<unknown, E>) =>
        Workflow.make("w").pipe(
          Workflow.sandbox(sandbox, (sb) =>
            sb.retry({ times: 3 }, (sb) =>
              sb.effect("e", () =>
                Effect.suspend(() => {
                  runs++
                  return self
                })
              )
            )
          )
        )
      const failed = yield* Effect.exit(provide(Workflow.run(workflow(new Refused()))))
      assert.isTrue(Exit.isFailure(failed) && Cause.failures(failed.cause).pipe((_) => [..._][0] instanceof Refused))
      const died = yield* Effect.exit(provide(Workflow.run(workflow(Effect.die("broken")))))
      assert.isTrue(Exit.isFailure(died) && Cause.isDie(died.cause))
      const interrupted = yield* Effect.exit(provide(Workflow.run(workflow(Effect.interrupt))))
      assert.isTrue(Exit.isInterrupted(interrupted))
      assert.strictEqual(runs, 3)
    })
  )

  it.scopedLive("a sandbox's failure in an effect is one of the sandbox", () =>
    Effect.gen(function* () {
      const { commands, provide } = yield* scripted()
      const workflow = Workflow.make("w").pipe(
        Workflow.sandbox(sandbox, (sb) =>
          sb.retry({ times: 2 }, (sb) =>
            sb.effect("e", (sandbox) => Effect.map(sandbox.exec("flaky a 2"), (_) => _.exitCode), {
              as: "code",
              schema: Schema.Number
            })
          )
        )
      )
      const { vars } = yield* provide(Workflow.run(workflow))
      assert.deepStrictEqual(vars, { code: 0 })
      assert.strictEqual(commands().length, 3)
    })
  )

  it.scopedLive("a failing ledger is not the sandbox's failure", () =>
    Effect.gen(function* () {
      const { commands, ledger, provide } = yield* scripted()
      const broken = Ledger.Ledger.of({
        ...ledger,
        append: (event) =>
          event.event === "step.completed"
            ? new LedgerError.LedgerError({ method: "append", reason: "Unknown" })
            : ledger.append(event)
      })
      const error = yield* Workflow.run(retried("say a")).pipe(
        Effect.provideService(Ledger.Ledger, broken),
        provide,
        Effect.flip
      )
      assert.deepInclude(error, { reason: "LedgerFailed" })
      assert.deepStrictEqual(commands(), ["say a"])
    })
  )

  it.scopedLive("a when after it decides once the attempts are used up", () =>
    Effect.gen(function* () {
      const { commands, provide } = yield* scripted()
      const workflow = (command: string) =>
        Workflow.make("w").pipe(
          Workflow.sandbox(sandbox, (sb) =>
            sb
              .retry({ times: 2 }, (sb) =>
                sb
                  .exec(command)
                  .exec((ctx) => `say code ${ctx.exitCode}`, { strict: false })
                  .exec(command)
              )
              .when(
                (ctx) => ctx.exitCode === 0,
                (sb) => sb.exec("say report"),
                (sb) => sb.exec("say explain")
              )
          )
        )
      const simple = Workflow.make("w").pipe(
        Workflow.sandbox(sandbox, (sb) =>
          sb
            .retry({ times: 2 }, (sb) => sb.exec("flaky x 9").checkpoint())
            .when(
              (ctx) => ctx.exitCode === 0,
              (sb) => sb.exec("say report"),
              (sb) => sb.exec("say explain")
            )
        )
      )
      const result = yield* provide(Workflow.run(simple))
      assert.strictEqual(result.stdout, "x\nexplain\n")
      assert.deepStrictEqual(
        result.stages[0]?.branches[0]?.steps.map(({ id }) => id),
        ["0@3.0", "0@3.1", "1.else.0"],
        "after the last attempt the steps go on"
      )
      assert.strictEqual(commands().length, 4)
      // Only the last command before the when is its to decide on.
      const first = yield* Effect.flip(provide(Workflow.run(workflow("flaky y 9"))))
      assert.deepInclude(first, { step: "0@3.0" })
      const recovered = yield* provide(Workflow.run(workflow("flaky z 1")))
      assert.strictEqual(recovered.stdout, "z\ncode 0\nz\nreport\n")
    })
  )

  it.scopedLive("a when in it decides at each attempt; what it decides on is no reason to repeat", () =>
    Effect.gen(function* () {
      const { commands, provide } = yield* scripted()
      const workflow = Workflow.make("w").pipe(
        Workflow.sandbox(sandbox, (sb) =>
          sb.retry({ times: 3 }, (sb) =>
            sb.exec("flaky a 2").when(
              (ctx) => ctx.exitCode === 0,
              (sb) => sb.exec("say good"),
              (sb) => sb.exec("exit 1")
            )
          )
        )
      )
      assert.strictEqual((yield* provide(Workflow.run(workflow))).stdout, "a\ngood\n")
      assert.deepStrictEqual(commands(), ["flaky a 2", "exit 1", "flaky a 2", "exit 1", "flaky a 2", "say good"])
    })
  )

  it.scopedLive("in a retry: each counts for itself", () =>
    Effect.gen(function* () {
      const { commands, provide } = yield* scripted()
      const workflow = (failures: number) =>
        Workflow.make("w").pipe(
          Workflow.sandbox(sandbox, (sb) =>
            sb.retry({ times: 1 }, (sb) =>
              sb.exec(`say outer${failures}`).retry({ times: 1 }, (sb) => sb.exec(`flaky k${failures} ${failures}`))
            )
          )
        )
      const { stages } = yield* provide(Workflow.run(workflow(3)))
      assert.deepStrictEqual(
        stages[0]?.branches[0]?.steps.map(({ id }) => id),
        ["0@2.0", "0@2.1@2.0"]
      )
      assert.strictEqual(commands().length, 6)
      assert.deepInclude(yield* Effect.flip(provide(Workflow.run(workflow(4)))), { step: "0@2.1@2.0" })
      const decided = Workflow.make("w").pipe(
        Workflow.sandbox(sandbox, (sb) =>
          sb
            .retry({ times: 1 }, (sb) => sb.retry({ times: 1 }, (sb) => sb.exec("flaky d 9")))
            .when(
              (ctx) => ctx.exitCode === 1,
              (sb) => sb.exec("say one")
            )
        )
      )
      const before = commands().length
      assert.strictEqual((yield* provide(Workflow.run(decided))).stdout, "d\none\n")
      assert.strictEqual(commands().length - before, 5, "2 × 2 attempts, and what the when does")
    })
  )

  it.scopedLive("in a forEach in a parallel stage", () =>
    Effect.gen(function* () {
      const { commands, left, provide } = yield* scripted()
      const workflow = (failures: number) =>
        Workflow.make("w").pipe(
          Workflow.parallel([sandbox, sandbox], (sb, _, branch) =>
            sb.forEach(["a", "b", "c"], { concurrency: 3 }, (sb, item) =>
              sb.retry({ times: 2 }, (sb) =>
                sb
                  .exec(`flaky ${failures}-${branch}${item} ${item === "b" ? failures : 1}`)
                  .exec(`say ${branch}${item}`)
              )
            )
          )
        )
      const result = yield* provide(Workflow.run(workflow(2)))
      assert.strictEqual(
        result.stdout,
        ["0a", "0b", "0c", "1a", "1b", "1c"].map((name) => `2-${name}\n${name}\n`).join("")
      )
      assert.strictEqual(commands().length, 2 * (3 + 4 + 3))
      const error = yield* Effect.flip(provide(Workflow.run(workflow(9))))
      assert.deepInclude(error, { reason: "StepFailed", step: "0[1].0@3.0" })
      assert.strictEqual(left(), 0)
    })
  )

  it.scopedLive("of a forEach: repeats all its items", () =>
    Effect.gen(function* () {
      const { commands, provide } = yield* scripted()
      const workflow = Workflow.make("w").pipe(
        Workflow.sandbox(sandbox, (sb) =>
          sb.retry({ times: 1 }, (sb) =>
            sb.forEach(["say a", "flaky b 1"], { concurrency: 1 }, (sb, command) => sb.exec(command))
          )
        )
      )
      assert.strictEqual((yield* provide(Workflow.run(workflow))).stdout, "a\nb\n")
      assert.deepStrictEqual(commands(), ["say a", "flaky b 1", "say a", "flaky b 1"])
    })
  )

  it.scopedLive("interrupting while it waits ends the run at once", () =>
    Effect.gen(function* () {
      const { commands, left, provide } = yield* scripted()
      const workflow = retried("flaky a 9", { schedule: Schedule.spaced("1 hour") })
      const fiber = yield* Effect.fork(provide(Workflow.run(workflow)))
      yield* until(() => commands().length, 1)
      yield* pass(50)
      const [time, exit] = yield* Effect.timed(Fiber.interrupt(fiber))
      assert.isTrue(Exit.isInterrupted(exit))
      assert.isBelow(Duration.toSeconds(time), 10)
      assert.strictEqual(left(), 0)
    })
  )

  it.scopedLive("idempotent operations are repeated whatever their outcome", () =>
    Effect.gen(function* () {
      let uploads = 0
      const { provide } = yield* scripted({
        override: (request) => {
          if (!request.path.endsWith("/files/upload")) return undefined
          return ++uploads < 3 ? ScriptedServer.resetConnection : ScriptedServer.json(200, {})
        }
      })
      const workflow = Workflow.make("w").pipe(
        Workflow.sandbox(sandbox, (sb) => sb.retry({ times: 2 }, (sb) => sb.writeFile("/workspace/a", "a")))
      )
      yield* provide(Workflow.run(workflow))
      assert.strictEqual(uploads, 3)
    })
  )
})
