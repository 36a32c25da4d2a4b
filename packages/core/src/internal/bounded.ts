import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"

/**
 * For finalizers: does its work within a time, and logs instead of failing. Interruptible inside, since a timeout cannot cut what
 * masks interruption, as finalizers do.
 */
export const bounded = <A, E, R>(
  what: string,
  timeout: Duration.DurationInput,
  self: Effect.Effect<A, E, R>
): Effect.Effect<void, never, R> =>
  self.pipe(
    Effect.interruptible,
    Effect.disconnect,
    Effect.timeout(timeout),
    Effect.catchAllCause((cause) => Effect.logWarning(`${what} failed`, cause)),
    Effect.asVoid
  )
