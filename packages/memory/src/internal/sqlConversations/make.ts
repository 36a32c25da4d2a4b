/**
 * A store in a SQL database.
 */
import type { SqlStore } from "@sandglass/core/SqlStore"
import { execute } from "@sandglass/core/SqlStore"
import * as Arr from "effect/Array"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { ConversationStoreError } from "../../ConversationError.js"
import { ConversationExists } from "../../ConversationError.js"
import type { ConversationChanges, ConversationStore } from "../../ConversationStore.js"
import type { Dialect } from "../sql/dialect.js"
import type { Row } from "./columns.js"
import {
  conversationColumns,
  conversationParams,
  selectConversation,
  selectHalvedUsage,
  selectMessage,
  selectUsage,
  toConversationRow,
  toStoredMessage,
  toUsageRow,
  toWholeUsage
} from "./columns.js"
import { historyQuery, slice } from "./history.js"
import { makeInsert } from "./insert.js"
import * as Remove from "./remove.js"

/** The column of each field that can be changed, in the order in which they stand in the statement. */
const changeable = {
  userId: "user_id",
  agentId: "agent_id",
  title: "title",
  createdAt: "created_at",
  lastActivity: "last_activity",
  metadata: "metadata"
} as const

const fields = Object.keys(changeable) as ReadonlyArray<keyof ConversationChanges & keyof typeof changeable>

export const make = (dialect: Dialect, { read, write }: SqlStore<ConversationStoreError>): ConversationStore => {
  const isPostgres = dialect.name === "postgres"
  const insertMessages = makeInsert(dialect)
  const { removeConversation, removeMessages } = isPostgres ? Remove.postgres : Remove.sqlite
  const conversation = selectConversation(dialect)
  const document = isPostgres ? "?::jsonb" : "?"

  const insertConversationText = dialect.text(
    `INSERT INTO sandglass_conversations (${conversationColumns.join(", ")}) VALUES (?, ?, ?, ?, ?, ?, ${document}) ` +
      "ON CONFLICT (id) DO NOTHING RETURNING seq"
  )
  const conversationText = dialect.text(`SELECT ${conversation} FROM sandglass_conversations WHERE id = ?`)
  const messageText = dialect.text(`SELECT ${selectMessage(dialect)} FROM sandglass_messages WHERE id = ?`)
  const deleteMessageText = dialect.text("DELETE FROM sandglass_messages WHERE id = ? RETURNING seq")
  const countText = dialect.text("SELECT count(*) AS count FROM sandglass_messages WHERE conversation_id = ?")
  const usageText = (sums: string) =>
    dialect.text(`SELECT ${sums} FROM sandglass_messages WHERE conversation_id = ? AND total_tokens IS NOT NULL`)

  return {
    restrictedJson: isPostgres,
    insertConversation: (row) =>
      write((connection) =>
        Effect.flatMap(execute(connection, insertConversationText, conversationParams(row)), (inserted) =>
          inserted.length > 0 ? Effect.void : Effect.fail(new ConversationExists({ conversationId: row.id }))
        )
      ),
    conversation: (id) =>
      Effect.map(read<Row>(conversationText, [id]), (rows) => Option.map(Arr.head(rows), toConversationRow)),
    updateConversation: (id, changes) => {
      const changed = fields.filter((field) => changes[field] !== undefined)
      const assignments = changed.map((field) => `${changeable[field]} = ${field === "metadata" ? document : "?"}`)
      const text = dialect.text(
        `UPDATE sandglass_conversations SET ${assignments.join(", ")} WHERE id = ? RETURNING ${conversation}`
      )
      return write((connection) =>
        Effect.map(execute(connection, text, [...changed.map((field) => changes[field]), id]), (rows) =>
          Option.map(Arr.head(rows), toConversationRow)
        )
      )
    },
    deleteConversation: (id) => write((connection) => removeConversation(connection, id)),
    conversations: (query) => {
      const { agentId, userId } = query
      const end = slice(dialect, query)
      return Effect.map(
        read<Row>(
          dialect.text(
            `SELECT ${conversation} FROM sandglass_conversations WHERE user_id = ?` +
              `${agentId === undefined ? "" : " AND agent_id = ?"} ` +
              `ORDER BY last_activity DESC, created_at DESC, seq DESC${end.text}`
          ),
          [userId, ...(agentId === undefined ? [] : [agentId]), ...end.params]
        ),
        Arr.map(toConversationRow)
      )
    },
    insertMessages: (rows) => write((connection) => insertMessages(connection, rows)),
    message: (id) => Effect.map(read<Row>(messageText, [id]), (rows) => Option.map(Arr.head(rows), toStoredMessage)),
    messages: (query) => {
      const { params, text } = historyQuery(dialect, query)
      return Effect.map(read<Row>(dialect.text(text), params), Arr.map(toStoredMessage))
    },
    deleteMessage: (id) =>
      write((connection) => Effect.map(execute(connection, deleteMessageText, [id]), (rows) => rows.length > 0)),
    deleteMessages: (conversationId) => write((connection) => removeMessages(connection, conversationId)),
    countMessages: (conversationId) =>
      Effect.map(read<Row>(countText, [conversationId]), ([row]) => Number(row?.["count"] ?? 0)),
    usage: (conversationId) =>
      read<Row>(usageText(selectUsage), [conversationId]).pipe(
        Effect.catchIf(
          ({ reason }) => !isPostgres && reason === "Unknown",
          () => Effect.map(read<Row>(usageText(selectHalvedUsage), [conversationId]), Arr.map(toWholeUsage))
        ),
        Effect.map(([row]) => toUsageRow(row ?? {}))
      )
  }
}
