/**
 * The query for a page of messages.
 */
import type { Param } from "@sandglass/core/SqlStore"
import type { NonEmptyReadonlyArray } from "effect/Array"
import type { Role } from "../../Conversation.js"
import type { MessageQuery } from "../../ConversationStore.js"
import type { Dialect } from "../sql/dialect.js"
import { selectMessage } from "./columns.js"

export interface Query {
  readonly text: string
  readonly params: ReadonlyArray<Param>
}

interface Slice {
  readonly limit: number | undefined
  readonly offset: number
}

interface Condition {
  readonly text: string
  readonly params: ReadonlyArray<Param>
}

/**
 * One role has an index of its own. Several are looked for in the order of time: SQLite would otherwise read the messages
 * of each and sort them, and Postgres, which believes that half of the rows pass a CASE, where it believes that few do.
 */
const roleCondition = ({ name }: Dialect, roles: NonEmptyReadonlyArray<Role>): Condition => ({
  text:
    roles.length === 1
      ? "role = ?"
      : name === "postgres"
        ? `CASE WHEN role IN (${roles.map(() => "?").join(", ")}) THEN true END`
        : `+role IN (${roles.map(() => "?").join(", ")})`,
  params: roles
})

const conditionsOf = (
  dialect: Dialect,
  { conversationId, roles, since, until }: MessageQuery
): ReadonlyArray<Condition> => [
  { text: "conversation_id = ?", params: [conversationId] },
  ...(since === undefined ? [] : [{ text: "timestamp >= ?", params: [since] }]),
  ...(until === undefined ? [] : [{ text: "timestamp <= ?", params: [until] }]),
  ...(roles === undefined ? [] : [roleCondition(dialect, roles)])
]

/**
 * A number that it does not know when it plans makes Postgres prefer what gives the first rows soon. Otherwise it reads and
 * sorts a whole conversation as soon as it believes that it is small: it believes what its statistics said earlier. SQLite
 * skips nothing without a limit.
 */
export const slice = ({ name }: Dialect, { limit, offset }: Slice): Condition => {
  const number = name === "postgres" ? "(SELECT ?::bigint)" : "?"
  const all = offset === 0 ? "" : " LIMIT 9223372036854775807"
  return {
    text: (limit === undefined ? all : ` LIMIT ${number}`) + (offset === 0 ? "" : ` OFFSET ${number}`),
    params: [...(limit === undefined ? [] : [limit]), ...(offset === 0 ? [] : [offset])]
  }
}

const page = (dialect: Dialect, query: MessageQuery, more: ReadonlyArray<Condition>, range: Slice): Query => {
  const direction = query.order === "asc" ? "ASC" : "DESC"
  const end = slice(dialect, range)
  const conditions = [...conditionsOf(dialect, query), ...more]
  return {
    text:
      `SELECT ${selectMessage(dialect)} FROM sandglass_messages WHERE ${conditions.map(({ text }) => text).join(" AND ")} ` +
      `ORDER BY timestamp ${direction}, seq ${direction}${end.text}`,
    params: [...conditions.flatMap(({ params }) => params), ...end.params]
  }
}

/**
 * SQLite does not use an index for a comparison of pairs when one of them is the rowid, and would walk through all messages
 * of one time for each page that begins among them: there it takes two searches.
 */
export const historyQuery = (dialect: Dialect, query: MessageQuery): Query => {
  const { after, limit, offset } = query
  if (after === undefined) {
    return page(dialect, query, [], { limit, offset })
  }
  const further = query.order === "asc" ? ">" : "<"
  if (dialect.name === "postgres") {
    const beyond = { text: `(timestamp, seq) ${further} (?, ?)`, params: [after.timestamp, after.seq] }
    return page(dialect, query, [beyond], { limit, offset: 0 })
  }
  const half = (condition: Condition) => page(dialect, query, [condition], { limit, offset: 0 })
  const same = half({ text: `timestamp = ? AND seq ${further} ?`, params: [after.timestamp, after.seq] })
  const other = half({ text: `timestamp ${further} ?`, params: [after.timestamp] })
  const end = slice(dialect, { limit, offset: 0 })
  return {
    text: `SELECT * FROM (${same.text}) UNION ALL SELECT * FROM (${other.text})${end.text}`,
    params: [...same.params, ...other.params, ...end.params]
  }
}
