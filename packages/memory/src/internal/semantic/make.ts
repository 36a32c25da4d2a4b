/**
 * Semantic memory over a store of facts: what is the same for every backend.
 */
import { IdGenerator } from "@sandglass/core/IdGenerator"
import * as Arr from "effect/Array"
import * as Chunk from "effect/Chunk"
import * as Clock from "effect/Clock"
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import { EmbeddingModel } from "../../EmbeddingModel.js"
import type { EmbeddingError, MemoryStoreError } from "../../MemoryError.js"
import { EmbeddingMismatch, InvalidInput } from "../../MemoryError.js"
import * as Ref from "../../ResourceRef.js"
import type { Fact, NewFact, Prunable, SemanticMemory, SemanticMemoryError } from "../../SemanticMemory.js"
import { checkCopy } from "../checks.js"
import * as Vectors from "../vectors.js"
import type { Checked } from "./facts.js"
import { checkAll, checkQuery } from "./facts.js"
import type { Put, SemanticStore, Updated } from "./store.js"

type Service = Context.Tag.Service<SemanticMemory>

const pageSize = 500
/** Texts that are embedded again before their vectors are written. */
const reembedBatch = 256

const named = (operation: string) => `SemanticMemory.${operation}`

const spanned =
  (operation: string) =>
  <A, E, R>(self: Effect.Effect<A, E, R>) =>
    Effect.withSpan(self, named(operation), { captureStackTrace: false })

const makePrunable = (store: SemanticStore, nextId: Effect.Effect<string>): Prunable => ({
  listAll: (ref) =>
    Stream.unwrap(
      Effect.map(Ref.validate(named("listAll"), ref), (owner) =>
        Stream.paginateChunkEffect(0, (after) =>
          Effect.map(store.page(owner, after, pageSize), (rows) => {
            const last = rows[rows.length - 1]
            return [
              Chunk.unsafeFromArray(rows.map(({ fact }) => fact)),
              last === undefined || rows.length < pageSize ? Option.none() : Option.some(last.seq)
            ]
          })
        )
      )
    ).pipe(Stream.withSpan(named("listAll"), { captureStackTrace: false })),
  listOldest: (ref, { before = Number.MAX_SAFE_INTEGER } = {}) =>
    Stream.unwrap(
      Effect.gen(function* () {
        const owner = yield* Ref.validate(named("listOldest"), ref)
        if (typeof before !== "number" || Number.isNaN(before)) {
          return yield* new InvalidInput({
            method: named("listOldest"),
            description: `before must be a time, not ${String(before)}`
          })
        }
        const until = Math.ceil(Math.max(Number.MIN_SAFE_INTEGER, Math.min(Number.MAX_SAFE_INTEGER, before)))
        const start: Updated = { updatedAt: Number.MIN_SAFE_INTEGER, seq: 0 }
        return Stream.paginateChunkEffect(start, (after) =>
          Effect.map(store.oldest(owner, until, after, pageSize), (rows) => {
            const last = rows[rows.length - 1]
            return [
              Chunk.unsafeFromArray(rows.map(({ fact }) => fact)),
              last === undefined || rows.length < pageSize
                ? Option.none()
                : Option.some({ updatedAt: last.fact.updatedAt, seq: last.seq })
            ]
          })
        )
      })
    ).pipe(Stream.withSpan(named("listOldest"), { captureStackTrace: false })),
  count: (ref) => Ref.validate(named("count"), ref).pipe(Effect.flatMap(store.count), spanned("count")),
  forget: (ref, ids) =>
    Effect.gen(function* () {
      const owner = yield* Ref.validate(named("forget"), ref)
      if (!Array.isArray(ids) || !ids.every((id) => typeof id === "string")) {
        return yield* new InvalidInput({ method: named("forget"), description: "the ids are no list of texts" })
      }
      return ids.length === 0 ? 0 : yield* store.forget(owner, Arr.dedupe(ids))
    }).pipe(spanned("forget")),
  clear: (ref) => Ref.validate(named("clear"), ref).pipe(Effect.flatMap(store.clear), spanned("clear")),
  copy: (from, to) =>
    checkCopy(named("copy"), from, to).pipe(
      Effect.flatMap(([source, target]) => Effect.flatMap(nextId, (id) => store.copy(source, target, id))),
      spanned("copy")
    )
})

export const make = Effect.fnUntraced(function* (
  store: SemanticStore
): Effect.fn.Return<Service, never, EmbeddingModel> {
  const embedding = yield* EmbeddingModel
  const { next: nextId } = yield* IdGenerator
  const model = { id: embedding.id, dimensions: embedding.dimensions }

  const embed = (texts: ReadonlyArray<string>): Effect.Effect<ReadonlyArray<Float32Array>, EmbeddingError> =>
    Effect.flatMap(embedding.embed(texts), (vectors) => Vectors.check(model, texts.length, vectors))

  /** Embeds what has no vector yet; the store says if something else has none after all. */
  const storeAll = (
    owner: Ref.ResourceRef,
    drafts: Arr.NonEmptyReadonlyArray<Checked>,
    known: ReadonlySet<string>
  ): Effect.Effect<Put, EmbeddingError | MemoryStoreError> =>
    Effect.gen(function* () {
      const unknown = drafts.filter(({ digest }) => !known.has(digest))
      const vectors = unknown.length === 0 ? [] : yield* embed(unknown.map(({ content }) => content))
      const vectorOf = new Map(unknown.map(({ digest }, index) => [digest, vectors[index]]))
      const rows = yield* Effect.forEach(drafts, (draft) =>
        Effect.map(nextId, (id) => ({ ...draft, id, vector: vectorOf.get(draft.digest) }))
      )
      const now = yield* Clock.currentTimeMillis
      const put = yield* store.put(owner, model, rows, now)
      return put.missing.length === 0
        ? put
        : yield* storeAll(owner, drafts, new Set(Array.from(known).filter((digest) => !put.missing.includes(digest))))
    })

  const rememberAll = (
    operation: string,
    ref: Ref.ResourceRef,
    facts: ReadonlyArray<NewFact>
  ): Effect.Effect<ReadonlyArray<Fact>, SemanticMemoryError> =>
    Effect.gen(function* () {
      const method = named(operation)
      const owner = yield* Ref.validate(method, ref)
      const { digests, drafts } = yield* checkAll(method, facts)
      if (!Arr.isNonEmptyReadonlyArray(drafts)) {
        return []
      }
      const known = yield* store.known(
        owner,
        model,
        drafts.map(({ digest }) => digest)
      )
      const put = yield* storeAll(owner, drafts, known)
      return digests.flatMap((digest) => put.facts.get(digest) ?? [])
    }).pipe(spanned(operation))

  return {
    remember: (ref, fact) =>
      Effect.map(rememberAll("remember", ref, [fact]), (facts) => Option.getOrThrow(Arr.head(facts))),
    rememberAll: (ref, facts) => rememberAll("rememberAll", ref, facts),
    recall: (ref, query, options = {}) =>
      Effect.gen(function* () {
        const method = named("recall")
        const owner = yield* Ref.validate(method, ref)
        const limits = yield* checkQuery(method, query, options)
        const stored = yield* store.otherModels(owner, model)
        if (stored.length > 0) {
          return yield* new EmbeddingMismatch({ method, model, stored })
        }
        const vectors = yield* embed([query])
        const found = yield* Effect.forEach(vectors, (vector) => store.search(owner, model, vector, limits))
        return found.flat().map(({ fact, score }) => ({ ...fact, score }))
      }).pipe(spanned("recall")),
    reembed: (ref) =>
      Effect.gen(function* () {
        const owner = yield* Ref.validate(named("reembed"), ref)
        let count = 0
        for (;;) {
          const outdated = yield* store.outdated(owner, model, reembedBatch)
          if (outdated.length === 0) {
            yield* store.settle(owner)
            return count
          }
          const vectors = yield* embed(outdated.map(({ content }) => content))
          count += yield* store.revector(
            owner,
            model,
            outdated.flatMap(({ seq }, index) => {
              const vector = vectors[index]
              return vector === undefined ? [] : [{ seq, vector }]
            })
          )
        }
      }).pipe(spanned("reembed")),
    prunable: Option.some(makePrunable(store, nextId)),
    hasVectorIndex: store.hasVectorIndex,
    model,
    transaction: store.transaction
  }
})
