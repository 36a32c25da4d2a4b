/**
 * Making old facts go.
 */
import * as Chunk from "effect/Chunk"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import type { CompactionLimits, CompactionResult, Fact, FactError, NewFact } from "../../Memory.js"
import { InvalidInput } from "../../MemoryError.js"
import type { ResourceRef } from "../../ResourceRef.js"
import type { Prunable, PrunableError, Fact as StoredFact } from "../../SemanticMemory.js"

/** How many facts are removed at once. */
const forgetBatch = 500

export interface Limits {
  readonly maxFacts: number
  /** Milliseconds. */
  readonly maxAge: number
}

export const checkLimits = (
  method: string,
  { maxAge, maxFacts }: CompactionLimits
): Effect.Effect<Limits, InvalidInput> =>
  Effect.suspend(() => {
    const age = maxAge === undefined ? Option.some(Duration.infinity) : Duration.decodeUnknown(maxAge)
    const description =
      maxFacts !== undefined && !(Number.isSafeInteger(maxFacts) && maxFacts >= 0)
        ? `maxFacts must be a whole number of 0 or more, not ${String(maxFacts)}`
        : Option.isNone(age)
          ? `maxAge is no duration: ${String(maxAge)}`
          : undefined
    return description === undefined
      ? Effect.succeed({
          maxFacts: maxFacts ?? Number.POSITIVE_INFINITY,
          maxAge: Duration.toMillis(Option.getOrElse(age, () => Duration.infinity))
        })
      : Effect.fail(new InvalidInput({ method, description }))
  })

/** Which facts go: those that are too old, and of the others the oldest that are too many. Oldest first. */
const going = (
  prunable: Prunable,
  ref: ResourceRef,
  { maxAge, maxFacts }: Limits
): Stream.Stream<StoredFact, PrunableError> =>
  Stream.unwrap(
    Effect.gen(function* () {
      const count = maxFacts === Number.POSITIVE_INFINITY ? 0 : yield* prunable.count(ref)
      const tooMany = Math.max(0, count - maxFacts)
      const now = yield* Clock.currentTimeMillis
      const before = now - maxAge
      return tooMany === 0
        ? before === Number.NEGATIVE_INFINITY
          ? Stream.empty
          : prunable.listOldest(ref, { before })
        : prunable.listOldest(ref).pipe(
            Stream.zipWithIndex,
            Stream.takeWhile(([{ updatedAt }, place]) => place < tooMany || updatedAt < before),
            Stream.map(([fact]) => fact)
          )
    })
  )

const forget = (
  prunable: Prunable,
  ref: ResourceRef,
  ids: ReadonlyArray<string>
): Effect.Effect<number, PrunableError> =>
  Effect.gen(function* () {
    let forgotten = 0
    for (let from = 0; from < ids.length; from += forgetBatch) {
      forgotten += yield* prunable.forget(ref, ids.slice(from, from + forgetBatch))
    }
    return forgotten
  })

/** Those of the facts that were not remembered again meanwhile. */
const stillOld = (
  prunable: Prunable,
  ref: ResourceRef,
  facts: ReadonlyArray<StoredFact>
): Effect.Effect<ReadonlyArray<string>, PrunableError> =>
  Effect.suspend(() => {
    const wanted = new Map(facts.map(({ id, updatedAt }) => [id, updatedAt]))
    const before = (facts[facts.length - 1]?.updatedAt ?? Number.NEGATIVE_INFINITY) + 1
    return prunable.listOldest(ref, { before }).pipe(
      Stream.filter(({ id, updatedAt }) => wanted.get(id) === updatedAt),
      Stream.map(({ id }) => id),
      Stream.runCollect,
      Effect.map(Chunk.toReadonlyArray)
    )
  })

const isUsable = (fact: NewFact | undefined): boolean =>
  typeof fact === "object" && fact !== null && typeof fact.content === "string" && fact.content.trim() !== ""

export interface Compaction<E, R> {
  readonly prunable: Prunable
  readonly verify: (facts: ReadonlyArray<StoredFact>) => Effect.Effect<ReadonlyArray<Fact>, FactError>
  /** Returns the ids. */
  readonly remember: (facts: ReadonlyArray<NewFact>) => Effect.Effect<ReadonlyArray<string>, FactError>
  readonly summarize: ((facts: ReadonlyArray<Fact>) => Effect.Effect<ReadonlyArray<NewFact>, E, R>) | undefined
}

const nothing: CompactionResult = { forgotten: 0, written: 0, refused: false }

export const compact = <E, R>(
  ref: ResourceRef,
  limits: Limits,
  { prunable, remember, summarize, verify }: Compaction<E, R>
): Effect.Effect<CompactionResult, FactError | E, R> =>
  Effect.gen(function* () {
    if (summarize === undefined) {
      const forgotten = yield* Stream.runFoldEffect(
        Stream.rechunk(going(prunable, ref, limits), forgetBatch).pipe(Stream.chunks),
        0,
        (count, facts) =>
          Effect.map(
            prunable.forget(
              ref,
              Array.from(facts, ({ id }) => id)
            ),
            (gone) => count + gone
          )
      )
      return { ...nothing, forgotten }
    }
    const facts = Array.from(yield* Stream.runCollect(going(prunable, ref, limits)))
    if (facts.length === 0) return nothing
    const summary = yield* Effect.flatMap(verify(facts), (verified) => summarize(verified))
    const usable = Array.isArray(summary) ? summary.filter(isUsable) : []
    if (usable.length === 0) return { ...nothing, refused: true }
    const written = new Set(yield* remember(usable))
    // What was remembered again while the summary was made is wanted, and so is what the summary repeats.
    const ids = yield* stillOld(prunable, ref, facts)
    const forgotten = yield* forget(
      prunable,
      ref,
      ids.filter((id) => !written.has(id))
    )
    return { forgotten, written: written.size, refused: false }
  })
