/**
 * The rows of AgentOS's tables.
 */
import * as Either from "effect/Either"
import type { Conversation, ConversationMessage } from "../../Conversation.js"
import * as Check from "../conversations/check.js"

export type Row = Readonly<Record<string, unknown>>

const rowid = "sandglass_rowid"
const parent = "sandglass_parent"

export const conversationsText = `SELECT rowid AS ${rowid}, * FROM conversations WHERE rowid > ? ORDER BY rowid LIMIT ?`

/** Whatever columns there are: a file may be older than the last two. */
export const messagesText =
  `SELECT messages.rowid AS ${rowid}, conversations.id AS ${parent}, messages.* FROM messages ` +
  "LEFT JOIN conversations ON conversations.id = messages.conversationId " +
  "WHERE messages.rowid > ? ORDER BY messages.rowid LIMIT ?"

export const rowidOf = (row: Row): number => Number(row[rowid])

export const isOrphan = (row: Row): boolean => row[parent] === null

export const withoutOurs = ({ [rowid]: _, [parent]: __, ...row }: Row): Row => row

export const textOf = (value: unknown): string => (value === null || value === undefined ? "" : String(value))

const optional = (value: unknown): unknown => value ?? undefined

/** JSON in a text column; what was not reported is absent there. */
const document = (value: unknown, name: string): unknown => {
  if (typeof value !== "string") {
    return optional(value)
  }
  try {
    return JSON.parse(value) ?? undefined
  } catch {
    throw new Check.Refusal(`${name} is no JSON`)
  }
}

const usage = (row: Row): unknown => {
  const { cacheCreationTokens, cacheReadTokens, completionTokens, promptTokens, totalTokens } = row
  const counts = [promptTokens, completionTokens, totalTokens, cacheReadTokens, cacheCreationTokens]
  return counts.every((count) => count === null || count === undefined)
    ? undefined
    : {
        // A count of 0 is stored as none.
        promptTokens: promptTokens ?? 0,
        completionTokens: completionTokens ?? 0,
        totalTokens: totalTokens ?? 0,
        cacheReadTokens: optional(cacheReadTokens),
        cacheCreationTokens: optional(cacheCreationTokens)
      }
}

const told = <A>(check: () => A): Either.Either<A, string> =>
  Either.mapLeft(Check.checked(check), ({ description }) => description)

export const toConversation = (row: Row): Either.Either<Conversation, string> =>
  told(
    () =>
      Check.conversation(
        {
          id: row["id"],
          userId: row["userId"],
          agentId: optional(row["agentId"]),
          title: optional(row["title"]),
          createdAt: row["createdAt"],
          lastActivity: row["lastActivity"],
          metadata: document(row["metadata"], "metadata")
        },
        false
      ).value
  )

export const toMessage = (row: Row): Either.Either<ConversationMessage, string> =>
  told(
    () =>
      Check.message(
        {
          id: row["id"],
          conversationId: row["conversationId"],
          role: row["role"],
          content: row["content"],
          timestamp: row["timestamp"],
          model: optional(row["model"]),
          usage: usage(row),
          toolCalls: document(row["toolCalls"], "toolCalls"),
          toolCallId: optional(row["toolCallId"]),
          name: optional(row["name"]),
          metadata: document(row["metadata"], "metadata")
        },
        false
      ).value
  )

/** One text for equal values, whatever the order of their fields. */
export const canonical = (value: unknown): string =>
  JSON.stringify(value, (_, part: unknown) =>
    typeof part === "object" && part !== null && !Array.isArray(part)
      ? Object.fromEntries(Object.entries(part).toSorted(([a], [b]) => (a < b ? -1 : 1)))
      : part
  )
