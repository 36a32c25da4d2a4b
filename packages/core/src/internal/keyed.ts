import * as Effect from "effect/Effect"

/** Runs effects of one key one after another, those of different keys side by side. Keys that nobody waits for are forgotten. */
export const make: Effect.Effect<<A, E, R>(key: string, self: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>> =
  Effect.sync(() => {
    const locks = new Map<string, { readonly semaphore: Effect.Semaphore; users: number }>()
    return (key, self) =>
      Effect.acquireUseRelease(
        Effect.sync(() => {
          const lock = locks.get(key) ?? { semaphore: Effect.unsafeMakeSemaphore(1), users: 0 }
          lock.users++
          locks.set(key, lock)
          return lock
        }),
        (lock) => lock.semaphore.withPermits(1)(self),
        (lock) =>
          Effect.sync(() => {
            lock.users--
            if (lock.users === 0) locks.delete(key)
          })
      )
  })
