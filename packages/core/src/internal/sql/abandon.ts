/**
 * Leaving a database alone that does not answer.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"

const patience = Duration.seconds(5)

/**
 * Whoever is interrupted waits until the work has ended in order, its transaction undone, but no longer than a while: the
 * answer to a ROLLBACK may never come. The work is then left to end by itself.
 */
export const abandonable = <A, E, R>(self: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.uninterruptibleMask((restore) =>
    Effect.flatMap(Effect.forkDaemon(restore(self)), (fiber) =>
      Effect.onExit(restore(Fiber.join(fiber)), (exit) =>
        Exit.isInterrupted(exit)
          ? Fiber.interruptFork(fiber).pipe(
              Effect.zipRight(Fiber.await(fiber)),
              Effect.interruptible,
              Effect.timeoutOption(patience)
            )
          : Effect.void
      )
    )
  )
