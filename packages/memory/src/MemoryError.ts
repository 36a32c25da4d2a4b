/**
 * The errors of agent memory.
 *
 * @since 0.1.0
 */
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"

/**
 * @since 0.1.0
 * @category type ids
 */
export const TypeId = "~@sandglass/memory/MemoryError"

/**
 * A `ResourceRef` names nobody: an id is empty or blank. Nothing was read or written.
 *
 * @since 0.1.0
 * @category errors
 */
export class InvalidResourceRef extends Schema.TaggedError<InvalidResourceRef>("@sandglass/memory/InvalidResourceRef")(
  "InvalidResourceRef",
  {
    /** The operation, e.g. `WorkingMemory.get`. */
    method: Schema.String,
    description: Schema.String
  }
) {
  /**
   * @since 0.1.0
   */
  readonly [TypeId] = TypeId

  override get message(): string {
    return `${this.method}: ${this.description}`
  }
}

/**
 * What was given makes no sense: blank content, a value that is no JSON, a limit that is no positive whole number.
 * Nothing was written.
 *
 * @since 0.1.0
 * @category errors
 */
export class InvalidInput extends Schema.TaggedError<InvalidInput>("@sandglass/memory/InvalidInput")("InvalidInput", {
  /** The operation, e.g. `SemanticMemory.remember`. */
  method: Schema.String,
  description: Schema.String,
  cause: Schema.optional(Schema.Defect)
}) {
  /**
   * @since 0.1.0
   */
  readonly [TypeId] = TypeId

  override get message(): string {
    return `${this.method}: ${this.description}`
  }
}

/**
 * An embedding model, and how many numbers its vectors have.
 *
 * @since 0.1.0
 * @category schemas
 */
export const ModelRef = Schema.Struct({ id: Schema.String, dimensions: Schema.Int }).annotations({
  identifier: "ModelRef"
})

/**
 * @since 0.1.0
 * @category models
 */
export interface ModelRef extends Schema.Schema.Type<typeof ModelRef> {}

/**
 * The resource has facts of another embedding model than the present one: their vectors cannot be compared. `reembed`
 * makes them comparable again.
 *
 * @since 0.1.0
 * @category errors
 */
export class EmbeddingMismatch extends Schema.TaggedError<EmbeddingMismatch>("@sandglass/memory/EmbeddingMismatch")(
  "EmbeddingMismatch",
  {
    method: Schema.String,
    /** The present model. */
    model: ModelRef,
    /** The other models that facts of the resource were embedded with. */
    stored: Schema.Array(ModelRef)
  }
) {
  /**
   * @since 0.1.0
   */
  readonly [TypeId] = TypeId

  override get message(): string {
    const name = ({ id, dimensions }: ModelRef) => `${id} (${dimensions} dimensions)`
    return `${this.method}: the facts were embedded with ${this.stored.map(name).join(", ")}, the model is ${name(this.model)}; reembed them`
  }
}

/**
 * Why texts could not be embedded.
 *
 * - `Connection`: the model cannot be reached, or did not answer in time
 * - `RateLimited`: too many requests; `retryAfter` says how long to wait, where the server does
 * - `Unauthorized`: the credentials were refused
 * - `InvalidRequest`: the model refuses the texts, for example because one is too long
 * - `InvalidVector`: the answer is not one finite vector of the right length, and not of zeros only, for each text
 * - `Unknown`: anything else; look at `cause`
 *
 * @since 0.1.0
 * @category models
 */
export const EmbeddingErrorReason = Schema.Literal(
  "Connection",
  "RateLimited",
  "Unauthorized",
  "InvalidRequest",
  "InvalidVector",
  "Unknown"
)

/**
 * @since 0.1.0
 * @category models
 */
export type EmbeddingErrorReason = typeof EmbeddingErrorReason.Type

/**
 * Texts could not be embedded.
 *
 * @since 0.1.0
 * @category errors
 */
export class EmbeddingError extends Schema.TaggedError<EmbeddingError>("@sandglass/memory/EmbeddingError")(
  "EmbeddingError",
  {
    /** The id of the model. */
    model: Schema.String,
    reason: EmbeddingErrorReason,
    description: Schema.optional(Schema.String),
    /** HTTP status, where there was a response. */
    status: Schema.optional(Schema.Number),
    /** How long the server asked to wait. */
    retryAfter: Schema.optional(Schema.DurationFromMillis),
    cause: Schema.optional(Schema.Defect)
  }
) {
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
    return this.reason === "Connection" || this.reason === "RateLimited"
  }

  override get message(): string {
    return `${this.model}: ${this.reason}${this.description === undefined ? "" : `: ${this.description}`}`
  }
}

/**
 * The provider at hand cannot do what was asked: there is no semantic memory, or it cannot list and forget.
 *
 * @since 0.1.0
 * @category errors
 */
export class MemoryCapabilityError extends Schema.TaggedError<MemoryCapabilityError>(
  "@sandglass/memory/MemoryCapabilityError"
)("MemoryCapabilityError", {
  method: Schema.String,
  /** What is missing, e.g. `SemanticMemory` or `Prunable`. */
  capability: Schema.String,
  description: Schema.optional(Schema.String)
}) {
  /**
   * @since 0.1.0
   */
  readonly [TypeId] = TypeId

  override get message(): string {
    return `${this.method}: ${this.description ?? `there is no ${this.capability} here`}`
  }
}

/**
 * The caller may not use the memory of this team. The provider was not asked.
 *
 * @since 0.1.0
 * @category errors
 */
export class MemoryAccessDenied extends Schema.TaggedError<MemoryAccessDenied>("@sandglass/memory/MemoryAccessDenied")(
  "MemoryAccessDenied",
  {
    method: Schema.String,
    resourceId: Schema.String,
    teamId: Schema.String,
    description: Schema.optional(Schema.String),
    cause: Schema.optional(Schema.Defect)
  }
) {
  /**
   * @since 0.1.0
   */
  readonly [TypeId] = TypeId

  override get message(): string {
    return `${this.method}: no access to the memory of team ${JSON.stringify(this.teamId)}${
      this.description === undefined ? "" : `: ${this.description}`
    }`
  }
}

/**
 * Why storage failed.
 *
 * - `Connection`: the database cannot be reached or opened, or was closed
 * - `Contention`: a lock, a serialisation failure, a busy file; trying again may work
 * - `Constraint`: the database refused the row
 * - `Corrupt`: what is stored is not what was written; it is left as it is
 * - `Unknown`: anything else; look at `cause`
 *
 * @since 0.1.0
 * @category models
 */
export const MemoryStoreErrorReason = Schema.Literal("Connection", "Contention", "Constraint", "Corrupt", "Unknown")

/**
 * @since 0.1.0
 * @category models
 */
export type MemoryStoreErrorReason = typeof MemoryStoreErrorReason.Type

/**
 * The storage behind a memory failed. What was being written is written whole or not at all.
 *
 * @since 0.1.0
 * @category errors
 */
export class MemoryStoreError extends Schema.TaggedError<MemoryStoreError>("@sandglass/memory/MemoryStoreError")(
  "MemoryStoreError",
  {
    /** The operation, e.g. `WorkingMemory.set`. */
    method: Schema.String,
    reason: MemoryStoreErrorReason,
    description: Schema.optional(Schema.String),
    cause: Schema.optional(Schema.Defect)
  }
) {
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
    return `${this.method}: ${this.reason}${this.description === undefined ? "" : `: ${this.description}`}`
  }
}

/**
 * A stored value does not fit the schema that it is read with. It was left as it is.
 *
 * @since 0.1.0
 * @category errors
 */
export class InvalidStoredValue extends Schema.TaggedError<InvalidStoredValue>("@sandglass/memory/InvalidStoredValue")(
  "InvalidStoredValue",
  {
    /** The operation, e.g. `SchemaWorkingMemory.get`. */
    method: Schema.String,
    key: Schema.String,
    description: Schema.String,
    cause: Schema.optional(Schema.Defect)
  }
) {
  /**
   * @since 0.1.0
   */
  readonly [TypeId] = TypeId

  override get message(): string {
    return `${this.method}: what is stored under ${JSON.stringify(this.key)} does not fit: ${this.description}`
  }
}

/**
 * Any error of this package's memory.
 *
 * @since 0.1.0
 * @category errors
 */
export type MemoryError =
  | InvalidResourceRef
  | InvalidInput
  | EmbeddingMismatch
  | EmbeddingError
  | MemoryCapabilityError
  | MemoryAccessDenied
  | MemoryStoreError
  | InvalidStoredValue

/**
 * @since 0.1.0
 * @category guards
 */
export const isMemoryError = (u: unknown): u is MemoryError => Predicate.hasProperty(u, TypeId)
