/**
 * SQLite.
 */
import * as Arr from "effect/Array"
import * as Effect from "effect/Effect"
import { identity } from "effect/Function"
import type { LedgerStore, NewRow } from "../../LedgerStore.js"
import type { SqlFailure } from "../../SqlStore.js"
import type { Dialect } from "./dialect.js"
import { isIdClash } from "./errors.js"
import { insertColumns, latestTs, makeInBatches, rowParams } from "./insert.js"
import { integer, isOddTs } from "./rows.js"
import { Statement, selectRemovable } from "./statement.js"
import type { Transactions } from "./transactions.js"
import { execute } from "./transactions.js"

/** Only the first row asks for its id: the others follow it by themselves. */
const insertText = (size: number): string =>
  `INSERT INTO alineo_events (id, ${insertColumns}) VALUES ` +
  "((SELECT CASE WHEN value >= ? THEN value + 1 END FROM sandglass_meta WHERE key = 'id_floor'), " +
  `?, ?, ?, ?, ?, ?, ?, ?)${", (NULL, ?, ?, ?, ?, ?, ?, ?, ?)".repeat(size - 1)}`

const latest = `SELECT max(ts) AS ts FROM alineo_events WHERE ts <= ${latestTs}`

const tables = [
  "CREATE TABLE IF NOT EXISTS alineo_events (id INTEGER PRIMARY KEY, sandbox_id TEXT NOT NULL, name TEXT NOT NULL, " +
    "step_idx INTEGER NOT NULL, branch INTEGER, event TEXT NOT NULL, payload TEXT, error TEXT, ts INTEGER NOT NULL)",
  "CREATE TABLE IF NOT EXISTS alineo_environments (name TEXT PRIMARY KEY, snapshot_id TEXT NOT NULL, " +
    "image TEXT NOT NULL, built_at INTEGER NOT NULL)",
  "CREATE TABLE IF NOT EXISTS sandglass_meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID"
]

/** `earliestTs` selects the time that no row may be before. */
const makeInsert = ({ write }: Transactions, earliestTs: string): LedgerStore["append"] => {
  const inBatches = makeInBatches(insertText)
  /** An id that was in the table after its floor was last raised, as far as this handle knows. */
  let knownId = 0

  return (rows) =>
    write((connection, joined) => {
      let known = knownId
      let earliest = Number.NEGATIVE_INFINITY
      const insert = (batch: ReadonlyArray<NewRow>, text: string): Effect.Effect<unknown, SqlFailure> =>
        execute(connection, text, rowParams(batch, [known], earliest)).pipe(
          // Another process has already used the first id above the floor.
          Effect.catchIf(isIdClash, () =>
            Effect.flatMap(execute(connection, "SELECT max(id) AS id FROM alineo_events"), ([row]) => {
              known = Number(row?.["id"])
              return execute(connection, text, rowParams(batch, [known], earliest))
            })
          )
        )
      // Ids are consecutive: nobody else writes while this transaction does.
      const insertAll = () =>
        inBatches(rows, (batch, text) =>
          Effect.map(
            Effect.zipRight(insert(batch, text), execute(connection, "SELECT last_insert_rowid() AS id")),
            ([row]) => {
              const last = Number(row?.["id"])
              known = last
              return Array.from(batch, ({ ts }, position) => ({
                ts: Math.max(ts, earliest),
                id: last - batch.length + 1 + position
              }))
            }
          )
        )
      return execute(connection, earliestTs).pipe(
        Effect.flatMap(([row]) => {
          earliest = Math.ceil(Number(row?.["ts"] ?? Number.NEGATIVE_INFINITY))
          return insertAll()
        }),
        Effect.map((places) => {
          // What a joined transaction wrote may yet be rolled back.
          knownId = joined ? knownId : Math.max(knownId, known)
          return Arr.flatten(places)
        })
      )
    })
}

const makeRemove =
  ({ write }: Transactions): LedgerStore["remove"] =>
  (sandboxId, limit) =>
    write(
      Effect.fnUntraced(function* (connection) {
        // Without it SQLite would give the highest ids out again when their rows are gone.
        yield* execute(
          connection,
          "INSERT INTO sandglass_meta (key, value) SELECT 'id_floor', coalesce(max(id), 0) FROM alineo_events WHERE true " +
            "ON CONFLICT (key) DO UPDATE SET value = max(value, excluded.value)"
        )
        const statement = new Statement(sqlite)
        yield* execute(
          connection,
          `DELETE FROM alineo_events WHERE id IN (${selectRemovable(statement, sandboxId, limit)})`,
          statement.params
        )
        const [row] = yield* execute(connection, "SELECT changes() AS count")
        return Number(row?.["count"])
      })
    )

export const sqlite: Dialect = {
  restrictedJson: false,
  param: () => "?",
  filter: (condition) => `+${condition}`,
  limit: identity,
  ledgerTs: "ts",
  ledgerIndex: "(ts, id)",
  columns: `id, ${insertColumns}`,
  payloadText: "payload",
  resourceId:
    "json_extract(CASE WHEN json_valid(json_extract(payload, '$')) THEN json_extract(payload, '$') END, '$.resourceId')",
  asResourceId: (param) => param,
  hasResourceId: "json_valid(payload)",
  contains: (column, text) => `instr(${column}, ${text}) > 0`,
  eventIn: (list) => `+event IN (SELECT value FROM json_each(${list}))`,
  comparesPairs: false,
  // Text sorts after all numbers, and bytes sort after all text.
  lowest: "-9e999",
  highest: "x'ffffffffffffffff'",
  isOddTs: `(typeof(ts) = 'real' OR ${isOddTs})`,
  tables,
  presentNames: "SELECT name FROM sqlite_master",
  migrationLock: undefined,
  writes: (transactions) => ({
    append: makeInsert(transactions, latest),
    restore: makeInsert(transactions, "SELECT NULL AS ts"),
    remove: makeRemove(transactions),
    settledId: Effect.map(
      transactions.read<{ readonly id: unknown }>("SELECT max(id) AS id FROM alineo_events"),
      ([row]) => integer(row?.id, 0)
    )
  })
}
