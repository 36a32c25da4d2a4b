/**
 * Postgres.
 */
import * as Effect from "effect/Effect"
import type { Cursor } from "../../LedgerEvent.js"
import type { LedgerStore, NewRow } from "../../LedgerStore.js"
import type { Dialect } from "./dialect.js"
import { insertColumns, latestTs } from "./insert.js"
import { isOddTs, toCursor } from "./rows.js"
import { Statement, selectRemovable } from "./statement.js"
import type { Transactions } from "./transactions.js"
import { execute } from "./transactions.js"

const ledgerTs = "(ts + 0)"

/**
 * One statement for any number of rows, which are its one parameter: the server reads JSON as fast as parameters, and
 * nothing has to be planned anew for another number of rows. A payload that is JSON's own null is none of SQL's.
 */
const insertText = (ts: string): string =>
  `INSERT INTO alineo_events (${insertColumns}) ` +
  `SELECT s, n, i, b, e, CASE WHEN z THEN 'null'::jsonb ELSE p END, x, ${ts} FROM ROWS FROM (json_to_recordset($1) AS ` +
  "(s text, n text, i integer, b integer, e text, p jsonb, z boolean, x text, t bigint)) WITH ORDINALITY " +
  "ORDER BY ordinality RETURNING id, ts"

/** The time is that of the latest row where the process's own is earlier. */
const appendText =
  `WITH latest AS (SELECT max(${ledgerTs}) AS ts FROM alineo_events WHERE ${ledgerTs} <= ${latestTs}) ` +
  insertText("greatest(t, (SELECT ts FROM latest))")

const restoreText = insertText("t")

/** How much goes into one statement. */
const statementRows = 1_000
const statementCharacters = 16 * 1024 * 1024

const rowText = ({ branch, error, event, name, payload, sandboxId, stepIdx, ts }: NewRow): string =>
  `{"s":${JSON.stringify(sandboxId)},"n":${JSON.stringify(name)},"i":${stepIdx},"e":${JSON.stringify(event)},"t":${ts}${
    branch === null ? "" : `,"b":${branch}`
  }${payload === null ? "" : payload === "null" ? ',"z":true' : `,"p":${payload}`}${
    error === null ? "" : `,"x":${JSON.stringify(error)}`
  }}`

/** The parameters of as few statements as there may be. */
const rowTexts = (rows: ReadonlyArray<NewRow>): Array<string> => {
  const texts: Array<string> = []
  let some: Array<string> = []
  let characters = 0
  for (const row of rows) {
    const text = rowText(row)
    if (some.length >= statementRows || (some.length > 0 && characters + text.length > statementCharacters)) {
      texts.push(`[${some.join(",")}]`)
      some = []
      characters = 0
    }
    some.push(text)
    characters += text.length
  }
  texts.push(`[${some.join(",")}]`)
  return texts
}

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

const toPlaces = (inserted: ReadonlyArray<object>): Array<Cursor> => inserted.map(toCursor).sort((a, b) => a.id - b.id)

const makeInsert =
  ({ joined, write, writeOne }: Transactions, text: string): LedgerStore["append"] =>
  (rows) =>
    Effect.flatMap(joined, (isJoined) => {
      const params = rowTexts(rows)
      const [only] = params
      return only !== undefined && params.length === 1 && !isJoined
        ? Effect.map(writeOne(text, [only]), toPlaces)
        : write((connection, isJoined) =>
            Effect.forEach(params, (param) => execute(connection, text, [param])).pipe(
              Effect.zipLeft(isJoined ? execute(connection, notify) : Effect.void),
              Effect.map((results) => results.flatMap(toPlaces))
            )
          )
    })

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
