/**
 * The older spellings of events.
 */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import type { EventInput } from "../../Ledger.js"
import { Ledger } from "../../Ledger.js"
import type { Json } from "../../LedgerEvent.js"
import type { It } from "./support.js"
import { collect, read, session, texts } from "./support.js"

export const legacy = (it: It): void => {
  it.effect("the older spellings read as today's", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const base = yield* session
      const at = (stepIdx: number, event: string, payload?: Json): EventInput => ({
        ...base,
        stepIdx,
        event,
        payload
      })
      yield* ledger.appendAll([
        at(-1, "sandbox_created", { sandboxId: base.sandboxId, runId: base.name }),
        at(1, "exec_start", { seq: 1, cmd: "npm ci", env: { A: "1", TOKEN: "secret" } }),
        at(1, "exec_event", { seq: 1, type: "init", text: "c0ffee" }),
        at(1, "exec_event", { seq: 1, type: "stdout", text: "added" }),
        at(1, "exec_event", { seq: 1, type: "stdout", text: "\n" }),
        at(1, "exec_event", { seq: 1, type: "stderr", text: "found", extra: true }),
        at(1, "exec_complete", { seq: 1, exitCode: 0 }),
        at(-1, "checkpoint_created", { snapshotId: "snap-1", name: "one" }),
        at(2, "exec_start", { seq: 2, cmd: "bash", interactive: true }),
        at(2, "exec_event", { seq: 2, type: "stdin", text: "ls" }),
        at(2, "exec_event", { seq: 2, type: "stdout", text: "$ " }),
        at(3, "exec_start", { seq: 3, code: "print(1, end='')" }),
        at(3, "exec_event", { seq: 3, type: "stdout", text: "1" }),
        at(-1, "sandbox_paused"),
        at(-1, "sandbox_resumed"),
        at(-1, "step_start"),
        at(-1, "sandbox_closed")
      ])
      const entries = yield* read(base)
      assert.deepStrictEqual(
        entries.map(({ event }) => event),
        [
          "sandbox.created",
          "exec.started",
          "exec_event",
          "exec.output",
          "exec.output",
          "exec.output",
          "exec.completed",
          "sandbox.checkpoint_created",
          "exec.started",
          "exec.output",
          "exec.output",
          "exec.started",
          "exec.output",
          "sandbox.paused",
          "sandbox.resumed",
          "step_start",
          "sandbox.closed"
        ]
      )
      assert.deepStrictEqual(entries[1]?.payload, { seq: 1, cmd: "npm ci", envNames: ["A", "TOKEN"] })
      assert.deepStrictEqual(entries[5]?.payload, { seq: 1, type: "stderr", text: "found\n", extra: true })
      const outputs = yield* read({ ...base, events: ["exec.output"] })
      assert.deepStrictEqual(texts(outputs), ["added\n", "\n", "found\n", "ls", "$ ", "1"])
      assert.deepStrictEqual(
        yield* read({ ...base, events: ["exec.output"], limit: 2, order: "desc" }),
        outputs.toReversed().slice(0, 2)
      )
      assert.deepStrictEqual(yield* read({ ...base, events: ["exec_event"] }), entries.slice(2, 3))
      assert.deepStrictEqual(
        yield* read({ ...base, withoutOutput: true }),
        entries.filter(({ event }) => event !== "exec.output" && event !== "exec_event")
      )
      assert.deepStrictEqual(
        (yield* read({ sandboxId: base.sandboxId, events: ["exec.started"] })).map(({ stepIdx }) => stepIdx),
        [1, 2, 3]
      )
      const details = Option.getOrThrow(yield* ledger.sandbox(base.sandboxId))
      assert.strictEqual(details.status, "closed")
      assert.strictEqual(details.runId, base.name)
      assert.strictEqual((yield* collect(ledger.sandboxes({ runId: base.name }))).length, 1)
      assert.strictEqual(Option.getOrThrow(yield* ledger.lastCheckpoint(base.sandboxId)).tag, "one")
      const followed = yield* ledger.tail({ sandboxId: base.sandboxId }).pipe(Stream.take(17), collect)
      assert.deepStrictEqual(followed, entries)
    })
  )
}
