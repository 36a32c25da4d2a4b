/**
 * From stored rows to what a ledger answers.
 */
import * as Option from "effect/Option"
import type { Checkpoint, EnvironmentRecord, EventInput, SandboxDetails } from "../../Ledger.js"
import type { Cursor, Json, LedgerEntry } from "../../LedgerEvent.js"
import type { Row, SessionRow } from "../../LedgerStore.js"
import { isJsonObject } from "../json.js"
import * as Codec from "./codec.js"

export const cursorOf = ({ id, ts }: Cursor): Cursor => ({ ts, id })

/** Absent fields are left out. Assigned one by one, because this runs for every row. */
const makeEntry = (
  id: number,
  sandboxId: string,
  name: string,
  stepIdx: number,
  branch: number | null | undefined,
  event: string,
  payload: Json | undefined,
  error: string | null | undefined,
  ts: number
): LedgerEntry => {
  const entry: { -readonly [K in keyof LedgerEntry]: LedgerEntry[K] } = { id, sandboxId, name, stepIdx, event, ts }
  if (branch !== undefined && branch !== null) {
    entry.branch = branch
  }
  if (payload !== undefined) {
    entry.payload = payload
  }
  if (error !== undefined && error !== null) {
    entry.error = error
  }
  return entry
}

export const toEntry = (input: EventInput, payload: Json | undefined, { id, ts }: Cursor): LedgerEntry =>
  makeEntry(id, input.sandboxId, input.name, input.stepIdx ?? -1, input.branch, input.event, payload, input.error, ts)

export const decodeRow = (row: Row): LedgerEntry =>
  makeEntry(
    row.id,
    Codec.decodeText(row.sandboxId),
    Codec.decodeText(row.name),
    row.stepIdx,
    row.branch,
    Codec.decodeText(row.event),
    row.payload === null ? undefined : Codec.decodePayload(row.payload),
    row.error === null ? undefined : Codec.decodeText(row.error),
    row.ts
  )

/** The fields of these names that hold text. */
const textFields = <K extends string>(
  payload: { readonly [key: string]: Json },
  names: ReadonlyArray<K>
): { readonly [P in K]?: string } => {
  const fields: { [P in K]?: string } = {}
  for (const name of names) {
    const value = payload[name]
    if (typeof value === "string") {
      fields[name] = value
    }
  }
  return fields
}

const detailNames = [
  "runId",
  "resourceId",
  "teamId",
  "parentSandboxId",
  "resumedFrom",
  "forkedFrom",
  "fromSnapshot",
  "fromEnvironment",
  "image",
  "snapshotId"
] as const

export const toDetails = (session: SessionRow): SandboxDetails => {
  const entry = decodeRow(session.created)
  const payload = isJsonObject(entry.payload) ? entry.payload : {}
  const resources = payload["resources"]
  return {
    sandboxId: entry.sandboxId,
    name: entry.name,
    status: session.status,
    ...textFields(payload, detailNames),
    ...(isJsonObject(resources)
      ? {
          resources: Object.fromEntries(
            Object.entries(resources).flatMap(([key, value]) =>
              typeof value === "string" || typeof value === "number" ? [[key, String(value)]] : []
            )
          )
        }
      : undefined),
    createdAt: entry.ts,
    ...(session.closedAt === null ? undefined : { closedAt: session.closedAt }),
    cursor: cursorOf(entry),
    payload
  }
}

export const toCheckpoint = (entry: LedgerEntry): Option.Option<Checkpoint> => {
  const payload = isJsonObject(entry.payload) ? entry.payload : {}
  const { name: tag, snapshotId } = payload
  return typeof snapshotId === "string"
    ? Option.some({
        sandboxId: entry.sandboxId,
        name: entry.name,
        snapshotId,
        ...(typeof tag === "string" ? { tag } : undefined),
        cursor: cursorOf(entry),
        payload
      })
    : Option.none()
}

export const decodeEnvironment = (record: EnvironmentRecord): EnvironmentRecord => ({
  name: Codec.decodeText(record.name),
  snapshotId: Codec.decodeText(record.snapshotId),
  image: Codec.decodeText(record.image),
  builtAt: record.builtAt
})

export const encodeEnvironment = (record: EnvironmentRecord): EnvironmentRecord => ({
  name: Codec.encodeText(record.name),
  snapshotId: Codec.encodeText(record.snapshotId),
  image: Codec.encodeText(record.image),
  builtAt: record.builtAt
})
