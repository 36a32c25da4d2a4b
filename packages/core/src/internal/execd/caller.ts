/** @internal */
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type { OpenSandboxError } from "../../OpenSandboxError.js"
import type { PortCaller } from "../http/portCaller.js"

/** @internal */
export const execdPort = 44772

/**
 * What the operations of execd are built on.
 *
 * @internal
 */
export interface Caller extends PortCaller {
  /** The longest silence of a stream on which a heartbeat comes. */
  readonly idleTimeout: Duration.Duration
  readonly uploadTimeout: Duration.Duration
  /** Ids that must not collide. */
  readonly nextId: Effect.Effect<string>
}

/** @internal */
export const isCode = (code: number): boolean => Number.isSafeInteger(code) && code >= 0

/**
 * For a deletion: what is not there any more is deleted. A control plane that does not know the sandbox is an error still.
 *
 * @internal
 */
export const goneCounts = (self: Effect.Effect<void, OpenSandboxError>): Effect.Effect<void, OpenSandboxError> =>
  Effect.catchIf(
    self,
    (error) => error.module !== "OpenSandbox" && error.reason === "NotFound",
    () => Effect.void
  )
