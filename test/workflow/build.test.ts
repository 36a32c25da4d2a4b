import { assert, describe, it } from "@effect/vitest"
import type { Steps } from "@sandglass/workflow"
import { Workflow } from "@sandglass/workflow"
import * as Effect from "effect/Effect"
import * as Equal from "effect/Equal"
import * as Hash from "effect/Hash"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { sandbox, scripted } from "./support.js"

const isOk = (ctx: Steps.Context<object>) => ctx.exitCode === 0

const ci = (test = "npm test") =>
  Workflow.make("ci").pipe(
    Workflow.sandbox({ image: "node:22", resources: { cpu: "1" }, env: { TOKEN: "s3cret-env" } }, (sb) =>
      sb
        .exec("npm ci", { cwd: "/workspace", timeout: "5 minutes", env: { KEY: "s3cret-key" } })
        .checkpoint("installed")
        .retry({ times: 3 }, (sb) => sb.exec(test))
        .when(
          isOk,
          (sb) => sb.exec("npm run report"),
          (sb) => sb.exec("npm run explain")
        )
        .forEach(["web", "api"], { concurrency: 2 }, (sb, service) =>
          sb.exec(`deploy ${service}`, { rollback: (sb) => sb.exec(`undeploy ${service}`) })
        )
        .writeFile("/tmp/secret", Redacted.make("s3cret-content"), { mode: 0o600 })
        .writeFile("/tmp/plain", "content")
        .readFile("/tmp/version.txt", "version")
        .execCode("print(1)", { language: "python" })
        .moveFile("/a", "/b")
        .deleteFile("/b", { label: "clean up" })
        .effect("notify", () => Effect.void)
    ),
    Workflow.parallel([{ image: "node:20" }, { image: "node:22", name: "newest" }], (sb) => sb.exec(test)),
    Workflow.sequence([
      { image: "alpine", run: (sb, previous) => sb.exec(`echo ${previous.stdout} ${previous.vars.version}`) },
      { image: "alpine", run: (sb, previous) => sb.exec(`echo ${JSON.parse(previous.stdout).name}`) }
    ])
  )

const text = `workflow ci
stage 0: sandbox node:22 env=["TOKEN"] resources={"cpu":"1"}
  exec "npm ci" cwd="/workspace" env=["KEY"] timeout=300000
  checkpoint installed
  retry times=3
    steps:
      exec "npm test"
  when (ctx) => ctx.exitCode === 0
    then:
      exec "npm run report"
    else:
      exec "npm run explain"
  forEach concurrency=2
    web:
      exec "deploy web"
        rollback:
          exec "undeploy web"
    api:
      exec "deploy api"
        rollback:
          exec "undeploy api"
  writeFile "/tmp/secret" <redacted> mode="600"
  writeFile "/tmp/plain" 7 characters (ed7002b439e9ac84)
  readFile "/tmp/version.txt" as=version
  execCode "print(1)" language=python
  moveFile "/a" to "/b"
  deleteFile "/b" label="clean up"
  effect "notify" () => Effect.void
stage 1, branch 0: sandbox node:20
  exec "npm test"
stage 1, branch 1: sandbox node:22 name="newest"
  exec "npm test"
stage 2: sequence alpine
  exec "echo ‹stdout of stage 1› ‹version›"
stage 3: sequence alpine
  known when the stage before has ended`

describe("a workflow", () => {
  it("is a plan of plain data, and text", () => {
    const workflow = ci()
    const printed = Workflow.toText(workflow)
    assert.strictEqual(printed.replace(/(?<=effect "notify" ).*/, "() => Effect.void"), text)
    const plan = Workflow.plan(workflow)
    assert.deepStrictEqual(JSON.parse(JSON.stringify(plan)).name, "ci")
    const [first] = plan.stages[0]?.branches ?? []
    assert.deepStrictEqual(
      first?.steps?.map(({ id, idx, kind, label }) => [id, idx, kind, label]),
      [
        ["0", 0, "exec", "npm ci"],
        ["1", 1, "checkpoint", "checkpoint installed"],
        ["2", 2, "retry", "up to 3 more times"],
        ["3", 4, "when", "ctx.exitCode === 0"],
        ["4", 7, "forEach", "2 at once"],
        ["5", 12, "writeFile", 'write "/tmp/secret"'],
        ["6", 13, "writeFile", 'write "/tmp/plain"'],
        ["7", 14, "readFile", 'version = read "/tmp/version.txt"'],
        ["8", 15, "execCode", "python: print(1)"],
        ["9", 16, "moveFile", 'move "/a" to "/b"'],
        ["10", 17, "deleteFile", "clean up"],
        ["11", 18, "effect", "notify"]
      ]
    )
    assert.deepStrictEqual(
      first?.steps?.[4]?.groups.map(({ label, steps }) => [
        label,
        steps.map(({ id, rollback }) => [id, rollback[0]?.id])
      ]),
      [
        ["web", [["4[0].0", "4[0].0!0"]]],
        ["api", [["4[1].0", "4[1].0!0"]]]
      ]
    )
    assert.strictEqual(plan.stages[3]?.branches[0]?.steps, undefined)
  })

  it("tells no secret, however it is printed", () => {
    const workflow = ci()
    for (const shown of [
      Workflow.toText(workflow),
      Workflow.toMermaid(workflow),
      JSON.stringify(Workflow.plan(workflow)),
      JSON.stringify(workflow),
      String(workflow)
    ]) {
      assert.notInclude(shown, "s3cret")
    }
  })

  it("is an immutable value: adding to it makes another one", () => {
    const base = Workflow.make("w")
    const one = base.pipe(Workflow.sandbox({ image: "i" }, (sb) => sb.exec("a")))
    const two = one.pipe(Workflow.sandbox({ image: "i" }, (sb) => sb.exec("b")))
    assert.deepStrictEqual(
      [base, one, two].map((workflow) => Workflow.plan(workflow).stages.length),
      [0, 1, 2]
    )
    const built: Array<number> = []
    Workflow.make("w").pipe(
      Workflow.sandbox({ image: "i" }, (sb) => {
        const first = sb.exec("a")
        const left = first.exec("b")
        const right = first.exec("c").exec("d")
        built.push(1)
        return right.when(
          () => true,
          () => left
        )
      })
    )
    assert.deepStrictEqual(built, [1], "the callback runs once")
  })

  it("is equal to another that says the same", () => {
    assert.isTrue(Equal.equals(ci(), ci()))
    assert.strictEqual(Hash.hash(ci()), Hash.hash(ci()))
    assert.isFalse(Equal.equals(ci(), ci("npm run test")))
    assert.isFalse(Equal.equals(ci(), ci().pipe(Workflow.sandbox({ image: "i" }, (sb) => sb))))
    assert.isTrue(Workflow.isWorkflow(ci()))
    assert.isFalse(Workflow.isWorkflow({}))
  })

  it("is drawn as a flowchart", () => {
    const workflow = Workflow.make('a "quoted" <name>').pipe(
      Workflow.sandbox({ image: "node:22" }, (sb) =>
        sb
          .exec("first")
          .retry({ times: 1 }, (sb) => sb.exec("second", { rollback: (sb) => sb.exec("undo it") }))
          .when(
            (ctx) => ctx.exitCode === 0,
            (sb) => sb.checkpoint("good")
          )
          .forEach(["x", "y"], { concurrency: 2 }, (sb, item) => sb.exec(`do ${item} | grep "#1; & more"`))
          .forEach(["z"], (sb, item) => sb.exec(item))
      ),
      Workflow.parallel([{ image: "a" }, { image: "b" }], (sb) => sb)
    )
    assert.strictEqual(
      Workflow.toMermaid(workflow),
      `flowchart TD
  n0(["a #quot;quoted#quot; #lt;name#gt;"])
  subgraph g1["stage 0: node:22"]
    n2["first"]
    subgraph g3["retry: up to 1 more time"]
      n4["second"]
      n5(["undo: undo it"])
    end
    n6{"ctx.exitCode === 0"}
    n7[("checkpoint good")]
    subgraph g8["for each: 2 at once"]
      subgraph g9["x"]
        n10["do x | grep #quot;#35;1; #amp; more#quot;"]
      end
      subgraph g11["y"]
        n12["do y | grep #quot;#35;1; #amp; more#quot;"]
      end
    end
    subgraph g13["for each: one after another"]
      subgraph g14["z"]
        n15["z"]
      end
    end
  end
  subgraph g16["stage 1, branch 0: a"]
    n17["nothing"]
  end
  subgraph g18["stage 1, branch 1: b"]
    n19["nothing"]
  end
  n20(["done"])
  n0 --> n2
  n2 --> n4
  n4 -.-> n5
  n4 --> n6
  n6 -->|"then"| n7
  n7 --> n10
  n6 -->|"else"| n10
  n7 --> n12
  n6 -->|"else"| n12
  n10 --> n15
  n12 --> n15
  n15 --> n17
  n15 --> n19
  n17 --> n20
  n19 --> n20
`
    )
  })

  it("of very many operations is built, planned and compared on a constant stack", () => {
    const many = () =>
      Workflow.make("many").pipe(
        Workflow.sandbox({ image: "i" }, (sb) => {
          let steps = sb
          for (let n = 0; n < 100_000; n++) steps = steps.exec("true")
          return steps
        })
      )
    const workflow = many()
    assert.strictEqual(Workflow.plan(workflow).stages[0]?.branches[0]?.steps?.length, 100_000)
    assert.isTrue(Equal.equals(workflow, many()))
  })

  it.scopedLive("of a thousand operations runs", () =>
    Effect.gen(function* () {
      const { provide } = yield* scripted()
      const workflow = Workflow.make("many").pipe(
        Workflow.sandbox(sandbox, (sb) => {
          let steps = sb
          for (let n = 0; n < 1000; n++) steps = steps.effect("nothing", () => Effect.void)
          return steps
        })
      )
      const { stages } = yield* provide(Workflow.run(workflow, { runId: "r" }))
      assert.strictEqual(stages[0]?.branches[0]?.steps.length, 1000)
      assert.deepStrictEqual((yield* provide(Workflow.resume(workflow, "r"))).stages, stages)
    })
  )
})

describe("what makes no sense is refused before anything runs", () => {
  const invalid = (
    workflow: Workflow.Workflow<unknown, unknown>,
    description: string,
    options: Workflow.RunOptions = {}
  ) =>
    Effect.gen(function* () {
      const { provide, server } = yield* scripted()
      const error = yield* Effect.flip(provide(Workflow.run(workflow, options)))
      assert.deepInclude(error, { _tag: "WorkflowError", reason: "InvalidInput", description })
      assert.strictEqual(server.server.requests.length, 0)
    })
  const steps = (build: (sb: Steps.Steps) => Steps.Steps<unknown, unknown>) =>
    Workflow.make("w").pipe(Workflow.sandbox({ image: "i" }, build))
  // What plain JavaScript can give.
  const broken = (value: unknown) => value as never

  it.scopedLive("counts", () =>
    Effect.gen(function* () {
      for (const times of [0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY]) {
        yield* invalid(
          steps((sb) => sb.exec("a").retry({ times }, (sb) => sb.exec("b"))),
          `stage 0: step 1: the count of a retry is ${times}, not a whole number of 1 or more`
        )
      }
      for (const concurrency of [0, -2, 0.5]) {
        yield* invalid(
          steps((sb) => sb.retry({ times: 1 }, (sb) => sb.forEach([1], { concurrency }, (sb) => sb))),
          `stage 0: step 0.0: the concurrency of a loop is ${concurrency}, not a whole number of 1 or more`
        )
        yield* invalid(
          Workflow.make("w").pipe(Workflow.parallel([{ image: "i" }], (sb) => sb, { concurrency })),
          `stage 0: the concurrency is ${concurrency}, not a whole number of 1 or more`
        )
      }
    })
  )

  it.scopedLive("names, commands, paths and options", () =>
    Effect.gen(function* () {
      yield* invalid(Workflow.make(" "), "the workflow has no name")
      yield* invalid(Workflow.make("w"), "the id of the run is blank", { runId: "" })
      yield* invalid(Workflow.make("w"), "maxOutput is -1", { maxOutput: -1 })
      yield* invalid(Workflow.make("w").pipe(Workflow.sandbox({ image: " " }, (sb) => sb)), "stage 0: a blank image")
      yield* invalid(
        steps((sb) => sb.exec(" ")),
        "stage 0: step 0: an empty command"
      )
      yield* invalid(
        steps((sb) => sb.exec([])),
        "stage 0: step 0: an empty command"
      )
      yield* invalid(
        steps((sb) => sb.exec("a", { timeout: broken("soon") })),
        "stage 0: step 0: timeout is no duration"
      )
      yield* invalid(
        steps((sb) => sb.exec("a", { maxOutput: -1 })),
        "stage 0: step 0: maxOutput is -1"
      )
      yield* invalid(
        steps((sb) => sb.execCode("", { language: "python" })),
        "stage 0: step 0: empty code"
      )
      yield* invalid(
        steps((sb) => sb.execCode("1", { language: "" })),
        "stage 0: step 0: code without a language"
      )
      yield* invalid(
        steps((sb) => sb.readFile("/a", "")),
        "stage 0: step 0: a variable without a name"
      )
      yield* invalid(
        steps((sb) => sb.readFile("/a", "a", { maxBytes: 0 })),
        "stage 0: step 0: maxBytes is 0, not a whole number of 1 or more"
      )
      yield* invalid(
        steps((sb) => sb.writeFile("", "")),
        "stage 0: step 0: an empty path"
      )
      yield* invalid(
        steps((sb) => sb.moveFile("/a", "")),
        "stage 0: step 0: an empty path"
      )
      yield* invalid(
        steps((sb) => sb.checkpoint("")),
        "stage 0: step 0: an empty tag"
      )
      yield* invalid(
        steps((sb) => sb.exec("a", { label: "" })),
        "stage 0: step 0: an empty label"
      )
      yield* invalid(
        steps((sb) => sb.exec("a", { rollback: (sb) => sb.exec("") })),
        "stage 0: step 0!0: an empty command"
      )
      yield* invalid(
        steps((sb) => sb.effect("e", () => Effect.succeed(1), broken({ as: "a" }))),
        "stage 0: step 0: the variable a has no schema to record it with"
      )
      yield* invalid(
        steps((sb) => sb.effect("e", () => Effect.succeed(1), { as: "", schema: Schema.Number })),
        "stage 0: step 0: a variable without a name"
      )
      yield* invalid(
        steps((sb) => sb.exec("").exec("")),
        "stage 0: step 0: an empty command; stage 0: step 1: an empty command"
      )
    })
  )

  it.scopedLive("callbacks that return something else", () =>
    Effect.gen(function* () {
      const problem = "a callback did not return the steps that it built on its own argument"
      yield* invalid(
        steps(() => broken(undefined)),
        `stage 0: step 0: ${problem}`
      )
      yield* invalid(
        steps((outer) => outer.exec("a").retry({ times: 1 }, () => outer.exec("b"))),
        `stage 0: step 1.0: ${problem}`
      )
      yield* invalid(
        broken(Workflow.make("w").pipe(Workflow.parallel(broken([{ image: "i" }])))),
        "stage 0: step 0: a callback that builds steps is missing"
      )
    })
  )

  it.scopedLive("also in a stage that depends on the one before, when it is known", () =>
    Effect.gen(function* () {
      const { left, provide } = yield* scripted()
      const workflow = Workflow.make("w").pipe(
        Workflow.sequence([
          { ...sandbox, run: (sb) => sb.exec("say 0") },
          {
            ...sandbox,
            run: (sb, previous) => sb.retry({ times: Number(previous.stdout) }, (sb) => sb.exec("say never"))
          }
        ])
      )
      const error = yield* Effect.flip(provide(Workflow.run(workflow)))
      assert.deepInclude(error, { reason: "InvalidInput", stage: 1 })
      assert.strictEqual(left(), 0)
    })
  )
})
