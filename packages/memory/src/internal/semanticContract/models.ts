/**
 * Embedding models that fail, and other embedding models.
 */
import { assert } from "@effect/vitest"
import * as Arr from "effect/Array"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { EmbeddingModel, Vector } from "../../EmbeddingModel.js"
import { EmbeddingError } from "../../MemoryError.js"
import { SemanticMemory } from "../../SemanticMemory.js"
import { failsWith, freshRef } from "../contract.js"
import type { Embed, It, Model } from "./support.js"
import { contents, count, listed, makeModel, recalled } from "./support.js"

export const failing = (it: It, model: Model): void => {
  it.effect("a model that fails is an error, never an empty result, and nothing is written", () =>
    Effect.gen(function* () {
      const semantic = yield* SemanticMemory
      const [ref, empty] = yield* Effect.all([freshRef, freshRef])
      const before = yield* semantic.remember(ref, { content: "before" })
      const refuse = new EmbeddingError({ model: "m", reason: "Connection", description: "down" })
      yield* model.misbehaving(() => Effect.fail(refuse))(
        Effect.gen(function* () {
          const errors = [
            yield* failsWith("EmbeddingError", semantic.remember(ref, { content: "new" })),
            yield* failsWith("EmbeddingError", semantic.rememberAll(ref, [{ content: "new" }])),
            yield* failsWith("EmbeddingError", semantic.recall(ref, "before")),
            yield* failsWith("EmbeddingError", semantic.recall(empty, "before"))
          ]
          for (const { description, model, reason } of errors) {
            assert.deepStrictEqual([model, reason, description], ["m", "Connection", "down"])
          }
          // Nothing of it needs the model.
          assert.strictEqual((yield* semantic.remember(ref, { content: "before" })).id, before.id)
        })
      )
      assert.deepStrictEqual(contents(yield* listed(ref)), ["before"])
    })
  )

  it.effect("vectors that are none are rejected", () =>
    Effect.gen(function* () {
      const semantic = yield* SemanticMemory
      const ref = yield* freshRef
      yield* semantic.remember(ref, { content: "before" })
      const { dimensions } = semantic.model
      const filled = (value: unknown): Vector => Arr.makeBy(dimensions, () => value) as unknown as Vector
      const each =
        (vector: Vector): Embed =>
        (texts) =>
          Effect.succeed(texts.map(() => vector))
      const answers: ReadonlyArray<Embed> = [
        each([]),
        each(Arr.makeBy(dimensions - 1, () => 1)),
        each(Arr.makeBy(dimensions + 1, () => 1)),
        each(filled(Number.NaN)),
        each(Arr.makeBy(dimensions, (index) => (index === 1 ? Number.POSITIVE_INFINITY : 1))),
        each(Arr.makeBy(dimensions, (index) => (index === 1 ? Number.NEGATIVE_INFINITY : 1))),
        each(filled(0)),
        each(new Float32Array(dimensions)),
        each(filled(null)),
        each(filled("1")),
        each(JSON.parse("null")),
        () => Effect.succeed([]),
        (texts) => Effect.succeed([...texts, "one more"].map(() => filled(1))),
        () => Effect.succeed(JSON.parse("{}")),
        () => Effect.succeed(JSON.parse("null"))
      ]
      for (const answer of answers) {
        yield* model.misbehaving(answer)(
          Effect.gen(function* () {
            const errors = [
              yield* failsWith("EmbeddingError", semantic.remember(ref, { content: "new" })),
              yield* failsWith("EmbeddingError", semantic.rememberAll(ref, [{ content: "new" }, { content: "newer" }])),
              yield* failsWith("EmbeddingError", semantic.recall(ref, "before"))
            ]
            assert.deepStrictEqual(
              errors.map(({ reason }) => reason),
              ["InvalidVector", "InvalidVector", "InvalidVector"]
            )
          })
        )
      }
      assert.deepStrictEqual(contents(yield* listed(ref)), ["before"])
    })
  )

  it.effect("a vector of any length has a direction", () =>
    Effect.gen(function* () {
      const semantic = yield* SemanticMemory
      const ref = yield* freshRef
      for (const content of ["[1e300,1e300] huge", "[1e-300,1e-300] tiny", "[1e308,-1e308] other"]) {
        yield* semantic.remember(ref, { content })
      }
      const found = yield* semantic.recall(ref, "[5e-324,5e-324] smallest", { topK: 2 })
      assert.deepStrictEqual(contents(found), ["[1e300,1e300] huge", "[1e-300,1e-300] tiny"])
      for (const { score } of found) {
        assert.approximately(score, 1, 1e-6)
      }
    })
  )
}

/** `again` opens the same store once more, with whatever model there is. */
export const otherModels = <E>(it: It, again: Layer.Layer<SemanticMemory, E, EmbeddingModel>): void => {
  it.scoped(
    "facts of another model are not compared until they are embedded again",
    () =>
      Effect.gen(function* () {
        const old = yield* SemanticMemory
        for (const other of [makeModel("another"), makeModel("of another dimension", 24)]) {
          const ref = yield* freshRef
          const bystander = yield* freshRef
          const many = Arr.makeBy(700, (index) => ({ content: `old fact ${index}` }))
          const facts = yield* old.rememberAll(ref, [{ content: "Lives in Vienna", metadata: { a: 1 } }, ...many])
          yield* old.remember(bystander, { content: "Lives in Graz" })
          yield* Effect.gen(function* () {
            const semantic = yield* SemanticMemory
            const mismatch = yield* failsWith("EmbeddingMismatch", semantic.recall(ref, "Vienna"))
            assert.deepStrictEqual(mismatch.model, semantic.model)
            assert.deepStrictEqual(mismatch.stored, [old.model])
            // Remembering goes on; recall waits for the others.
            const added = yield* semantic.remember(ref, { content: "Works as a nurse" })
            assert.deepStrictEqual(added.model, semantic.model)
            yield* failsWith("EmbeddingMismatch", semantic.recall(ref, "nurse"))
            // Remembered again it is embedded again.
            const known = yield* semantic.remember(ref, { content: "old fact 5" })
            assert.strictEqual(known.id, facts[6]?.id)
            assert.deepStrictEqual(known.model, semantic.model)
            assert.deepStrictEqual((yield* listed(ref))[0], facts[0])

            const asked = other.asked.length
            assert.strictEqual(yield* semantic.reembed(ref), 700)
            assert.strictEqual(other.asked.length, asked + 700)
            assert.strictEqual(yield* semantic.reembed(ref), 0)
            assert.deepStrictEqual(yield* recalled(ref, "Lives in Vienna", 1), ["Lives in Vienna"])
            assert.deepStrictEqual(yield* recalled(ref, "old fact 321", 1), ["old fact 321"])
            const present = yield* listed(ref)
            assert.deepStrictEqual(contents(present), [...contents(facts), "Works as a nurse"])
            assert.deepStrictEqual(present[0], { ...facts[0], model: semantic.model })
            yield* failsWith("EmbeddingMismatch", semantic.recall(bystander, "Graz"))
          }).pipe(Effect.provide(Layer.fresh(Layer.provide(again, other.layer))))
          const back = yield* failsWith("EmbeddingMismatch", old.recall(ref, "Vienna"))
          assert.strictEqual(back.stored.length, 1)
          assert.deepStrictEqual(yield* recalled(bystander, "Lives in Graz", 1), ["Lives in Graz"])
          assert.strictEqual(yield* old.reembed(ref), 702)
          assert.deepStrictEqual(yield* recalled(ref, "Lives in Vienna", 1), ["Lives in Vienna"])
          assert.deepStrictEqual(yield* recalled(ref, "old fact 321", 1), ["old fact 321"])
          assert.strictEqual(yield* count(ref), 702)
        }
      }),
    120_000
  )

  it.scoped(
    "embedding again goes on where it failed",
    () =>
      Effect.gen(function* () {
        const old = yield* SemanticMemory
        const ref = yield* freshRef
        yield* old.rememberAll(
          ref,
          Arr.makeBy(600, (index) => ({ content: `fact ${index}` }))
        )
        const other = makeModel("third")
        let calls = 0
        const failLater: Embed = (texts) =>
          ++calls > 1
            ? Effect.fail(new EmbeddingError({ model: "third", reason: "RateLimited" }))
            : Effect.succeed(texts.map(() => Arr.makeBy(32, () => 1)))
        yield* Effect.gen(function* () {
          const semantic = yield* SemanticMemory
          const error = yield* other.misbehaving(failLater)(failsWith("EmbeddingError", semantic.reembed(ref)))
          assert.strictEqual(error.reason, "RateLimited")
          const rest = yield* semantic.reembed(ref)
          assert.isAbove(rest, 0)
          assert.isBelow(rest, 600)
          assert.strictEqual(yield* count(ref), 600)
          assert.strictEqual((yield* semantic.recall(ref, "fact", { topK: 600 })).length, 600)
        }).pipe(Effect.provide(Layer.fresh(Layer.provide(again, other.layer))))
      }),
    120_000
  )
}
