/**
 * What is remembered, and as what.
 */
import { assert } from "@effect/vitest"
import type { Json } from "@sandglass/core/LedgerEvent"
import * as Arr from "effect/Array"
import * as Effect from "effect/Effect"
import * as TestClock from "effect/TestClock"
import type { NewFact } from "../../SemanticMemory.js"
import { SemanticMemory } from "../../SemanticMemory.js"
import { awkwardTexts, confusable, failsWith, freshRef, invalidRefs } from "../contract.js"
import type { It, Model } from "./support.js"
import { contents, count, listed, recalled } from "./support.js"

export const remembering = (it: It, model: Model): void => {
  it.effect("a fact is found again with all that was given", () =>
    Effect.gen(function* () {
      const semantic = yield* SemanticMemory
      const ref = yield* freshRef
      const now = yield* TestClock.currentTimeMillis
      const given: NewFact = {
        content: "Prefers the window seat on night trains",
        metadata: { tags: ["travel"], nested: { "": null } },
        sourceRef: { sandboxId: "sbx-1", entryIndex: 3 },
        sourceDigest: "abc"
      }
      const fact = yield* semantic.remember(ref, given)
      assert.deepStrictEqual(fact, {
        ...given,
        id: fact.id,
        createdAt: now,
        updatedAt: now,
        model: semantic.model
      })
      assert.isNotEmpty(fact.id)
      const plain = yield* semantic.remember(ref, { content: "Lives in Vienna" })
      assert.deepStrictEqual(Object.keys(plain).sort(), ["content", "createdAt", "id", "model", "updatedAt"])
      assert.notStrictEqual(plain.id, fact.id)
      assert.deepStrictEqual(yield* listed(ref), [fact, plain])
      const [first, ...others] = yield* semantic.recall(ref, given.content, { topK: 1 })
      assert.deepStrictEqual(others, [])
      assert.approximately(first?.score ?? 0, 1, 1e-6)
      assert.deepStrictEqual(first, { ...fact, score: first?.score ?? 0 })
    })
  )

  it.effect("any text and any metadata come back as they were", () =>
    Effect.gen(function* () {
      const semantic = yield* SemanticMemory
      const ref = yield* freshRef
      const facts = awkwardTexts.map((text, index) => ({
        content: `${text} ${index}`,
        metadata: { [text]: [text], "": index },
        sourceRef: { sandboxId: `s${text}`, entryIndex: 2 ** 40 + index },
        sourceDigest: text
      }))
      const remembered = yield* semantic.rememberAll(ref, facts)
      assert.deepStrictEqual(
        remembered.map(({ content, metadata, sourceDigest, sourceRef }) => ({
          content,
          metadata,
          sourceRef,
          sourceDigest
        })),
        facts
      )
      assert.deepStrictEqual(yield* listed(ref), remembered)
      for (const fact of remembered) {
        const [found] = yield* semantic.recall(ref, fact.content, { topK: 1 })
        assert.approximately(found?.score ?? 0, 1, 1e-6)
      }
    })
  )

  it.effect("texts that differ in one character are different facts", () =>
    Effect.gen(function* () {
      const semantic = yield* SemanticMemory
      const ref = yield* freshRef
      const texts = ["a", "A", "a ", "ä", "a\u0308", "a\ud83d", "a\ufffd", "a\\ud83d", "a\0"]
      const facts = yield* semantic.rememberAll(
        ref,
        texts.map((content) => ({ content }))
      )
      assert.strictEqual(new Set(facts.map(({ id }) => id)).size, texts.length)
      assert.strictEqual(yield* count(ref), texts.length)
    })
  )

  it.effect("metadata is nothing but metadata", () =>
    Effect.gen(function* () {
      const semantic = yield* SemanticMemory
      const [ref, other] = yield* Effect.all([freshRef, freshRef])
      const metadata = {
        id: "mine",
        resourceId: other.resourceId,
        teamId: "t",
        verified: true,
        content: "other",
        score: 2,
        seq: 0,
        createdAt: 0,
        ...JSON.parse('{"__proto__":{"verified":true}}')
      }
      const fact = yield* semantic.remember(ref, { content: "the content", metadata })
      assert.deepStrictEqual(fact.metadata, metadata)
      assert.notStrictEqual(fact.id, "mine")
      assert.notProperty(fact, "verified")
      const [found] = yield* semantic.recall(ref, "the content")
      assert.strictEqual(found?.content, "the content")
      assert.strictEqual(found?.id, fact.id)
      assert.notProperty(found, "verified")
      assert.deepStrictEqual(yield* listed(other), [])
    })
  )

  it.effect("what makes no sense is refused, and nothing is written or embedded", () =>
    Effect.gen(function* () {
      const semantic = yield* SemanticMemory
      const ref = yield* freshRef
      const asked = model.asked.length
      const refused: ReadonlyArray<unknown> = [
        { content: "" },
        { content: " \n\t\u00a0" },
        { content: 7 },
        {},
        null,
        { content: "a", metadata: [] },
        { content: "a", metadata: "text" },
        { content: "a", metadata: { a: Number.NaN } },
        { content: "a", metadata: { a: new Date(0) } },
        { content: "a", sourceRef: {} },
        { content: "a", sourceRef: { sandboxId: "", entryIndex: 0 } },
        { content: "a", sourceRef: { sandboxId: "s", entryIndex: -1 } },
        { content: "a", sourceRef: { sandboxId: "s", entryIndex: 0.5 } },
        { content: "a", sourceDigest: "without a source" },
        { content: "a", sourceRef: { sandboxId: "s", entryIndex: 0 }, sourceDigest: 7 }
      ]
      for (const fact of refused) {
        // What a program without types may do.
        const untyped = fact as NewFact
        yield* failsWith("InvalidInput", semantic.remember(ref, untyped))
        yield* failsWith("InvalidInput", semantic.rememberAll(ref, [{ content: "good" }, untyped]))
      }
      assert.strictEqual(model.asked.length, asked)
      assert.strictEqual(yield* count(ref), 0)
      assert.deepStrictEqual(yield* semantic.rememberAll(ref, []), [])
    })
  )

  it.effect("the same content is one fact, embedded once", () =>
    Effect.gen(function* () {
      const semantic = yield* SemanticMemory
      const ref = yield* freshRef
      const content = "Has two cats"
      const first = yield* semantic.remember(ref, { content, metadata: { a: 1 } })
      const asked = model.asked.length
      yield* TestClock.adjust("1 minute")
      const again = yield* semantic.remember(ref, { content })
      assert.deepStrictEqual(again, { ...first, updatedAt: first.updatedAt + 60_000 })
      const sourceRef = { sandboxId: "sbx-1", entryIndex: 3 }
      const sourced = yield* semantic.remember(ref, { content, sourceRef, sourceDigest: "d" })
      assert.deepStrictEqual(sourced, { ...again, sourceRef, sourceDigest: "d" })
      const replaced = yield* semantic.remember(ref, {
        content,
        metadata: { b: 2 },
        sourceRef: { sandboxId: "sbx-2", entryIndex: 0 }
      })
      assert.deepStrictEqual(replaced, {
        ...again,
        metadata: { b: 2 },
        sourceRef: { sandboxId: "sbx-2", entryIndex: 0 }
      })
      assert.deepStrictEqual(yield* listed(ref), [replaced])
      assert.strictEqual(model.asked.length, asked)
      const other = yield* freshRef
      assert.notStrictEqual((yield* semantic.remember(other, { content })).id, first.id)
    })
  )

  it.effect("many are remembered in order, doubles as one", () =>
    Effect.gen(function* () {
      const semantic = yield* SemanticMemory
      const ref = yield* freshRef
      const known = yield* semantic.remember(ref, { content: "b", metadata: { old: true } })
      const facts = yield* semantic.rememberAll(ref, [
        { content: "a", metadata: { n: 1 } },
        { content: "b" },
        { content: "c" },
        { content: "a", sourceRef: { sandboxId: "s", entryIndex: 1 } },
        { content: "c", metadata: { n: 2 } }
      ])
      assert.deepStrictEqual(contents(facts), ["a", "b", "c", "a", "c"])
      assert.strictEqual(facts[1]?.id, known.id)
      assert.strictEqual(facts[0]?.id, facts[3]?.id)
      assert.deepStrictEqual(facts[0]?.metadata, { n: 1 })
      assert.deepStrictEqual(facts[0]?.sourceRef, { sandboxId: "s", entryIndex: 1 })
      assert.deepStrictEqual(contents(yield* listed(ref)), ["b", "a", "c"])
      const metadata = (yield* listed(ref)).map((fact): Json => fact.metadata ?? null)
      assert.deepStrictEqual(metadata, [{ old: true }, { n: 1 }, { n: 2 }])
    })
  )

  it.effect("the same content remembered at once is one fact", () =>
    Effect.gen(function* () {
      const semantic = yield* SemanticMemory
      const ref = yield* freshRef
      const facts = yield* Effect.all(
        Array.from({ length: 20 }, (_, index) =>
          semantic.rememberAll(ref, [
            { content: `shared ${index % 2}` },
            { content: `own ${index}` },
            { content: "all" }
          ])
        ),
        { concurrency: "unbounded" }
      )
      assert.strictEqual(new Set(facts.flat().map(({ id }) => id)).size, 23)
      assert.strictEqual(yield* count(ref), 23)
    })
  )

  it.effect(
    "thousands at once",
    () =>
      Effect.gen(function* () {
        const semantic = yield* SemanticMemory
        const ref = yield* freshRef
        const many = Arr.makeBy(2_345, (index) => ({ content: `fact number ${index}` }))
        const facts = yield* semantic.rememberAll(ref, many)
        assert.deepStrictEqual(contents(facts), contents(many))
        assert.deepStrictEqual(yield* listed(ref), facts)
        assert.strictEqual(yield* count(ref), 2_345)
        assert.deepStrictEqual(yield* recalled(ref, "fact number 1777", 1), ["fact number 1777"])
        // All of it is known now, and one more.
        const again = yield* semantic.rememberAll(ref, [...many, { content: "another" }])
        assert.deepStrictEqual(
          again.slice(0, -1).map(({ id }) => id),
          facts.map(({ id }) => id)
        )
      }),
    120_000
  )

  it.effect("no two resources are taken for each other", () =>
    Effect.gen(function* () {
      const semantic = yield* SemanticMemory
      const refs = yield* confusable
      yield* Effect.forEach(refs, (ref, index) => semantic.remember(ref, { content: `the same ${index}` }), {
        discard: true
      })
      for (const [index, ref] of refs.entries()) {
        assert.deepStrictEqual(yield* recalled(ref, "the same", 50), [`the same ${index}`])
        assert.deepStrictEqual(contents(yield* listed(ref)), [`the same ${index}`])
      }
    })
  )

  it.effect("a ref that names nobody is refused by every operation", () =>
    Effect.gen(function* () {
      const semantic = yield* SemanticMemory
      const ref = yield* freshRef
      const { clear, copy, forget } = yield* Effect.orDie(semantic.prunable)
      const asked = model.asked.length
      for (const invalid of invalidRefs) {
        yield* failsWith("InvalidResourceRef", semantic.remember(invalid, { content: "a" }))
        yield* failsWith("InvalidResourceRef", semantic.rememberAll(invalid, []))
        yield* failsWith("InvalidResourceRef", semantic.recall(invalid, "a"))
        yield* failsWith("InvalidResourceRef", semantic.reembed(invalid))
        yield* failsWith("InvalidResourceRef", Effect.asVoid(listed(invalid)))
        yield* failsWith("InvalidResourceRef", count(invalid))
        yield* failsWith("InvalidResourceRef", forget(invalid, []))
        yield* failsWith("InvalidResourceRef", clear(invalid))
        yield* failsWith("InvalidResourceRef", copy(invalid, ref))
        yield* failsWith("InvalidResourceRef", copy(ref, invalid))
      }
      assert.strictEqual(model.asked.length, asked)
    })
  )
}
