import { assert, describe, it } from "@effect/vitest"
import { Ledger, LedgerError, Sandboxes } from "@sandglass/core"
import type { WorkflowEvent } from "@sandglass/workflow"
import { Workflow } from "@sandglass/workflow"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/TestClock"
import * as ScriptedSandboxes from "../support/ScriptedSandboxes.js"
import { stdout } from "../support/ScriptedSandboxes.js"
import * as ScriptedServer from "../support/ScriptedServer.js"
import { all, sandbox, scripted, shell } from "./support.js"

const failing = Workflow.make("w").pipe(
  Workflow.sandbox({ ...sandbox, name: "build" }, (sb) =>
    sb
      .exec("say one", { rollback: (sb) => sb.exec("say undo") })
      .retry({ times: 1 }, (sb) => sb.exec("flaky a 1"))
      .exec("exit 3")
  )
)

const matrix = Workflow.make("w").pipe(
  Workflow.sandbox(sandbox, (sb) => sb.exec("say first")),
  Workflow.parallel([sandbox, sandbox], (sb, _, index) => sb.exec(`slow ${100 - 90 * index} branch ${index}`))
)

describe("stream", () => {
  it.scopedLive("gives live output, labelled by stage, branch and step", () =>
    Effect.gen(function* () {
      const { left, provide } = yield* scripted()
      const output = yield* provide(all(Workflow.stream(matrix)))
      assert.deepStrictEqual(
        output.map(({ branch, idx, kind, label, stage, step, stream, text }) => ({
          stage,
          branch,
          step,
          idx,
          kind,
          label,
          stream,
          text
        })),
        [
          {
            stage: 0,
            branch: undefined,
            step: "0",
            idx: 0,
            kind: "exec",
            label: "say first",
            stream: "stdout",
            text: "first\n"
          },
          {
            stage: 1,
            branch: 1,
            step: "0",
            idx: 0,
            kind: "exec",
            label: "slow 10 branch 1",
            stream: "stdout",
            text: "branch 1\n"
          },
          {
            stage: 1,
            branch: 0,
            step: "0",
            idx: 0,
            kind: "exec",
            label: "slow 100 branch 0",
            stream: "stdout",
            text: "branch 0\n"
          }
        ] as const
      )
      assert.strictEqual(left(), 0)
    })
  )

  it.scopedLive("as it comes, not at the end of a command", () =>
    Effect.gen(function* () {
      const seen = yield* Deferred.make<void>()
      const { provide } = yield* scripted({
        command: () =>
          ScriptedServer.stream([
            ScriptedSandboxes.init("c"),
            stdout("early"),
            ScriptedServer.wait(Deferred.await(seen)),
            stdout("late"),
            ScriptedSandboxes.complete
          ])
      })
      const workflow = Workflow.make("w").pipe(Workflow.sandbox(sandbox, (sb) => sb.exec("x")))
      const texts = yield* provide(
        Workflow.stream(workflow).pipe(
          Stream.map(({ text }) => text),
          Stream.tap((text) => (text === "early\n" ? Deferred.succeed(seen, void 0) : Effect.void)),
          all
        )
      )
      assert.deepStrictEqual(texts, ["early\n", "late\n"])
    })
  )

  it.scopedLive("fails as the run does, after what was printed", () =>
    Effect.gen(function* () {
      const { left, provide } = yield* scripted()
      const texts: Array<string> = []
      const error = yield* provide(
        Workflow.stream(failing).pipe(
          Stream.runForEach(({ text }) => Effect.sync(() => texts.push(text.trim()))),
          Effect.flip
        )
      )
      assert.deepInclude(error, { reason: "StepFailed", step: "2" })
      assert.deepStrictEqual(texts, ["one", "a", "a", "exit 3", "undo"])
      assert.strictEqual(left(), 0)
    })
  )

  it.scopedLive("ended early it interrupts the run and closes its sandboxes", () =>
    Effect.gen(function* () {
      const { left, provide, server } = yield* scripted()
      const workflow = Workflow.make("w").pipe(
        Workflow.sandbox(sandbox, (sb) => sb.exec("say one").exec("hang").exec("say never"))
      )
      const texts = yield* provide(all(Workflow.stream(workflow).pipe(Stream.take(1))))
      assert.strictEqual(texts.length, 1)
      assert.strictEqual(server.created.length, 1)
      assert.strictEqual(left(), 0)
      assert.deepStrictEqual(
        (yield* provide(all(Workflow.runs()))).map(({ status }) => status),
        ["interrupted"]
      )
    })
  )

  it.scopedLive("a slow consumer slows the workflow down", () =>
    Effect.gen(function* () {
      const { commands, provide } = yield* scripted()
      const workflow = Workflow.make("w").pipe(
        Workflow.sandbox(sandbox, (sb) =>
          sb.forEach(
            Array.from({ length: 60 }, (_, n) => n),
            (sb, n) => sb.exec(`say ${n}`)
          )
        )
      )
      const gate = yield* Deferred.make<void>()
      const fiber = yield* Workflow.stream(workflow).pipe(
        Stream.tap(() => Deferred.await(gate)),
        Stream.runCount,
        provide,
        Effect.fork
      )
      let before = -1
      while (before !== commands().length) {
        before = commands().length
        yield* Effect.sleep(300)
      }
      assert.isBelow(before, 60)
      yield* Deferred.succeed(gate, void 0)
      assert.strictEqual(yield* Fiber.join(fiber), 60)
    })
  )

  it.scopedLive("of a resumed run gives what runs now", () =>
    Effect.gen(function* () {
      const { provide } = yield* scripted()
      let hangs = true
      const workflow = Workflow.make("w").pipe(
        Workflow.sandbox(sandbox, (sb) => sb.exec("say stage 0")),
        Workflow.sandbox(sandbox, (sb) =>
          sb
            .exec("say stage 1")
            .effect("wait", () => (hangs ? Effect.never : Effect.void))
            .exec("say end")
        )
      )
      const texts = (options: Workflow.LiveOptions) =>
        Workflow.stream(workflow, options).pipe(Stream.map(({ text }) => text))
      assert.deepStrictEqual(yield* provide(all(texts({ runId: "r" }).pipe(Stream.take(2)))), [
        "stage 0\n",
        "stage 1\n"
      ])
      hangs = false
      assert.deepStrictEqual(yield* provide(all(texts({ resume: "r" }))), ["stage 1\n", "end\n"])
    })
  )
})

describe("events", () => {
  it.scopedLive("tell everything that happens", () =>
    Effect.gen(function* () {
      const { provide } = yield* scripted()
      const seen: Array<string> = []
      const tell = (event: WorkflowEvent.WorkflowEvent) =>
        seen.push(
          `${event._tag}${"step" in event ? ` ${event.step} ${event.label}` : ""}${event._tag === "StageStarted" ? ` ${event.label} ${event.steps}` : ""}`
        )
      yield* provide(
        Workflow.events(failing).pipe(
          Stream.runForEach((event) => Effect.sync(() => tell(event))),
          Effect.exit
        )
      )
      assert.deepStrictEqual(seen, [
        "RunStarted",
        "StageStarted build 5",
        "StepStarted 0 say one",
        "Output 0 say one",
        "StepCompleted 0 say one",
        "StepStarted 1@1.0 flaky a 1",
        "Output 1@1.0 flaky a 1",
        "StepFailed 1@1.0 flaky a 1",
        "StepStarted 1@2.0 flaky a 1",
        "Output 1@2.0 flaky a 1",
        "StepCompleted 1@2.0 flaky a 1",
        "StepStarted 2 exit 3",
        "Output 2 exit 3",
        "StepFailed 2 exit 3",
        "StepStarted 0!0 say undo",
        "Output 0!0 say undo",
        "StepCompleted 0!0 say undo",
        "StepRolledBack 0 say one",
        "RunFailed"
      ])
    })
  )
})

describe("runWithProgress", () => {
  const target = (terminal: boolean) => {
    let text = ""
    return {
      output: {
        write: (more: string) => {
          text += more
        },
        isTTY: terminal,
        columns: 60,
        rows: 20
      },
      text: () => text.replaceAll(/\d+\.\d s/g, "T")
    }
  }

  it.scopedLive("shows plain lines where there is no terminal", () =>
    Effect.gen(function* () {
      const { provide } = yield* scripted()
      const { output, text } = target(false)
      const result = yield* provide(Workflow.runWithProgress(matrix, { output, runId: "r" }))
      assert.strictEqual(result.stdout, "first\nbranch 0\nbranch 1\n")
      assert.strictEqual(
        text(),
        `w: run r
[0 node:22] sandbox sbx1
[0 node:22] > say first
[0 node:22]   first
[0 node:22] ok say first (T)
[0 node:22] done
[1.0 node:22] sandbox sbx2
[1.0 node:22] > slow 100 branch 0
[1.1 node:22] sandbox sbx3
[1.1 node:22] > slow 10 branch 1
[1.1 node:22]   branch 1
[1.1 node:22] ok slow 10 branch 1 (T)
[1.1 node:22] done
[1.0 node:22]   branch 0
[1.0 node:22] ok slow 100 branch 0 (T)
[1.0 node:22] done
w: completed
`
      )
      assert.notInclude(text(), "\u001b")
      const again = target(false)
      assert.deepStrictEqual(yield* provide(Workflow.runWithProgress(matrix, { ...again, resume: "r" })), result)
      assert.include(again.text(), "ok say first (from the ledger)")
    })
  )

  it.scopedLive("and how it failed", () =>
    Effect.gen(function* () {
      const { provide } = yield* scripted()
      const { output, text } = target(false)
      yield* Effect.flip(provide(Workflow.runWithProgress(failing, { output })))
      for (const line of [
        "[0 build] failed exit 3: exit code 3: exit 3 (T)",
        "[0 build] undone say one",
        "w: failed: w: StepFailed: exit code 3: exit 3"
      ]) {
        assert.include(text(), `${line}\n`)
      }
    })
  )

  /** What a terminal shows in the end: understands only what is written here. */
  const screen = (written: string): ReadonlyArray<string> => {
    const lines = [""]
    let row = 0
    // biome-ignore lint/suspicious/noControlCharactersInRegex: it is what terminals are told with.
    for (const [part] of written.matchAll(/\u001b\[\d*[A-Z]|\r|\n|[^\u001b\r\n]+/g)) {
      // biome-ignore lint/suspicious/noControlCharactersInRegex: it is what terminals are told with.
      const [, count, letter] = /^\u001b\[(\d*)([A-Z])$/.exec(part) ?? []
      if (letter === "A") row -= Number(count)
      else if (letter === "J") lines.splice(row, lines.length, "")
      else if (part === "\n") lines[++row] ??= ""
      else if (part !== "\r") lines[row] += part
    }
    return lines
  }

  it.effect("redraws one view in a terminal", () =>
    Effect.gen(function* () {
      const gate = yield* Deferred.make<void>()
      const { commands, provide } = yield* scripted({
        command: (command, index) =>
          command.command === "wait"
            ? ScriptedServer.stream([
                ScriptedSandboxes.init("c"),
                stdout("\u001b[2J\u001b[31mred\u0007 alert\u001b[0m"),
                stdout("漢".repeat(60)),
                ScriptedServer.wait(Deferred.await(gate)),
                ScriptedSandboxes.complete
              ])
            : (shell()?.(command, index) ?? ScriptedServer.silence)
      })
      const { output, text } = target(true)
      const workflow = Workflow.make("w").pipe(
        Workflow.sandbox({ ...sandbox, name: "build" }, (sb) => sb.exec("say hello").exec("wait"))
      )
      const fiber = yield* Effect.fork(provide(Workflow.runWithProgress(workflow, { output, runId: "r" })))
      const pass = Effect.promise(() => new Promise<void>((resolve) => setTimeout(resolve, 20)))
      while (!text().includes("漢")) {
        yield* pass
        yield* TestClock.adjust(100)
      }
      const shown = screen(text())
      assert.deepStrictEqual(shown.slice(0, 2), ["w: run r", "  ✓ 0 build  say hello  T"])
      assert.match(shown[2] ?? "", /^. 0 build 1\/2 {2}wait {2}T$/)
      assert.deepStrictEqual(shown.slice(3), [`    ${"漢".repeat(27)}`, ""], "as much as fits the width")
      yield* Deferred.succeed(gate, void 0)
      const result = yield* Fiber.join(fiber)
      assert.include(result.stdout, "red")
      assert.deepStrictEqual(screen(text()), [
        "w: run r",
        "  ✓ 0 build  say hello  T",
        "  ✓ 0 build  wait  T",
        "✓ 0 build",
        "w: completed",
        ""
      ])
      assert.notInclude(text(), "\u001b[2J", "what commands print does not reach the terminal as it is")
      assert.strictEqual(commands().length, 2)
    }).pipe(Effect.scoped)
  )

  it.scopedLive("shows no more lines than the terminal has", () =>
    Effect.gen(function* () {
      const { provide } = yield* scripted()
      const { output, text } = target(true)
      const workflow = Workflow.make("w").pipe(
        Workflow.parallel(
          Array.from({ length: 30 }, () => sandbox),
          (sb) => sb.exec("slow 150 x")
        )
      )
      yield* provide(Workflow.runWithProgress(workflow, { output }))
      // biome-ignore lint/suspicious/noControlCharactersInRegex: it is what terminals are told with.
      const heights = [...text().matchAll(/\u001b\[(\d+)A/g)].map(([, count]) => Number(count))
      assert.isAtMost(Math.max(...heights), 19)
      assert.include(text(), "more lines")
    })
  )
})

describe("what is recorded", () => {
  it.scopedLive("runs, stages, steps and branches, under one run id over all sandboxes", () =>
    Effect.gen(function* () {
      const { ledger, provide, server } = yield* scripted()
      yield* provide(Workflow.run(matrix, { runId: "r", resourceId: "user-1", teamId: "team-1" }))
      const run = yield* all(ledger.read({ sandboxId: "r" }))
      assert.deepStrictEqual(
        run.map(({ branch, event, name, stepIdx }) => [event, branch, stepIdx, name]),
        [
          ["run.started", undefined, -1, "w"],
          ["stage.started", undefined, -1, "w"],
          ["stage.completed", undefined, -1, "w"],
          ["stage.started", 0, -1, "w"],
          ["stage.started", 1, -1, "w"],
          ["stage.completed", 1, -1, "w"],
          ["stage.completed", 0, -1, "w"],
          ["run.completed", undefined, -1, "w"]
        ]
      )
      const sandboxes = yield* all(ledger.sandboxes({ runId: "r" }))
      assert.strictEqual(sandboxes.length, 3)
      for (const { name, resourceId, status } of sandboxes) {
        assert.deepStrictEqual([name, resourceId, status], ["w", "user-1", "closed"])
      }
      const steps = yield* all(ledger.read({ sandboxId: "sbx3", events: ["step.started", "step.completed"] }))
      assert.deepStrictEqual(
        steps.map(({ branch, event, payload, stepIdx }) => [event, branch, stepIdx, payload]),
        [
          [
            "step.started",
            1,
            0,
            { runId: "r", stage: 1, step: "0", kind: "exec", label: "slow 10 branch 1", cmd: "slow 10 branch 1" }
          ],
          [
            "step.completed",
            1,
            0,
            { runId: "r", stage: 1, step: "0", kind: "exec", cmd: "slow 10 branch 1", exitCode: 0 }
          ]
        ]
      )
      assert.deepStrictEqual(
        server.created.map(({ metadata }) => (metadata as { readonly [name: string]: string })["sandglass.run-id"]),
        ["r", "r", "r"]
      )
    })
  )

  it.scopedLive("a failing step, and no secret", () =>
    Effect.gen(function* () {
      const { ledger, provide } = yield* scripted()
      const workflow = Workflow.make("w").pipe(
        Workflow.sandbox({ ...sandbox, env: { TOKEN: "s3cret-1" } }, (sb) =>
          sb.exec("exit 4", { env: { KEY: "s3cret-2" }, stdin: "s3cret-3" })
        )
      )
      const error = yield* Effect.flip(provide(Workflow.run(workflow, { runId: "r" })))
      const entries = yield* all(ledger.read())
      const failed = entries.find(({ event }) => event === "step.failed")
      assert.match(failed?.error ?? "", /^Execd\.upload: /)
      assert.notInclude(JSON.stringify([entries, error, String(error)]), "s3cret")
    })
  )

  it.scopedLive(
    "a ledger that fails ends the run, closes its sandboxes, undoes nothing, and the run can be resumed",
    () =>
      Effect.gen(function* () {
        const { commands, left, ledger, provide } = yield* scripted()
        const workflow = Workflow.make("w").pipe(
          Workflow.sandbox(sandbox, (sb) =>
            sb
              .exec("say one", { rollback: (sb) => sb.exec("say undo") })
              .checkpoint()
              .exec("say two")
              .exec("say three")
          )
        )
        let broken = true
        const failing = Ledger.Ledger.of({
          ...ledger,
          append: (event) =>
            broken && event.event === "step.completed" && event.stepIdx === 3
              ? new LedgerError.LedgerError({ method: "append", reason: "Connection" })
              : ledger.append(event)
        })
        const run = <A, E, R>(self: Effect.Effect<A, E, R>) =>
          self.pipe(Effect.provideService(Ledger.Ledger, failing), provide)
        const error = yield* Effect.flip(run(Workflow.run(workflow, { runId: "r" })))
        assert.deepInclude(error, { reason: "LedgerFailed" })
        assert.strictEqual(left(), 0)
        broken = false
        const { stdout } = yield* run(Workflow.resume(workflow, "r"))
        assert.strictEqual(stdout, "one\ntwo\nthree\n")
        assert.deepStrictEqual(commands(), ["say one", "say two", "say two", "say three"])
      })
  )

  it.scopedLive("a ledger that fails inside a command does so, too", () =>
    Effect.gen(function* () {
      const server = yield* ScriptedSandboxes.make({ command: shell() })
      const ledger = yield* Ledger.makeMemory
      const failing = Ledger.Ledger.of({
        ...ledger,
        appendAll: () => new LedgerError.LedgerError({ method: "appendAll", reason: "Connection" })
      })
      const workflow = Workflow.make("w").pipe(
        Workflow.sandbox(sandbox, (sb) => sb.retry({ times: 3 }, (sb) => sb.exec("say one")))
      )
      const error = yield* Workflow.run(workflow).pipe(
        Effect.flip,
        Effect.provide(
          Sandboxes.layer.pipe(Layer.provideMerge(Layer.merge(server.layer, Layer.succeed(Ledger.Ledger, failing))))
        )
      )
      assert.deepInclude(error, { reason: "LedgerFailed", step: "0@1.0" })
      assert.strictEqual(server.commands.length, 1)
      assert.strictEqual(server.deleted.length, 1)
    })
  )
})
