/** A command that prints many short lines: server, client, ledger in Postgres, consumer. */
import * as SqlClient from "@effect/sql/SqlClient"
import { Execd, Sandboxes } from "@sandglass/core"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Stream from "effect/Stream"
import { backends } from "../backends.js"
import type { Subject } from "../harness.js"
import { BenchmarkError, interleaved, liveWith, median, paired, server, timed } from "../harness.js"

/** The characters of one of its lines, its end included. */
const lineLength = 37

export const execPostgres: Subject = {
  name: "exec-postgres",
  title: "exec: short lines through server, client, Postgres and consumer",
  run: ({ quick }) =>
    Effect.gen(function* () {
      const count = quick ? 2_000 : 200_000
      const command = `lines ${count}`
      const postgres = (yield* backends).find(({ name }) => name === "Postgres")
      if (postgres === undefined) return yield* new BenchmarkError({ message: "no Postgres" })
      const context = yield* Layer.build(liveWith(yield* server("scripted"), postgres.ledger("exec")))
      return yield* Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const sandbox = yield* (yield* Sandboxes.Sandboxes).create({ image: "scripted", name: "bench" })
        const client = yield* (yield* Execd.Execd).connect(sandbox.id)
        const complete = (characters: number) =>
          characters === count * lineLength
            ? Effect.void
            : Effect.dieMessage(`${characters} characters instead of ${count * lineLength}`)
        const times = yield* interleaved(quick ? { warmUp: 0, counted: 1 } : { warmUp: 4, counted: 11 }, {
          decoded: timed(
            client.command({ command }).pipe(
              Stream.runFold(0, (sum, event) => (event._tag === "Output" ? sum + event.text.length : sum)),
              Effect.flatMap(complete)
            )
          ),
          persisted: timed(
            sandbox.exec(command).output.pipe(
              Stream.runFold(0, (sum, { text }) => sum + text.length),
              Effect.flatMap(complete)
            )
          )
        })
        const [{ rows, execs } = { rows: 0, execs: 1 }] = yield* sql<{ rows: number; execs: number }>`
          SELECT count(*)::int AS rows, count(DISTINCT step_idx)::int AS execs FROM alineo_events
          WHERE event = 'exec.output'`
        const rate = (millis: number) => (count / millis) * 1000
        return [
          {
            what: "persisted before delivered",
            value: rate(median(times.persisted)),
            unit: "lines/s",
            aim: { atLeast: 200_000 }
          },
          { what: "decoded only, no ledger", value: rate(median(times.decoded)), unit: "lines/s" },
          {
            what: "persisted / decoded only",
            value: paired(times.decoded, times.persisted, (a, b) => a / b),
            unit: "ratio"
          },
          { what: `ledger rows for ${count} lines`, value: Math.round(rows / execs), unit: "rows" }
        ]
      }).pipe(Effect.provide(context))
    })
}
