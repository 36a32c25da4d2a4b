import * as Fs from "node:fs"
import * as Os from "node:os"
import * as Path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Ledger, Sandboxes } from "@sandglass/core"
import type { Steps } from "@sandglass/workflow"
import { Workflow } from "@sandglass/workflow"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/TestClock"
import * as TestServices from "effect/TestServices"
import { withLocal } from "../support/localSandboxes.js"
import { all, onServer, sandbox, scripted } from "./support.js"

class Refused extends Data.TaggedError("Refused")<{ readonly message: string }> {}

/** A file of the machine, for effects that outlive a container. */
const outside = Effect.acquireRelease(
  Effect.sync(() => {
    const folder = Fs.mkdtempSync(Path.join(Os.tmpdir(), "sandglass-resume-"))
    const file = Path.join(folder, "effects")
    Fs.writeFileSync(file, "")
    return { folder, file, lines: () => Fs.readFileSync(file, "utf8").split("\n").slice(0, -1) }
  }),
  ({ folder }) => Effect.sync(() => Fs.rmSync(folder, { recursive: true, force: true }))
)

const stepsOf = (runId: string) =>
  Effect.gen(function* () {
    const ledger = yield* Ledger.Ledger
    const sessions = [...(yield* all(ledger.sandboxes({ runId })))].reverse()
    const entries = yield* Effect.forEach(sessions, ({ sandboxId }) =>
      all(ledger.read({ sandboxId, events: ["step.completed"] }))
    )
    return entries.map((entries) => entries.map(({ payload }) => (payload as { readonly step: string }).step))
  })

const waitFor = (condition: () => boolean): Effect.Effect<void> =>
  Effect.suspend(() => (condition() ? Effect.void : Effect.zipRight(Effect.sleep(10), waitFor(condition))))

describe("a run that has ended", () => {
  it.scopedLive("answers from the ledger", () =>
    Effect.gen(function* () {
      const { provide, server } = yield* scripted()
      const workflow = Workflow.make("w").pipe(
        Workflow.sandbox(sandbox, (sb) =>
          sb
            .exec("say one")
            .retry({ times: 2 }, (sb) => sb.exec("flaky a 1"))
            .exec("exit 3")
            .when(
              (ctx) => ctx.exitCode === 3,
              (sb) => sb.exec("say three")
            )
            .forEach(["x", "y"], { concurrency: 2 }, (sb, name) => sb.exec(`say ${name}`))
            .effect("v", () => Effect.succeed(new Date(0)), { as: "v", schema: Schema.Date })
        ),
        Workflow.parallel([sandbox, sandbox], (sb, _, index) => sb.exec(`say ${index}`)),
        Workflow.sequence([{ ...sandbox, run: (sb, previous) => sb.exec(`say ${previous.stdout.trim()}`) }])
      )
      const result = yield* provide(Workflow.run(workflow, { runId: "r" }))
      assert.deepStrictEqual(result.vars, { v: new Date(0) })
      const asked = server.server.requests.length
      assert.deepStrictEqual(yield* provide(Workflow.resume(workflow, "r")), result)
      assert.deepStrictEqual(yield* provide(Workflow.resume(workflow, "r")), result)
      assert.strictEqual(server.server.requests.length, asked, "nothing was asked of the server")
    })
  )

  it.effect("does not wait again before attempts that were made", () =>
    Effect.gen(function* () {
      const { ledger, provide } = yield* scripted()
      const workflow = Workflow.make("w").pipe(
        Workflow.sandbox(sandbox, (sb) =>
          sb.retry({ times: 2, schedule: Schedule.spaced("1 hour") }, (sb) => sb.exec("flaky a 1"))
        )
      )
      const fiber = yield* Effect.fork(provide(Workflow.run(workflow, { runId: "r" })))
      while ((yield* all(ledger.read({ events: ["step.failed"] }))).length === 0) {
        yield* TestServices.provideLive(Effect.sleep(5))
      }
      yield* TestServices.provideLive(Effect.sleep(100))
      yield* TestClock.adjust("1 hour")
      const result = yield* Fiber.join(fiber)
      assert.strictEqual(result.stdout, "a\n")
      assert.deepStrictEqual(yield* provide(Workflow.resume(workflow, "r")), result)
    }).pipe(Effect.scoped)
  )

  it.scopedLive("fails as it had failed", () =>
    Effect.gen(function* () {
      const { provide, server } = yield* scripted()
      const workflow = Workflow.make("w").pipe(
        Workflow.sandbox(sandbox, (sb) => sb.exec("say one", { rollback: (sb) => sb.exec("say undo") }).exec("exit 3"))
      )
      const error = yield* Effect.flip(provide(Workflow.run(workflow, { runId: "r" })))
      const asked = server.server.requests.length
      const again = yield* Effect.flip(provide(Workflow.resume(workflow, "r")))
      assert.deepStrictEqual({ ...again }, { ...error })
      assert.strictEqual(server.server.requests.length, asked)

      const own = Workflow.make("own").pipe(
        Workflow.sandbox(sandbox, (sb) => sb.effect("e", () => new Refused({ message: "not today" })))
      )
      const refused = yield* Effect.flip(provide(Workflow.run(own, { runId: "r2" })))
      assert.strictEqual(refused._tag, "Refused")
      const told = yield* Effect.flip(provide(Workflow.resume(own, "r2")))
      assert.deepInclude(told, { _tag: "WorkflowError", reason: "RunFailed", description: "not today" })
    })
  )
})

describe("which run", () => {
  const workflow = Workflow.make("w").pipe(Workflow.sandbox(sandbox, (sb) => sb.exec("say one")))

  it.scopedLive("one that is not there, one that is there already, one without an id", () =>
    Effect.gen(function* () {
      const { provide } = yield* scripted()
      assert.deepInclude(yield* Effect.flip(provide(Workflow.resume(workflow, "r"))), { reason: "RunNotFound" })
      yield* provide(Workflow.run(workflow, { runId: "r" }))
      assert.deepInclude(yield* Effect.flip(provide(Workflow.run(workflow, { runId: "r" }))), { reason: "RunExists" })
      assert.deepInclude(yield* Effect.flip(provide(Workflow.run(workflow, { runId: " " }))), {
        reason: "InvalidInput"
      })
      const [session] = yield* provide(Effect.flatMap(Sandboxes.Sandboxes, (_) => all(_.list())))
      assert.deepInclude(yield* Effect.flip(provide(Workflow.resume(workflow, session?.sandboxId ?? ""))), {
        reason: "RunNotFound"
      })
    })
  )

  it.scopedLive("of several that start one at the same time, one is the first", () =>
    Effect.gen(function* () {
      const { commands, provide } = yield* scripted()
      const exits = yield* provide(
        Effect.all(
          Array.from({ length: 5 }, () => Effect.exit(Workflow.run(workflow, { runId: "r" }))),
          { concurrency: "unbounded" }
        )
      )
      assert.strictEqual(exits.filter(Exit.isSuccess).length, 1)
      assert.deepStrictEqual(commands(), ["say one"])
    })
  )

  it.scopedLive("the ledger knows them all", () =>
    Effect.gen(function* () {
      const { commands, provide } = yield* scripted()
      const named = (name: string, last: string) =>
        Workflow.make(name).pipe(Workflow.sandbox(sandbox, (sb) => sb.exec("say one").exec(last)))
      yield* provide(Workflow.run(named("a", "say two"), { runId: "r1" }))
      yield* Effect.exit(provide(Workflow.run(named("b", "exit 1"), { runId: "r2" })))
      const fiber = yield* Effect.fork(provide(Workflow.run(named("b", "hang"), { runId: "r3" })))
      yield* waitFor(() => commands().includes("hang"))
      const runs = (name?: string) =>
        Effect.map(provide(all(Workflow.runs({ name }))), (runs) => runs.map(({ runId, status }) => [runId, status]))
      assert.deepStrictEqual(yield* runs(), [
        ["r3", "running"],
        ["r2", "failed"],
        ["r1", "completed"]
      ])
      yield* Fiber.interrupt(fiber)
      assert.deepStrictEqual(yield* runs("b"), [
        ["r3", "interrupted"],
        ["r2", "failed"]
      ])
    })
  )
})

describe("a workflow that has changed under the run", () => {
  type Build = (sb: Steps.Steps) => Steps.Steps<unknown>
  const make = (build: Build) => Workflow.make("w").pipe(Workflow.sandbox(sandbox, build))

  const changed = (before: Build, after: Build) =>
    Effect.gen(function* () {
      const { provide, server } = yield* scripted()
      yield* provide(Workflow.run(make(before), { runId: "r" }))
      const asked = server.server.requests.length
      const error = yield* Effect.flip(provide(Workflow.resume(make(after), "r")))
      assert.strictEqual(server.server.requests.length, asked)
      assert.strictEqual(error.reason, "DefinitionChanged")
      for (const line of error.difference ?? []) assert.include(error.message, line)
      return error.difference
    })

  it.scopedLive("another command", () =>
    Effect.gen(function* () {
      const difference = yield* changed(
        (sb) => sb.exec("say one").exec("say two").exec("say three"),
        (sb) => sb.exec("say one").exec("say TWO").exec("say three")
      )
      assert.deepStrictEqual(difference, [
        "  stage 0: sandbox node:22 once=false",
        '    exec "say one"',
        '-   exec "say two"',
        '+   exec "say TWO"',
        '    exec "say three"'
      ])
    })
  )

  it.scopedLive("a step more, deep inside", () =>
    Effect.gen(function* () {
      const build =
        (more: boolean): Build =>
        (sb) =>
          sb.forEach(["a", "b"], (sb, item) =>
            sb.retry({ times: 1 }, (sb) =>
              more && item === "b" ? sb.exec("say b").exec("say more") : sb.exec(`say ${item}`)
            )
          )
      const difference = yield* changed(build(false), build(true))
      assert.deepStrictEqual(
        difference?.filter((line) => !line.startsWith(" ")),
        ['+           exec "say more"']
      )
    })
  )

  it.scopedLive("another predicate, another count, another file, another environment", () =>
    Effect.gen(function* () {
      const marks = (difference: ReadonlyArray<string> | undefined) =>
        difference?.filter((line) => !line.startsWith(" ")).map((line) => line.replace(/ +/g, " "))
      assert.deepStrictEqual(
        marks(
          yield* changed(
            (sb) =>
              sb.when(
                (ctx) => ctx.exitCode === 0,
                (sb) => sb
              ),
            (sb) =>
              sb.when(
                (ctx) => ctx.exitCode === 1,
                (sb) => sb
              )
          )
        ),
        ["- when (ctx) => ctx.exitCode === 0", "+ when (ctx) => ctx.exitCode === 1"]
      )
      assert.deepStrictEqual(
        marks(
          yield* changed(
            (sb) => sb.retry({ times: 1 }, (sb) => sb),
            (sb) => sb.retry({ times: 2 }, (sb) => sb)
          )
        ),
        ["- retry times=1", "+ retry times=2"]
      )
      const env = yield* changed(
        (sb) => sb.exec("say a", { env: { TOKEN: "s3cret-1" } }),
        (sb) => sb.exec("say a", { env: { TOKEN: "s3cret-2", OTHER: "s3cret-3" } })
      )
      assert.deepStrictEqual(marks(env), ['- exec "say a" env=["TOKEN"]', '+ exec "say a" env=["OTHER","TOKEN"]'])
      assert.notInclude(JSON.stringify(env), "s3cret")
    })
  )

  it.scopedLive("a command that is made when it runs, and the steps of a stage that depends on the one before", () =>
    Effect.gen(function* () {
      const { provide } = yield* scripted()
      let word = "one"
      const dynamic = make((sb) => sb.exec(() => `say ${word}`))
      yield* provide(Workflow.run(dynamic, { runId: "r1" }))
      word = "two"
      const error = yield* Effect.flip(provide(Workflow.resume(dynamic, "r1")))
      assert.deepInclude(error, { reason: "DefinitionChanged", step: "0" })
      assert.deepStrictEqual(error.difference, ['- cmd: "say one"', '+ cmd: "say two"'])

      let depends = "x"
      const sequence = Workflow.make("s").pipe(
        Workflow.sequence([
          { ...sandbox, run: (sb, previous) => (previous.stdout === "" ? sb.exec(`say ${depends}`) : sb.exec("say y")) }
        ])
      )
      yield* provide(Workflow.run(sequence, { runId: "r2" }))
      depends = "z"
      const other = yield* Effect.flip(provide(Workflow.resume(sequence, "r2")))
      assert.deepInclude(other, { reason: "DefinitionChanged", stage: 0 })
      assert.deepStrictEqual(other.difference, ['-   exec "say x"', '+   exec "say z"'])
    })
  )
})

describe("a run that was interrupted", () => {
  it.live(
    "tells which finished steps would run again, where that is not wanted",
    () =>
      Effect.gen(function* () {
        const { file, lines } = yield* outside
        const mark = (name: string) => `echo ${name} >>'${file}'; echo ${name} >>marks; echo ${name}`
        const workflow = Workflow.make("w").pipe(
          Workflow.sandbox({ image: "a" }, (sb) =>
            sb.exec(mark("first")).effect("n", () => Effect.succeed(1), { as: "n", schema: Schema.Number })
          ),
          Workflow.sandbox({ image: "b" }, (sb) =>
            sb
              .exec(mark("one"))
              .writeFile("/workspace/f", "text")
              .checkpoint("tag")
              .exec(mark("two"))
              .exec(`${mark("three")}; [ -e '${file}.go' ] || sleep 30`)
              .exec((ctx) => `cat marks f; echo ${ctx.vars.n}`)
          )
        )
        const fiber = yield* Effect.fork(Workflow.run(workflow, { runId: "r" }))
        yield* waitFor(() => lines().includes("three"))
        yield* Fiber.interrupt(fiber)
        assert.deepStrictEqual(yield* onServer, [])
        Fs.writeFileSync(`${file}.go`, "")
        const lost = yield* Effect.flip(Workflow.resume(workflow, "r", { rerun: false }))
        assert.deepInclude(lost, { reason: "StepsLost", stage: 1 })
        assert.include(lost.description, "finished steps 3")
        assert.deepStrictEqual(yield* onServer, [])
      }).pipe(withLocal({ mode: "plain" })),
    60_000
  )

  it.live(
    "runs again what no checkpoint covers, and only that",
    () =>
      Effect.gen(function* () {
        const { file, lines } = yield* outside
        const mark = (name: string) => `echo ${name} >>'${file}'; echo ${name} >>marks; echo ${name}`
        const workflow = Workflow.make("w").pipe(
          Workflow.sandbox({ image: "a" }, (sb) => sb.exec(mark("first"))),
          Workflow.sandbox({ image: "b" }, (sb) =>
            sb
              .exec(mark("one"))
              .writeFile("/workspace/f", "text\n")
              .checkpoint("tag")
              .exec(mark("two"))
              .exec(`${mark("three")}; [ -e '${file}.go' ] || sleep 30`)
              .exec("cat marks f")
          )
        )
        const fiber = yield* Effect.fork(Workflow.run(workflow, { runId: "r" }))
        yield* waitFor(() => lines().includes("three"))
        yield* Fiber.interrupt(fiber)
        Fs.writeFileSync(`${file}.go`, "")
        const result = yield* Workflow.resume(workflow, "r")
        assert.strictEqual(result.stdout, "first\none\ntwo\nthree\none\ntwo\nthree\ntext\n")
        assert.deepStrictEqual(lines(), ["first", "one", "two", "three", "two", "three"])
        assert.deepStrictEqual(yield* onServer, [])
        assert.deepStrictEqual(yield* stepsOf("r"), [["0"], ["0", "1", "2", "3"], ["3", "4", "5"]])
      }).pipe(withLocal({ mode: "plain" })),
    60_000
  )

  it.live(
    "with a checkpoint after each step no finished step runs again",
    () =>
      Effect.gen(function* () {
        const { file, lines } = yield* outside
        const mark = (name: string) => `echo ${name} >>'${file}'; echo ${name}`
        const workflow = Workflow.make("w").pipe(
          Workflow.sandbox({ image: "a", checkpoints: "each-step" }, (sb) =>
            sb
              .exec(`${mark("one")}; touch a`)
              .moveFile("/workspace/a", "/workspace/b")
              .effect("append", () => Effect.sync(() => Fs.appendFileSync(file, "effect\n")))
              .exec(`${mark("two")}; [ -e '${file}.1' ] || sleep 30`)
              .deleteFile("/workspace/b")
              .exec(`${mark("three")}; [ -e '${file}.2' ] || sleep 30`)
              .exec("ls")
          )
        )
        for (const [signal, number] of [
          ["two", 1],
          ["three", 2]
        ] as const) {
          const run =
            number === 1 ? Workflow.run(workflow, { runId: "r" }) : Workflow.resume(workflow, "r", { rerun: false })
          const fiber = yield* Effect.fork(run)
          yield* waitFor(() => lines().includes(signal))
          yield* Fiber.interrupt(fiber)
          Fs.writeFileSync(`${file}.${number}`, "")
        }
        const result = yield* Workflow.resume(workflow, "r", { rerun: false })
        assert.strictEqual(result.stdout, "one\ntwo\nthree\n")
        // The two that were under way had not finished.
        assert.deepStrictEqual(lines(), ["one", "effect", "two", "two", "three", "three"])
        assert.deepStrictEqual(yield* stepsOf("r"), [
          ["0", "1", "2"],
          ["3", "4"],
          ["5", "6"]
        ])
      }).pipe(withLocal({ mode: "plain" })),
    60_000
  )

  it.live(
    "starts its stage anew where there is no checkpoint",
    () =>
      Effect.gen(function* () {
        const { file, lines } = yield* outside
        const workflow = Workflow.make("w").pipe(
          Workflow.sandbox({ image: "a" }, (sb) =>
            sb
              .exec(`echo one >>'${file}'; echo one >>marks`)
              .exec(`echo two >>'${file}'; [ -e '${file}.go' ] || sleep 30; cat marks`)
          )
        )
        const fiber = yield* Effect.fork(Workflow.run(workflow, { runId: "r" }))
        yield* waitFor(() => lines().includes("two"))
        yield* Fiber.interrupt(fiber)
        Fs.writeFileSync(`${file}.go`, "")
        assert.strictEqual((yield* Workflow.resume(workflow, "r")).stdout, "one\n")
        assert.deepStrictEqual(lines(), ["one", "two", "one", "two"])
      }).pipe(withLocal({ mode: "plain" })),
    60_000
  )

  it.live(
    "attempts of a retry that had failed are not made again",
    () =>
      Effect.gen(function* () {
        const { file, lines } = yield* outside
        const workflow = Workflow.make("w").pipe(
          Workflow.sandbox({ image: "a", checkpoints: "each-step" }, (sb) =>
            sb
              .exec("true")
              .retry({ times: 3, schedule: Schedule.spaced("50 millis") }, (sb) =>
                sb
                  .exec(`echo a >>'${file}'`)
                  .checkpoint()
                  .exec(`echo b >>'${file}'; exit $(( $(wc -l <'${file}') < 5 ))`)
              )
              .exec(`echo last >>'${file}'; [ -e '${file}.go' ] || sleep 30; echo end`)
          )
        )
        const fiber = yield* Effect.fork(Workflow.run(workflow, { runId: "r" }))
        yield* waitFor(() => lines().includes("last"))
        yield* Fiber.interrupt(fiber)
        Fs.writeFileSync(`${file}.go`, "")
        const result = yield* Workflow.resume(workflow, "r")
        assert.strictEqual(result.stdout, "end\n")
        assert.deepStrictEqual(lines(), ["a", "b", "a", "b", "a", "b", "last", "last"])
      }).pipe(withLocal({ mode: "plain" })),
    60_000
  )
})

describe("a run that another process takes up", () => {
  it.live(
    "stops where it is, and leaves the sandbox to the other; the command that is under way runs once",
    () =>
      Effect.gen(function* () {
        const { file, lines } = yield* outside
        const workflow = Workflow.make("w").pipe(
          Workflow.sandbox({ image: "a" }, (sb) =>
            sb
              .exec(`echo one >>'${file}'`)
              .exec(`echo two >>'${file}'; echo begun; sleep 1; echo ended`)
              .exec(`sleep 0.3; echo three >>'${file}'`)
          )
        )
        const first = yield* Effect.fork(Workflow.run(workflow, { runId: "r" }))
        yield* waitFor(() => lines().includes("two"))
        const second = yield* Effect.fork(Workflow.resume(workflow, "r"))
        const error = yield* Effect.flip(Fiber.join(first))
        assert.deepInclude(error, { reason: "Superseded" })
        const { stdout } = yield* Fiber.join(second)
        assert.strictEqual(stdout, "begun\nended\n")
        assert.deepStrictEqual(lines(), ["one", "two", "three"])
        assert.deepStrictEqual(yield* onServer, [])
        const ledger = yield* Ledger.Ledger
        assert.deepStrictEqual(
          (yield* all(ledger.read({ sandboxId: "r" }))).map(({ event }) => event),
          ["run.started", "stage.started", "run.resumed", "stage.completed", "run.completed"]
        )
      }).pipe(withLocal({ mode: "plain" })),
    60_000
  )

  it.live(
    "does not close the other's sandbox when it is interrupted",
    () =>
      Effect.gen(function* () {
        const { file, lines } = yield* outside
        const workflow = Workflow.make("w").pipe(
          Workflow.sandbox({ image: "a" }, (sb) =>
            sb.effect("wait", () =>
              Effect.suspend(() => {
                Fs.appendFileSync(file, "begun\n")
                return lines().length === 1 ? Effect.never : Effect.sleep(500)
              })
            )
          )
        )
        const first = yield* Effect.fork(Workflow.run(workflow, { runId: "r" }))
        yield* waitFor(() => lines().length === 1)
        const second = yield* Effect.fork(Workflow.resume(workflow, "r"))
        yield* waitFor(() => lines().length === 2)
        yield* Fiber.interrupt(first)
        assert.isTrue(Exit.isSuccess(yield* Fiber.await(second)))
        const [{ status } = { status: undefined }] = yield* all(Workflow.runs())
        assert.strictEqual(status, "completed")
      }).pipe(withLocal({ mode: "plain" })),
    60_000
  )
})
