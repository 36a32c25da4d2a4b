/**
 * The one error that a ledger fails with.
 *
 * @since 0.1.0
 */
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"

/**
 * @since 0.1.0
 * @category type ids
 */
export const TypeId = "~@sandglass/core/LedgerError"

/**
 * Why a ledger operation failed.
 *
 * - `Connection`: the database cannot be reached or opened, or was closed
 * - `Contention`: a lock, a serialisation failure, a busy file; trying again may work
 * - `Constraint`: the database refused the row
 * - `InvalidEvent`: the event cannot be stored as given (see `rejected`); nothing of *it* was written
 * - `InvalidQuery`: a filter, a limit or a cursor makes no sense
 * - `StillRunning`: a session that has not ended is not deleted
 * - `NotFound`: there is no such session to export
 * - `AlreadyExists`: the session to import is there already
 * - `InvalidImport`: a line of an import is not what an export writes (see `line`), or lines are missing
 * - `Unknown`: anything else; look at `cause`
 *
 * @since 0.1.0
 * @category models
 */
export const LedgerErrorReason = Schema.Literal(
  "Connection",
  "Contention",
  "Constraint",
  "InvalidEvent",
  "InvalidQuery",
  "StillRunning",
  "NotFound",
  "AlreadyExists",
  "InvalidImport",
  "Unknown"
)

/**
 * @since 0.1.0
 * @category models
 */
export type LedgerErrorReason = typeof LedgerErrorReason.Type

/**
 * A ledger operation failed.
 *
 * @since 0.1.0
 * @category errors
 */
export class LedgerError extends Schema.TaggedError<LedgerError>("@sandglass/core/LedgerError")("LedgerError", {
  /** The operation, e.g. `appendAll`. */
  method: Schema.String,
  reason: LedgerErrorReason,
  description: Schema.optional(Schema.String),
  /** For `appendAll`: the positions in the given batch that were not stored; all others were. */
  rejected: Schema.optional(Schema.Array(Schema.Struct({ index: Schema.Number, description: Schema.String }))),
  /** For `importSandboxes`: the line that is wrong, counted from 1. */
  line: Schema.optional(Schema.Number),
  cause: Schema.optional(Schema.Defect)
}) {
  /**
   * @since 0.1.0
   */
  readonly [TypeId] = TypeId

  /**
   * True where the same call may succeed later.
   *
   * @since 0.1.0
   */
  get isRetryable(): boolean {
    return this.reason === "Connection" || this.reason === "Contention"
  }

  override get message(): string {
    return `Ledger.${this.method}: ${this.reason}${this.description === undefined ? "" : `: ${this.description}`}`
  }
}

/**
 * @since 0.1.0
 * @category guards
 */
export const isLedgerError = (u: unknown): u is LedgerError => Predicate.hasProperty(u, TypeId)
