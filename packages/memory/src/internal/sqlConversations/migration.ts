/**
 * Brings the tables up to date. Does nothing where nothing is missing, however many processes start at once, so that a
 * role that may not create anything can use what is there.
 */
import * as SqlStore from "@sandglass/core/SqlStore"
import * as Effect from "effect/Effect"
import type { ConversationStoreError } from "../../ConversationError.js"
import type { Dialect } from "../sql/dialect.js"

const names = { sqlite: "TEXT", postgres: 'TEXT COLLATE "C"' } as const
const times = { sqlite: "INTEGER", postgres: "BIGINT" } as const
const documents = { sqlite: "TEXT", postgres: "JSONB" } as const

/** Where the tokens stand: before the texts, which may be long. */
export const tokenColumns = [
  "prompt_tokens",
  "completion_tokens",
  "total_tokens",
  "cache_read_tokens",
  "cache_creation_tokens"
] as const

/** Ids are compared byte by byte, whatever the database thinks of languages. */
const tables = ({ name: database, serial }: Dialect): ReadonlyArray<readonly [name: string, columns: string]> => {
  const id = names[database]
  const number = times[database]
  const json = documents[database]
  return [
    [
      "sandglass_conversations",
      `seq ${serial}, id ${id} NOT NULL UNIQUE, user_id ${id} NOT NULL, agent_id ${id}, ` +
        `created_at ${number} NOT NULL, last_activity ${number} NOT NULL, title TEXT, metadata ${json}`
    ],
    [
      "sandglass_messages",
      `seq ${serial}, id ${id} NOT NULL UNIQUE, ` +
        `conversation_id ${id} NOT NULL REFERENCES sandglass_conversations (id) ON DELETE CASCADE, ` +
        "role TEXT NOT NULL CHECK (role IN ('user', 'assistant', 'system', 'tool')), " +
        `timestamp ${number} NOT NULL, ${tokenColumns.map((column) => `${column} ${number}`).join(", ")}, ` +
        `model TEXT, tool_call_id TEXT, name TEXT, content TEXT NOT NULL, tool_calls ${json}, metadata ${json}`
    ]
  ]
}

const indexes: ReadonlyArray<readonly [name: string, on: string]> = [
  ["sandglass_conversations_user", "sandglass_conversations (user_id, last_activity, created_at, seq)"],
  [
    "sandglass_conversations_agent",
    "sandglass_conversations (user_id, agent_id, last_activity, created_at, seq) WHERE agent_id IS NOT NULL"
  ],
  ["sandglass_messages_history", "sandglass_messages (conversation_id, timestamp, seq)"],
  ["sandglass_messages_role", "sandglass_messages (conversation_id, role, timestamp, seq)"],
  [
    "sandglass_messages_usage",
    `sandglass_messages (conversation_id, ${tokenColumns.join(", ")}) WHERE total_tokens IS NOT NULL`
  ]
]

const presentNames = {
  sqlite: "SELECT name FROM sqlite_master",
  postgres: "SELECT relname AS name FROM pg_class WHERE relkind IN ('r', 'p', 'i', 'I') AND pg_table_is_visible(oid)"
} as const

/** Any two processes that migrate must agree on it; nothing else may use it. */
const lock = "SELECT pg_advisory_xact_lock(7267263540)"

const missing = (dialect: Dialect, rows: ReadonlyArray<{ readonly name?: unknown }>): ReadonlyArray<string> => {
  const present = new Set(rows.map(({ name }) => name))
  return [
    ...tables(dialect)
      .filter(([name]) => !present.has(name))
      .map(([name, columns]) => `CREATE TABLE IF NOT EXISTS ${name} (${columns})`),
    ...indexes.filter(([name]) => !present.has(name)).map(([name, on]) => `CREATE INDEX IF NOT EXISTS ${name} ON ${on}`)
  ]
}

export const migrate = (
  dialect: Dialect,
  { read, write }: SqlStore.SqlStore<ConversationStoreError>
): Effect.Effect<void, ConversationStoreError> => {
  const present = presentNames[dialect.name]
  const isComplete = Effect.map(
    read<{ readonly name: unknown }>(present),
    (rows) => missing(dialect, rows).length === 0
  )
  const create = write((connection) =>
    (dialect.name === "postgres" ? SqlStore.execute(connection, lock) : Effect.void).pipe(
      Effect.zipRight(SqlStore.execute(connection, present)),
      Effect.flatMap((rows) =>
        Effect.forEach(missing(dialect, rows), (statement) => SqlStore.execute(connection, statement), {
          discard: true
        })
      )
    )
  )
  return Effect.asVoid(Effect.unlessEffect(create, isComplete))
}
