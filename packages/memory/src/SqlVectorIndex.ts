/**
 * For those who bring a vector index to a SQL database: what `SqlSemanticMemory` asks of it.
 *
 * The vectors of all facts stand in a table of their own, whatever index there is. An index is an addition that finds the
 * nearest of many faster; processes that do not have it go on without it, and what they wrote is compared one by one
 * until somebody who has it puts it into the index: some with each `remember`, all with `reembed`.
 *
 * @since 0.1.0
 */
import type { Param, SqlFailure } from "@sandglass/core/SqlStore"
import type * as Effect from "effect/Effect"
import type * as Option from "effect/Option"

/**
 * Runs one statement of the transaction at hand. Postgres counts its parameters (`$1`), other databases have `?`.
 *
 * @since 0.1.0
 * @category models
 */
export type Run = (
  text: string,
  params?: ReadonlyArray<Param>
) => Effect.Effect<ReadonlyArray<Readonly<Record<string, unknown>>>, SqlFailure>

/**
 * Whose vectors: a text of fixed length for each resource, and the team as row-level security knows it, empty for none.
 *
 * @since 0.1.0
 * @category models
 */
export interface Owner {
  readonly hash: string
  readonly teamId: string
}

/**
 * The vector of a fact: of length 1, so that the cosine of two is their product. `seq` is the fact's number, which no
 * other fact ever gets.
 *
 * @since 0.1.0
 * @category models
 */
export interface FactVector {
  readonly seq: number
  readonly vector: Float32Array
}

/**
 * The index of the vectors of one embedding model.
 *
 * @since 0.1.0
 * @category models
 */
export interface ModelIndex {
  /** Inserts vectors of one resource, or replaces those that are there already. */
  readonly add: (run: Run, owner: Owner, vectors: ReadonlyArray<FactVector>) => Effect.Effect<void, SqlFailure>
  /**
   * The facts of the resource that are nearest to a vector, in any order. It may return some that are not there any
   * more, and fewer than there are: then all are compared one by one.
   */
  readonly nearest: (
    run: Run,
    owner: Owner,
    vector: Float32Array,
    count: number
  ) => Effect.Effect<ReadonlyArray<number>, SqlFailure>
  /** How many `nearest` may be asked for. */
  readonly maxCount: number
}

/**
 * The embedding model that an index is for. `number` is what stands for it in the database.
 *
 * @since 0.1.0
 * @category models
 */
export interface IndexedModel {
  readonly number: number
  readonly dimensions: number
}

/**
 * A vector index in the database of `SqlSemanticMemory`.
 *
 * @since 0.1.0
 * @category models
 */
export interface SqlVectorIndex {
  /** A resource with fewer facts than this outside the index is left so: comparing them one by one is as fast. */
  readonly minimum: number
  /** True if the statements of `nearest` have to run in one transaction. */
  readonly isTransactional: boolean
  /** The index for a model where it is there and complete. */
  readonly find: (run: Run, model: IndexedModel) => Effect.Effect<Option.Option<ModelIndex>, SqlFailure>
  /**
   * Makes the index for a model that was not found; others may do so at the same moment. `None` for vectors that cannot be
   * indexed. Runs in a transaction of its own. Where this fails with `Unknown` or `Constraint`, memory goes on without an
   * index.
   */
  readonly create: (run: Run, model: IndexedModel) => Effect.Effect<Option.Option<ModelIndex>, SqlFailure>
  /** Takes vectors of a model out of its index, whether or not they are there. */
  readonly remove: (
    run: Run,
    model: number,
    owner: Owner,
    seqs: ReadonlyArray<number>
  ) => Effect.Effect<void, SqlFailure>
}
