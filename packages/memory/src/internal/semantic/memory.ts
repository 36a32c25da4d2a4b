/**
 * Facts in memory.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { ModelRef } from "../../MemoryError.js"
import * as Ref from "../../ResourceRef.js"
import type { Fact } from "../../SemanticMemory.js"
import { notEmpty } from "../checks.js"
import { decodeObject } from "../json.js"
import { similarity } from "../vectors.js"
import { Best } from "./ranking.js"
import type { Draft, Placed, Put, SemanticStore } from "./store.js"

interface Row extends Placed {
  readonly digest: string
  readonly vector: Float32Array
}

const sameModel = (a: ModelRef, b: ModelRef): boolean => a.id === b.id && a.dimensions === b.dimensions

const copied = (fact: Fact): Fact => structuredClone(fact)

const placed = ({ seq, fact }: Placed): Placed => ({ seq, fact: copied(fact) })

export const make: Effect.Effect<SemanticStore> = Effect.sync(() => {
  /** By digest, in the order of their places. */
  const resources = new Map<string, Map<string, Row>>()
  let lastSeq = 0

  const rowsOf = (ref: Ref.ResourceRef): ReadonlyMap<string, Row> => resources.get(Ref.key(ref)) ?? new Map()

  const remove = (ref: Ref.ResourceRef, predicate: (row: Row) => boolean): number => {
    const key = Ref.key(ref)
    const rows = resources.get(key)
    let removed = 0
    for (const [digest, row] of rows ?? []) {
      if (predicate(row)) {
        rows?.delete(digest)
        removed++
      }
    }
    if (rows?.size === 0) {
      resources.delete(key)
    }
    return removed
  }

  const merged = (row: Row | undefined, draft: Draft, model: ModelRef, now: number): Fact => ({
    id: row?.fact.id ?? draft.id,
    content: draft.content,
    ...(draft.metadata !== undefined
      ? { metadata: decodeObject(draft.metadata) }
      : row?.fact.metadata !== undefined && { metadata: row.fact.metadata }),
    ...(draft.source !== undefined
      ? {
          sourceRef: { sandboxId: draft.source.sandboxId, entryIndex: draft.source.entryIndex },
          ...(draft.source.digest !== undefined && { sourceDigest: draft.source.digest })
        }
      : {
          ...(row?.fact.sourceRef !== undefined && { sourceRef: row.fact.sourceRef }),
          ...(row?.fact.sourceDigest !== undefined && { sourceDigest: row.fact.sourceDigest })
        }),
    createdAt: row?.fact.createdAt ?? now,
    updatedAt: Math.max(now, row?.fact.updatedAt ?? now),
    model: draft.vector === undefined && row !== undefined ? row.fact.model : model
  })

  return {
    hasVectorIndex: false,
    transaction: Option.none(),
    known: (ref, model, digests) =>
      Effect.sync(() => {
        const rows = rowsOf(ref)
        return new Set(
          digests.filter((digest) => {
            const row = rows.get(digest)
            return row !== undefined && sameModel(row.fact.model, model)
          })
        )
      }),
    put: (ref, model, drafts, now) =>
      Effect.sync((): Put => {
        const present = rowsOf(ref)
        const missing = drafts
          .filter(({ digest, vector }) => {
            const row = present.get(digest)
            return vector === undefined && (row === undefined || !sameModel(row.fact.model, model))
          })
          .map(({ digest }) => digest)
        if (missing.length > 0) {
          return { facts: new Map(), missing }
        }
        const rows = resources.get(Ref.key(ref)) ?? new Map<string, Row>()
        const facts = new Map<string, Fact>()
        for (const draft of drafts) {
          const row = rows.get(draft.digest)
          const vector = draft.vector ?? row?.vector
          if (vector !== undefined) {
            const fact = merged(row, draft, model, now)
            rows.set(draft.digest, { seq: row?.seq ?? ++lastSeq, fact, digest: draft.digest, vector })
            facts.set(draft.digest, copied(fact))
          }
        }
        resources.set(Ref.key(ref), rows)
        return { facts, missing }
      }),
    otherModels: (ref, model) =>
      Effect.sync(() => {
        const others = new Map<string, ModelRef>()
        for (const { fact } of rowsOf(ref).values()) {
          if (!sameModel(fact.model, model)) {
            others.set(JSON.stringify([fact.model.id, fact.model.dimensions]), fact.model)
          }
        }
        return Array.from(others.values())
      }),
    search: (ref, model, query, { topK, minScore }) =>
      Effect.sync(() => {
        const best = new Best<Row>(topK)
        for (const row of rowsOf(ref).values()) {
          if (sameModel(row.fact.model, model)) {
            const score = similarity(query, row.vector)
            if (score >= minScore) {
              best.offer(score, row.seq, row)
            }
          }
        }
        return best.sorted.map(({ score, item }) => ({ ...placed(item), score }))
      }),
    outdated: (ref, model, limit) =>
      Effect.sync(() => {
        const found: Array<{ readonly seq: number; readonly content: string }> = []
        for (const { seq, fact } of rowsOf(ref).values()) {
          if (found.length < limit && !sameModel(fact.model, model)) {
            found.push({ seq, content: fact.content })
          }
        }
        return found
      }),
    revector: (ref, model, vectors) =>
      Effect.sync(() => {
        const bySeq = new Map(vectors.map(({ seq, vector }) => [seq, vector]))
        const rows = resources.get(Ref.key(ref))
        let changed = 0
        for (const [digest, row] of rows ?? []) {
          const vector = bySeq.get(row.seq)
          if (vector !== undefined) {
            rows?.set(digest, { ...row, fact: { ...row.fact, model }, vector })
            changed++
          }
        }
        return changed
      }),
    settle: () => Effect.void,
    page: (ref, after, limit) =>
      Effect.sync(() => {
        const found: Array<Placed> = []
        for (const row of rowsOf(ref).values()) {
          if (row.seq > after) {
            found.push(placed(row))
            if (found.length === limit) break
          }
        }
        return found
      }),
    oldest: (ref, before, after, limit) =>
      Effect.sync(() => {
        const found: Array<Placed> = []
        for (const row of rowsOf(ref).values()) {
          const { updatedAt } = row.fact
          if (updatedAt >= before || updatedAt < after.updatedAt) continue
          if (updatedAt > after.updatedAt || row.seq > after.seq) found.push(placed(row))
        }
        return found.sort((a, b) => a.fact.updatedAt - b.fact.updatedAt || a.seq - b.seq).slice(0, limit)
      }),
    count: (ref) => Effect.sync(() => rowsOf(ref).size),
    forget: (ref, ids) =>
      Effect.sync(() => {
        const wanted = new Set(ids)
        return remove(ref, ({ fact }) => wanted.has(fact.id))
      }),
    clear: (ref) => Effect.sync(() => remove(ref, () => true)),
    copy: (from, to, idPrefix) =>
      Effect.suspend(() => {
        if (resources.has(Ref.key(to))) {
          return Effect.fail(notEmpty("SemanticMemory.copy", to))
        }
        const rows = new Map<string, Row>()
        for (const [digest, row] of rowsOf(from)) {
          rows.set(digest, { ...row, seq: ++lastSeq, fact: { ...row.fact, id: `${idPrefix}-${row.seq}` } })
        }
        if (rows.size > 0) {
          resources.set(Ref.key(to), rows)
        }
        return Effect.succeed(rows.size)
      })
  }
})
