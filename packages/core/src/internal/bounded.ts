import type * as Cause from "effect/Cause"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"

/**
 * A timeout that holds in finalizers and other uninterruptible regions, and for work that masks interruption: the work is left to end
 * by itself. The order matters: `disconnect` takes over the interruptibility that it finds.
 */
export const within =
  (timeout: Duration.DurationInput) =>
  <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E | Cause.TimeoutException, R> =>
    Effect.disconnect(Effect.interruptible(self)).pipe(Effect.interruptible, Effect.timeout(timeout))

/** For finalizers: does its work within a time, and logs instead of failing. */
export const bounded = <A, E, R>(
  what: string,
  timeout: Duration.DurationInput,
  self: Effect.Effect<A, E, R>
): Effect.Effect<void, never, R> =>
  self.pipe(
    within(timeout),
    Effect.catchAllCause((cause) => Effect.logWarning(`${what} failed`, cause)),
    Effect.asVoid
  )
