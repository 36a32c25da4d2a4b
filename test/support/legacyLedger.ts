/** What must hold of the ledger that another program wrote, in whichever database a copy of it is. */
import { assert, describe, it } from "@effect/vitest"
import { Ledger } from "@sandglass/core"
import * as Effect from "effect/Effect"
import type * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"

const collect = <A, E, R>(stream: Stream.Stream<A, E, R>) => Effect.map(Stream.runCollect(stream), (_) => Array.from(_))

const output = (sandboxId: string, stepIdx: number, type: string) =>
  Effect.flatMap(Ledger.Ledger, (ledger) =>
    ledger
      .read({ sandboxId, stepIdx, events: ["exec.output"] })
      .pipe(
        Stream.runFold("", (text, { payload }) =>
          typeof payload === "object" &&
          payload !== null &&
          "type" in payload &&
          payload.type === type &&
          "text" in payload
            ? text + String(payload.text)
            : text
        )
      )
  )

/** `legacy` opens a fresh copy. */
export const legacyLedger = <E>(name: string, legacy: Layer.Layer<Ledger.Ledger, E>): void => {
  describe(name, () => {
    it.effect("every entry is there, in today's spelling", () =>
      Effect.gen(function* () {
        const ledger = yield* Ledger.Ledger
        const entries = yield* collect(ledger.read())
        assert.deepStrictEqual(
          entries.map(({ id }) => id),
          Array.from({ length: 39 }, (_, index) => index + 1)
        )
        const counts: Record<string, number> = {}
        for (const { event } of entries) {
          counts[event] = (counts[event] ?? 0) + 1
        }
        assert.deepStrictEqual(counts, {
          "sandbox.created": 5,
          "exec.started": 5,
          "exec.output": 9,
          "exec.completed": 3,
          "sandbox.checkpoint_created": 4,
          "sandbox.closed": 3,
          "sandbox.paused": 1,
          "sandbox.resumed": 1,
          exec_event: 4,
          run_started: 1,
          step_start: 1,
          step_failed: 1,
          workflow_failed: 1
        })
        assert.deepStrictEqual(entries[36], {
          id: 37,
          sandboxId: "sbx-55555555-eeee",
          name: "wf",
          stepIdx: 0,
          branch: 1,
          event: "step_failed",
          error: "boom",
          ts: 1767225600259
        })
        assert.notInclude(JSON.stringify(entries), '"env"')
        assert.deepStrictEqual(entries[29]?.payload, {
          cmd: "bash",
          seq: 1,
          interactive: true,
          cwd: "/work",
          envNames: ["A"]
        })
      }).pipe(Effect.provide(legacy))
    )

    it.effect("output is what the commands printed", () =>
      Effect.gen(function* () {
        assert.strictEqual(
          yield* output("sbx-11111111-aaaa", 1, "stdout"),
          "added 312 packages in 4s\n\nfound 0 vulnerabilities\n"
        )
        assert.strictEqual(yield* output("sbx-11111111-aaaa", 1, "stderr"), "npm warn deprecated glob@7.2.3: old\n")
        assert.strictEqual(yield* output("sbx-11111111-aaaa", 2, "stdout"), "ok 1 - ünïcødé ✓ 測試\n")
        // A terminal: as it arrived.
        assert.strictEqual(yield* output("sbx-44444444-dddd", 1, "stdout"), "$ ")
        assert.strictEqual(yield* output("sbx-44444444-dddd", 1, "stdin"), "export X=1\n")
      }).pipe(Effect.provide(legacy))
    )

    it.effect("sandboxes, checkpoints and environments are known", () =>
      Effect.gen(function* () {
        const ledger = yield* Ledger.Ledger
        const sandboxes = yield* collect(ledger.sandboxes())
        assert.deepStrictEqual(
          sandboxes.map(({ name, runId, sandboxId, status }) => [sandboxId, name, status, runId]),
          [
            ["sbx-55555555-eeee", "wf", "closed", "run-5"],
            ["sbx-44444444-dddd", "shell", "running", undefined],
            ["sbx-33333333-cccc", "fork-ci-33333333", "closed", "run-1"],
            ["sbx-22222222-bbbb", "ci", "closed", "run-1"],
            ["sbx-11111111-aaaa", "ci", "running", "run-1"]
          ]
        )
        assert.strictEqual(sandboxes[3]?.resumedFrom, "sbx-11111111-aaaa")
        assert.strictEqual(sandboxes[2]?.forkedFrom, "snap-after-install")
        assert.deepStrictEqual(sandboxes[4]?.resources, { cpu: "500m", memory: "256Mi" })
        assert.strictEqual((yield* collect(ledger.sandboxes({ runId: "run-1", status: "closed" }))).length, 2)
        assert.deepStrictEqual(
          (yield* collect(ledger.checkpoints("sbx-11111111-aaaa"))).map(({ snapshotId, tag }) => [snapshotId, tag]),
          [
            ["snap-after-install", "after-install"],
            ["snap-after-test", undefined]
          ]
        )
        const tagged = yield* ledger.lastCheckpoint("sbx-11111111-aaaa", { tag: "after-install" })
        assert.strictEqual(Option.getOrThrow(tagged).cursor.id, 11)
        assert.deepStrictEqual(yield* ledger.environments, [
          { name: "python", snapshotId: "snap-env-python", image: "python:3.11-slim", builtAt: 1767225600000 }
        ])
      }).pipe(Effect.provide(legacy))
    )

    it.effect("it is continued, and what was appended reads with it", () =>
      Effect.gen(function* () {
        const ledger = yield* Ledger.Ledger
        const sandboxId = "sbx-11111111-aaaa"
        yield* ledger.appendAll([
          { sandboxId, name: "ci", stepIdx: 3, event: "exec.completed", payload: { seq: 3, exitCode: 0 } },
          { sandboxId, name: "ci", event: "sandbox.closed" }
        ])
        // The test clock stands at 0, before all that was there.
        const entries = yield* collect(ledger.tail({ sandboxId }).pipe(Stream.take(20)))
        assert.deepStrictEqual(
          entries.slice(-2).map(({ event, id }) => [id, event]),
          [
            [40, "exec.completed"],
            [41, "sandbox.closed"]
          ]
        )
        assert.strictEqual(Option.getOrThrow(yield* ledger.sandbox(sandboxId)).status, "closed")
        assert.strictEqual(yield* ledger.deleteSandbox(sandboxId), 20)
      }).pipe(Effect.provide(legacy))
    )
  })
}
