/**
 * How much may wait for a commit at a time. Appends beyond that stand in line, first come, first served, and are not
 * encoded before it is their turn: the memory that a slow database costs has a bound.
 */
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as FiberId from "effect/FiberId"

export interface Limits {
  readonly rows: number
  readonly characters: number
}

interface Admitted {
  readonly rows: number
  characters: number
  /** Whether it is known how many characters it has. */
  counted: boolean
}

interface InLine {
  readonly admitted: Admitted
  readonly turn: Deferred.Deferred<void>
}

/** Something that is larger than the limits by itself gets its turn when nothing else is waiting for a commit. */
export const make = (limits: Limits) => {
  const line = new Set<InLine>()
  let rows = 0
  let characters = 0
  let uncounted = 0

  const fits = (more: number): boolean =>
    rows === 0 || (uncounted === 0 && rows + more <= limits.rows && characters < limits.characters)

  const enter = (admitted: Admitted): void => {
    rows += admitted.rows
    uncounted += 1
  }

  const next = (): void => {
    for (const entry of line) {
      if (!fits(entry.admitted.rows)) {
        return
      }
      line.delete(entry)
      enter(entry.admitted)
      Deferred.unsafeDone(entry.turn, Effect.void)
    }
  }

  const count = (admitted: Admitted, size: number): void => {
    if (!admitted.counted) {
      admitted.counted = true
      admitted.characters = size
      uncounted -= 1
      characters += size
      next()
    }
  }

  const leave = (admitted: Admitted): void => {
    count(admitted, 0)
    rows -= admitted.rows
    characters -= admitted.characters
    next()
  }

  /** Runs something for so many rows when there is room for them; it tells how many characters they have. */
  return <A, E>(
    size: number,
    body: (count: (characters: number) => void) => Effect.Effect<A, E>
  ): Effect.Effect<A, E> =>
    Effect.uninterruptibleMask((restore) =>
      Effect.suspend(() => {
        const admitted: Admitted = { rows: size, characters: 0, counted: false }
        const inside = Effect.ensuring(
          restore(Effect.suspend(() => body((characters) => count(admitted, characters)))),
          Effect.sync(() => leave(admitted))
        )
        if (line.size === 0 && fits(size)) {
          enter(admitted)
          return inside
        }
        const entry: InLine = { admitted, turn: Deferred.unsafeMake<void>(FiberId.none) }
        line.add(entry)
        return Effect.zipRight(
          Effect.onInterrupt(restore(Deferred.await(entry.turn)), () =>
            Effect.sync(() => {
              if (line.delete(entry)) {
                next()
              } else {
                leave(admitted)
              }
            })
          ),
          inside
        )
      })
    )
}
