/**
 * Making old facts go.
 */
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

/** A fact, without its text. */
interface Mark {
  readonly id: string
  readonly updatedAt: number
}

/** Which facts go: those that are too old, and of the others the oldest that are too many. Oldest first. */
const selectGoing = (
  prunable: Prunable,
  ref: ResourceRef,
  { maxAge, maxFacts }: Limits
): Effect.Effect<ReadonlyArray<Mark>, PrunableError> =>
  Effect.gen(function* () {
    if (maxAge === Number.POSITIVE_INFINITY && (yield* prunable.count(ref)) <= maxFacts) return []
    const now = yield* Clock.currentTimeMillis
    const marks: Array<Mark> = []
    yield* Stream.runForEachChunk(prunable.listAll(ref), (facts) =>
      Effect.sync(() => {
        for (const { id, updatedAt } of facts) marks.push({ id, updatedAt })
      })
    )
    // Stable: of facts of one moment the one that was remembered first goes first.
    marks.sort((a, b) => a.updatedAt - b.updatedAt)
    const expired = marks.findIndex(({ updatedAt }) => now - updatedAt <= maxAge)
    const tooOld = expired < 0 ? marks.length : expired
    return marks.slice(0, Math.max(tooOld, marks.length - maxFacts))
  })

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

/** The facts of these marks that were not remembered again meanwhile, oldest first. */
const factsOf = (
  prunable: Prunable,
  ref: ResourceRef,
  marks: ReadonlyArray<Mark>
): Effect.Effect<ReadonlyArray<StoredFact>, PrunableError> =>
  Effect.suspend(() => {
    const wanted = new Map(marks.map(({ id, updatedAt }, place) => [id, { updatedAt, place }]))
    const found: Array<readonly [place: number, fact: StoredFact]> = []
    return prunable.listAll(ref).pipe(
      Stream.runForEach((fact) =>
        Effect.sync(() => {
          const mark = wanted.get(fact.id)
          if (mark?.updatedAt === fact.updatedAt) found.push([mark.place, fact])
        })
      ),
      Effect.as(found),
      Effect.map((all) => all.sort(([a], [b]) => a - b).map(([, fact]) => fact))
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
    const going = yield* selectGoing(prunable, ref, limits)
    if (going.length === 0) return nothing
    if (summarize === undefined) {
      return {
        ...nothing,
        forgotten: yield* forget(
          prunable,
          ref,
          going.map(({ id }) => id)
        )
      }
    }
    const facts = yield* Effect.flatMap(factsOf(prunable, ref, going), verify)
    if (facts.length === 0) return nothing
    const summary = yield* Effect.suspend(() => summarize(facts))
    const usable = Array.isArray(summary) ? summary.filter(isUsable) : []
    if (usable.length === 0) return { ...nothing, refused: true }
    const written = new Set(yield* remember(usable))
    // What was remembered again while the summary was made is wanted, and so is what the summary repeats.
    const left = yield* factsOf(prunable, ref, going)
    const gone = left.flatMap(({ id }) => (written.has(id) ? [] : [id]))
    return { forgotten: yield* forget(prunable, ref, gone), written: written.size, refused: false }
  })
