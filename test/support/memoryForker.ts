/**
 * A process that forks a memory: `bun memoryForker.ts <from> <to>` makes the forks `child-<from>` to `child-<to>` of `parent`, one after
 * the other, in the SQLite file of `MEMORY_FILE` or the Postgres database of `DATABASE_URL`, says so after each, and how many it made at the end. One that is there
 * already is left alone.
 */
import { EmbeddingModel, Memory } from "@sandglass/memory"
import { PgMemory } from "@sandglass/sql-pg"
import { SqliteMemory } from "@sandglass/sql-sqlite"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"

const [from = "0", to = "0"] = process.argv.slice(2)
const filename = process.env["MEMORY_FILE"]

const memory =
  filename === undefined
    ? PgMemory.layer({ url: Redacted.make(process.env["DATABASE_URL"] ?? ""), maxConnections: 3 })
    : SqliteMemory.layer({ filename })

const program = Effect.gen(function* () {
  const { fork } = yield* Memory.FullMemory
  let made = 0
  for (let index = Number(from); index <= Number(to); index++) {
    yield* fork({ resourceId: "parent" }, `child-${index}`).pipe(
      Effect.tap(() =>
        Effect.sync(() => {
          made++
          process.stdout.write("forked\n")
        })
      ),
      Effect.catchTag("InvalidInput", () => Effect.void)
    )
  }
  process.stdout.write(`made ${made}\n`)
})

Effect.runPromise(Effect.provide(program, Layer.provide(memory, EmbeddingModel.layerLexical({ dimensions: 32 })))).then(
  () => process.exit(0),
  (error) => {
    console.error(error)
    process.exit(1)
  }
)
