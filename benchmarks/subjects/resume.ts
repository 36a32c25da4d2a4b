/** Resuming a long session: until the handle is there, and until the first result is there that the ledger answers. */
import type { Sandbox } from "@sandglass/core"
import { Ledger, Sandboxes } from "@sandglass/core"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Scope from "effect/Scope"
import type { Subject } from "../harness.js"
import { interleaved, live, median, scratch, server, timed } from "../harness.js"

const sandboxId = "sbx-long"
const chunk = "x".repeat(199)

/** A session as execs leave it behind, each exec with so many chunks. */
const session = (execs: number, chunks: number) =>
  Effect.gen(function* () {
    const ledger = yield* Ledger.Ledger
    const common = { sandboxId, name: "bench" }
    yield* ledger.append({ ...common, event: "sandbox.created", payload: { sandboxId, runId: "run-1" } })
    for (let seq = 1; seq <= execs; seq++) {
      const of = { ...common, stepIdx: seq }
      yield* ledger.appendAll([
        { ...of, event: "exec.started", payload: { seq, cmd: `step ${seq}` } },
        ...Array.from({ length: chunks }, () => ({
          ...of,
          event: "exec.output",
          payload: { seq, type: "stdout", text: `${chunk}\n` }
        })),
        { ...of, event: "exec.completed", payload: { seq, exitCode: 0 } }
      ])
    }
    yield* ledger.append({ ...common, event: "sandbox.checkpoint_created", payload: { snapshotId: "snap1" } })
  })

export const resume: Subject = {
  name: "resume",
  title: "resume: a session of 1,000 execs and 100,000 output chunks",
  run: ({ quick }) =>
    Effect.gen(function* () {
      const [execs, chunks] = quick ? [10, 2] : [1_000, 100]
      const directory = yield* scratch
      const context = yield* Layer.build(live(yield* server("scripted"), `${directory}/ledger.db`))
      return yield* Effect.gen(function* () {
        yield* session(execs, chunks)
        const sandboxes = yield* Sandboxes.Sandboxes
        /** The time until `handle` is there, or until it has answered the first exec. Closing it is not counted. */
        const until = <E>(handle: Effect.Effect<Sandbox.Sandbox, E, Scope.Scope>, answered: boolean) =>
          Effect.scoped(
            timed(
              Effect.flatMap(handle, (sandbox) =>
                answered
                  ? Effect.filterOrDieMessage(sandbox.exec("step 1"), (_) => _.replayed, "it ran live")
                  : Effect.void
              )
            )
          )
        const create = sandboxes.create({ image: "scripted", name: "bench" })
        const times = yield* interleaved(quick ? { warmUp: 0, counted: 1 } : { warmUp: 4, counted: 15 }, {
          created: until(create, false),
          resumed: until(sandboxes.resume(sandboxId), false),
          answered: until(sandboxes.resume(sandboxId), true)
        })
        return [
          { what: "create, for comparison", value: median(times.created), unit: "ms" },
          { what: "resume", value: median(times.resumed), unit: "ms" },
          { what: `resume and first result (${chunks} chunks)`, value: median(times.answered), unit: "ms" }
        ]
      }).pipe(Effect.provide(context))
    })
}
