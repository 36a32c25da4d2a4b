/**
 * Storing messages, with few statements.
 */
import type { Connection } from "@effect/sql/SqlConnection"
import type { SqlFailure } from "@sandglass/core/SqlStore"
import { execute } from "@sandglass/core/SqlStore"
import type { NonEmptyReadonlyArray } from "effect/Array"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { ConversationNotFound, MessageExists } from "../../ConversationError.js"
import type { MessageRow } from "../../ConversationStore.js"
import type { Dialect } from "../sql/dialect.js"
import { messageColumns, pushMessageParams } from "./columns.js"

/** Statement texts stay the same from call to call: drivers keep prepared statements by their text. */
const batchSizes = [256, 64, 16, 4, 1] as const

/** So many of the rows, from a position on. */
interface Batch {
  readonly from: number
  readonly size: number
  readonly text: string
}

const insertText = (dialect: Dialect, size: number): string => {
  const values =
    dialect.name === "postgres"
      ? messageColumns.map((column) => (column === "tool_calls" || column === "metadata" ? "?::jsonb" : "?"))
      : messageColumns.map(() => "?")
  const row = `(${values.join(", ")})`
  return dialect.text(
    `INSERT INTO sandglass_messages (${messageColumns.join(", ")}) VALUES ${Array.from({ length: size }, () => row).join(", ")}` +
      // An error would be the end of the transaction.
      (dialect.name === "postgres" ? " ON CONFLICT (id) DO NOTHING RETURNING id" : "")
  )
}

const idsOf = (rows: ReadonlyArray<{ readonly id?: unknown }>): ReadonlySet<unknown> =>
  new Set(rows.map(({ id }) => id))

const paramsOf = (rows: ReadonlyArray<MessageRow>, { from, size }: Batch): ReadonlyArray<unknown> => {
  const params: Array<unknown> = []
  for (const row of from === 0 && size === rows.length ? rows : rows.slice(from, from + size)) {
    pushMessageParams(params, row)
  }
  return params
}

/** The first of a batch whose id was taken before, or by an earlier row. */
const firstTaken = (
  rows: ReadonlyArray<MessageRow>,
  { from, size }: Batch,
  isTaken: (id: string) => boolean
): Option.Option<MessageExists> => {
  const seen = new Set(rows.slice(0, from).map(({ id }) => id))
  for (const { id } of rows.slice(from, from + size)) {
    if (seen.has(id) || isTaken(id)) {
      return Option.some(new MessageExists({ messageId: id }))
    }
    seen.add(id)
  }
  return Option.none()
}

/** Conversations are locked in the order of their ids, so that two who store do not wait for each other. */
const latestOf = (rows: ReadonlyArray<MessageRow>): ReadonlyArray<readonly [id: string, timestamp: number]> => {
  const latest = new Map<string, number>()
  for (const { conversationId, timestamp } of rows) {
    latest.set(conversationId, Math.max(latest.get(conversationId) ?? Number.NEGATIVE_INFINITY, timestamp))
  }
  return Array.from(latest).sort(([a], [b]) => (a < b ? -1 : 1))
}

export const makeInsert = (dialect: Dialect) => {
  const texts = new Map(batchSizes.map((size) => [size, insertText(dialect, size)]))
  const touchText = dialect.text(
    `UPDATE sandglass_conversations SET last_activity = ${dialect.name === "postgres" ? "greatest" : "max"}(last_activity, ?) ` +
      "WHERE id = ? RETURNING seq"
  )
  const takenText = dialect.text(`SELECT id FROM sandglass_messages WHERE ${dialect.inTexts("id")}`)

  const batchesOf = (rows: ReadonlyArray<MessageRow>): ReadonlyArray<Batch> => {
    const batches: Array<Batch> = []
    let from = 0
    for (const [size, text] of texts) {
      for (; rows.length - from >= size; from += size) {
        batches.push({ from, size, text })
      }
    }
    return batches
  }

  /** Moves `last_activity`; holds the conversations until the end of the transaction. */
  const touch = (connection: Connection, rows: NonEmptyReadonlyArray<MessageRow>) => {
    const latest = latestOf(rows)
    const missing = new Set<string>()
    return Effect.flatMap(
      Effect.forEach(
        latest,
        ([id, timestamp]) =>
          Effect.map(execute(connection, touchText, [timestamp, id]), (touched) => {
            if (touched.length === 0) {
              missing.add(id)
            }
          }),
        { discard: true }
      ),
      () => {
        const row = missing.size === 0 ? undefined : rows.find(({ conversationId }) => missing.has(conversationId))
        return row === undefined
          ? Effect.void
          : Effect.fail(new ConversationNotFound({ conversationId: row.conversationId }))
      }
    )
  }

  type Insert = (
    connection: Connection,
    rows: ReadonlyArray<MessageRow>,
    batch: Batch
  ) => Effect.Effect<void, SqlFailure | MessageExists>

  const insertPostgres: Insert = (connection, rows, batch) =>
    Effect.flatMap(execute(connection, batch.text, paramsOf(rows, batch)), (inserted) => {
      if (inserted.length === batch.size) {
        return Effect.void
      }
      const ids = idsOf(inserted)
      return Option.match(
        firstTaken(rows, batch, (id) => !ids.has(id)),
        { onNone: () => Effect.void, onSome: Effect.fail }
      )
    })

  /** A statement that fails has written nothing, and the transaction goes on. */
  const insertSqlite: Insert = (connection, rows, batch) =>
    Effect.catchIf(
      Effect.asVoid(execute(connection, batch.text, paramsOf(rows, batch))),
      ({ reason }) => reason === "Constraint",
      (failure) => {
        const ids = rows.slice(batch.from, batch.from + batch.size).map(({ id }) => id)
        return Effect.flatMap(execute(connection, takenText, [JSON.stringify(ids)]), (rowsOfThem) => {
          const taken = idsOf(rowsOfThem)
          return Option.match(
            firstTaken(rows, batch, (id) => taken.has(id)),
            { onNone: () => Effect.fail<SqlFailure | MessageExists>(failure), onSome: Effect.fail }
          )
        })
      }
    )

  /** The driver of SQLite is synchronous: other fibers get their turn between large batches. */
  const insert: Insert =
    dialect.name === "postgres"
      ? insertPostgres
      : (connection, rows, batch) =>
          batch.from === 0
            ? insertSqlite(connection, rows, batch)
            : Effect.zipRight(
                batch.size === batchSizes[0] ? Effect.yieldNow() : Effect.void,
                insertSqlite(connection, rows, batch)
              )

  return (connection: Connection, rows: NonEmptyReadonlyArray<MessageRow>) =>
    Effect.zipRight(
      touch(connection, rows),
      Effect.forEach(batchesOf(rows), (batch) => insert(connection, rows, batch), { discard: true })
    )
}
