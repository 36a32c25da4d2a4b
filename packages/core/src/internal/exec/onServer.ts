import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import type * as Scope from "effect/Scope"
import { bounded } from "../bounded.js"

/** How long after an interruption the answer of a server is waited for. */
const answerTimeout = "10 seconds"

/**
 * Has a server make something, in a scope that has it removed again. An interruption does not wait for the answer, and does not take the request
 * back either, since the server may be at it: what it has made all the same is removed when the answer comes.
 */
export const madeOnServer = <A, E>(
  make: Effect.Effect<A, E>,
  remove: (made: A) => Effect.Effect<void>
): Effect.Effect<A, E, Scope.Scope> =>
  Effect.uninterruptibleMask((restore) =>
    Effect.gen(function* () {
      const asking = yield* Effect.forkDaemon(Effect.interruptible(make))
      const made = yield* Effect.onInterrupt(restore(Fiber.join(asking)), () =>
        Effect.forkDaemon(
          Effect.zipRight(
            bounded(
              "removing what an interrupted request has made",
              answerTimeout,
              Effect.matchEffect(Fiber.join(asking), { onFailure: () => Effect.void, onSuccess: remove })
            ),
            Fiber.interrupt(asking)
          )
        )
      )
      yield* Effect.addFinalizer(() => remove(made))
      return made
    })
  )
