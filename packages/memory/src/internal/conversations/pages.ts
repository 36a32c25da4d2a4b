/**
 * A conversation as a stream of pages.
 */
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import type { ConversationMessage } from "../../Conversation.js"
import type { ConversationStoreError } from "../../ConversationError.js"
import type { ConversationStore, MessageQuery, StoredMessage } from "../../ConversationStore.js"
import { toMessage } from "./rows.js"

/** Pages start smaller and follow the size of the messages: one may be long. */
const firstPageSize = 100
const pageSize = 1000
const pageCharacters = 4 * 1024 * 1024

const nextPageSize = (rows: ReadonlyArray<StoredMessage>): number => {
  let characters = 0
  for (const { content, metadata, toolCalls } of rows) {
    characters += content.length + (toolCalls?.length ?? 0) + (metadata?.length ?? 0)
  }
  return Math.max(1, Math.min(pageSize, Math.floor(pageCharacters / (characters / rows.length + 1))))
}

interface State {
  /** What is left to ask for. */
  readonly query: MessageQuery
  readonly left: number
  readonly size: number
}

export const stream = (
  store: ConversationStore,
  query: MessageQuery
): Stream.Stream<ConversationMessage, ConversationStoreError> => {
  const start: State = { query, left: query.limit ?? Number.POSITIVE_INFINITY, size: firstPageSize }
  return start.left === 0
    ? Stream.empty
    : Stream.paginateChunkEffect(start, ({ left, query, size }) => {
        const limit = Math.min(size, left)
        return Effect.map(store.messages({ ...query, limit }), (rows) => {
          const last = rows[rows.length - 1]
          const rest = left - rows.length
          return [
            Chunk.unsafeFromArray(rows.map((row) => toMessage(row))),
            last === undefined || rows.length < limit || rest === 0
              ? Option.none<State>()
              : Option.some<State>({
                  query: { ...query, offset: 0, after: { timestamp: last.timestamp, seq: last.seq } },
                  left: rest,
                  size: nextPageSize(rows)
                })
          ]
        })
      })
}
