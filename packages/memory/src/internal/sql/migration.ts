/**
 * Brings tables, indexes and policies up to date. Does nothing where nothing is missing, however many processes start at
 * once, so that a role that may not create anything can use what is there.
 */
import type { SqlFailure } from "@sandglass/core/SqlStore"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
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

const namesOf = (database: Database, run: Run) =>
  Effect.map(run(present[database.dialect.name]), (rows) => new Set(rows.map(({ name }) => String(name))))

/**
 * Creates what is missing, and then runs `more` in the same transaction, in which nobody else migrates. Where nothing is
 * missing and `settled` finds what it looks for, nobody is waited for and nothing is written.
 */
export const migrate = <A, E>(
  database: Database,
  tables: ReadonlyArray<Table>,
  settled: (run: Run) => Effect.Effect<Option.Option<A>, SqlFailure>,
  more: (run: Run) => Effect.Effect<A, E>
) => {
  const statements = (names: ReadonlySet<string>) => tables.flatMap((table) => missing(database, names, table))
  const { read } = database.store
  const found = Effect.flatMap(namesOf(database, read), (names) =>
    statements(names).length === 0 ? settled(read) : Effect.succeedNone
  )
  return Effect.flatMap(
    found,
    Option.match({
      onSome: (value) => Effect.succeed(value),
      onNone: () =>
        database.store.write((connection) => {
          const run = database.runOn(connection)
          return Effect.gen(function* () {
            if (database.dialect.name === "postgres") {
              yield* run(`SELECT pg_advisory_xact_lock(${lock})`)
            }
            yield* Effect.forEach(statements(yield* namesOf(database, run)), (statement) => run(statement), {
              discard: true
            })
            return yield* more(run)
          })
        })
    })
  )
}
