import { assert, describe, it } from "@effect/vitest"
import { Workflow } from "@sandglass/workflow"
import * as Cause from "effect/Cause"
import * as Context from "effect/Context"
import * as Data from "effect/Data"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Schema from "effect/Schema"
import { withLocal } from "../support/localSandboxes.js"
import { onServer, sandbox, scripted } from "./support.js"

class Refused extends Data.TaggedError("Refused")<{ readonly why: string }> {}

describe("exec", () => {
  it.scopedLive("runs in order, and gives what was printed", () =>
    Effect.gen(function* () {
      const { commands, left, provide, server } = yield* scripted()
      const workflow = Workflow.make("w").pipe(
        Workflow.sandbox(sandbox, (sb) =>
          sb
            .exec("say one")
            .exec(["say", "two"])
            .exec(() => "say three")
        )
      )
      assert.strictEqual(server.server.requests.length, 0, "building runs nothing")
      const result = yield* provide(Workflow.run(workflow))
      assert.strictEqual(result.stdout, "one\ntwo\nthree\n")
      assert.deepStrictEqual(commands(), ["say one", "say two", "say three"])
      assert.strictEqual(left(), 0)
      const again = yield* provide(Workflow.run(workflow))
      assert.strictEqual(again.stdout, result.stdout)
      assert.notStrictEqual(again.runId, result.runId)
      assert.strictEqual(server.created.length, 2)
    })
  )

  it.scopedLive("an exit code other than 0 fails the workflow, with the command's error and place", () =>
    Effect.gen(function* () {
      const { commands, left, provide } = yield* scripted()
      const workflow = Workflow.make("w").pipe(
        Workflow.sandbox(sandbox, (sb) => sb.exec("say one").exec("exit 3").exec("say two"))
      )
      const error = yield* Effect.flip(provide(Workflow.run(workflow, { runId: "r" })))
      assert.deepInclude(error, { _tag: "WorkflowError", reason: "StepFailed", stage: 0, step: "1", runId: "r" })
      assert.deepInclude(error.failure, { _tag: "CommandError", exitCode: 3, stdout: "exit 3\n", command: "exit 3" })
      assert.deepStrictEqual(commands(), ["say one", "exit 3"])
      assert.strictEqual(left(), 0, "the sandbox was closed before the failure was reported")
    })
  )

  it.scopedLive("strict: false lets it pass", () =>
    Effect.gen(function* () {
      const { provide } = yield* scripted()
      const codes: Array<number | undefined> = []
      const workflow = Workflow.make("w").pipe(
        Workflow.sandbox(sandbox, (sb) =>
          sb.exec("exit 3", { strict: false }).exec((ctx) => {
            codes.push(ctx.exitCode)
            return "say after"
          })
        )
      )
      const { stages } = yield* provide(Workflow.run(workflow))
      assert.deepStrictEqual(codes, [3])
      assert.deepStrictEqual(
        stages[0]?.branches[0]?.steps.map(({ exitCode, id, stdout }) => ({ id, exitCode, stdout })),
        [
          { id: "0", exitCode: 3, stdout: "exit 3\n" },
          { id: "1", exitCode: 0, stdout: "after\n" }
        ]
      )
    })
  )

  it.scopedLive("keeps head and tail of long output, and says so", () =>
    Effect.gen(function* () {
      const { provide } = yield* scripted()
      const workflow = Workflow.make("w").pipe(
        Workflow.sandbox(sandbox, (sb) => sb.exec(`say ${"a".repeat(50)}${"z".repeat(50)}`, { maxOutput: 20 }))
      )
      const { stages, stdout, truncated } = yield* provide(Workflow.run(workflow))
      assert.strictEqual(stdout, `${"a".repeat(10)}\n[81 characters left out]\n${"z".repeat(9)}\n`)
      assert.isTrue(truncated)
      assert.strictEqual(stages[0]?.branches[0]?.steps[0]?.truncated, true)
      const many = Workflow.make("w").pipe(
        Workflow.sandbox(sandbox, (sb) => sb.exec("say aaaa").exec("say bbbb").exec("say cccc"))
      )
      const short = yield* provide(Workflow.run(many, { maxOutput: 8 }))
      assert.deepInclude(short, { stdout: "aaaa\n[7 characters left out]\nccc\n", truncated: true })
    })
  )
})

describe("files, code, checkpoints and effects", () => {
  it.live(
    "do in the sandbox what they say",
    () =>
      Effect.gen(function* () {
        const workflow = Workflow.make("w").pipe(
          Workflow.sandbox({ image: "node:22" }, (sb) =>
            sb
              .writeFile("/workspace/a/data.txt", "first\n", { mode: 0o600 })
              .moveFile("/workspace/a/data.txt", "/workspace/moved.txt")
              .exec("cat moved.txt; stat -c %a moved.txt")
              .writeFile("/workspace/bytes", new Uint8Array([104, 105]))
              .readFile("/workspace/bytes", "hi")
              .writeFile("/workspace/copy", (ctx) => `${ctx.vars.hi}!`)
              .checkpoint("written")
              .deleteFile("/workspace/moved.txt")
              .exec("ls")
              .execCode("console.log(1 + 1)", { language: "javascript" })
              .effect("count", (sandbox) => Effect.map(sandbox.files.list("/workspace"), (files) => files.length), {
                as: "files",
                schema: Schema.Number
              })
              .exec((ctx) => ["echo", String(ctx.vars.files + 1), ctx.vars.hi])
          )
        )
        const result = yield* Workflow.run(workflow)
        assert.strictEqual(result.stdout, "first\n600\na\nbytes\ncopy\n2\n4 hi\n")
        assert.deepStrictEqual(result.vars, { hi: "hi", files: 3 })
      }).pipe(withLocal({ mode: "plain" })),
    60_000
  )

  it.live(
    "readFile refuses what is too large; an error of the language fails, or is what a when decides on",
    () =>
      Effect.gen(function* () {
        const large = Workflow.make("w").pipe(
          Workflow.sandbox({ image: "node:22" }, (sb) =>
            sb.writeFile("/workspace/f", "12345").readFile("/workspace/f", "f", { maxBytes: 4 })
          )
        )
        const error = yield* Effect.flip(Workflow.run(large))
        assert.deepInclude(error, { reason: "StepFailed", step: "1" })
        assert.include(error.message, "more than 4 bytes")
        const thrown = Workflow.make("w").pipe(
          Workflow.sandbox({ image: "node:22" }, (sb) =>
            sb.execCode("throw new TypeError('no')", { language: "javascript" }).exec("echo after")
          )
        )
        const failed = yield* Effect.flip(Workflow.run(thrown))
        assert.deepInclude(failed.failure, { _tag: "CodeError", name: "TypeError" })
        const decided = Workflow.make("w").pipe(
          Workflow.sandbox({ image: "node:22" }, (sb) =>
            sb.execCode("throw new TypeError('no')", { language: "javascript" }).when(
              (ctx) => ctx.exitCode === 0,
              (sb) => sb.exec("echo good"),
              (sb) => sb.exec("echo bad")
            )
          )
        )
        assert.strictEqual((yield* Workflow.run(decided)).stdout, "bad\n")
      }).pipe(withLocal({ mode: "plain" })),
    60_000
  )

  it.scopedLive("an effect runs with its requirements, in a scope of its own, and fails with its own error", () =>
    Effect.gen(function* () {
      const { commands, left, provide } = yield* scripted()
      class Greeting extends Context.Tag("Greeting")<Greeting, string>() {}
      const seen: Array<string> = []
      const workflow = (refuse: boolean) =>
        Workflow.make("w").pipe(
          Workflow.sandbox(sandbox, (sb) =>
            sb
              .effect("greet", (sandbox, ctx) =>
                Effect.gen(function* () {
                  yield* Effect.addFinalizer(() => Effect.sync(() => seen.push("closed")))
                  const { stdout } = yield* sandbox.exec(["say", yield* Greeting])
                  seen.push(stdout.trim(), String(ctx.exitCode))
                  if (refuse) return yield* new Refused({ why: "because" })
                })
              )
              .exec("say after")
          )
        )
      const run = (refuse: boolean) => provide(Effect.provideService(Workflow.run(workflow(refuse)), Greeting, "hello"))
      assert.strictEqual((yield* run(false)).stdout, "after\n")
      assert.deepStrictEqual(seen, ["hello", "undefined", "closed"])
      const error = yield* Effect.flip(Effect.catchTag(run(true), "WorkflowError", Effect.die))
      assert.deepInclude(error, { _tag: "Refused", why: "because" })
      assert.deepStrictEqual(commands(), ["say hello", "say after", "say hello"])
      assert.strictEqual(left(), 0)
    })
  )

  it.scopedLive("a result that its schema cannot record fails the step; so does one of another kind", () =>
    Effect.gen(function* () {
      const { provide } = yield* scripted()
      const workflow = <A>(value: A, schema: Schema.Schema<A>) =>
        Workflow.make("w").pipe(
          Workflow.sandbox(sandbox, (sb) => sb.effect("e", () => Effect.succeed(value), { as: "v", schema }))
        )
      const date = yield* Effect.flip(provide(Workflow.run(workflow(new Date(0), Schema.DateFromSelf))))
      assert.deepInclude(date, { reason: "StepFailed" })
      assert.include(date.description, "does not fit its schema")
      const map = yield* Effect.flip(provide(Workflow.run(workflow(undefined, Schema.Undefined))))
      assert.include(map.description, "does not make JSON")
    })
  )

  it.scopedLive("a defect is a defect", () =>
    Effect.gen(function* () {
      const { left, provide } = yield* scripted()
      const workflow = Workflow.make("w").pipe(
        Workflow.sandbox(sandbox, (sb) => sb.effect("e", () => Effect.die("broken")).exec("say after"))
      )
      const exit = yield* Effect.exit(provide(Workflow.run(workflow)))
      assert.isTrue(Exit.isFailure(exit) && Cause.isDie(exit.cause))
      assert.strictEqual(left(), 0)
    })
  )
})

describe("when", () => {
  const reported = (command: string) =>
    Workflow.make("w").pipe(
      Workflow.sandbox(sandbox, (sb) =>
        sb
          .exec(command)
          .checkpoint()
          .when(
            (ctx) => ctx.exitCode === 0,
            (sb) => sb.exec("say report"),
            (sb) => sb.exec("say explain")
          )
          .exec("say end")
      )
    )

  it.scopedLive("decides on the command before it, which does not fail the workflow", () =>
    Effect.gen(function* () {
      const { provide } = yield* scripted()
      assert.strictEqual((yield* provide(Workflow.run(reported("say ok")))).stdout, "ok\nreport\nend\n")
      assert.strictEqual((yield* provide(Workflow.run(reported("exit 2")))).stdout, "exit 2\nexplain\nend\n")
    })
  )

  it.scopedLive("other commands still fail; one without else may be skipped; predicates may be effects", () =>
    Effect.gen(function* () {
      const { provide } = yield* scripted()
      const workflow = (first: string, last: string) =>
        Workflow.make("w").pipe(
          Workflow.sandbox(sandbox, (sb) =>
            sb
              .exec(first)
              .exec("exit 1")
              .when(
                (ctx) => Effect.succeed(ctx.stdout.includes("exit 1") && ctx.exitCode === 2),
                (sb) => sb.exec("say never")
              )
              .exec(last)
          )
        )
      assert.strictEqual((yield* provide(Workflow.run(workflow("say a", "say b")))).stdout, "a\nexit 1\nb\n")
      const first = yield* Effect.flip(provide(Workflow.run(workflow("exit 4", "say b"))))
      assert.deepInclude(first, { step: "0" })
      const last = yield* Effect.flip(provide(Workflow.run(workflow("say a", "exit 5"))))
      assert.deepInclude(last, { step: "3" })
    })
  )

  it.scopedLive("a predicate's failure is the workflow's", () =>
    Effect.gen(function* () {
      const { left, provide } = yield* scripted()
      const workflow = Workflow.make("w").pipe(
        Workflow.sandbox(sandbox, (sb) =>
          sb.exec("exit 1").when(
            () => new Refused({ why: "no" }),
            (sb) => sb
          )
        )
      )
      const error = yield* Effect.flip(Effect.catchTag(provide(Workflow.run(workflow)), "WorkflowError", Effect.die))
      assert.deepInclude(error, { _tag: "Refused" })
      assert.strictEqual(left(), 0)
    })
  )

  it.scopedLive("in a when: both decide on the same command", () =>
    Effect.gen(function* () {
      const { provide } = yield* scripted()
      const workflow = Workflow.make("w").pipe(
        Workflow.sandbox(sandbox, (sb) =>
          sb.exec("exit 7").when(
            (ctx) => ctx.exitCode !== 0,
            (sb) =>
              sb.when(
                (ctx) => ctx.exitCode === 7,
                (sb) => sb.exec("say seven"),
                (sb) => sb.exec("say other")
              )
          )
        )
      )
      assert.strictEqual((yield* provide(Workflow.run(workflow))).stdout, "exit 7\nseven\n")
    })
  )

  it.scopedLive("after a when: decides on the last command of the way that was gone", () =>
    Effect.gen(function* () {
      const { provide } = yield* scripted()
      const workflow = (first: string) =>
        Workflow.make("w").pipe(
          Workflow.sandbox(sandbox, (sb) =>
            sb
              .exec(first)
              .when(
                (ctx) => ctx.exitCode === 0,
                (sb) => sb.exec("exit 5"),
                (sb) => sb.checkpoint()
              )
              .exec((ctx) => `say ${ctx.exitCode}`, { strict: false })
          )
        )
      const decided = Workflow.make("w").pipe(
        Workflow.sandbox(sandbox, (sb) =>
          sb
            .exec("say a")
            .when(
              (ctx) => ctx.exitCode === 0,
              (sb) => sb.exec("exit 5")
            )
            .when(
              (ctx) => ctx.exitCode === 5,
              (sb) => sb.exec("say five")
            )
        )
      )
      assert.strictEqual((yield* provide(Workflow.run(decided))).stdout, "a\nexit 5\nfive\n")
      assert.strictEqual((yield* provide(Workflow.run(workflow("exit 3")))).stdout, "exit 3\n3\n")
      assert.deepInclude(yield* Effect.flip(provide(Workflow.run(workflow("say a")))), { step: "1.then.0" })
    })
  )
})

describe("forEach", () => {
  it.scopedLive("results, output and variables are in the order of the items, whatever finished first", () =>
    Effect.gen(function* () {
      const { commands, provide } = yield* scripted()
      const seen: Array<string> = []
      const workflow = Workflow.make("w").pipe(
        Workflow.sandbox(sandbox, (sb) =>
          sb
            .exec("say before")
            .forEach([300, 150, 1], { concurrency: 3 }, (sb, millis, index) =>
              sb
                .exec((ctx) => {
                  seen.push(`${index} ${ctx.exitCode} ${ctx.stdout.trim()}`)
                  return `slow ${millis} item ${index}`
                })
                .effect("note", (_, ctx) => Effect.succeed(`${index}: ${ctx.stdout.replaceAll("\n", ",")}`), {
                  as: `note${index}`,
                  schema: Schema.String
                })
                .effect("last", () => Effect.succeed(index), { as: "last", schema: Schema.Number })
            )
            .exec((ctx) => `say after ${ctx.vars.last}`)
        )
      )
      const result = yield* provide(Workflow.run(workflow))
      assert.strictEqual(result.stdout, "before\nitem 0\nitem 1\nitem 2\nafter 2\n")
      assert.deepStrictEqual(
        result.stages[0]?.branches[0]?.steps
          .filter(({ kind }) => kind === "exec")
          .map(({ id, stdout }) => [id, stdout]),
        [
          ["0", "before\n"],
          ["1[0].0", "item 0\n"],
          ["1[1].0", "item 1\n"],
          ["1[2].0", "item 2\n"],
          ["2", "after 2\n"]
        ]
      )
      assert.deepStrictEqual(result.vars as object, {
        note0: "0: before,item 0,",
        note1: "1: before,item 1,",
        note2: "2: before,item 2,",
        last: 2
      })
      // Each sees the context as it was before the loop.
      assert.deepStrictEqual(seen.toSorted(), ["0 0 before", "1 0 before", "2 0 before"])
      assert.strictEqual(commands().length, 5)
    })
  )

  it.scopedLive("the failure of an item interrupts the others", () =>
    Effect.gen(function* () {
      const { left, provide, server } = yield* scripted()
      const workflow = Workflow.make("w").pipe(
        Workflow.sandbox(sandbox, (sb) =>
          sb.forEach(["hang", "exit 9", "hang"], { concurrency: "unbounded" }, (sb, command) =>
            sb.exec(command === "exit 9" ? "slow 100 x" : command).exec(command)
          )
        )
      )
      const error = yield* Effect.flip(provide(Workflow.run(workflow)))
      assert.deepInclude(error, { reason: "StepFailed", step: "0[1].1" })
      assert.strictEqual(server.interrupted.length, 2, "the other commands were stopped")
      assert.strictEqual(left(), 0)
    })
  )

  it.scopedLive("one after another by default; none at all for no items", () =>
    Effect.gen(function* () {
      const { commands, provide } = yield* scripted()
      const items: ReadonlyArray<string> = []
      const workflow = Workflow.make("w").pipe(
        Workflow.sandbox(sandbox, (sb) =>
          sb
            .forEach(items, (sb, item) => sb.exec(item))
            .forEach(["slow 60 a", "say b"], (sb, item) => sb.exec(item))
            .exec("exit 2")
            .forEach(items, (sb, item) => sb.exec(item))
            .when(
              (ctx) => ctx.exitCode === 2,
              (sb) => sb.exec("say two")
            )
        )
      )
      assert.strictEqual((yield* provide(Workflow.run(workflow))).stdout, "a\nb\nexit 2\ntwo\n")
      assert.deepStrictEqual(commands(), ["slow 60 a", "say b", "exit 2", "say two"])
    })
  )

  it.scopedLive("a when after it decides on the last command of the last item; those before still fail", () =>
    Effect.gen(function* () {
      const { provide } = yield* scripted()
      const workflow = (...items: ReadonlyArray<string>) =>
        Workflow.make("w").pipe(
          Workflow.sandbox(sandbox, (sb) =>
            sb
              .forEach(items, { concurrency: 2 }, (sb, item) => sb.exec(item))
              .when(
                (ctx) => ctx.exitCode === 4,
                (sb) => sb.exec("say four")
              )
          )
        )
      assert.strictEqual((yield* provide(Workflow.run(workflow("say a", "exit 4")))).stdout, "a\nexit 4\nfour\n")
      assert.deepInclude(yield* Effect.flip(provide(Workflow.run(workflow("exit 4", "say a")))), { step: "0[0].0" })
    })
  )
})

describe("stages", () => {
  it.scopedLive("each has a sandbox of its own, created when it starts and closed when it ends", () =>
    Effect.gen(function* () {
      const { provide, server } = yield* scripted()
      const open: Array<readonly [number, number]> = []
      const note = () => {
        open.push([server.created.length, server.deleted.length])
        return "say x"
      }
      const workflow = Workflow.make("w").pipe(
        Workflow.sandbox({ ...sandbox, image: "a" }, (sb) => sb.exec(note)),
        Workflow.sandbox({ ...sandbox, image: "b" }, (sb) => sb.exec(note)),
        Workflow.parallel([{ ...sandbox, image: "c" }], (sb) => sb.exec(note))
      )
      yield* provide(Workflow.run(workflow))
      assert.deepStrictEqual(open, [
        [1, 0],
        [2, 1],
        [3, 2]
      ])
      assert.deepStrictEqual(
        server.created.map(({ image }) => image),
        [{ uri: "a" }, { uri: "b" }, { uri: "c" }]
      )
    })
  )

  it.scopedLive("parallel: branches at once, their results in the order in which they are written", () =>
    Effect.gen(function* () {
      const { left, provide } = yield* scripted()
      let running = 0
      let most = 0
      const workflow = (concurrency: number | undefined) =>
        Workflow.make("w").pipe(
          Workflow.parallel(
            [
              { ...sandbox, image: "i1" },
              { ...sandbox, image: "i2" },
              { ...sandbox, image: "i3" }
            ],
            (sb, { image }, index) =>
              sb
                .effect("count", () =>
                  Effect.sync(() => {
                    most = Math.max(most, ++running)
                  })
                )
                .exec(`slow ${200 - index * 90} ${image}`)
                .effect("count", () => Effect.sync(() => running--)),
            { concurrency }
          )
        )
      const result = yield* provide(Workflow.run(workflow(undefined)))
      assert.strictEqual(result.stdout, "i1\ni2\ni3\n")
      assert.strictEqual(most, 3)
      assert.deepStrictEqual(
        result.stages[0]?.branches.map(({ label, stdout }) => [label, stdout]),
        [
          ["i1", "i1\n"],
          ["i2", "i2\n"],
          ["i3", "i3\n"]
        ]
      )
      most = 0
      yield* provide(Workflow.run(workflow(2)))
      assert.strictEqual(most, 2)
      assert.strictEqual(left(), 0)
    })
  )

  it.scopedLive("parallel: branches with steps of their own", () =>
    Effect.gen(function* () {
      const { provide } = yield* scripted()
      const workflow = Workflow.make("w").pipe(
        Workflow.parallel([
          { ...sandbox, name: "one", run: (sb) => sb.exec("say 1") },
          { ...sandbox, name: "two", run: (sb) => sb.exec("say 2") }
        ])
      )
      const { stages } = yield* provide(Workflow.run(workflow))
      assert.deepStrictEqual(
        stages[0]?.branches.map(({ label, stdout }) => [label, stdout]),
        [
          ["one", "1\n"],
          ["two", "2\n"]
        ]
      )
    })
  )

  it.scopedLive(
    "parallel: one failing branch interrupts its siblings, and all sandboxes are closed before it is reported",
    () =>
      Effect.gen(function* () {
        const { left, provide, server } = yield* scripted()
        const workflow = Workflow.make("w").pipe(
          Workflow.sandbox(sandbox, (sb) => sb.exec("say before")),
          Workflow.parallel(
            ["hang", "slow 150 x", "hang"].map((command) => ({
              ...sandbox,
              metadata: { command: command.split(" ")[0] ?? "" }
            })),
            (sb, { metadata }, index) =>
              index === 1 ? sb.exec("slow 150 x").exec("exit 6") : sb.exec(metadata.command).exec("say never")
          ),
          Workflow.sandbox(sandbox, (sb) => sb.exec("say never"))
        )
        const error = yield* Effect.flip(provide(Workflow.run(workflow)))
        assert.deepInclude(error, { reason: "StepFailed", stage: 1, branch: 1, step: "1" })
        assert.strictEqual(server.created.length, 4)
        assert.strictEqual(left(), 0)
        assert.strictEqual(server.interrupted.length, 2)
      })
  )

  it.scopedLive("sequence: each stage is built of what the one before came to", () =>
    Effect.gen(function* () {
      const { provide } = yield* scripted()
      const workflow = Workflow.make("w").pipe(
        Workflow.sequence([
          {
            ...sandbox,
            run: (sb, previous) =>
              sb
                .exec(`say first:${previous.stdout}:${previous.exitCode}`)
                .effect("v", () => Effect.succeed(41), { as: "v", schema: Schema.Number })
          },
          { ...sandbox, run: (sb, previous) => sb.exec(`say ${previous.stdout.trim()} ${previous.vars.v + 1}`) },
          { ...sandbox, run: (sb, previous) => sb.exec(`say ${previous.exitCode} ${previous.vars.v}`) }
        ])
      )
      const { stages, vars } = yield* provide(Workflow.run(workflow))
      assert.deepStrictEqual(
        stages.map(({ stdout }) => stdout),
        ["first::undefined\n", "first::undefined 42\n", "0 41\n"]
      )
      assert.deepStrictEqual(vars, { v: 41 })
    })
  )

  it.scopedLive("variables of earlier stages are known in later ones; stdout and exit code begin anew", () =>
    Effect.gen(function* () {
      const { provide } = yield* scripted()
      const workflow = Workflow.make("w").pipe(
        Workflow.sandbox(sandbox, (sb) =>
          sb.exec("say one").effect("a", () => Effect.succeed("A"), { as: "a", schema: Schema.String })
        ),
        Workflow.sandbox(sandbox, (sb) =>
          sb
            .exec((ctx) => `say ${ctx.vars.a}|${ctx.stdout}|${ctx.exitCode}`)
            .effect("a", (_, ctx) => Effect.succeed(`${ctx.vars.a}2`), { as: "a", schema: Schema.String })
        )
      )
      const { stages, vars } = yield* provide(Workflow.run(workflow))
      assert.strictEqual(stages[1]?.stdout, "A||undefined\n")
      assert.deepStrictEqual(vars, { a: "A2" })
    })
  )

  it.scopedLive("a sandbox that cannot be created is a failure of its own", () =>
    Effect.gen(function* () {
      const { provide } = yield* scripted({
        override: (request) =>
          request.method === "POST" && request.path === "/v1/sandboxes"
            ? {
                status: 400,
                headers: { "content-type": "application/json" },
                body: ['{"code":"X","message":"no"}'],
                framing: "length"
              }
            : undefined
      })
      const workflow = Workflow.make("w").pipe(Workflow.sandbox(sandbox, (sb) => sb.exec("say x")))
      const error = yield* Effect.flip(provide(Workflow.run(workflow)))
      assert.deepInclude(error, { reason: "SandboxFailed", stage: 0 })
      assert.deepInclude(error.failure, { _tag: "OpenSandboxError", reason: "InvalidRequest" })
    })
  )
})

describe("interruption", () => {
  it.live(
    "at any point closes every sandbox",
    () =>
      Effect.gen(function* () {
        const workflow = Workflow.make("w").pipe(
          Workflow.sandbox({ image: "i" }, (sb) => sb.exec("echo a").checkpoint().exec("sleep 0.1")),
          Workflow.parallel([{ image: "i" }, { image: "i" }], (sb) =>
            sb.retry({ times: 3 }, (sb) => sb.forEach([1, 2], { concurrency: 2 }, (sb) => sb.exec("sleep 0.1; exit 1")))
          )
        )
        for (const millis of [0, 5, 20, 60, 120, 200, 350, 600, 900]) {
          const fiber = yield* Effect.fork(Workflow.run(workflow, { runId: `at-${millis}` }))
          yield* Effect.sleep(millis)
          const exit = yield* Fiber.interrupt(fiber)
          assert.isTrue(Exit.isFailure(exit))
        }
        assert.deepStrictEqual(yield* onServer, [])
      }).pipe(withLocal({ mode: "plain" })),
    120_000
  )

  it.scopedLive("an effect step that waits is interrupted too, and the sandbox closed", () =>
    Effect.gen(function* () {
      const { left, provide } = yield* scripted()
      const begun = yield* Deferred.make<void>()
      const workflow = Workflow.make("w").pipe(
        Workflow.sandbox(sandbox, (sb) =>
          sb.effect("wait", () => Effect.zipRight(Deferred.succeed(begun, void 0), Effect.never))
        )
      )
      const fiber = yield* Effect.fork(provide(Workflow.run(workflow)))
      yield* Deferred.await(begun)
      assert.strictEqual(left(), 1)
      const exit = yield* Fiber.interrupt(fiber)
      assert.isTrue(Exit.isInterrupted(exit))
      assert.strictEqual(left(), 0)
    })
  )
})
