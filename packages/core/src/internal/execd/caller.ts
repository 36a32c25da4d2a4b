/** @internal */
import type * as Duration from "effect/Duration"
import type * as Effect from "effect/Effect"
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
