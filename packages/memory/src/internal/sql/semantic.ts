/**
 * Facts in a table.
 */

import type { SqlFailure } from "@sandglass/core/SqlStore"
import * as StoredText from "@sandglass/core/StoredText"
import * as Arr from "effect/Array"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { ModelRef } from "../../MemoryError.js"
import { MemoryStoreError } from "../../MemoryError.js"
import type { Fact } from "../../SemanticMemory.js"
import type { FactVector, ModelIndex, Run, SqlVectorIndex } from "../../SqlVectorIndex.js"
import { notEmpty } from "../checks.js"
import { Best } from "../semantic/ranking.js"
import type { Draft, Put, Scored, SemanticStore } from "../semantic/store.js"
import { fromBytes, similarity, toBytes } from "../vectors.js"
import type { Database } from "./database.js"
import * as Facts from "./facts.js"
import * as Owner from "./owner.js"

/** Vectors that are compared, or put into an index, before other fibers get their turn. */
const scanRows = 1_000
/** Vectors that a copy puts into the index at once. */
const copiedRows = 10_000
const removeRows = 5_000

const { name } = Facts

/** Facts that were known are not there any more. */
class Missing {
  constructor(readonly digests: ReadonlyArray<string>) {}
}

const named = (operation: string) => `SemanticMemory.${operation}`

export interface Indexing {
  readonly provider: SqlVectorIndex
  readonly index: ModelIndex
}

export const make = (
  { dialect, reading, transaction, writing }: Database,
  present: ModelRef & { readonly number: number },
  indexing: Option.Option<Indexing>
): SemanticStore => {
  const { text } = dialect
  const provider = Option.getOrUndefined(Option.map(indexing, (_) => _.provider))
  const index = Option.getOrUndefined(Option.map(indexing, (_) => _.index))

  const joined =
    `SELECT ${Facts.columnsOf("facts")}, facts.content, models.name AS model_name, models.dimensions ` +
    `FROM ${name} AS facts JOIN sandglass_embedding_models AS models ON models.id = facts.model`
  const mine = "resource_hash = ?"
  const ofModel = `${mine} AND model = ? AND indexed = ?`
  const merge = (column: string) => `${column} = coalesce(excluded.${column}, ${name}.${column})`
  const mergeSource = (column: string) =>
    `${column} = CASE WHEN excluded.source_sandbox_id IS NULL THEN ${name}.${column} ELSE excluded.${column} END`
  const later = (column: string, other: string) =>
    `${column} = CASE WHEN ${other} > ${name}.${column} THEN ${other} ELSE ${name}.${column} END`
  const keep = (column: string) =>
    `${column} = CASE WHEN ${name}.model = excluded.model THEN ${name}.${column} ELSE excluded.${column} END`
  const texts = {
    known: text(`SELECT digest FROM ${name} WHERE ${mine} AND model = ? AND ${dialect.inTexts("digest")}`),
    otherModels: text(
      "SELECT name, dimensions FROM sandglass_embedding_models AS models WHERE id <> ? AND " +
        `EXISTS (SELECT 1 FROM ${name} WHERE ${mine} AND model = models.id) ORDER BY id`
    ),
    scan: text(`SELECT seq, vector FROM ${name} WHERE ${ofModel} AND seq > ? ORDER BY seq LIMIT ${scanRows}`),
    load: text(`${joined} WHERE facts.${mine} AND ${dialect.inIntegers("facts.seq")}`),
    vectors: text(`SELECT seq, vector FROM ${name} WHERE ${ofModel} AND ${dialect.inIntegers("seq")}`),
    countIndexed: text(`SELECT count(*) AS count FROM ${name} WHERE ${ofModel}`),
    outside: text(
      `SELECT count(*) AS count FROM (SELECT 1 FROM ${name} WHERE ${ofModel} LIMIT ${provider?.minimum ?? 1}) AS outside`
    ),
    setIndexed: text(`UPDATE ${name} SET indexed = 1 WHERE ${mine} AND ${dialect.inIntegers("seq")}`),
    outdatedBefore: text(`SELECT seq, content FROM ${name} WHERE ${mine} AND model < ? LIMIT ?`),
    outdatedAfter: text(`SELECT seq, content FROM ${name} WHERE ${mine} AND model > ? LIMIT ?`),
    indexedAmong: text(`SELECT seq, model FROM ${name} WHERE ${mine} AND indexed = 1 AND ${dialect.inIntegers("seq")}`),
    page: text(`${joined} WHERE facts.${mine} AND facts.seq > ? ORDER BY facts.seq LIMIT ?`),
    oldest: text(
      `${joined} WHERE facts.${mine} AND facts.updated_at < ? AND facts.updated_at >= ? AND ` +
        "(facts.updated_at > ? OR facts.seq > ?) ORDER BY facts.updated_at, facts.seq LIMIT ?"
    ),
    count: text(`SELECT count(*) AS count FROM ${name} WHERE ${mine}`),
    any: text(`SELECT 1 AS found FROM ${name} WHERE ${mine} LIMIT 1`),
    forget: text(`DELETE FROM ${name} WHERE ${mine} AND ${dialect.inTexts("id")} RETURNING seq, model, indexed`),
    clear: text(
      `DELETE FROM ${name} WHERE ${mine} AND seq <= (SELECT max(seq) FROM (SELECT seq FROM ${name} WHERE ${mine} ` +
        `ORDER BY seq LIMIT ${removeRows}) AS these) RETURNING seq, model, indexed`
    ),
    copy: text(
      `INSERT INTO ${name} (${Facts.insertColumns.join(", ")}) SELECT CAST(? AS TEXT) || '-' || seq, CAST(? AS TEXT), ` +
        "CAST(? AS TEXT), CAST(? AS TEXT), digest, model, 0, created_at, updated_at, source_sandbox_id, " +
        `source_entry_index, source_digest, metadata, content, vector FROM ${name} WHERE ${mine} ORDER BY seq`
    )
  }

  const upserts = Facts.makeBatches((size) =>
    text(
      `INSERT INTO ${name} (${Facts.insertColumns.join(", ")}) VALUES ` +
        Facts.repeated(`(${Facts.insertColumns.map(() => "?").join(", ")})`, size) +
        ` ON CONFLICT (resource_hash, digest) DO UPDATE SET ${[
          merge("metadata"),
          ...["source_entry_index", "source_digest", "source_sandbox_id"].map(mergeSource),
          later("updated_at", "excluded.updated_at"),
          // The vector of the same model is as good as the new one, and may be in an index.
          keep("vector"),
          keep("indexed"),
          "model = excluded.model"
        ].join(", ")} RETURNING indexed, ${Facts.columnsOf(name)}`
    )
  )

  const refreshes = Facts.makeBatches((size) =>
    text(
      "WITH given (digest, metadata, source_sandbox_id, source_entry_index, source_digest, updated_at) AS (VALUES " +
        Facts.repeated(
          "(CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS BIGINT))",
          size
        ) +
        `) UPDATE ${name} SET metadata = coalesce(given.metadata, ${name}.metadata), ${[
          "source_entry_index",
          "source_digest",
          "source_sandbox_id"
        ]
          .map(
            (column) =>
              `${column} = CASE WHEN given.source_sandbox_id IS NULL THEN ${name}.${column} ELSE given.${column} END`
          )
          .join(", ")}, ${later("updated_at", "given.updated_at")} FROM given WHERE ${name}.${mine} AND ` +
        `${name}.model = ? AND ${name}.digest = given.digest RETURNING ${Facts.columnsOf(name)}`
    )
  )

  const revectors = Facts.makeBatches((size) =>
    text(
      `WITH given (seq, vector) AS (VALUES ${Facts.repeated(`(CAST(? AS BIGINT), CAST(? AS ${dialect.bytes}))`, size)}) ` +
        `UPDATE ${name} SET vector = given.vector, model = ?, indexed = 0 FROM given ` +
        `WHERE ${name}.${mine} AND ${name}.seq = given.seq RETURNING ${name}.seq`
    )
  )

  const corrupt = (seq: unknown) =>
    new MemoryStoreError({
      method: named("recall"),
      reason: "Corrupt",
      description: `the vector of fact ${String(seq)} is not one of ${present.dimensions} numbers`
    })

  const vectorsOf = (rows: ReadonlyArray<Readonly<Record<string, unknown>>>) =>
    Effect.forEach(rows, ({ seq, vector }) => {
      const decoded = fromBytes(vector, present.dimensions)
      return decoded === undefined
        ? Effect.fail(corrupt(seq))
        : Effect.succeed<FactVector>({ seq: Number(seq), vector: decoded })
    })

  /** The vectors of a resource that are, or are not, in the index. */
  const scan = Effect.fnUntraced(function* (
    run: Run,
    owner: Owner.Owner,
    indexed: 0 | 1,
    visit: (row: FactVector) => void
  ): Effect.fn.Return<void, SqlFailure | MemoryStoreError> {
    for (let after = 0, size = scanRows; size === scanRows; ) {
      const rows = yield* run(texts.scan, [owner.hash, present.number, indexed, after])
      size = rows.length
      for (const row of yield* vectorsOf(rows)) {
        visit(row)
        after = row.seq
      }
      // The driver of SQLite is synchronous: other fibers get their turn between the pages.
      yield* Effect.yieldNow()
    }
  })

  /** Puts so much of what is outside the index into it; returns how much that was. */
  const fill = Effect.fnUntraced(function* (run: Run, owner: Owner.Owner, to: ModelIndex, limit: number) {
    let filled = 0
    for (let after = 0, size = scanRows; size === scanRows && filled < limit; filled += size) {
      const rows = yield* run(texts.scan, [owner.hash, present.number, 0, after])
      size = rows.length
      const vectors = yield* vectorsOf(rows)
      if (vectors.length > 0) {
        const seqs = vectors.map(({ seq }) => seq)
        yield* to.add(run, owner, vectors)
        yield* run(texts.setIndexed, [owner.hash, JSON.stringify(seqs)])
        after = seqs[seqs.length - 1] ?? after
      }
      yield* Effect.yieldNow()
    }
    return filled
  })

  /** The same if it has become much. What others left there is no reason to keep anybody waiting for long. */
  const fillIfMuch = Effect.fnUntraced(function* (run: Run, owner: Owner.Owner, limit = scanRows) {
    if (index === undefined || provider === undefined) {
      return 0
    }
    const [row] = yield* run(texts.outside, [owner.hash, present.number, 0])
    return Number(row?.["count"]) >= provider.minimum ? yield* fill(run, owner, index, limit) : 0
  })

  const unindex = (run: Run, owner: Owner.Owner, rows: ReadonlyArray<Readonly<Record<string, unknown>>>) =>
    provider === undefined
      ? Effect.void
      : Effect.forEach(
          Object.entries(Arr.groupBy(rows, ({ model }) => String(model))),
          ([model, group]) =>
            provider.remove(
              run,
              Number(model),
              owner,
              group.map(({ seq }) => Number(seq))
            ),
          { discard: true }
        )

  const wasIndexed = ({ indexed }: Readonly<Record<string, unknown>>): boolean => Number(indexed) === 1

  /** The nearest that the index knows, compared with the query once more: the scores are those of an exact comparison. */
  const searchIndex = Effect.fnUntraced(function* (
    run: Run,
    owner: Owner.Owner,
    from: ModelIndex,
    query: Float32Array,
    best: Best<undefined>,
    topK: number
  ) {
    // A few more, because the index does not know which of equals comes first.
    const count = Math.min(from.maxCount, topK + 8)
    const seqs = yield* from.nearest(run, owner, query, count)
    const rows = yield* run(texts.vectors, [owner.hash, present.number, 1, JSON.stringify(seqs)])
    if (rows.length < topK) {
      const [counted] = yield* run(texts.countIndexed, [owner.hash, present.number, 1])
      if (Number(counted?.["count"]) > rows.length) {
        return false
      }
    }
    for (const { seq, vector } of yield* vectorsOf(rows)) {
      best.offer(similarity(query, vector), seq, undefined)
    }
    return true
  })

  const search: SemanticStore["search"] = (ref, _model, query, { minScore, topK }) => {
    const owner = Owner.of(ref)
    return reading(
      named("recall"),
      owner,
      (run) =>
        Effect.gen(function* () {
          const best = new Best<undefined>(topK)
          const visit = ({ seq, vector }: FactVector) => best.offer(similarity(query, vector), seq, undefined)
          const found =
            index !== undefined && topK <= index.maxCount && (yield* searchIndex(run, owner, index, query, best, topK))
          if (!found) {
            yield* scan(run, owner, 1, visit)
          }
          yield* scan(run, owner, 0, visit)
          const ranked = best.sorted.filter(({ score }) => score >= minScore)
          if (ranked.length === 0) {
            return []
          }
          const rows = yield* run(texts.load, [owner.hash, JSON.stringify(ranked.map(({ seq }) => seq))])
          const bySeq = new Map(rows.map((row) => [Number(row["seq"]), row]))
          return ranked.flatMap(({ score, seq }): ReadonlyArray<Scored> => {
            const row = bySeq.get(seq)
            // Somebody may have forgotten it this moment.
            return row === undefined ? [] : [{ ...Facts.toPlaced(row), score }]
          })
        }),
      { together: provider?.isTransactional === true }
    )
  }

  const put: SemanticStore["put"] = (ref, _model, drafts, now) => {
    const owner = Owner.of(ref)
    const embedded = drafts.flatMap(({ vector, ...draft }) => (vector === undefined ? [] : [{ ...draft, vector }]))
    const others = drafts.filter(({ vector }) => vector === undefined)
    const direct = index !== undefined && provider !== undefined && embedded.length >= provider.minimum
    const contents = new Map(drafts.map(({ content, digest }) => [digest, content]))
    const model = { id: present.id, dimensions: present.dimensions }
    const sourceOf = ({ source }: Draft) =>
      source === undefined
        ? [null, null, null]
        : [
            StoredText.encode(source.sandboxId),
            source.entryIndex,
            source.digest === undefined ? null : StoredText.encode(source.digest)
          ]
    return writing(named("remember"), owner, (run) =>
      Effect.gen(function* () {
        const facts = new Map<string, Fact>()
        const indexed: Array<FactVector> = []
        const note = (row: Readonly<Record<string, unknown>>) => {
          const digest = String(row["digest"])
          facts.set(digest, Facts.toFact(row, contents.get(digest) ?? "", model))
          return digest
        }
        const vectors = new Map(embedded.map(({ digest, vector }) => [digest, vector]))
        for (const { items, text } of upserts(embedded)) {
          const rows = yield* run(
            text,
            items.flatMap((draft) => [
              draft.id,
              owner.hash,
              owner.teamId,
              owner.resourceId,
              draft.digest,
              present.number,
              direct ? 1 : 0,
              now,
              now,
              ...sourceOf(draft),
              draft.metadata ?? null,
              StoredText.encode(draft.content),
              toBytes(draft.vector)
            ])
          )
          for (const row of rows) {
            const vector = vectors.get(note(row))
            if (vector !== undefined && wasIndexed(row)) {
              indexed.push({ seq: Number(row["seq"]), vector })
            }
          }
        }
        for (const { items, text } of refreshes(others)) {
          const rows = yield* run(text, [
            ...items.flatMap((draft) => [draft.digest, draft.metadata ?? null, ...sourceOf(draft), now]),
            owner.hash,
            present.number
          ])
          rows.forEach(note)
        }
        const missing = others.filter(({ digest }) => !facts.has(digest)).map(({ digest }) => digest)
        if (missing.length > 0) {
          return yield* Effect.fail(new Missing(missing))
        }
        if (direct) {
          for (const vectors of Arr.chunksOf(indexed, scanRows)) {
            yield* index.add(run, owner, vectors)
          }
        }
        if (embedded.length > 0) {
          yield* fillIfMuch(run, owner)
        }
        return { facts, missing } satisfies Put
      })
    ).pipe(
      Effect.catchIf(
        (error): error is Missing => error instanceof Missing,
        ({ digests }) => Effect.succeed<Put>({ facts: new Map(), missing: digests })
      )
    )
  }

  return {
    hasVectorIndex: index !== undefined,
    transaction: Option.some(transaction),
    known: (ref, _model, digests) => {
      const owner = Owner.of(ref)
      return Effect.map(
        reading(named("remember"), owner, (run) =>
          run(texts.known, [owner.hash, present.number, JSON.stringify(digests)])
        ),
        (rows) => new Set(rows.map(({ digest }) => String(digest)))
      )
    },
    put,
    otherModels: (ref) => {
      const owner = Owner.of(ref)
      return Effect.map(
        reading(named("recall"), owner, (run) => run(texts.otherModels, [present.number, owner.hash])),
        (rows) =>
          rows.map((row) => ({
            id: StoredText.decode(String(row["name"])),
            dimensions: Number(row["dimensions"])
          }))
      )
    },
    search,
    outdated: (ref, _model, limit) => {
      const owner = Owner.of(ref)
      return Effect.map(
        reading(named("reembed"), owner, (run) =>
          Effect.flatMap(run(texts.outdatedBefore, [owner.hash, present.number, limit]), (rows) =>
            rows.length > 0 ? Effect.succeed(rows) : run(texts.outdatedAfter, [owner.hash, present.number, limit])
          )
        ),
        (rows) => rows.map(({ content, seq }) => ({ seq: Number(seq), content: StoredText.decode(String(content)) }))
      )
    },
    revector: (ref, _model, vectors) => {
      const owner = Owner.of(ref)
      return writing(named("reembed"), owner, (run) =>
        Effect.gen(function* () {
          if (provider !== undefined) {
            const seqs = JSON.stringify(vectors.map(({ seq }) => seq))
            yield* unindex(run, owner, yield* run(texts.indexedAmong, [owner.hash, seqs]))
          }
          let changed = 0
          for (const { items, text } of revectors(vectors)) {
            const rows = yield* run(text, [
              ...items.flatMap(({ seq, vector }) => [seq, toBytes(vector)]),
              present.number,
              owner.hash
            ])
            changed += rows.length
          }
          yield* fillIfMuch(run, owner)
          return changed
        })
      )
    },
    settle: (ref) => {
      const owner = Owner.of(ref)
      const some = writing(named("reembed"), owner, (run) => fillIfMuch(run, owner))
      return Effect.repeat(some, { until: (filled) => filled < scanRows })
    },
    page: (ref, after, limit) => {
      const owner = Owner.of(ref)
      return Effect.map(
        reading(named("listAll"), owner, (run) => run(texts.page, [owner.hash, after, limit])),
        Arr.map(Facts.toPlaced)
      )
    },
    oldest: (ref, before, { seq, updatedAt }, limit) => {
      const owner = Owner.of(ref)
      return Effect.map(
        reading(named("listOldest"), owner, (run) =>
          run(texts.oldest, [owner.hash, before, updatedAt, updatedAt, seq, limit])
        ),
        Arr.map(Facts.toPlaced)
      )
    },
    count: (ref) => {
      const owner = Owner.of(ref)
      return Effect.map(
        reading(named("count"), owner, (run) => run(texts.count, [owner.hash])),
        ([row]) => Number(row?.["count"])
      )
    },
    forget: (ref, ids) => {
      const owner = Owner.of(ref)
      return writing(named("forget"), owner, (run) =>
        Effect.gen(function* () {
          const rows = yield* run(texts.forget, [owner.hash, JSON.stringify(ids)])
          yield* unindex(run, owner, rows.filter(wasIndexed))
          return rows.length
        })
      )
    },
    clear: (ref) => {
      const owner = Owner.of(ref)
      return writing(named("clear"), owner, (run) =>
        Effect.gen(function* () {
          let removed = 0
          for (let count = removeRows; count === removeRows; ) {
            const rows = yield* run(texts.clear, [owner.hash, owner.hash])
            yield* unindex(run, owner, rows.filter(wasIndexed))
            count = rows.length
            removed += count
            yield* Effect.yieldNow()
          }
          return removed
        })
      )
    },
    copy: (from, to, idPrefix) => {
      const [source, owner] = [Owner.of(from), Owner.of(to)]
      const taken = notEmpty(named("copy"), to)
      return writing(named("copy"), owner, (run) =>
        Effect.gen(function* () {
          if ((yield* run(texts.any, [owner.hash])).length > 0) {
            return yield* taken
          }
          yield* run(texts.copy, [idPrefix, owner.hash, owner.teamId, owner.resourceId, source.hash])
          yield* fillIfMuch(run, owner, copiedRows)
          const [row] = yield* run(texts.count, [owner.hash])
          return Number(row?.["count"])
        })
      ).pipe(
        // Somebody remembered the same at the same moment.
        Effect.mapError((error) => (error._tag === "MemoryStoreError" && error.reason === "Constraint" ? taken : error))
      )
    }
  }
}
