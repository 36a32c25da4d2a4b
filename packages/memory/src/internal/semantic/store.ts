/**
 * Where semantic memory keeps its facts: the part that differs between backends. What arrives here was checked, and
 * vectors are of length 1.
 */
import type { NonEmptyReadonlyArray } from "effect/Array"
import type * as Effect from "effect/Effect"
import type * as Option from "effect/Option"
import type { InvalidInput, MemoryStoreError, ModelRef } from "../../MemoryError.js"
import type { MemoryTransaction } from "../../MemoryTransaction.js"
import type { ResourceRef } from "../../ResourceRef.js"
import type { Fact } from "../../SemanticMemory.js"

/** A fact and its place: facts that were remembered later have higher ones. */
export interface Placed {
  readonly seq: number
  readonly fact: Fact
}

/** A place in the order in which facts were last remembered. */
export interface Updated {
  readonly updatedAt: number
  readonly seq: number
}

export interface Scored extends Placed {
  readonly score: number
}

/** A fact to insert, or to update where its content is there already. */
export interface Draft {
  /** Of a new fact. */
  readonly id: string
  readonly content: string
  /** Of the content: the same for the same only. */
  readonly digest: string
  readonly metadata: string | undefined
  readonly source:
    | { readonly sandboxId: string; readonly entryIndex: number; readonly digest: string | undefined }
    | undefined
  /** Left out where the fact is thought to be there already, with a vector of the present model. */
  readonly vector: Float32Array | undefined
}

export interface Put {
  readonly facts: ReadonlyMap<string, Fact>
  /** Digests of the drafts without a vector that are not there after all; then nothing was written. */
  readonly missing: ReadonlyArray<string>
}

type Result<A> = Effect.Effect<A, MemoryStoreError>

export interface SemanticStore {
  readonly hasVectorIndex: boolean
  readonly transaction: Option.Option<MemoryTransaction>
  /** Which of these contents are there with a vector of the model. */
  readonly known: (ref: ResourceRef, model: ModelRef, digests: ReadonlyArray<string>) => Result<ReadonlySet<string>>
  /** All or nothing. The digests differ. */
  readonly put: (ref: ResourceRef, model: ModelRef, drafts: NonEmptyReadonlyArray<Draft>, now: number) => Result<Put>
  /** Models other than this one that facts of the resource were embedded with. */
  readonly otherModels: (ref: ResourceRef, model: ModelRef) => Result<ReadonlyArray<ModelRef>>
  /** Best first; of equals the one with the lower place. */
  readonly search: (
    ref: ResourceRef,
    model: ModelRef,
    query: Float32Array,
    options: { readonly topK: number; readonly minScore: number }
  ) => Result<ReadonlyArray<Scored>>
  /** Facts of other models, in order. */
  readonly outdated: (
    ref: ResourceRef,
    model: ModelRef,
    limit: number
  ) => Result<ReadonlyArray<{ readonly seq: number; readonly content: string }>>
  /** Gives facts new vectors; those that have gone meanwhile are ignored. Returns how many. */
  readonly revector: (
    ref: ResourceRef,
    model: ModelRef,
    vectors: ReadonlyArray<{ readonly seq: number; readonly vector: Float32Array }>
  ) => Result<number>
  /** Does what is left to be done for the vectors of a resource to be found fast. */
  readonly settle: (ref: ResourceRef) => Result<unknown>
  /** Facts behind a place, in order. */
  readonly page: (ref: ResourceRef, after: number, limit: number) => Result<ReadonlyArray<Placed>>
  /** Facts that were updated before a time, and behind a place in the order of that and of their own place. */
  readonly oldest: (ref: ResourceRef, before: number, after: Updated, limit: number) => Result<ReadonlyArray<Placed>>
  readonly count: (ref: ResourceRef) => Result<number>
  readonly forget: (ref: ResourceRef, ids: ReadonlyArray<string>) => Result<number>
  readonly clear: (ref: ResourceRef) => Result<number>
  /** `idPrefix` makes the ids of the copies unique. */
  readonly copy: (
    from: ResourceRef,
    to: ResourceRef,
    idPrefix: string
  ) => Effect.Effect<number, MemoryStoreError | InvalidInput>
}
