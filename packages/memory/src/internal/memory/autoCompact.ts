/**
 * When to compact by itself: after every n-th fact that is remembered for a resource.
 */
import * as Effect from "effect/Effect"
import * as Random from "effect/Random"

/** Of so many resources the count is kept: those that facts were remembered for last. */
const capacity = 10_000

/**
 * Says whether a check is due after so many facts more. Of more resources than it can count, those that it has forgotten
 * start somewhere, so that each is checked every n-th time on average.
 */
export const makeCounter = (every: number) => {
  const counts = new Map<string, number>()
  let forgetful = false
  return (resource: string, facts: number): Effect.Effect<boolean> =>
    Effect.gen(function* () {
      const before = counts.get(resource) ?? (forgetful ? yield* Random.nextIntBetween(0, every) : 0)
      const count = before + facts
      counts.delete(resource)
      counts.set(resource, count % every)
      if (counts.size > capacity) {
        for (const oldest of counts.keys()) {
          counts.delete(oldest)
          break
        }
        forgetful = true
      }
      return count >= every
    })
}
