/**
 * Several operations of a memory as one.
 *
 * @since 0.1.0
 */
import type * as Effect from "effect/Effect"
import type { MemoryStoreError } from "./MemoryError.js"

/**
 * What a memory that is kept in a database offers. Working and semantic memory that offer the same object (`===`) are in
 * one database, and what is done to both inside `run` is done together or not at all.
 *
 * @since 0.1.0
 * @category models
 */
export interface MemoryTransaction {
  /**
   * Runs an effect in a transaction, or in that of the application which it is in already. Writes are undone when it
   * fails or is interrupted. It must not wait for another fiber that uses the same database.
   */
  readonly run: <A, E, R>(self: Effect.Effect<A, E, R>) => Effect.Effect<A, E | MemoryStoreError, R>
}
