/** A command that prints many short lines: server, client, ledger file, consumer. */
import { Database } from "bun:sqlite"
import * as SqlClient from "@effect/sql/SqlClient"
import type { Exec } from "@sandglass/core"
import { Execd, Sandboxes } from "@sandglass/core"
import type * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Stream from "effect/Stream"
import type { Subject } from "../harness.js"
import { interleaved, live, median, paired, scratch, server, timed } from "../harness.js"
import type { Value } from "../raw.js"
import { emptyLedger, insertOf, rowOf } from "../raw.js"

/** The characters of one of its lines, its end included. */
const lineLength = 37

export const exec: Subject = {
  name: "exec",
  title: "exec: short lines through server, client, SQLite ledger file and consumer",
  run: ({ quick }) =>
    Effect.gen(function* () {
      const count = quick ? 2_000 : 200_000
      const single = quick ? 20 : 2_000
      const command = `lines ${count}`
      const directory = yield* scratch
      const context = yield* Layer.build(live(yield* server("scripted"), `${directory}/ledger.db`))

      return yield* Effect.gen(function* () {
        const sql = yield* SqlClient.SqlClient
        const execd = yield* Execd.Execd
        const sandbox = yield* (yield* Sandboxes.Sandboxes).create({ image: "scripted", name: "bench" })
        const client = yield* execd.connect(sandbox.id)

        const complete = (characters: number) =>
          characters === count * lineLength
            ? Effect.void
            : Effect.dieMessage(`${characters} characters instead of ${count * lineLength}`)

        const decoded = client.command({ command }).pipe(
          Stream.runFold(0, (sum, event) => (event._tag === "Output" ? sum + event.text.length : sum)),
          Effect.flatMap(complete)
        )
        /** The rows of the last run, in the batches that they were committed in. */
        let batches: Array<ReadonlyArray<ReadonlyArray<Value>>> = []
        const outputRow = (stream: string, text: string) =>
          rowOf({
            sandboxId: sandbox.id,
            name: "bench",
            stepIdx: 1,
            event: "exec.output",
            payload: { seq: 1, type: stream, text }
          })
        const persisted = Effect.gen(function* () {
          let characters = 0
          const delivered: Array<Chunk.Chunk<Exec.OutputChunk>> = []
          const millis = yield* timed(
            sandbox.exec(command).output.pipe(
              Stream.runForEachChunk((chunks) =>
                Effect.sync(() => {
                  delivered.push(chunks)
                  for (const chunk of chunks) characters += chunk.text.length
                })
              )
            )
          )
          batches = delivered.map((chunks) => Array.from(chunks, ({ stream, text }) => outputRow(stream, text)))
          yield* complete(characters)
          return millis
        })

        yield* emptyLedger(`${directory}/raw.db`)
        const db = yield* Effect.acquireRelease(
          Effect.sync(() => new Database(`${directory}/raw.db`)),
          (db) => Effect.sync(() => db.close())
        )
        const insert = db.query(insertOf(1))
        const line = outputRow("stdout", "x".repeat(lineLength))
        const rowPerLine = Effect.sync(() => {
          for (let done = 0; done < single; done++) insert.run(...line)
        })
        const sameRows = Effect.sync(() => {
          for (const batch of batches) {
            db.run("BEGIN IMMEDIATE")
            for (const row of batch) insert.run(...row)
            db.run("COMMIT")
          }
        })

        const times = yield* interleaved(quick ? { warmUp: 0, counted: 1 } : { warmUp: 6, counted: 15 }, {
          decoded: timed(decoded),
          persisted,
          sameRows: timed(sameRows),
          rowPerLine: timed(rowPerLine)
        })
        const floor = times.decoded.map((millis, round) => millis + (times.sameRows[round] ?? Number.NaN))
        const [{ rows, execs } = { rows: 0, execs: 1 }] = yield* sql<{ rows: number; execs: number }>`
          SELECT count(*) AS rows, count(DISTINCT step_idx) AS execs FROM alineo_events WHERE event = 'exec.output'`
        const rate = (lines: number, millis: number) => (lines / millis) * 1000
        return [
          {
            what: "persisted before delivered",
            value: rate(count, median(times.persisted)),
            unit: "lines/s",
            aim: { atLeast: 300_000 }
          },
          { what: "decoded only, no ledger", value: rate(count, median(times.decoded)), unit: "lines/s" },
          {
            what: "persisted / decoded only",
            value: paired(times.decoded, times.persisted, (a, b) => a / b),
            unit: "ratio",
            aim: { atLeast: 0.7 }
          },
          {
            what: "decoded and the same rows by the raw driver",
            value: paired(times.decoded, floor, (a, b) => a / b),
            unit: "ratio",
            note: "of decoded only: without fewer commits or a second thread, the most"
          },
          {
            what: "persisted / that bound",
            value: paired(floor, times.persisted, (a, b) => a / b),
            unit: "ratio"
          },
          {
            what: "raw driver, the same rows and commits",
            value: rate(count, median(times.sameRows)),
            unit: "lines/s",
            note: `${batches.length} commits`
          },
          { what: `ledger rows for ${count} lines`, value: Math.round(rows / execs), unit: "rows" },
          {
            what: "raw driver, a row and a commit per line",
            value: rate(single, median(times.rowPerLine)),
            unit: "lines/s",
            note: `${single} lines`
          },
          {
            what: "persisted / a row and a commit per line",
            value: paired(times.rowPerLine, times.persisted, (a, b) => a / single / (b / count)),
            unit: "ratio"
          }
        ]
      }).pipe(Effect.provide(context))
    })
}
