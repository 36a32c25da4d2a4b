/**
 * Brings tables and indexes up to date. Does nothing where nothing is missing, however many processes start at once.
 */
import * as Effect from "effect/Effect"
import type { LedgerError } from "../../LedgerError.js"
import { created, milestone, noOutput } from "./conditions.js"
import type { Dialect } from "./dialect.js"
import type { Transactions } from "./transactions.js"
import { execute } from "./transactions.js"

const indexesOf = ({
  hasResourceId,
  ledgerIndex,
  resourceId
}: Dialect): ReadonlyArray<readonly [name: string, on: string]> => [
  ["alineo_events_name_sandbox_ts", "alineo_events(name, sandbox_id, ts, id)"],
  ["sandglass_events_sandbox", "alineo_events(sandbox_id, ts, id)"],
  ["sandglass_events_step", "alineo_events(sandbox_id, step_idx, ts, id)"],
  ["sandglass_events_ts", `alineo_events${ledgerIndex}`],
  ["sandglass_events_no_output", `alineo_events(sandbox_id, ts, id) WHERE ${noOutput}`],
  ["sandglass_events_milestones", `alineo_events(sandbox_id, ts, id) WHERE ${milestone}`],
  ["sandglass_events_created", `alineo_events${ledgerIndex} WHERE ${created}`],
  ["sandglass_events_created_name", `alineo_events(name, ts, id) WHERE ${created}`],
  ["sandglass_events_created_resource", `alineo_events((${resourceId}), ts, id) WHERE ${created} AND ${hasResourceId}`]
]

const outdatedIndexes = ["alineo_events_sandbox_id", "alineo_events_name"]

const dropIndexes = outdatedIndexes.map((name) => `DROP INDEX IF EXISTS ${name}`)

const missing = (dialect: Dialect, present: ReadonlyArray<string>): ReadonlyArray<string> => {
  const { tables } = dialect
  const indexes = indexesOf(dialect)
  const complete =
    tables.every((ddl) => present.some((name) => ddl.includes(` ${name} (`))) &&
    indexes.every(([name]) => present.includes(name))
  return [
    ...(complete ? [] : [...tables, ...indexes.map(([name, on]) => `CREATE INDEX IF NOT EXISTS ${name} ON ${on}`)]),
    ...(outdatedIndexes.some((name) => present.includes(name)) ? dropIndexes : [])
  ]
}

const namesOf = (present: ReadonlyArray<{ readonly name?: unknown }>): ReadonlyArray<string> =>
  present.map(({ name }) => String(name))

export const migrate = (dialect: Dialect, { read, write }: Transactions): Effect.Effect<void, LedgerError> => {
  const complete = Effect.map(
    read<{ readonly name: unknown }>(dialect.presentNames),
    (present) => missing(dialect, namesOf(present)).length === 0
  )
  const create = write(
    Effect.fnUntraced(function* (connection) {
      if (dialect.migrationLock !== undefined) {
        yield* execute(connection, dialect.migrationLock)
      }
      const present = yield* execute(connection, dialect.presentNames)
      yield* Effect.forEach(missing(dialect, namesOf(present)), (ddl) => execute(connection, ddl), {
        discard: true
      })
    })
  ).pipe(
    // Another program creates the same tables at this moment, and knows nothing of the lock.
    Effect.retry({ times: 3, while: ({ reason }) => reason === "Constraint" })
  )
  // Where nothing is missing, nobody waits for anybody, and whoever may not create tables need not.
  return Effect.unlessEffect(create, complete).pipe(Effect.asVoid)
}
