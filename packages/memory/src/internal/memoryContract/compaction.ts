/**
 * Making old facts go.
 */
import { assert } from "@effect/vitest"
import * as Arr from "effect/Array"
import type * as Context from "effect/Context"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as TestClock from "effect/TestClock"
import * as Memory from "../../Memory.js"
import { MemoryStoreError } from "../../MemoryError.js"
import type { ResourceRef } from "../../ResourceRef.js"
import type { Prunable } from "../../SemanticMemory.js"
import { SemanticMemory } from "../../SemanticMemory.js"
import { failsWith, freshRef } from "../contract.js"
import type { It } from "./support.js"
import { contents, forWhom, listed, session } from "./support.js"

class Refused extends Data.TaggedError("Refused")<object> {}

const minute = 60_000

/** Remembers one fact a minute, beginning now: `0`, `1`, … */
const rememberByMinutes = (ref: ResourceRef, count: number) =>
  Effect.gen(function* () {
    const memory = yield* Memory.FullMemory
    for (let index = 0; index < count; index++) {
      yield* memory.remember(ref, { content: `${index}` })
      yield* TestClock.adjust(minute)
    }
  })

/** A memory over the same facts whose provider is changed. */
const over = (
  change: (
    semantic: Context.Tag.Service<SemanticMemory>,
    prunable: Prunable
  ) => Partial<Context.Tag.Service<SemanticMemory>>,
  options?: Memory.Options
) =>
  Effect.gen(function* () {
    const semantic = yield* SemanticMemory
    const prunable = Option.getOrThrow(semantic.prunable)
    return yield* Effect.provideService(Memory.makeFull(options), SemanticMemory, {
      ...semantic,
      ...change(semantic, prunable)
    })
  })

export const compaction = (it: It): void => {
  it.effect("the oldest go: by age, and then by number", () =>
    Effect.gen(function* () {
      const memory = yield* Memory.FullMemory
      const [ref, other] = yield* Effect.all([freshRef, freshRef])
      yield* memory.remember(other, { content: "of another" })
      yield* rememberByMinutes(ref, 10)
      const kept = { forgotten: 0, written: 0, refused: false }
      assert.deepStrictEqual(yield* memory.compactSemanticMemory(ref), kept)
      assert.deepStrictEqual(yield* memory.compactSemanticMemory(ref, { maxFacts: 10, maxAge: "10 minutes" }), kept)
      assert.deepStrictEqual(contents(yield* listed(ref)).length, 10)
      // Older than eight minutes are two; of the eight that are left three are too many.
      const result = yield* memory.compactSemanticMemory(ref, { maxFacts: 5, maxAge: "8 minutes" })
      assert.deepStrictEqual(result, { ...kept, forgotten: 5 })
      assert.deepStrictEqual(contents(yield* listed(ref)), ["5", "6", "7", "8", "9"])
      // Older than two minutes are three, and then two are not too many.
      const byAge = yield* memory.compactSemanticMemory(ref, { maxFacts: 4, maxAge: "2 minutes" })
      assert.deepStrictEqual(byAge, { ...kept, forgotten: 3 })
      assert.deepStrictEqual(contents(yield* listed(ref)), ["8", "9"])
      assert.deepStrictEqual(yield* memory.compactSemanticMemory(ref, { maxFacts: 1 }), { ...kept, forgotten: 1 })
      assert.deepStrictEqual(yield* memory.compactSemanticMemory(ref, { maxFacts: 0 }), { ...kept, forgotten: 1 })
      assert.deepStrictEqual(yield* memory.compactSemanticMemory(ref, { maxFacts: 0 }), kept)
      assert.deepStrictEqual(contents(yield* listed(other)), ["of another"])
    })
  )

  it.effect("what was remembered again is young, and facts of one moment go in their order", () =>
    Effect.gen(function* () {
      const memory = yield* Memory.FullMemory
      const ref = yield* freshRef
      yield* memory.rememberAll(
        ref,
        ["a", "b", "c", "d"].map((content) => ({ content }))
      )
      yield* TestClock.adjust(minute)
      yield* memory.remember(ref, { content: "a" })
      yield* memory.compactSemanticMemory(ref, { maxFacts: 2 })
      assert.deepStrictEqual(contents(yield* listed(ref)), ["a", "d"])
      yield* TestClock.adjust(minute)
      yield* memory.compactSemanticMemory(ref, { maxAge: "90 seconds" })
      assert.deepStrictEqual(contents(yield* listed(ref)), ["a"])
    })
  )

  it.effect("thousands go as well", () =>
    Effect.gen(function* () {
      const memory = yield* Memory.FullMemory
      const ref = yield* freshRef
      yield* memory.rememberAll(
        ref,
        Arr.makeBy(1_300, (index) => ({ content: `fact ${index}` }))
      )
      let summarized = 0
      const result = yield* memory.compactSemanticMemory(ref, {
        maxFacts: 3,
        summarize: (facts) =>
          Effect.sync(() => {
            summarized = facts.length
            return [{ content: `a summary of ${facts[0]?.content} to ${facts.at(-1)?.content}` }]
          })
      })
      assert.deepStrictEqual(result, { forgotten: 1_297, written: 1, refused: false })
      assert.strictEqual(summarized, 1_297)
      assert.deepStrictEqual(contents(yield* listed(ref)), [
        "fact 1297",
        "fact 1298",
        "fact 1299",
        "a summary of fact 0 to fact 1296"
      ])
    })
  )

  it.effect("a summary is written before what it stands for goes", () =>
    Effect.gen(function* () {
      const ref = yield* freshRef
      const one = yield* session(forWhom(ref))
      const log: Array<string> = []
      const memory = yield* over(({ rememberAll }, prunable) => ({
        rememberAll: (owner, facts) =>
          Effect.zipLeft(
            rememberAll(owner, facts),
            Effect.sync(() => log.push(`write ${contents(facts)}`))
          ),
        prunable: Option.some({
          ...prunable,
          forget: (owner, ids) =>
            Effect.zipRight(
              Effect.sync(() => log.push(`forget ${ids.length}`)),
              prunable.forget(owner, ids)
            )
        })
      }))
      const sourceRef = { sandboxId: one.sandboxId, entryIndex: 0 }
      yield* memory.remember(ref, { content: "proved", metadata: { a: 1 }, sourceRef })
      yield* rememberByMinutes(ref, 4)
      let given: ReadonlyArray<Memory.Fact> = []
      const result = yield* memory.compactSemanticMemory(ref, {
        maxFacts: 1,
        summarize: (facts) =>
          Effect.sync(() => {
            given = facts
            log.push("summarize")
            return [{ content: "first" }, { content: " " }, { content: "second", metadata: { b: 2 }, sourceRef }]
          })
      })
      assert.deepStrictEqual(contents(given), ["proved", "0", "1", "2"])
      assert.deepStrictEqual(
        [given[0]?.verified, given[0]?.metadata, given[0]?.sourceRef, given[1]?.verified],
        [true, { a: 1 }, sourceRef, false]
      )
      assert.deepStrictEqual(log, ["summarize", "write first,second", "forget 4"])
      assert.deepStrictEqual(result, { forgotten: 4, written: 2, refused: false })
      const left = yield* listed(ref)
      assert.deepStrictEqual(contents(left), ["3", "first", "second"])
      assert.deepStrictEqual([left[2]?.metadata, left[2]?.verified], [{ b: 2 }, true])
    })
  )

  it.effect("a summary that misbehaves makes nothing go", () =>
    Effect.gen(function* () {
      const memory = yield* Memory.FullMemory
      const ref = yield* freshRef
      yield* rememberByMinutes(ref, 3)
      const before = yield* listed(ref)
      const compact = (summarize: Memory.CompactionOptions<Refused>["summarize"]) =>
        memory.compactSemanticMemory(ref, { maxFacts: 1, summarize })
      const useless: ReadonlyArray<ReadonlyArray<Memory.NewFact>> = [
        [],
        [{ content: "" }, { content: "\n " }],
        // What a program without types may do.
        JSON.parse("null"),
        JSON.parse(`"a summary"`),
        JSON.parse(`[null, 7, {"text": "a"}, "a"]`)
      ]
      for (const answer of useless) {
        const result = yield* compact(() => Effect.succeed(answer))
        assert.deepStrictEqual(result, { forgotten: 0, written: 0, refused: true })
      }
      yield* failsWith(
        "Refused",
        compact(() => Effect.fail(new Refused()))
      )
      const thrown = yield* Effect.exit(
        compact(() => {
          throw new Error("no")
        })
      )
      assert.isTrue(Exit.isFailure(thrown))
      // What cannot be remembered is not written in part.
      const unwritable = [{ content: "good" }, { content: "bad", sourceRef: { sandboxId: "", entryIndex: 0 } }]
      yield* failsWith(
        "InvalidInput",
        compact(() => Effect.succeed(unwritable))
      )
      assert.deepStrictEqual(yield* listed(ref), before)
    })
  )

  it.effect("what the summary repeats, and what was remembered meanwhile, stays", () =>
    Effect.gen(function* () {
      const memory = yield* Memory.FullMemory
      const ref = yield* freshRef
      yield* rememberByMinutes(ref, 5)
      const result = yield* memory.compactSemanticMemory(ref, {
        maxFacts: 1,
        summarize: () => Effect.as(memory.remember(ref, { content: "2" }), [{ content: "0" }, { content: "summary" }])
      })
      assert.deepStrictEqual(result, { forgotten: 2, written: 2, refused: false })
      assert.deepStrictEqual(contents(yield* listed(ref)), ["0", "2", "4", "summary"])
    })
  )

  it.effect("limits that make no sense are refused", () =>
    Effect.gen(function* () {
      const memory = yield* Memory.FullMemory
      const ref = yield* freshRef
      yield* memory.remember(ref, { content: "a" })
      const refused: ReadonlyArray<Memory.CompactionLimits> = [
        { maxFacts: -1 },
        { maxFacts: 0.5 },
        { maxFacts: Number.NaN },
        // What a program without types may do.
        JSON.parse(`{"maxAge":"soon"}`)
      ]
      for (const limits of refused) {
        yield* failsWith("InvalidInput", memory.compactSemanticMemory(ref, limits))
        yield* failsWith("InvalidInput", Memory.makeFull({ autoCompact: limits }))
      }
      for (const checkEvery of [0, -1, 1.5, Number.NaN]) {
        yield* failsWith("InvalidInput", Memory.makeFull({ autoCompact: { maxFacts: 1, checkEvery } }))
      }
      assert.strictEqual((yield* listed(ref)).length, 1)
    })
  )

  it.effect("by itself, after every so many facts of a resource", () =>
    Effect.gen(function* () {
      const memory = yield* over(() => ({}), { autoCompact: { maxFacts: 2, checkEvery: 3 } })
      const [ref, other] = yield* Effect.all([freshRef, freshRef])
      const remember = (owner: ResourceRef, content: string) =>
        Effect.zipRight(memory.remember(owner, { content }), TestClock.adjust(minute))
      yield* remember(ref, "0")
      yield* remember(ref, "1")
      yield* remember(other, "a")
      yield* remember(other, "b")
      assert.deepStrictEqual(contents(yield* listed(ref)), ["0", "1"])
      yield* remember(ref, "2")
      assert.deepStrictEqual(contents(yield* listed(ref)), ["1", "2"])
      yield* remember(ref, "3")
      yield* remember(ref, "3")
      assert.deepStrictEqual(contents(yield* listed(ref)), ["1", "2", "3"])
      yield* memory.rememberAll(
        ref,
        ["4", "5"].map((content) => ({ content }))
      )
      assert.deepStrictEqual(contents(yield* listed(ref)), ["4", "5"])
      assert.deepStrictEqual(contents(yield* listed(other)), ["a", "b"])
    })
  )

  it.effect("by itself, after every fact, and by age", () =>
    Effect.gen(function* () {
      const memory = yield* over(() => ({}), { autoCompact: { maxAge: "90 seconds" } })
      const ref = yield* freshRef
      for (const content of ["0", "1", "2"]) {
        const fact = yield* memory.remember(ref, { content })
        assert.strictEqual(fact.content, content)
        yield* TestClock.adjust(minute)
      }
      assert.deepStrictEqual(contents(yield* listed(ref)), ["1", "2"])
      // One that is remembered again is not too old, however long ago it was first remembered.
      yield* TestClock.adjust("1 day")
      yield* memory.remember(ref, { content: "1" })
      assert.deepStrictEqual(contents(yield* listed(ref)), ["1"])
    })
  )

  it.effect("what did not work by itself fails the call that it was part of; the fact is there", () =>
    Effect.gen(function* () {
      const broken = new MemoryStoreError({ method: "SemanticMemory.count", reason: "Connection" })
      let works = true
      const memory = yield* over(
        (_, prunable) => ({
          prunable: Option.some({
            ...prunable,
            count: (ref) => (works ? prunable.count(ref) : Effect.fail(broken))
          })
        }),
        { autoCompact: { maxFacts: 2, checkEvery: 2 } }
      )
      const ref = yield* freshRef
      works = false
      yield* memory.remember(ref, { content: "0" })
      const error = yield* failsWith("MemoryStoreError", memory.remember(ref, { content: "1" }))
      assert.strictEqual(error.method, "SemanticMemory.count")
      assert.deepStrictEqual(contents(yield* listed(ref)), ["0", "1"])
      yield* memory.remember(ref, { content: "1" })
      works = true
      yield* TestClock.adjust(minute)
      yield* memory.remember(ref, { content: "2" })
      assert.deepStrictEqual(contents(yield* listed(ref)), ["1", "2"])
    })
  )

  it.effect("nothing goes by itself where the provider cannot list and forget", () =>
    Effect.gen(function* () {
      const memory = yield* over(() => ({ prunable: Option.none() }), { autoCompact: { maxFacts: 1 } })
      const ref = yield* freshRef
      for (const content of ["0", "1", "2"]) yield* memory.remember(ref, { content })
      assert.deepStrictEqual(contents(yield* listed(ref)), ["0", "1", "2"])
    })
  )
}
