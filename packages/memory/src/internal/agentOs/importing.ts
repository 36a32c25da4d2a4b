/**
 * Page by page out of AgentOS's tables. A page of messages is stored at once; where that is not possible, one by one.
 */
import type { Param } from "@sandglass/core/SqlStore"
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import type { Problem } from "../../AgentOsImport.js"
import type { Conversation, ConversationMessage } from "../../Conversation.js"
import type { ConversationStoreError } from "../../ConversationError.js"
import type { Conversations } from "../../Conversations.js"
import type { InvalidInput } from "../../MemoryError.js"
import * as Rows from "./rows.js"

export const tablesText =
  "SELECT name FROM sqlite_master WHERE type = 'table' AND name IN ('conversations', 'messages')"

const pageSize = 200

type Read = (
  text: string,
  params: ReadonlyArray<Param>
) => Effect.Effect<ReadonlyArray<Rows.Row>, ConversationStoreError>

type Failure = InvalidInput | ConversationStoreError

interface Counts {
  conversations: number
  messages: number
  alreadyThere: number
}

interface Pending {
  readonly row: Rows.Row
  readonly message: ConversationMessage
}

/** Rows in the order in which they were stored. */
const pages = <E, R>(
  read: Read,
  text: string,
  each: (rows: ReadonlyArray<Rows.Row>) => Effect.Effect<void, E, R>
): Effect.Effect<void, E | ConversationStoreError, R> => {
  const after = (rowid: number): Effect.Effect<void, E | ConversationStoreError, R> =>
    Effect.flatMap(read(text, [rowid, pageSize]), (rows) => {
      const last = rows[rows.length - 1]
      const rest = last === undefined || rows.length < pageSize ? Effect.void : after(Rows.rowidOf(last))
      return Effect.zipRight(each(rows), rest)
    })
  return after(Number.MIN_SAFE_INTEGER)
}

const isSame = (a: unknown, b: unknown): boolean => Rows.canonical(a) === Rows.canonical(b)

/** Messages have moved `lastActivity` since. */
const isSameConversation = (stored: Conversation, { lastActivity: _, ...imported }: Conversation): boolean => {
  const { lastActivity: __, ...others } = stored
  return isSame(others, imported)
}

const taken = (what: string): string => `the store has another ${what} of this id`

export const run = <E, R>(
  conversations: Context.Tag.Service<Conversations>,
  read: Read,
  onProblem: (problem: Problem) => Effect.Effect<void, E, R>
): Effect.Effect<Counts, E | Failure, R> =>
  Effect.gen(function* () {
    const counts: Counts = { conversations: 0, messages: 0, alreadyThere: 0 }
    /** Conversations of the file that are not in the store. */
    const left = new Map<string, "conflict" | "invalid">()

    const count = (field: keyof Counts, more = 1) =>
      Effect.sync(() => {
        counts[field] += more
      })

    const problem = (table: Problem["table"], kind: Problem["kind"], row: Rows.Row, description: string) =>
      onProblem({ kind, table, id: Rows.textOf(row["id"]), description, row: Rows.withoutOurs(row) })

    const leave = (kind: "conflict" | "invalid", row: Rows.Row, description: string) => {
      left.set(Rows.textOf(row["id"]), kind)
      return problem("conversations", kind, row, description)
    }

    const importConversation = (row: Rows.Row): Effect.Effect<void, E | Failure, R> =>
      Either.match(Rows.toConversation(row), {
        onLeft: (description) => leave("invalid", row, description),
        onRight: (conversation) =>
          conversations.createConversation(conversation).pipe(
            Effect.zipRight(count("conversations")),
            Effect.catchTag("ConversationExists", () =>
              Effect.flatMap(conversations.getConversation(conversation.id), (stored) =>
                Option.exists(stored, (it) => isSameConversation(it, conversation))
                  ? count("alreadyThere")
                  : leave("conflict", row, taken("conversation"))
              )
            )
          )
      })

    const importMessage = ({ message, row }: Pending): Effect.Effect<void, E | Failure, R> =>
      Effect.flatMap(
        conversations.getMessage(message.id),
        Option.match({
          onSome: (stored) =>
            isSame(stored, message) ? count("alreadyThere") : problem("messages", "conflict", row, taken("message")),
          onNone: () =>
            conversations.storeMessage(message).pipe(
              Effect.zipRight(count("messages")),
              Effect.catchTags({
                MessageExists: () => problem("messages", "conflict", row, taken("message")),
                ConversationNotFound: () => problem("messages", "orphan", row, "its conversation was deleted meanwhile")
              })
            )
        })
      )

    const oneByOne = (pending: ReadonlyArray<Pending>) => () =>
      Effect.forEach(pending, importMessage, { discard: true })

    const importMessages = (rows: ReadonlyArray<Rows.Row>): Effect.Effect<void, E | Failure, R> =>
      Effect.gen(function* () {
        const pending: Array<Pending> = []
        for (const row of rows) {
          const conversationId = Rows.textOf(row["conversationId"])
          const kind = left.get(conversationId)
          const message = Rows.toMessage(row)
          if (Rows.isOrphan(row)) {
            yield* problem("messages", "orphan", row, `there is no conversation ${JSON.stringify(conversationId)}`)
          } else if (kind !== undefined) {
            yield* problem("messages", kind, row, `its conversation ${JSON.stringify(conversationId)} was not imported`)
          } else if (Either.isLeft(message)) {
            yield* problem("messages", "invalid", row, message.left)
          } else {
            pending.push({ row, message: message.right })
          }
        }
        yield* conversations
          .storeMessages(pending.map(({ message }) => message))
          .pipe(
            Effect.zipRight(count("messages", pending.length)),
            Effect.catchTags({ MessageExists: oneByOne(pending), ConversationNotFound: oneByOne(pending) })
          )
      })

    yield* pages(read, Rows.conversationsText, (rows) => Effect.forEach(rows, importConversation, { discard: true }))
    yield* pages(read, Rows.messagesText, importMessages)
    return counts
  })
