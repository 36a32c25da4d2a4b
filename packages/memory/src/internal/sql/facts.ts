/**
 * The tables of facts, and their rows.
 */
import * as StoredText from "@sandglass/core/StoredText"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { Fact } from "../../SemanticMemory.js"
import type { Run } from "../../SqlVectorIndex.js"
import { decodeObject } from "../json.js"
import type { Placed } from "../semantic/store.js"
import type { Dialect } from "./dialect.js"
import type { Table } from "./migration.js"

type Row = Readonly<Record<string, unknown>>

export const modelTable = (dialect: Dialect): Table => ({
  name: "sandglass_embedding_models",
  columns: `id ${dialect.serial}, name TEXT NOT NULL, dimensions INTEGER NOT NULL, UNIQUE (name, dimensions)`,
  owned: false,
  indexes: []
})

export const name = "sandglass_facts"

/** The vector comes last: SQLite reads a row from its beginning to the last column that is asked for. */
export const factTable = (dialect: Dialect): Table => ({
  name,
  columns:
    `seq ${dialect.serial}, id TEXT NOT NULL, resource_hash TEXT NOT NULL, team_id TEXT NOT NULL, ` +
    "resource_id TEXT NOT NULL, digest TEXT NOT NULL, model INTEGER NOT NULL, indexed INTEGER NOT NULL, " +
    "created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, source_sandbox_id TEXT, source_entry_index BIGINT, " +
    `source_digest TEXT, metadata TEXT, content TEXT NOT NULL, vector ${dialect.bytes} NOT NULL`,
  // Numbers of no pattern: trying to compress them costs time and gains nothing.
  tuning: "ALTER COLUMN vector SET STORAGE EXTERNAL",
  owned: true,
  indexes: [
    ["sandglass_facts_id_unique", "(id)"],
    ["sandglass_facts_digest_unique", "(resource_hash, digest)"],
    ["sandglass_facts_seq", "(resource_hash, seq)"],
    ["sandglass_facts_updated", "(resource_hash, updated_at, seq)"],
    ["sandglass_facts_model", "(resource_hash, model, indexed, seq)"]
  ]
})

export const insertColumns = [
  "id",
  "resource_hash",
  "team_id",
  "resource_id",
  "digest",
  "model",
  "indexed",
  "created_at",
  "updated_at",
  "source_sandbox_id",
  "source_entry_index",
  "source_digest",
  "metadata",
  "content",
  "vector"
] as const

/** What a fact consists of, but for its model and its content. */
const ownColumns =
  "seq, id, digest, created_at, updated_at, source_sandbox_id, source_entry_index, source_digest, metadata"

/** To select or to return, of a table by this name. */
export const columnsOf = (table: string): string =>
  ownColumns
    .split(", ")
    .map((column) => `${table}.${column}`)
    .join(", ")

const optional = (value: unknown): string | undefined =>
  value === null || value === undefined ? undefined : StoredText.decode(String(value))

export const toFact = (row: Row, content: string, model: Fact["model"]): Fact => {
  const metadata = row["metadata"] === null ? undefined : decodeObject(String(row["metadata"]))
  const sandboxId = optional(row["source_sandbox_id"])
  const sourceDigest = optional(row["source_digest"])
  return {
    id: String(row["id"]),
    content,
    ...(metadata !== undefined && { metadata }),
    ...(sandboxId !== undefined && {
      sourceRef: { sandboxId, entryIndex: Number(row["source_entry_index"]) },
      ...(sourceDigest !== undefined && { sourceDigest })
    }),
    createdAt: Number(row["created_at"]),
    updatedAt: Number(row["updated_at"]),
    model
  }
}

/** Of a row with its content and the columns of its model. */
export const toPlaced = (row: Row): Placed => ({
  seq: Number(row["seq"]),
  fact: toFact(row, StoredText.decode(String(row["content"])), {
    id: StoredText.decode(String(row["model_name"])),
    dimensions: Number(row["dimensions"])
  })
})

/** Statement texts stay the same from call to call: drivers keep prepared statements by their text. */
const batchSizes = [256, 64, 16, 4, 1] as const

/** Cuts a list into as few pieces as there are texts for. */
export const makeBatches = (textOf: (size: number) => string) => {
  const texts = new Map(batchSizes.map((size) => [size, textOf(size)]))
  return <A>(items: ReadonlyArray<A>): ReadonlyArray<{ readonly text: string; readonly items: ReadonlyArray<A> }> => {
    const batches: Array<{ readonly text: string; readonly items: ReadonlyArray<A> }> = []
    let from = 0
    for (const [size, text] of texts) {
      for (; items.length - from >= size; from += size) {
        batches.push({ text, items: items.slice(from, from + size) })
      }
    }
    return batches
  }
}

export const repeated = (group: string, size: number): string => Array.from({ length: size }, () => group).join(", ")

/** The number that stands for a model in the rows of its facts. */
export const findModel = (dialect: Dialect, run: Run, model: Fact["model"]) =>
  Effect.map(
    run(dialect.text("SELECT id FROM sandglass_embedding_models WHERE name = ? AND dimensions = ?"), [
      StoredText.encode(model.id),
      model.dimensions
    ]),
    ([row]) => (row === undefined ? Option.none() : Option.some(Number(row["id"])))
  )

/** Gives out a number where the model has none yet. */
export const addModel = (dialect: Dialect, run: Run, model: Fact["model"]) =>
  Effect.flatMap(
    findModel(dialect, run, model),
    Option.match({
      onSome: (number) => Effect.succeed(number),
      onNone: () =>
        Effect.map(
          run(dialect.text("INSERT INTO sandglass_embedding_models (name, dimensions) VALUES (?, ?) RETURNING id"), [
            StoredText.encode(model.id),
            model.dimensions
          ]),
          ([row]) => Number(row?.["id"])
        )
    })
  )
