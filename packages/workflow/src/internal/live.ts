import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Mailbox from "effect/Mailbox"
import * as Stream from "effect/Stream"
import type { WorkflowEvent } from "../WorkflowEvent.js"

/** How many events wait for the consumer before the workflow does. */
const capacity = 64

/** The events of what is run. */
export const events = (
  run: (emit: (event: WorkflowEvent) => Effect.Effect<void>) => Effect.Effect<unknown, unknown, unknown>
): Stream.Stream<WorkflowEvent, unknown, unknown> =>
  Stream.unwrapScoped(
    Effect.gen(function* () {
      const mailbox = yield* Mailbox.make<WorkflowEvent, unknown>({ capacity, strategy: "suspend" })
      yield* run((event) => Effect.asVoid(mailbox.offer(event))).pipe(
        Effect.onExit((exit) => mailbox.done(Exit.asVoid(exit))),
        // Its end is the stream's.
        Effect.catchAllCause((cause) => (Cause.isInterruptedOnly(cause) ? Effect.failCause(cause) : Effect.void)),
        Effect.interruptible,
        Effect.forkScoped
      )
      // Whoever ends the stream early takes no more: what is told while everything is closed must not wait.
      yield* Effect.addFinalizer(() => mailbox.shutdown)
      return Mailbox.toStream(mailbox)
    })
  )
