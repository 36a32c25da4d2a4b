/**
 * The columns of the tables: what is selected, and what a row is made of. Postgres gives 64-bit integers as text.
 */
import type { Role } from "../../Conversation.js"
import type { ConversationRow, MessageRow, StoredMessage, UsageRow } from "../../ConversationStore.js"
import type { Dialect } from "../sql/dialect.js"

export type Row = Readonly<Record<string, unknown>>

/** JSON is written as text and read as text: what a driver makes of it is its own affair. */
const selected = ({ name }: Dialect, columns: ReadonlyArray<string>, documents: ReadonlyArray<string>): string =>
  [...columns, ...documents.map((column) => (name === "postgres" ? `${column}::text AS ${column}` : column))].join(", ")

export const conversationColumns = ["id", "user_id", "agent_id", "title", "created_at", "last_activity", "metadata"]

export const selectConversation = (dialect: Dialect): string =>
  selected(dialect, conversationColumns.slice(0, -1), ["metadata"])

export const messageColumns = [
  "id",
  "conversation_id",
  "role",
  "content",
  "timestamp",
  "model",
  "tool_call_id",
  "name",
  "prompt_tokens",
  "completion_tokens",
  "total_tokens",
  "cache_read_tokens",
  "cache_creation_tokens",
  "tool_calls",
  "metadata"
]

export const selectMessage = (dialect: Dialect): string =>
  selected(dialect, ["seq", ...messageColumns.slice(0, -2)], ["tool_calls", "metadata"])

export const conversationParams = (row: ConversationRow) => [
  row.id,
  row.userId,
  row.agentId,
  row.title,
  row.createdAt,
  row.lastActivity,
  row.metadata
]

/** Appends the values of `messageColumns`. */
export const pushMessageParams = (params: Array<unknown>, row: MessageRow): void => {
  params.push(
    row.id,
    row.conversationId,
    row.role,
    row.content,
    row.timestamp,
    row.model,
    row.toolCallId,
    row.name,
    row.promptTokens,
    row.completionTokens,
    row.totalTokens,
    row.cacheReadTokens,
    row.cacheCreationTokens,
    row.toolCalls,
    row.metadata
  )
}

const utf8 = new TextDecoder("utf-8", { ignoreBOM: true })

/** SQLite keeps values of any type in any column: what another program put there is made what it ought to be. */
const text = (value: unknown): string =>
  typeof value === "string" ? value : ArrayBuffer.isView(value) ? utf8.decode(value) : String(value)

const optionalText = (value: unknown): string | null => (value === null || value === undefined ? null : text(value))

const number = (value: unknown): number => {
  const made = Number(value)
  return Number.isFinite(made) ? made : 0
}

const optionalNumber = (value: unknown): number | null => (value === null || value === undefined ? null : number(value))

export const toConversationRow = (row: Row): ConversationRow => ({
  id: text(row["id"]),
  userId: text(row["user_id"]),
  agentId: optionalText(row["agent_id"]),
  title: optionalText(row["title"]),
  createdAt: number(row["created_at"]),
  lastActivity: number(row["last_activity"]),
  metadata: optionalText(row["metadata"])
})

export const toStoredMessage = (row: Row): StoredMessage => ({
  seq: number(row["seq"]),
  id: text(row["id"]),
  conversationId: text(row["conversation_id"]),
  // The table allows no other.
  role: row["role"] as Role,
  content: text(row["content"]),
  timestamp: number(row["timestamp"]),
  model: optionalText(row["model"]),
  toolCallId: optionalText(row["tool_call_id"]),
  name: optionalText(row["name"]),
  promptTokens: optionalNumber(row["prompt_tokens"]),
  completionTokens: optionalNumber(row["completion_tokens"]),
  totalTokens: optionalNumber(row["total_tokens"]),
  cacheReadTokens: optionalNumber(row["cache_read_tokens"]),
  cacheCreationTokens: optionalNumber(row["cache_creation_tokens"]),
  toolCalls: optionalText(row["tool_calls"]),
  metadata: optionalText(row["metadata"])
})

const sums = {
  promptTokens: "prompt_tokens",
  completionTokens: "completion_tokens",
  totalTokens: "total_tokens",
  cacheReadTokens: "cache_read_tokens",
  cacheCreationTokens: "cache_creation_tokens"
} as const

export const selectUsage = Object.values(sums)
  .map((column) => `sum(${column}) AS ${column}`)
  .join(", ")

export const toUsageRow = (row: Row): UsageRow => ({
  promptTokens: optionalNumber(row[sums.promptTokens]) ?? 0,
  completionTokens: optionalNumber(row[sums.completionTokens]) ?? 0,
  totalTokens: optionalNumber(row[sums.totalTokens]) ?? 0,
  cacheReadTokens: optionalNumber(row[sums.cacheReadTokens]),
  cacheCreationTokens: optionalNumber(row[sums.cacheCreationTokens])
})

/** The same in two halves, for SQLite, where a sum beyond 64 bits is an error. */
export const selectHalvedUsage = Object.values(sums)
  .map((column) => `sum(${column} >> 32) AS ${column}_high, sum(${column} & 4294967295) AS ${column}_low`)
  .join(", ")

export const toWholeUsage = (row: Row): Row =>
  Object.fromEntries(
    Object.values(sums).map((column) => {
      const high = optionalNumber(row[`${column}_high`])
      return [column, high === null ? null : Number((BigInt(high) << 32n) + BigInt(number(row[`${column}_low`])))]
    })
  )
