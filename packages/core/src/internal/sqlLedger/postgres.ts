/**
 * Postgres.
 */
import * as Effect from "effect/Effect"
import { identity } from "effect/Function"
import type { LedgerStore } from "../../LedgerStore.js"
import type { Dialect } from "./dialect.js"
import { insertColumns, latestTs, makeInBatches, rowParams } from "./insert.js"
import { isOddTs, toCursor } from "./rows.js"
import { Statement, selectRemovable } from "./statement.js"
import type { Transactions } from "./transactions.js"
import { execute } from "./transactions.js"

const ledgerTs = "(ts + 0)"

const insertInto = (size: number, ts: (param: string) => string): string =>
  `INSERT INTO alineo_events (${insertColumns}) VALUES ${Array.from({ length: size }, (_, row) => {
    const at = (column: number) => `$${row * 8 + column}`
    return `(${at(1)}, ${at(2)}, ${at(3)}, ${at(4)}, ${at(5)}, ${at(6)}::jsonb, ${at(7)}, ${ts(`${at(8)}::bigint`)})`
  }).join(", ")} RETURNING id, ts`

/** The time is that of the latest row where the process's own is earlier. */
const appendText = (size: number): string =>
  `WITH latest AS (SELECT max(${ledgerTs}) AS ts FROM alineo_events WHERE ${ledgerTs} <= ${latestTs}) ${insertInto(
    size,
    (ts) => `greatest(${ts}, (SELECT ts FROM latest))`
  )}`

const restoreText = (size: number): string => insertInto(size, identity)

const tables = [
  "CREATE TABLE IF NOT EXISTS alineo_events (id BIGSERIAL PRIMARY KEY, sandbox_id TEXT NOT NULL, name TEXT NOT NULL, " +
    "step_idx INTEGER NOT NULL, branch INTEGER, event TEXT NOT NULL, payload JSONB, error TEXT, ts BIGINT NOT NULL)",
  "CREATE TABLE IF NOT EXISTS alineo_environments (name TEXT PRIMARY KEY, snapshot_id TEXT NOT NULL, " +
    "image TEXT NOT NULL, built_at BIGINT NOT NULL)"
]

/** Any two processes that migrate must agree on it; nothing else may use it. */
const migrationLock = 7267263538

/** The channel of the notifications that tell of appended rows. */
export const channel = "sandglass_ledger"

/** In a transaction of the application only the database knows when it commits. */
const notify = `SELECT pg_notify('${channel}', 'appended')`

const makeInsert = ({ write }: Transactions, textOf: (size: number) => string): LedgerStore["append"] => {
  const inBatches = makeInBatches(textOf)
  return (rows) =>
    write((connection, joined) =>
      inBatches(rows, (batch, text) => execute(connection, text, rowParams(batch, []))).pipe(
        Effect.zipLeft(joined ? execute(connection, notify) : Effect.void),
        Effect.map((results) => results.flatMap((inserted) => inserted.map(toCursor).sort((a, b) => a.id - b.id)))
      )
    )
}

const makeRemove =
  ({ write }: Transactions): LedgerStore["remove"] =>
  (sandboxId, limit) =>
    write((connection) => {
      const statement = new Statement(postgres)
      const text =
        `WITH removed AS (DELETE FROM alineo_events WHERE id IN (${selectRemovable(statement, sandboxId, limit)}) ` +
        "RETURNING 1) SELECT count(*) AS count FROM removed"
      return Effect.map(execute(connection, text, statement.params), ([row]) => Number(row?.["count"]))
    })

/**
 * Who else writes to the table at this moment; a prepared transaction has no process. `id` is an expression, read in the same
 * statement.
 */
const writers = ({ read }: Transactions, id: string) =>
  read<{ readonly id: unknown; readonly writers: ReadonlyArray<string> }>(
    `SELECT ${id} AS id, ARRAY(SELECT virtualtransaction FROM pg_locks WHERE locktype = 'relation' AND granted ` +
      "AND relation = 'alineo_events'::regclass AND mode = 'RowExclusiveLock' AND pid IS DISTINCT FROM pg_backend_pid() AND database = " +
      "(SELECT oid FROM pg_database WHERE datname = current_database())) AS writers"
  )

/**
 * A transaction takes its ids before it commits, so a lower id may appear after a higher one. Whoever has taken an id
 * holds a lock on the table until the end of the transaction: once the holders of now are gone, nothing can appear any
 * more below what is visible now.
 */
const makeSettledId = (transactions: Transactions): LedgerStore["settledId"] =>
  Effect.gen(function* () {
    const [start] = yield* writers(transactions, "coalesce((SELECT max(id) FROM alineo_events), 0)")
    let pending = start?.writers ?? []
    for (let delay = 2; pending.length > 0; delay = Math.min(100, delay * 2)) {
      yield* Effect.sleep(delay)
      const [now] = yield* writers(transactions, "0")
      pending = pending.filter((writer) => now?.writers.includes(writer) === true)
    }
    return Number(start?.id ?? 0)
  })

export const postgres: Dialect = {
  restrictedJson: true,
  param: (position) => `$${position}`,
  // Of a CASE it believes that half of the rows pass. Where it believes that few do, it sorts all that an index finds.
  filter: (condition) => `CASE WHEN ${condition} THEN true END`,
  // A number that it does not know when it plans makes Postgres prefer what gives the first rows soon. Otherwise it fetches
  // and sorts all rows of a session as soon as it believes that they are few: it believes what its statistics said earlier.
  limit: (param) => `(SELECT ${param}::bigint)`,
  // It would also walk through the whole ledger for the rows of a large session, which it believes to be everywhere.
  ledgerTs,
  // With the column as such, places are found in the index alone.
  ledgerIndex: `(${ledgerTs}, id) INCLUDE (ts)`,
  columns: "id, sandbox_id, name, step_idx, branch, event, payload::text AS payload, error, ts",
  payloadText: "payload::text",
  // An entry of an index has no room for more.
  resourceId:
    "left(CASE jsonb_typeof(payload) WHEN 'object' THEN payload ->> 'resourceId' WHEN 'string' THEN " +
    `substring(payload #>> '{}' from '"resourceId"\\s*:\\s*"([^"\\\\]*)"') END, 512)`,
  asResourceId: (param) => `left(${param}, 512)`,
  hasResourceId: "payload IS NOT NULL",
  contains: (column, text) => `strpos(${column}, ${text}) > 0`,
  eventIn: (list) => `CASE WHEN event = ANY (ARRAY(SELECT jsonb_array_elements_text(${list}::jsonb))) THEN true END`,
  comparesPairs: true,
  lowest: "'-9223372036854775808'::bigint",
  highest: "'9223372036854775807'::bigint",
  isOddTs,
  tables,
  presentNames:
    "SELECT relname AS name FROM pg_class WHERE relkind IN ('r', 'p', 'i', 'I') AND pg_table_is_visible(oid) " +
    "AND relname ~ '^(alineo|sandglass)_'",
  migrationLock: `SELECT pg_advisory_xact_lock(${migrationLock})`,
  writes: (transactions) => ({
    append: makeInsert(transactions, appendText),
    restore: makeInsert(transactions, restoreText),
    remove: makeRemove(transactions),
    settledId: makeSettledId(transactions)
  })
}
