/** Resuming a long session: until the handle is there, until the first result that the ledger answers, and all results. */
import * as SqlClient from "@effect/sql/SqlClient"
import type { Sandbox } from "@sandglass/core"
import { Sandboxes } from "@sandglass/core"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import type { Backend } from "../backends.js"
import { onBoth } from "../backends.js"
import type { Figure, Options, Server, Subject } from "../harness.js"
import { interleaved, liveWith, median, memory, paired, server, timed } from "../harness.js"

/** A session as execs leave it behind, each with so many chunks of output, a checkpoint at its end. */
const fill = (backend: Backend, sandboxId: string, execs: number, chunks: number) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const events = chunks + 2
    // An exec's number, and the event's number in it.
    const seq = `(1 + (i - 1) / ${events})`
    const k = `((i - 1) % ${events})`
    const last = execs * events + 1
    yield* sql.unsafe(`
      INSERT INTO alineo_events (sandbox_id, name, step_idx, event, payload, ts)
      SELECT '${sandboxId}', 'bench', CASE WHEN i IN (0, ${last}) THEN -1 ELSE ${seq} END,
        CASE WHEN i = 0 THEN 'sandbox.created' WHEN i = ${last} THEN 'sandbox.checkpoint_created'
          WHEN ${k} = 0 THEN 'exec.started' WHEN ${k} = ${events - 1} THEN 'exec.completed' ELSE 'exec.output' END,
        ${backend.json(`CASE WHEN i = 0 THEN '{"sandboxId":"${sandboxId}","runId":"run-1"}'
          WHEN i = ${last} THEN '{"snapshotId":"snap1"}'
          WHEN ${k} = 0 THEN '{"seq":' || ${seq} || ',"cmd":"step ' || ${seq} || '"}'
          WHEN ${k} = ${events - 1} THEN '{"seq":' || ${seq} || ',"exitCode":0}'
          ELSE '{"seq":' || ${seq} || ',"type":"stdout","text":"${"x".repeat(199)}\\n"}' END`)},
        1700000000000 + i / 10
      FROM ${backend.numbers(last + 1)} ORDER BY i`)
  })

const against = (backend: Backend, from: Server, { quick }: Options) =>
  Effect.gen(function* () {
    const [execs, few, many] = quick ? [10, 2, 20] : [1_000, 8, 998]
    const context = yield* Layer.build(liveWith(from, backend.ledger("resume")))
    return yield* Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* fill(backend, "sbx-long", execs, many)
      yield* fill(backend, "sbx-short", execs, few)
      for (const text of backend.settle) yield* sql.unsafe(text)
      const sandboxes = yield* Sandboxes.Sandboxes
      const checked = (sandbox: Sandbox.Sandbox) =>
        Effect.filterOrDieMessage(sandbox.exec("step 1"), (_) => _.replayed, "it ran live")
      /** The time until `handle` is there, or until it has answered the first exec. Closing it is not counted. */
      const until = <E>(handle: Effect.Effect<Sandbox.Sandbox, E, Scope.Scope>, answered: boolean) =>
        Effect.scoped(timed(Effect.flatMap(handle, (sandbox) => (answered ? checked(sandbox) : Effect.void))))

      const before = memory().heap
      const first = yield* until(sandboxes.resume("sbx-long"), true)
      const afterFirst = memory().heap - before
      const times = yield* interleaved(quick ? { warmUp: 0, counted: 1 } : { warmUp: 4, counted: 15 }, {
        created: until(sandboxes.create({ image: "scripted", name: "bench" }), false),
        resumed: until(sandboxes.resume("sbx-long"), false),
        answered: until(sandboxes.resume("sbx-long"), true),
        short: until(sandboxes.resume("sbx-short"), true)
      })
      let highest = 0
      yield* Effect.scoped(
        Effect.gen(function* () {
          const sandbox = yield* sandboxes.resume("sbx-long")
          for (let seq = 1; seq <= execs; seq++) {
            yield* Stream.runDrain(sandbox.exec(`step ${seq}`).output)
            if (seq % (execs / 10) === 0) highest = Math.max(highest, memory().heap - before)
          }
        })
      )
      const name = backend.name
      const total = (execs * (many + 2) + 2).toLocaleString("en")
      return [
        { what: `${name}: create, for comparison`, value: median(times.created), unit: "ms" },
        { what: `${name}: resume of ${total} events`, value: median(times.resumed), unit: "ms" },
        {
          what: `${name}: resume and first result (${many} chunks)`,
          value: median(times.answered),
          unit: "ms",
          aim: { atMost: 100 },
          note: `the very first time ${first.toFixed(0)} ms`
        },
        {
          what: `${name}: the same with ${few} chunks an exec`,
          value: median(times.short),
          unit: "ms"
        },
        {
          what: `${name}: much output / little`,
          value: paired(times.answered, times.short, (a, b) => a / b),
          unit: "ratio"
        },
        {
          what: `${name}: heap growth, first result`,
          value: afterFirst,
          unit: "MB",
          aim: { atMost: 64 }
        },
        {
          what: `${name}: heap growth, all ${execs} replayed`,
          value: highest,
          unit: "MB",
          aim: { atMost: 64 }
        }
      ] satisfies ReadonlyArray<Figure>
    }).pipe(Effect.provide(context))
  })

export const resume: Subject = {
  name: "resume",
  title: "resume: a session of 1,000 execs and 1,000,000 events",
  run: (options) => Effect.flatMap(server("scripted"), (from) => onBoth((backend) => against(backend, from, options)))
}
