import { assert, describe, it } from "@effect/vitest"
import { Ledger, Replay } from "@sandglass/core"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/TestClock"

const base = { sandboxId: "sbx-1", name: "ci" }

const exec = (seq: number) => [
  { ...base, stepIdx: seq, event: "exec.started", payload: { seq, cmd: `step ${seq}` } },
  { ...base, stepIdx: seq, event: "exec.output", payload: { seq, type: "stdout", text: `${seq}\n` } },
  { ...base, stepIdx: seq, event: "exec.completed", payload: { seq, exitCode: 0 } }
]

describe("an exported session", () => {
  it.effect("is resumed elsewhere as it would have been at home", () =>
    Effect.gen(function* () {
      const home = yield* Ledger.makeMemory
      yield* home.append({ sandboxId: "sbx-0", name: "other", event: "note" })
      yield* home.append({ ...base, event: "sandbox.created", payload: { runId: "run-1" } })
      const [first] = (yield* home.appendAll(exec(1))).slice(-1)
      // In the same millisecond, but not certainly part of the snapshot.
      yield* home.appendAll(exec(2))
      const checkpoint = {
        snapshotId: "snap-1",
        completedUntil: { ts: first?.ts ?? 0, id: first?.id ?? 0 }
      }
      yield* home.append({ ...base, event: "sandbox.checkpoint_created", payload: checkpoint })
      const elsewhere = yield* Ledger.makeMemory
      yield* TestClock.adjust("1 hour")
      for (let index = 0; index < 50; index++) {
        yield* elsewhere.append({ sandboxId: "sbx-2", name: "other", event: "note" })
      }
      yield* elsewhere.importSandboxes(home.exportSandbox(base.sandboxId))
      const indexes = yield* Effect.forEach([home, elsewhere], (ledger) =>
        Effect.gen(function* () {
          const found = yield* Effect.flatten(ledger.lastCheckpoint(base.sandboxId))
          const { bySeq } = yield* Replay.load(ledger, found)
          const outputs = yield* Effect.forEach([...bySeq.values()].flat(), ({ completed, seq, started }) =>
            ledger
              .read({
                sandboxId: base.sandboxId,
                stepIdx: seq,
                events: ["exec.output"],
                after: started,
                until: completed
              })
              .pipe(Stream.runCount)
          )
          return { seqs: [...bySeq.keys()], outputs }
        })
      )
      assert.deepStrictEqual(indexes, [
        { seqs: [1], outputs: [1] },
        { seqs: [1], outputs: [1] }
      ])
    })
  )
})
