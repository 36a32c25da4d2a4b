/**
 * Brings tables, indexes and policies up to date. Does nothing where nothing is missing, however many processes start at
 * once, so that a role that may not create anything can use what is there.
 */
import * as Effect from "effect/Effect"
import type { Run } from "../../SqlVectorIndex.js"
import type { Database } from "./database.js"

export interface Table {
  readonly name: string
  readonly columns: string
  /** SQLite only: what follows the columns. */
  readonly options?: string | undefined
  /** Postgres only: what follows the creation of the table. */
  readonly tuning?: string | undefined
  /** Rows belong to resources: on Postgres those of a team are there only where `sandglass.team_id` names it. */
  readonly owned: boolean
  readonly indexes: ReadonlyArray<readonly [name: string, on: string]>
}

/** Any two processes that migrate must agree on it; nothing else may use it. */
const lock = 7267263539

const present = {
  sqlite: "SELECT name FROM sqlite_master",
  postgres:
    "SELECT relname AS name FROM pg_class WHERE relkind IN ('r', 'p', 'i', 'I') AND pg_table_is_visible(oid) " +
    "UNION ALL SELECT polname FROM pg_policy WHERE pg_table_is_visible(polrelid)"
}

const isVisible = "team_id = '' OR team_id = current_setting('sandglass.team_id', true)"

const policy = (table: string): string => `${table}_team`

/** The owner of the table is no exception. */
const policyStatements = (table: string): ReadonlyArray<string> => [
  `ALTER TABLE ${table} ENABLE ROW LEVEL SECURITY`,
  `ALTER TABLE ${table} FORCE ROW LEVEL SECURITY`,
  `CREATE POLICY ${policy(table)} ON ${table} USING (${isVisible}) WITH CHECK (${isVisible})`
]

const missing = (
  database: Database,
  names: ReadonlySet<string>,
  { columns, indexes, name, options, owned, tuning }: Table
): ReadonlyArray<string> => [
  ...(names.has(name)
    ? []
    : database.dialect.name === "sqlite"
      ? [`CREATE TABLE ${name} (${columns}) ${options ?? ""}`]
      : [`CREATE TABLE ${name} (${columns})`, ...(tuning === undefined ? [] : [`ALTER TABLE ${name} ${tuning}`])]),
  ...indexes
    .filter(([index]) => !names.has(index))
    .map(([index, on]) => `CREATE ${index.endsWith("_unique") ? "UNIQUE " : ""}INDEX ${index} ON ${name} ${on}`),
  ...(owned && database.dialect.name === "postgres" && !names.has(policy(name)) ? policyStatements(name) : [])
]

/** Runs in a transaction in which nobody else migrates. `more` may create what only this database can. */
export const migrate = <A, E>(
  database: Database,
  tables: ReadonlyArray<Table>,
  more: (run: Run) => Effect.Effect<A, E>
) =>
  database.store.write((connection) => {
    const run = database.runOn(connection)
    return Effect.gen(function* () {
      if (database.dialect.name === "postgres") {
        yield* run(`SELECT pg_advisory_xact_lock(${lock})`)
      }
      const found = yield* run(present[database.dialect.name])
      const names = new Set(found.map(({ name }) => String(name)))
      yield* Effect.forEach(
        tables.flatMap((table) => missing(database, names, table)),
        (statement) => run(statement),
        { discard: true }
      )
      return yield* more(run)
    })
  })
