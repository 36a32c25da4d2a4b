/**
 * The one error that talking to an OpenSandbox server fails with, or to execd and the egress sidecar inside a sandbox.
 *
 * @since 0.1.0
 */
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"

/**
 * @since 0.1.0
 * @category type ids
 */
export const TypeId = "~@sandglass/core/OpenSandboxError"

/**
 * Why a call failed.
 *
 * - `InvalidRequest`: refused before sending (a bad option), or by the server as 400, 413, 416, 422
 * - `Unauthorized`: 401, 403
 * - `NotFound`: 404, 410, or a code that says so
 * - `Conflict`: 409, 412
 * - `RateLimited`: 429
 * - `ServerError`: any other error answer
 * - `Transport`: the connection failed, was cut, or could not be made
 * - `Timeout`: no answer in time
 * - `Decode`: an answer that is not what the protocol says
 *
 * @since 0.1.0
 * @category models
 */
export const OpenSandboxErrorReason = Schema.Literal(
  "InvalidRequest",
  "Unauthorized",
  "NotFound",
  "Conflict",
  "RateLimited",
  "ServerError",
  "Transport",
  "Timeout",
  "Decode"
)

/**
 * @since 0.1.0
 * @category models
 */
export type OpenSandboxErrorReason = typeof OpenSandboxErrorReason.Type

/**
 * A call to the lifecycle API (`module: "OpenSandbox"`), to execd (`module: "Execd"`) or to the egress sidecar (`module: "Egress"`) failed.
 *
 * @since 0.1.0
 * @category errors
 */
export class OpenSandboxError extends Schema.TaggedError<OpenSandboxError>("@sandglass/core/OpenSandboxError")(
  "OpenSandboxError",
  {
    module: Schema.Literal("OpenSandbox", "Execd", "Egress"),
    /** The operation, e.g. `create`. */
    method: Schema.String,
    reason: OpenSandboxErrorReason,
    /** What the server said, or the start of a body that is no error document. */
    description: Schema.optional(Schema.String),
    /** The HTTP status, when there was an answer. */
    status: Schema.optional(Schema.Number),
    /** The server's error code, e.g. `DOCKER::SANDBOX_NOT_FOUND`. */
    code: Schema.optional(Schema.String),
    /** `X-Request-ID`. */
    requestId: Schema.optional(Schema.String),
    /** Milliseconds to wait, from `Retry-After`. */
    retryAfter: Schema.optional(Schema.Number),
    cause: Schema.optional(Schema.Defect)
  }
) {
  /**
   * @since 0.1.0
   */
  readonly [TypeId] = TypeId

  /**
   * True where the same call may succeed later. Says nothing about whether repeating it is safe.
   *
   * @since 0.1.0
   */
  get isRetryable(): boolean {
    return (
      this.reason === "Transport" ||
      this.reason === "Timeout" ||
      this.reason === "RateLimited" ||
      (this.reason === "ServerError" && this.status !== undefined && this.status !== 501)
    )
  }

  override get message(): string {
    const parts = [
      this.status === undefined ? undefined : String(this.status),
      this.code,
      this.description,
      this.requestId === undefined ? undefined : `(request ${this.requestId})`
    ].filter((part) => part !== undefined && part !== "")
    return `${this.module}.${this.method}: ${this.reason}${parts.length === 0 ? "" : `: ${parts.join(" ")}`}`
  }
}

/**
 * @since 0.1.0
 * @category guards
 */
export const isOpenSandboxError = (u: unknown): u is OpenSandboxError => Predicate.hasProperty(u, TypeId)
