/**
 * The ledger in a SQL database: SQLite and Postgres, through whatever `SqlClient` the application has.
 *
 * An append joins a transaction that the application has opened with the same client, and only with the same: the tag
 * that `@effect/sql` keeps the current transaction under is shared by all clients, so everything else that is done here
 * first makes sure that the transaction at hand is its own.
 *
 * @since 0.1.0
 */
import * as SqlClient from "@effect/sql/SqlClient"
import type { Connection } from "@effect/sql/SqlConnection"
import type { SqlError } from "@effect/sql/SqlError"
import * as Arr from "effect/Array"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import { identity } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import type * as Stream from "effect/Stream"
import { isPlainJson } from "./internal/ledgerCodec.js"
import * as Legacy from "./internal/ledgerLegacy.js"
import { isIdClash, isInsideTransaction, toLedgerError } from "./internal/sqlErrors.js"
import type {
  Encoded,
  EnvironmentRecord,
  NewRow,
  PageQuery,
  Row,
  RowFilter,
  SessionQuery,
  SessionRow,
  TailQuery
} from "./Ledger.js"
import { Ledger, makeEncoded } from "./Ledger.js"
import type { LedgerError } from "./LedgerError.js"
import type { Cursor } from "./LedgerEvent.js"
import { EventName } from "./LedgerEvent.js"

/**
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** How often `tail` looks for what other processes appended. Default: half a second. */
  readonly pollInterval?: Duration.DurationInput | undefined
  /** How long an append waits for a database that others keep locked. Default: 30 seconds. */
  readonly contentionTimeout?: Duration.DurationInput | undefined
  /** Emits when another process may have appended something, so that `tail` need not wait for its next look. */
  readonly changes?: Stream.Stream<unknown, LedgerError> | undefined
}

/** Statement texts stay the same from call to call: drivers keep prepared statements by their text. */
const batchSizes = [256, 64, 16, 4, 1] as const

/** How many rows a single query looks at where the wanted ones may be far apart. */
const windowRows = 20_000
const windowSessions = 1_000

const removeRows = 5_000

const insertColumns = "sandbox_id, name, step_idx, branch, event, payload, error, ts"

/** As literals and always in this order: a partial index serves the queries that repeat its condition. */
const literals = (texts: ReadonlyArray<string>): string => texts.map((text) => `'${text}'`).join(", ")

const noOutput = `event NOT IN (${literals(Legacy.outputEvents)})`
const created = `event IN (${literals(Legacy.spellings(EventName.sandboxCreated))})`
const milestone = `event IN (${literals(Legacy.milestones)})`
const closed = literals(Legacy.spellings(EventName.sandboxClosed))
const paused = literals(Legacy.spellings(EventName.sandboxPaused))
const createdEvents = Legacy.spellings(EventName.sandboxCreated)
const switches = literals([EventName.sandboxPaused, EventName.sandboxResumed].flatMap(Legacy.spellings))

const indexes: ReadonlyArray<readonly [name: string, on: string]> = [
  ["alineo_events_name_sandbox_ts", "alineo_events(name, sandbox_id, ts, id)"],
  ["sandglass_events_sandbox", "alineo_events(sandbox_id, ts, id)"],
  ["sandglass_events_step", "alineo_events(sandbox_id, step_idx, ts, id)"],
  ["sandglass_events_ts", "alineo_events(ts, id)"],
  ["sandglass_events_no_output", `alineo_events(sandbox_id, ts, id) WHERE ${noOutput}`],
  ["sandglass_events_milestones", `alineo_events(sandbox_id, ts, id) WHERE ${milestone}`],
  ["sandglass_events_created", `alineo_events(ts, id) WHERE ${created}`],
  ["sandglass_events_created_name", `alineo_events(name, ts, id) WHERE ${created}`]
]

const lifecycle = (select: string, of: string, order: string): string =>
  `(SELECT ${select} FROM alineo_events AS life WHERE life.sandbox_id = alineo_events.sandbox_id AND life.${milestone} ` +
  `AND life.event IN (${of}) ORDER BY life.ts ${order}, life.id ${order} LIMIT 1)`

const closedAt = lifecycle("life.ts", closed, "ASC")
const isPaused = lifecycle(`CASE WHEN life.event IN (${paused}) THEN 1 ELSE 0 END`, switches, "DESC")

const outdatedIndexes = ["alineo_events_sandbox_id", "alineo_events_name"]

/** A row as the drivers return it. Postgres gives 64-bit integers as text. */
interface EventRow {
  readonly id: number | string
  readonly sandbox_id: string
  readonly name: string
  readonly step_idx: number
  readonly branch: number | null
  readonly event: string
  readonly payload: string | null
  readonly error: string | null
  readonly ts: number | string
}

interface SessionEventRow extends EventRow {
  readonly closed_at: number | string | null
  readonly is_paused: number | boolean | null
}

interface EnvironmentRow {
  readonly name: string
  readonly snapshot_id: string
  readonly image: string
  readonly built_at: number | string
}

const toRow = (row: EventRow): Row => ({
  id: Number(row.id),
  sandboxId: row.sandbox_id,
  name: row.name,
  stepIdx: row.step_idx,
  branch: row.branch,
  event: row.event,
  // SQLite columns hold whatever other programs put there.
  payload: row.payload === null || typeof row.payload === "string" ? row.payload : String(row.payload),
  error: row.error,
  ts: Number(row.ts)
})

const toEnvironment = (row: EnvironmentRow): EnvironmentRecord => ({
  name: row.name,
  snapshotId: row.snapshot_id,
  image: row.image,
  builtAt: Number(row.built_at)
})

type Param = string | number | null

/** The conditions of a query, and their parameters in the order in which the text names them. */
class Query {
  readonly params: Array<Param> = []
  constructor(readonly dialect: Dialect) {}
  param(value: Param): string {
    this.params.push(value)
    return this.dialect.param(this.params.length)
  }
}

/** What differs between the databases. Decided once. */
interface Dialect {
  readonly restrictedJson: boolean
  readonly param: (position: number) => string
  /** A column that must not make the database choose an index. */
  readonly unindexed: (column: string) => string
  readonly columns: string
  readonly payloadText: string
  /** True where `text` is part of `column`. */
  readonly contains: (column: string, text: string) => string
  /** `event` in a list that arrives as one parameter, so that its length is no part of the statement's text. */
  readonly eventIn: (list: string) => string
}

const sqliteDialect: Dialect = {
  restrictedJson: false,
  param: () => "?",
  unindexed: (column) => `+${column}`,
  columns: `id, ${insertColumns}`,
  payloadText: "payload",
  contains: (column, text) => `instr(${column}, ${text}) > 0`,
  eventIn: (list) => `+event IN (SELECT value FROM json_each(${list}))`
}

const postgresDialect: Dialect = {
  restrictedJson: true,
  param: (position) => `$${position}`,
  unindexed: identity,
  columns: "id, sandbox_id, name, step_idx, branch, event, payload::text AS payload, error, ts",
  payloadText: "payload::text",
  contains: (column, text) => `strpos(${column}, ${text}) > 0`,
  eventIn: (list) => `event = ANY (ARRAY(SELECT jsonb_array_elements_text(${list}::jsonb)))`
}

const where = (conditions: ReadonlyArray<string>): string =>
  conditions.length === 0 ? "" : ` WHERE ${conditions.join(" AND ")}`

const isSubset = (some: ReadonlyArray<string>, all: ReadonlyArray<string>): boolean =>
  some.every((item) => all.includes(item))

/** One condition for each part of the filter, the literal ones for the sake of the partial indexes. */
const filterConditions = (query: Query, filter: RowFilter): Array<string> => {
  const { dialect } = query
  const conditions: Array<string> = []
  if (filter.sandboxId !== undefined) {
    conditions.push(`sandbox_id = ${query.param(filter.sandboxId)}`)
  }
  if (filter.stepIdx !== undefined) {
    const column = filter.sandboxId === undefined ? dialect.unindexed("step_idx") : "step_idx"
    conditions.push(`${column} = ${query.param(filter.stepIdx)}`)
  }
  if (filter.name !== undefined) {
    conditions.push(`${dialect.unindexed("name")} = ${query.param(filter.name)}`)
  }
  if (filter.events !== undefined) {
    conditions.push(
      filter.sandboxId === undefined && isSubset(filter.events, createdEvents)
        ? created
        : filter.sandboxId !== undefined && isSubset(filter.events, Legacy.milestones)
          ? milestone
          : filter.withoutOutput === true
            ? noOutput
            : "1 = 1",
      dialect.eventIn(query.param(JSON.stringify(filter.events)))
    )
  } else if (filter.withoutOutput === true) {
    conditions.push(noOutput)
  }
  return conditions
}

const beginning: Cursor = { ts: Number.MIN_SAFE_INTEGER, id: 0 }
const ending: Cursor = { ts: Number.MAX_SAFE_INTEGER, id: 0 }

/** Beyond a place in `(ts, id)` order, in either direction, the place itself included or not. */
const beyond = (query: Query, comparison: "<" | "<=" | ">" | ">=", cursor: Cursor): string =>
  query.dialect === postgresDialect
    ? `(ts, id) ${comparison} (${query.param(cursor.ts)}, ${query.param(cursor.id)})`
    : `ts ${comparison[0]}= ${query.param(cursor.ts)} AND (ts ${comparison[0]} ${query.param(cursor.ts)} OR id ${comparison} ${query.param(
        cursor.id
      )})`

/**
 * A page in `(ts, id)` order. SQLite does not use an index for a comparison of pairs when one of them is the rowid, and
 * would walk through all rows of one millisecond for each page that begins inside it: there it takes two searches.
 */
const selectPage = (
  query: Query,
  select: string,
  conditions: () => Array<string>,
  range: Pick<PageQuery, "order" | "after" | "until">,
  limit: { readonly count: number; readonly offset?: number }
): string => {
  const { order, until } = range
  // A page without a cursor is the same statement, and a search all the same.
  const after = range.after ?? (order === "asc" ? beginning : ending)
  const [further, direction] = order === "asc" ? [">" as const, "ASC"] : ["<" as const, "DESC"]
  const end = (): Array<string> => (until === undefined ? [] : [beyond(query, order === "asc" ? "<=" : ">=", until)])
  const { count, offset = 0 } = limit
  const slice = offset === 0 ? () => query.param(count) : () => `${query.param(count)} OFFSET ${query.param(offset)}`
  const sorted = `ORDER BY ts ${direction}, id ${direction}`
  if (query.dialect === postgresDialect) {
    const all = [...conditions(), beyond(query, further, after), ...end()]
    return `SELECT ${select} FROM alineo_events${where(all)} ${sorted} LIMIT ${slice()}`
  }
  const half = (condition: () => string, order: string): string =>
    `SELECT * FROM (SELECT ${select} FROM alineo_events${where([...conditions(), condition(), ...end()])} ${order} LIMIT ${query.param(
      count + offset
    )})`
  const same = half(
    () => `ts = ${query.param(after.ts)} AND id ${further} ${query.param(after.id)}`,
    `ORDER BY id ${direction}`
  )
  const other = half(() => `ts ${further} ${query.param(after.ts)}`, sorted)
  return `${same} UNION ALL ${other} LIMIT ${slice()}`
}

const toCursor = (row: { readonly ts: number | string; readonly id: number | string }): Cursor => ({
  ts: Number(row.ts),
  id: Number(row.id)
})

const rowParams = (rows: ReadonlyArray<NewRow>, params: Array<unknown>): Array<unknown> => {
  for (const row of rows) {
    params.push(row.sandboxId, row.name, row.stepIdx, row.branch, row.event, row.payload, row.error, row.ts)
  }
  return params
}

/** Only the first row asks for its id: the others follow it by themselves. */
const sqliteInsert = (size: number): string =>
  `INSERT INTO alineo_events (id, ${insertColumns}) VALUES ` +
  "((SELECT CASE WHEN value >= ? THEN value + 1 END FROM sandglass_meta WHERE key = 'id_floor'), " +
  `?, ?, ?, ?, ?, ?, ?, ?)${", (NULL, ?, ?, ?, ?, ?, ?, ?, ?)".repeat(size - 1)}`

const postgresInsert = (size: number): string =>
  `INSERT INTO alineo_events (${insertColumns}) VALUES ${Array.from({ length: size }, (_, row) => {
    const at = (column: number) => `$${row * 8 + column}`
    return `(${at(1)}, ${at(2)}, ${at(3)}, ${at(4)}, ${at(5)}, ${at(6)}::jsonb, ${at(7)}, ${at(8)})`
  }).join(", ")} RETURNING id`

const sqliteTables = [
  "CREATE TABLE IF NOT EXISTS alineo_events (id INTEGER PRIMARY KEY, sandbox_id TEXT NOT NULL, name TEXT NOT NULL, " +
    "step_idx INTEGER NOT NULL, branch INTEGER, event TEXT NOT NULL, payload TEXT, error TEXT, ts INTEGER NOT NULL)",
  "CREATE TABLE IF NOT EXISTS alineo_environments (name TEXT PRIMARY KEY, snapshot_id TEXT NOT NULL, " +
    "image TEXT NOT NULL, built_at INTEGER NOT NULL)",
  "CREATE TABLE IF NOT EXISTS sandglass_meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID"
]

const postgresTables = [
  "CREATE TABLE IF NOT EXISTS alineo_events (id BIGSERIAL PRIMARY KEY, sandbox_id TEXT NOT NULL, name TEXT NOT NULL, " +
    "step_idx INTEGER NOT NULL, branch INTEGER, event TEXT NOT NULL, payload JSONB, error TEXT, ts BIGINT NOT NULL)",
  "CREATE TABLE IF NOT EXISTS alineo_environments (name TEXT PRIMARY KEY, snapshot_id TEXT NOT NULL, " +
    "image TEXT NOT NULL, built_at BIGINT NOT NULL)"
]

const createIndexes = indexes.map(([name, on]) => `CREATE INDEX IF NOT EXISTS ${name} ON ${on}`)
const dropIndexes = outdatedIndexes.map((name) => `DROP INDEX IF EXISTS ${name}`)

/** Any two processes that migrate must agree on it; nothing else may use it. */
const migrationLock = 7267263538

const migration = (tables: ReadonlyArray<string>, present: ReadonlyArray<string>): ReadonlyArray<string> => {
  const complete =
    tables.every((ddl) => present.some((name) => ddl.includes(` ${name} (`))) &&
    indexes.every(([name]) => present.includes(name))
  return [
    ...(complete ? [] : [...tables, ...createIndexes]),
    ...(outdatedIndexes.some((name) => present.includes(name)) ? dropIndexes : [])
  ]
}

/**
 * A ledger in the database of the `SqlClient` at hand; creates the tables and indexes that are missing. Not to be
 * called inside a transaction.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = Effect.fnUntraced(function* (
  options: Options = {}
): Effect.fn.Return<Context.Tag.Service<Ledger>, LedgerError, SqlClient.SqlClient> {
  const sql = (yield* SqlClient.SqlClient).withoutTransforms()
  const postgres = sql.onDialectOrElse({ pg: () => true, orElse: () => false })
  const dialect = postgres ? postgresDialect : sqliteDialect
  const failed = toLedgerError("SqlLedger")
  const patience = Schedule.exponential("2 millis", 1.5).pipe(
    Schedule.union(Schedule.spaced("50 millis")),
    Schedule.jittered,
    Schedule.upTo(Duration.decode(options.contentionTimeout ?? "30 seconds"))
  )
  const isContention = (error: LedgerError) => error.reason === "Contention"

  /** The schedule costs nothing until it is needed. */
  const patiently = <A>(self: Effect.Effect<A, LedgerError>): Effect.Effect<A, LedgerError> =>
    Effect.catchIf(self, isContention, () => Effect.retry(self, { schedule: patience, while: isContention }))

  const ours = yield* Effect.scoped(sql.reserve).pipe(Effect.mapError(failed))

  /**
   * A client has one connection, or makes its connections of one class of its own; that tells whose transaction it
   * is that the calling fiber is in.
   */
  const isOurs = (connection: Connection): boolean =>
    connection === ours || (connection.constructor !== Object && connection.constructor === ours.constructor)

  const transaction = Effect.map(Effect.context<never>(), (context) =>
    Option.filter(
      Option.map(Context.getOption(context, SqlClient.TransactionConnection), ([connection]) => connection),
      isOurs
    )
  )

  const withoutTransaction = <A, E>(self: Effect.Effect<A, E>): Effect.Effect<A, E> =>
    Effect.mapInputContext(self, (context: Context.Context<never>) =>
      Context.omit(SqlClient.TransactionConnection)(context as Context.Context<SqlClient.TransactionConnection>)
    )

  const read = <A extends object>(
    text: string,
    params: ReadonlyArray<Param> = []
  ): Effect.Effect<ReadonlyArray<A>, LedgerError> => {
    const statement = Effect.mapError(sql.unsafe<A>(text, params), failed)
    return Effect.flatMap(
      transaction,
      Option.match({
        onNone: () => patiently(withoutTransaction(statement)),
        onSome: () => statement
      })
    )
  }

  const execute = (
    connection: Connection,
    text: string,
    params: ReadonlyArray<unknown> = []
  ): Effect.Effect<ReadonlyArray<Record<string, unknown>>, SqlError> => connection.execute(text, params, undefined)

  const rollback = (connection: Connection) => Effect.ignore(execute(connection, "ROLLBACK"))

  /**
   * SQLite can be left inside a transaction by an application whose COMMIT failed. The connection is ours alone here,
   * so a transaction that is still open belongs to nobody.
   */
  const begin = (connection: Connection): Effect.Effect<unknown, SqlError> =>
    postgres
      ? execute(connection, "BEGIN")
      : Effect.catchIf(execute(connection, "BEGIN IMMEDIATE"), isInsideTransaction, () =>
          Effect.zipRight(rollback(connection), execute(connection, "BEGIN IMMEDIATE"))
        )

  /**
   * Not `sql.withTransaction`: there a COMMIT that fails is a defect, and SQLite then stays inside the transaction.
   */
  const inTransaction = <A>(connection: Connection, body: Effect.Effect<A, SqlError>): Effect.Effect<A, SqlError> =>
    Effect.uninterruptibleMask((restore) =>
      Effect.zipRight(
        begin(connection),
        Effect.flatMap(Effect.exit(restore(body)), (exit) =>
          Exit.isSuccess(exit)
            ? execute(connection, "COMMIT").pipe(
                Effect.tapError(() => rollback(connection)),
                Effect.as(exit.value)
              )
            : Effect.zipRight(rollback(connection), exit)
        )
      )
    )

  const inSavepoint = <A>(connection: Connection, body: Effect.Effect<A, SqlError>): Effect.Effect<A, SqlError> =>
    Effect.uninterruptibleMask((restore) =>
      Effect.zipRight(
        execute(connection, "SAVEPOINT sandglass"),
        Effect.flatMap(Effect.exit(restore(body)), (exit) =>
          Effect.zipRight(
            Exit.isSuccess(exit) ? Effect.void : Effect.ignore(execute(connection, "ROLLBACK TO SAVEPOINT sandglass")),
            Effect.zipRight(execute(connection, "RELEASE SAVEPOINT sandglass"), exit)
          )
        )
      )
    )

  /** Writes atomically: in the application's transaction where it is in one, else in one of its own. */
  const write = <A>(
    body: (connection: Connection, joined: boolean) => Effect.Effect<A, SqlError>
  ): Effect.Effect<A, LedgerError> =>
    Effect.flatMap(
      transaction,
      Option.match({
        onSome: (connection) => Effect.mapError(inSavepoint(connection, body(connection, true)), failed),
        onNone: () =>
          patiently(
            Effect.mapError(
              Effect.scoped(
                Effect.flatMap(sql.reserve, (connection) => inTransaction(connection, body(connection, false)))
              ),
              failed
            )
          )
      })
    )

  yield* write(
    Effect.fnUntraced(function* (connection) {
      if (postgres) {
        yield* execute(connection, "SELECT pg_advisory_xact_lock($1)", [migrationLock])
      }
      const present = yield* execute(
        connection,
        postgres
          ? "SELECT relname AS name FROM pg_class WHERE relkind IN ('r', 'p', 'i', 'I') AND pg_table_is_visible(oid)"
          : "SELECT name FROM sqlite_master"
      )
      const statements = migration(
        postgres ? postgresTables : sqliteTables,
        present.map(({ name }) => String(name))
      )
      yield* Effect.forEach(statements, (ddl) => execute(connection, ddl), { discard: true })
    })
  )

  const inserts = new Map(batchSizes.map((size) => [size, (postgres ? postgresInsert : sqliteInsert)(size)]))

  /** Calls `insert` with as few and as large batches as there are statements for. */
  const inBatches = <A>(
    rows: ReadonlyArray<NewRow>,
    insert: (batch: ReadonlyArray<NewRow>, text: string) => Effect.Effect<A, SqlError>
  ): Effect.Effect<Array<A>, SqlError> => {
    const batches: Array<Effect.Effect<A, SqlError>> = []
    let from = 0
    for (const [size, text] of inserts) {
      for (; rows.length - from >= size; from += size) {
        batches.push(insert(from === 0 && rows.length === size ? rows : rows.slice(from, from + size), text))
      }
    }
    return Effect.all(batches)
  }

  /** An id that was in the table after its floor was last raised, as far as this handle knows. */
  let knownId = 0

  const appendSqlite: Encoded["append"] = (rows) =>
    write((connection, joined) => {
      let known = knownId
      const insert = (batch: ReadonlyArray<NewRow>, text: string): Effect.Effect<unknown, SqlError> =>
        execute(connection, text, rowParams(batch, [known])).pipe(
          // Another process has already used the first id above the floor.
          Effect.catchIf(isIdClash, () =>
            Effect.flatMap(execute(connection, "SELECT max(id) AS id FROM alineo_events"), ([row]) => {
              known = Number(row?.["id"])
              return execute(connection, text, rowParams(batch, [known]))
            })
          )
        )
      // Ids are consecutive: nobody else writes while this transaction does.
      return inBatches(rows, (batch, text) =>
        Effect.map(
          Effect.zipRight(insert(batch, text), execute(connection, "SELECT last_insert_rowid() AS id")),
          ([row]) => {
            const last = Number(row?.["id"])
            known = last
            return Array.from(batch, (_, position) => last - batch.length + 1 + position)
          }
        )
      ).pipe(
        Effect.map(Arr.flatten),
        Effect.tap((ids) =>
          Effect.sync(() => {
            // What a joined transaction wrote may yet be rolled back.
            knownId = joined ? knownId : Math.max(knownId, ids[ids.length - 1] ?? 0)
          })
        )
      )
    })

  const appendPostgres: Encoded["append"] = (rows) =>
    write((connection) =>
      Effect.map(
        inBatches(rows, (batch, text) => execute(connection, text, rowParams(batch, []))),
        (results) => results.flatMap((inserted) => inserted.map(({ id }) => Number(id)).sort((a, b) => a - b))
      )
    )

  const page = (query: PageQuery) =>
    Effect.gen(function* () {
      const direct =
        query.sandboxId !== undefined ||
        (query.events !== undefined && isSubset(query.events, createdEvents)) ||
        (query.name === undefined &&
          query.stepIdx === undefined &&
          query.events === undefined &&
          query.withoutOutput !== true)
      // Matches may be rare: look at so many rows, and go on from there with the next page.
      const end = direct ? undefined : yield* placeAhead(query, [], windowRows)
      const until = end ?? query.until
      const statement = new Query(dialect)
      const text = selectPage(
        statement,
        dialect.columns,
        () => filterConditions(statement, query),
        { ...query, until },
        { count: query.limit }
      )
      const rows = (yield* read<EventRow>(text, statement.params)).map(toRow)
      const last = rows[rows.length - 1]
      return { rows, next: last !== undefined && rows.length >= query.limit ? toCursor(last) : end }
    })

  /** Where the row stands that is so many rows ahead; `undefined` when the end comes first. */
  const placeAhead = (
    range: Pick<PageQuery, "order" | "after" | "until">,
    conditions: ReadonlyArray<string>,
    offset: number
  ): Effect.Effect<Cursor | undefined, LedgerError> => {
    const statement = new Query(dialect)
    const text = selectPage(statement, "ts, id", () => [...conditions], range, { count: 1, offset })
    return Effect.map(
      read<{ readonly ts: number | string; readonly id: number | string }>(text, statement.params),
      ([row]) => (row === undefined ? undefined : toCursor(row))
    )
  }

  const tail = (query: TailQuery) =>
    Effect.gen(function* () {
      const end = Math.min(query.upTo, query.after + windowRows)
      const statement = new Query(dialect)
      const range = [`id > ${statement.param(query.after)}`, `id <= ${statement.param(end)}`]
      const { sandboxId, stepIdx, ...others } = query
      const conditions = filterConditions(statement, others)
      if (sandboxId !== undefined) {
        conditions.push(`${dialect.unindexed("sandbox_id")} = ${statement.param(sandboxId)}`)
      }
      if (stepIdx !== undefined) {
        conditions.push(`${dialect.unindexed("step_idx")} = ${statement.param(stepIdx)}`)
      }
      const text = `SELECT ${dialect.columns} FROM alineo_events${where([...range, ...conditions])} ORDER BY id LIMIT ${statement.param(
        query.limit
      )}`
      const rows = (yield* read<EventRow>(text, statement.params)).map(toRow)
      const last = rows[rows.length - 1]
      if (last !== undefined && rows.length >= query.limit) {
        return { rows, next: last.id }
      }
      if (end >= query.upTo) {
        return { rows, next: undefined }
      }
      if (last !== undefined || sandboxId === undefined) {
        return { rows, next: end }
      }
      // Nothing of this sandbox for a while: one look into its index says where it goes on.
      const jump = new Query(dialect)
      const found = yield* read<{ readonly id: number | string | null }>(
        `SELECT min(id + 0) AS id FROM alineo_events WHERE sandbox_id = ${jump.param(sandboxId)} AND ${dialect.unindexed(
          "id"
        )} > ${jump.param(end)}`,
        jump.params
      )
      const next = found[0]?.id ?? undefined
      return { rows, next: next === undefined || Number(next) > query.upTo ? undefined : Number(next) - 1 }
    })

  const writers = (also: string) =>
    read<{ readonly id: number | string; readonly writers: ReadonlyArray<string> }>(
      `SELECT ${also} AS id, ARRAY(SELECT virtualtransaction FROM pg_locks WHERE locktype = 'relation' AND granted ` +
        "AND relation = 'alineo_events'::regclass AND mode = 'RowExclusiveLock' AND pid <> pg_backend_pid() AND database = " +
        "(SELECT oid FROM pg_database WHERE datname = current_database())) AS writers"
    )

  /**
   * A transaction takes its ids before it commits, so a lower id may appear after a higher one. Whoever has taken an
   * id holds a lock on the table until the end of the transaction: once the holders of now are gone, nothing can
   * appear any more below what is visible now.
   */
  const settledIdPostgres: Encoded["settledId"] = Effect.gen(function* () {
    const [start] = yield* writers("coalesce((SELECT max(id) FROM alineo_events), 0)")
    let pending = start?.writers ?? []
    for (let delay = 2; pending.length > 0; delay = Math.min(100, delay * 2)) {
      yield* Effect.sleep(delay)
      const [now] = yield* writers("0")
      pending = pending.filter((writer) => now?.writers.includes(writer) === true)
    }
    return Number(start?.id ?? 0)
  })

  const settledIdSqlite: Encoded["settledId"] = Effect.map(
    read<{ readonly id: number | null }>("SELECT max(id) AS id FROM alineo_events"),
    ([row]) => row?.id ?? 0
  )

  const sessions = (query: SessionQuery) =>
    Effect.gen(function* () {
      const { name, runId, sandboxId, status } = query
      const range = { order: "desc" as const, after: query.before, until: undefined }
      const end =
        sandboxId !== undefined || (status === undefined && runId === undefined)
          ? undefined
          : yield* placeAhead(range, [created], windowSessions)
      const statement = new Query(dialect)
      const text = selectPage(
        statement,
        `${dialect.columns}, ${closedAt} AS closed_at, ${isPaused} AS is_paused`,
        () => {
          const conditions = [created]
          if (sandboxId !== undefined) {
            conditions.push(milestone, `sandbox_id = ${statement.param(sandboxId)}`)
          }
          if (name !== undefined) {
            const column = sandboxId === undefined ? "name" : dialect.unindexed("name")
            conditions.push(`${column} = ${statement.param(name)}`)
          }
          if (runId !== undefined && isPlainJson(runId)) {
            const quoted = JSON.stringify(runId)
            const twice = JSON.stringify(quoted).slice(1, -1)
            conditions.push(
              `(${dialect.contains(dialect.payloadText, statement.param(quoted))} OR ${dialect.contains(
                dialect.payloadText,
                statement.param(twice)
              )})`
            )
          }
          if (status === "closed") {
            conditions.push(`${closedAt} IS NOT NULL`)
          } else if (status !== undefined) {
            conditions.push(`${closedAt} IS NULL`, `coalesce(${isPaused}, 0) = ${status === "paused" ? 1 : 0}`)
          }
          return conditions
        },
        { ...range, until: end },
        { count: query.limit }
      )
      const found = yield* read<SessionEventRow>(text, statement.params)
      const last = found[found.length - 1]
      return {
        rows: found.map(
          (row): SessionRow => ({
            created: toRow(row),
            status: row.closed_at !== null ? "closed" : row.is_paused === 1 ? "paused" : "running",
            closedAt: row.closed_at === null ? null : Number(row.closed_at)
          })
        ),
        next: last !== undefined && found.length >= query.limit ? toCursor(last) : end
      }
    })

  const removeSqlite: Encoded["remove"] = (sandboxId) =>
    write(
      Effect.fnUntraced(function* (connection) {
        // Without it SQLite would give the highest ids out again when their rows are gone.
        yield* execute(
          connection,
          "INSERT INTO sandglass_meta (key, value) SELECT 'id_floor', coalesce(max(id), 0) FROM alineo_events WHERE true " +
            "ON CONFLICT (key) DO UPDATE SET value = max(value, excluded.value)"
        )
        let removed = 0
        for (let count = removeRows; count === removeRows; ) {
          yield* execute(
            connection,
            "DELETE FROM alineo_events WHERE id IN (SELECT id FROM alineo_events WHERE sandbox_id = ? LIMIT ?)",
            [sandboxId, removeRows]
          )
          const [row] = yield* execute(connection, "SELECT changes() AS count")
          count = Number(row?.["count"])
          removed += count
          // The driver is synchronous: other fibers get their turn between the pieces.
          yield* Effect.yieldNow()
        }
        return removed
      })
    )

  const removePostgres: Encoded["remove"] = (sandboxId) =>
    write((connection) =>
      Effect.map(
        execute(
          connection,
          "WITH removed AS (DELETE FROM alineo_events WHERE sandbox_id = $1 RETURNING 1) " +
            "SELECT count(*) AS count FROM removed",
          [sandboxId]
        ),
        ([row]) => Number(row?.["count"])
      )
    )

  const environmentColumns = "SELECT name, snapshot_id, image, built_at FROM alineo_environments"
  const p = dialect.param

  return yield* makeEncoded({
    restrictedJson: dialect.restrictedJson,
    joined: Effect.map(transaction, Option.isSome),
    append: postgres ? appendPostgres : appendSqlite,
    page,
    tail,
    settledId: postgres ? settledIdPostgres : settledIdSqlite,
    sessions,
    remove: postgres ? removePostgres : removeSqlite,
    environment: (name) =>
      Effect.map(read<EnvironmentRow>(`${environmentColumns} WHERE name = ${p(1)}`, [name]), (rows) =>
        Option.map(Arr.head(rows), toEnvironment)
      ),
    environments: Effect.map(read<EnvironmentRow>(environmentColumns), Arr.map(toEnvironment)),
    putEnvironment: (record) =>
      write((connection) =>
        Effect.asVoid(
          execute(
            connection,
            "INSERT INTO alineo_environments (name, snapshot_id, image, built_at) VALUES " +
              `(${p(1)}, ${p(2)}, ${p(3)}, ${p(4)}) ON CONFLICT (name) DO UPDATE SET ` +
              "snapshot_id = excluded.snapshot_id, image = excluded.image, built_at = excluded.built_at",
            [record.name, record.snapshotId, record.image, record.builtAt]
          )
        )
      ),
    deleteEnvironment: (name) =>
      write((connection) =>
        Effect.map(
          execute(connection, `DELETE FROM alineo_environments WHERE name = ${p(1)} RETURNING name`, [name]),
          (rows) => rows.length > 0
        )
      ),
    pollInterval: options.pollInterval ?? "500 millis",
    changes: options.changes
  })
})

/**
 * @since 0.1.0
 * @category layers
 */
export const layerWith = (options: Options): Layer.Layer<Ledger, LedgerError, SqlClient.SqlClient> =>
  Layer.effect(Ledger, make(options))

/**
 * The ledger in the database of the `SqlClient` at hand.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer: Layer.Layer<Ledger, LedgerError, SqlClient.SqlClient> = layerWith({})
