/**
 * Deleting, without a moment in which messages have no conversation.
 */
import type { Connection } from "@effect/sql/SqlConnection"
import type { SqlFailure } from "@sandglass/core/SqlStore"
import { execute } from "@sandglass/core/SqlStore"
import * as Effect from "effect/Effect"

const piece = 5_000

/** In pieces: the driver is synchronous, and other fibers get their turn between them. */
const removeSqlite = (connection: Connection, conversationId: string): Effect.Effect<number, SqlFailure> =>
  Effect.gen(function* () {
    let removed = 0
    for (let count = piece; count === piece; ) {
      yield* execute(
        connection,
        "DELETE FROM sandglass_messages WHERE seq IN (SELECT seq FROM sandglass_messages WHERE conversation_id = ? LIMIT ?)",
        [conversationId, piece]
      )
      const [row] = yield* execute(connection, "SELECT changes() AS count")
      count = Number(row?.["count"])
      removed += count
      yield* Effect.yieldNow()
    }
    return removed
  })

const removePostgres = (connection: Connection, conversationId: string): Effect.Effect<number, SqlFailure> =>
  Effect.map(
    execute(
      connection,
      "WITH removed AS (DELETE FROM sandglass_messages WHERE conversation_id = $1 RETURNING 1) " +
        "SELECT count(*) AS count FROM removed",
      [conversationId]
    ),
    ([row]) => Number(row?.["count"])
  )

const removed = (rows: ReadonlyArray<unknown>): boolean => rows.length > 0

export const sqlite = {
  removeMessages: removeSqlite,
  /** Foreign keys may be switched off, so nothing relies on them. */
  removeConversation: (connection: Connection, id: string): Effect.Effect<boolean, SqlFailure> =>
    Effect.zipRight(
      removeSqlite(connection, id),
      Effect.map(execute(connection, "DELETE FROM sandglass_conversations WHERE id = ? RETURNING seq", [id]), removed)
    )
}

export const postgres = {
  removeMessages: removePostgres,
  /** Whoever stores a message holds its conversation: this waits, and then takes that message along. */
  removeConversation: (connection: Connection, id: string): Effect.Effect<boolean, SqlFailure> =>
    Effect.map(execute(connection, "DELETE FROM sandglass_conversations WHERE id = $1 RETURNING seq", [id]), removed)
}
