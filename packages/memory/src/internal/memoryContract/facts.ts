/**
 * Facts, and whether the ledger proves them.
 */
import { assert } from "@effect/vitest"
import { Ledger } from "@sandglass/core/Ledger"
import type { Json, LedgerEntry } from "@sandglass/core/LedgerEvent"
import * as Arr from "effect/Array"
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/TestClock"
import { EpisodicMemory } from "../../EpisodicMemory.js"
import * as Memory from "../../Memory.js"
import type { MemoryCapabilityError } from "../../MemoryError.js"
import type { ResourceRef } from "../../ResourceRef.js"
import { SemanticMemory } from "../../SemanticMemory.js"
import { failsWith, fresh, freshRef, invalidRefs } from "../contract.js"
import type { It } from "./support.js"
import { collect, contents, forWhom, listed, note, session } from "./support.js"

/** Whether the facts of a resource are verified, by every way to read them. */
const verdicts = (ref: ResourceRef) =>
  Effect.gen(function* () {
    const memory = yield* Memory.FullMemory
    const all = yield* listed(ref)
    const found = yield* memory.recall(ref, "fact", { topK: 100 })
    for (const { id, verified } of found) assert.strictEqual(all.find((fact) => fact.id === id)?.verified, verified)
    assert.strictEqual(found.length, all.length)
    return Object.fromEntries(all.map(({ content, verified }) => [content, verified]))
  })

/** A memory of the same facts whose ledger answers with other entries. */
const withEntries = (change: (entry: LedgerEntry) => LedgerEntry) =>
  Effect.gen(function* () {
    const ledger = yield* Ledger
    const changed: Context.Tag.Service<Ledger> = {
      ...ledger,
      read: (options) => {
        const { after, until, ...rest } = options ?? {}
        const inside = ({ id }: LedgerEntry) => id > (after?.id ?? 0) && id <= (until?.id ?? Number.POSITIVE_INFINITY)
        return Stream.filter(Stream.map(ledger.read({ ...rest, limit: undefined }), change), inside)
      },
      entryAt: (sandboxId, index) => Effect.map(ledger.entryAt(sandboxId, index), Option.map(change))
    }
    return yield* Effect.provideService(Memory.makeFull(), Ledger, changed)
  })

export const facts = (it: It): void => {
  it.effect("a fact with a source in the resource's history is verified, wherever it is read", () =>
    Effect.gen(function* () {
      const memory = yield* Memory.FullMemory
      const episodic = yield* EpisodicMemory
      const ref: ResourceRef = { resourceId: yield* fresh("r"), teamId: "t" }
      const one = yield* session(forWhom(ref))
      const entry = yield* note(one, "the proof")
      yield* note(one, "after it")
      const sourceRef = yield* episodic.sourceRef(entry)
      yield* TestClock.setTime(1_000_000)
      const fact = yield* memory.remember(ref, { content: "fact a", metadata: { verified: false, id: "x" }, sourceRef })
      assert.deepStrictEqual(fact, {
        id: fact.id,
        content: "fact a",
        metadata: { verified: false, id: "x" },
        sourceRef,
        createdAt: 1_000_000,
        updatedAt: 1_000_000,
        model: fact.model,
        verified: true
      })
      assert.notStrictEqual(fact.id, "x")
      const plain = yield* memory.remember(ref, { content: "fact b", metadata: { verified: true } })
      assert.isFalse(plain.verified)
      assert.deepStrictEqual(yield* listed(ref), [fact, plain])
      const [found] = yield* memory.recall(ref, "fact a", { topK: 1 })
      assert.approximately(found?.score ?? 0, 1, 1e-6)
      assert.deepStrictEqual(found, { ...fact, score: found?.score ?? 0 })
      assert.deepStrictEqual(yield* memory.rememberAll(ref, [{ content: "fact a" }, { content: "fact b" }]), [
        fact,
        plain
      ])
    })
  )

  it.effect("false proof is none", () =>
    Effect.gen(function* () {
      const memory = yield* Memory.FullMemory
      const semantic = yield* SemanticMemory
      const ref: ResourceRef = { resourceId: yield* fresh("r"), teamId: "t" }
      const own = yield* session(forWhom(ref))
      const proof = { sandboxId: own.sandboxId, entryIndex: 0 }
      const other = yield* session(forWhom(yield* freshRef))
      const otherTeam = yield* session(forWhom({ ...ref, teamId: "u" }))
      const noTeam = yield* session({ resourceId: ref.resourceId })
      const named = yield* session({}, ref.resourceId)
      const uncreated = yield* fresh("sbx")
      yield* (yield* Ledger).append({ sandboxId: uncreated, name: ref.resourceId, event: "note" })
      const sources = {
        "fact of nothing": undefined,
        "fact of no sandbox": { sandboxId: yield* fresh("sbx"), entryIndex: 0 },
        "fact of no entry": { sandboxId: own.sandboxId, entryIndex: 1 },
        "fact of no such place": { sandboxId: own.sandboxId, entryIndex: Number.MAX_SAFE_INTEGER },
        "fact of another resource": { sandboxId: other.sandboxId, entryIndex: 0 },
        "fact of another team": { sandboxId: otherTeam.sandboxId, entryIndex: 0 },
        "fact of no team": { sandboxId: noTeam.sandboxId, entryIndex: 0 },
        "fact of a namesake": { sandboxId: named.sandboxId, entryIndex: 0 },
        "fact of no session": { sandboxId: uncreated, entryIndex: 0 }
      }
      for (const [content, sourceRef] of Object.entries(sources)) {
        assert.isFalse((yield* memory.remember(ref, { content, sourceRef })).verified, content)
      }
      // What a caller says of it counts for nothing, in whatever field.
      const { sourceDigest } = yield* semantic.remember(yield* freshRef, { content: "x" })
      assert.isUndefined(sourceDigest)
      const forged = { content: "fact that was forged", sourceDigest: "0.1.2", verified: true }
      assert.isFalse((yield* memory.remember(ref, forged)).verified)
      yield* memory.remember(ref, { content: "fact with proof", sourceRef: proof })
      const expected = Object.fromEntries(Object.keys(sources).map((content) => [content, false]))
      assert.deepStrictEqual(yield* verdicts(ref), {
        ...expected,
        "fact that was forged": false,
        "fact with proof": true
      })
      // A digest that did not come from the ledger proves nothing either, though it is kept.
      yield* semantic.remember(ref, { content: "fact with proof", sourceRef: proof, sourceDigest: "0.0.abc" })
      assert.isFalse((yield* verdicts(ref))["fact with proof"])
    })
  )

  it.effect("an entry that comes later proves nothing that was remembered before", () =>
    Effect.gen(function* () {
      const memory = yield* Memory.FullMemory
      const ref = yield* freshRef
      const one = yield* session(forWhom(ref))
      const fact = { content: "fact", sourceRef: { sandboxId: one.sandboxId, entryIndex: 1 } }
      yield* memory.remember(ref, fact)
      yield* note(one, "later")
      assert.deepStrictEqual(yield* verdicts(ref), { fact: false })
      assert.isTrue((yield* memory.remember(ref, fact)).verified)
      assert.deepStrictEqual(yield* verdicts(ref), { fact: true })
    })
  )

  it.effect("a session that is deleted takes its proof along", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const memory = yield* Memory.FullMemory
      const ref = yield* freshRef
      const [gone, stays] = yield* Effect.all([session(forWhom(ref)), session({}, ref.resourceId)])
      yield* memory.rememberAll(ref, [
        { content: "fact gone", sourceRef: { sandboxId: gone.sandboxId, entryIndex: 0 } },
        { content: "fact stays", sourceRef: { sandboxId: stays.sandboxId, entryIndex: 0 } }
      ])
      assert.deepStrictEqual(yield* verdicts(ref), { "fact gone": true, "fact stays": true })
      yield* ledger.deleteSandbox(gone.sandboxId, { force: true })
      assert.deepStrictEqual(yield* verdicts(ref), { "fact gone": false, "fact stays": true })
      // A new session of the same id is another history.
      const { name, sandboxId } = gone
      yield* ledger.append({ sandboxId, name, event: "sandbox.created", payload: { ...forWhom(ref), runId: "other" } })
      assert.deepStrictEqual(yield* verdicts(ref), { "fact gone": false, "fact stays": true })
    })
  )

  it.effect("an entry that was changed proves nothing, one that only moved still does", () =>
    Effect.gen(function* () {
      const memory = yield* Memory.FullMemory
      const ref = yield* freshRef
      const one = yield* session(forWhom(ref))
      const { id } = yield* note(one, "said")
      yield* note(one, "other")
      yield* memory.remember(ref, { content: "fact", sourceRef: { sandboxId: one.sandboxId, entryIndex: 1 } })
      const verified = (change: (entry: LedgerEntry) => LedgerEntry) =>
        Effect.flatMap(withEntries(change), (changed) =>
          Effect.map(changed.recall(ref, "fact"), ([fact]) => fact?.verified)
        )
      const changed = (fields: Partial<LedgerEntry>) => (entry: LedgerEntry) =>
        entry.id === id ? { ...entry, ...fields } : entry
      assert.isTrue(yield* verified(changed({})))
      const forgeries: ReadonlyArray<Partial<LedgerEntry>> = [
        { payload: { text: "unsaid" } },
        { payload: { text: "said", more: null } },
        { payload: [["text", "said"]] },
        { event: "note2" },
        { error: "no" },
        { stepIdx: 3 },
        { branch: 0 },
        { name: "other" },
        { ts: 1 }
      ]
      for (const fields of forgeries) assert.isFalse(yield* verified(changed(fields)), JSON.stringify(fields))
      // As in a ledger that was copied to another database.
      assert.isTrue(yield* verified((entry) => ({ ...entry, id: entry.id + 1_000 })))
    })
  )

  it.effect("proof of any payload, far down in a long session", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const memory = yield* Memory.FullMemory
      const ref = yield* freshRef
      const { name, sandboxId } = yield* session(forWhom(ref))
      const payloads: ReadonlyArray<Json> = [
        { zebra: 1, a: { z: [1, { y: 2, b: 3 }], c: null } },
        { "10": "a", "9": "b", "\u00e9": "c", __proto__: { d: 1 } },
        { text: "NUL \0 and half \ud83d" },
        "text",
        [],
        1e21,
        null
      ]
      yield* ledger.appendAll(
        Arr.makeBy(2_500, (index) => ({
          sandboxId,
          name,
          event: "note",
          payload: payloads[index % payloads.length] ?? null
        }))
      )
      const bare = yield* ledger.append({ sandboxId, name, event: "note", error: "e" })
      assert.strictEqual(yield* ledger.indexOf(sandboxId, bare), 2_501)
      const remembered = yield* memory.rememberAll(
        ref,
        Arr.makeBy(8, (index) => ({
          content: `fact ${index}`,
          sourceRef: { sandboxId, entryIndex: index === 7 ? 2_501 : 2_401 + index }
        }))
      )
      assert.isTrue(remembered.every(({ verified }) => verified))
      assert.isTrue(Object.values(yield* verdicts(ref)).every((verified) => verified))
    })
  )

  it.effect("remembering again keeps the source, or replaces it", () =>
    Effect.gen(function* () {
      const memory = yield* Memory.FullMemory
      const ref = yield* freshRef
      const [a, b] = yield* Effect.all([session(forWhom(ref)), session(forWhom(ref))])
      const from = ({ sandboxId }: { readonly sandboxId: string }) => ({ sandboxId, entryIndex: 0 })
      const first = yield* memory.remember(ref, { content: "fact", sourceRef: from(a) })
      const kept = yield* memory.remember(ref, { content: "fact" })
      assert.deepStrictEqual([kept.id, kept.sourceRef, kept.verified], [first.id, from(a), true])
      const replaced = yield* memory.remember(ref, { content: "fact", sourceRef: from(b) })
      assert.deepStrictEqual([replaced.id, replaced.sourceRef, replaced.verified], [first.id, from(b), true])
      const invented = yield* memory.remember(ref, { content: "fact", sourceRef: { ...from(b), entryIndex: 9 } })
      assert.deepStrictEqual([invented.id, invented.verified], [first.id, false])
      assert.strictEqual((yield* listed(ref)).length, 1)
    })
  )

  it.effect("facts can be forgotten, and are only those of the resource", () =>
    Effect.gen(function* () {
      const memory = yield* Memory.FullMemory
      const [ref, other] = yield* Effect.all([freshRef, freshRef])
      const facts = yield* memory.rememberAll(ref, [{ content: "one" }, { content: "two" }])
      yield* memory.remember(other, { content: "one" })
      const ids = facts.map(({ id }) => id)
      assert.strictEqual(yield* memory.forget(other, ids), 0)
      assert.strictEqual(yield* memory.forget(ref, ids.slice(0, 1)), 1)
      assert.deepStrictEqual(contents(yield* listed(ref)), ["two"])
      assert.deepStrictEqual(contents(yield* memory.recall(other, "one")), ["one"])
      assert.strictEqual(yield* memory.reembed(ref), 0)
    })
  )

  it.effect("a memory can be cleared as a whole", () =>
    Effect.gen(function* () {
      const memory = yield* Memory.FullMemory
      const semantic = yield* SemanticMemory
      const [ref, other] = yield* Effect.all([freshRef, freshRef])
      yield* session(forWhom(ref))
      for (const owner of [ref, other]) {
        yield* memory.working.set(owner, "a", 1)
        yield* memory.working.set(owner, "b", 2)
        yield* memory.remember(owner, { content: "fact" })
      }
      const stubborn = yield* Effect.provideService(Memory.makeFull(), SemanticMemory, {
        ...semantic,
        prunable: Option.none()
      })
      yield* failsWith("MemoryCapabilityError", stubborn.clear(ref))
      assert.deepStrictEqual(yield* memory.clear(ref), { workingKeys: 2, semanticFacts: 1 })
      assert.deepStrictEqual(yield* memory.clear(ref), { workingKeys: 0, semanticFacts: 0 })
      assert.deepStrictEqual([(yield* memory.working.list(ref)).size, yield* listed(ref)], [0, []])
      assert.deepStrictEqual([(yield* memory.working.list(other)).size, contents(yield* listed(other))], [2, ["fact"]])
      assert.strictEqual((yield* collect(memory.episodicRecall(ref))).length, 1)
    })
  )

  it.effect("what makes no sense is refused, and nothing was written", () =>
    Effect.gen(function* () {
      const memory = yield* Memory.FullMemory
      for (const ref of invalidRefs) {
        yield* failsWith("InvalidResourceRef", memory.remember(ref, { content: "a" }))
        yield* failsWith("InvalidResourceRef", memory.rememberAll(ref, [{ content: "a" }]))
        yield* failsWith("InvalidResourceRef", memory.recall(ref, "a"))
        yield* failsWith("InvalidResourceRef", collect(memory.listAll(ref)))
        yield* failsWith("InvalidResourceRef", memory.forget(ref, ["a"]))
        yield* failsWith("InvalidResourceRef", memory.compactSemanticMemory(ref, { maxFacts: 1 }))
        yield* failsWith("InvalidResourceRef", memory.buildContextSnippet(ref))
        yield* failsWith("InvalidResourceRef", memory.fork(ref, "child"))
        yield* failsWith("InvalidResourceRef", memory.reembed(ref))
        yield* failsWith("InvalidResourceRef", memory.clear(ref))
      }
      const ref = yield* freshRef
      const one = yield* session(forWhom(ref))
      const entryAt = (entryIndex: number) => ({ content: "a", sourceRef: { sandboxId: one.sandboxId, entryIndex } })
      for (const fact of [
        { content: "" },
        { content: " \n" },
        entryAt(-1),
        entryAt(0.5),
        { content: "a", sourceRef: { sandboxId: "", entryIndex: 0 } },
        // What a program without types may do.
        JSON.parse("{}"),
        JSON.parse("null"),
        JSON.parse(`{"content":"a","sourceRef":7}`)
      ]) {
        yield* failsWith("InvalidInput", memory.remember(ref, fact))
        yield* failsWith("InvalidInput", memory.rememberAll(ref, [{ content: "good" }, fact]))
      }
      yield* failsWith("InvalidInput", memory.recall(ref, " "))
      assert.deepStrictEqual(yield* listed(ref), [])
    })
  )

  it.effect("without a semantic memory everything else works", () =>
    Effect.gen(function* () {
      const ref = yield* freshRef
      yield* session(forWhom(ref))
      yield* Effect.gen(function* () {
        const memory = yield* Memory.Memory
        assert.isFalse(memory.hasSemanticMemory)
        const everything: ReadonlyArray<Effect.Effect<unknown, Memory.FactError | MemoryCapabilityError>> = [
          memory.remember(ref, { content: "a" }),
          memory.rememberAll(ref, []),
          memory.recall(ref, "a"),
          memory.reembed(ref),
          collect(memory.listAll(ref)),
          memory.forget(ref, []),
          memory.compactSemanticMemory(ref)
        ]
        for (const unavailable of everything) {
          const error = yield* failsWith("MemoryCapabilityError", unavailable)
          assert.strictEqual(error.capability, "SemanticMemory")
        }
        yield* memory.working.set(ref, "k", 1)
        assert.include(yield* memory.buildContextSnippet(ref, { query: "a" }), `"k": 1`)
        assert.strictEqual((yield* collect(memory.episodicRecall(ref))).length, 1)
        assert.deepStrictEqual(yield* memory.clear(yield* freshRef), { workingKeys: 0, semanticFacts: 0 })
        const child = yield* fresh("child")
        assert.deepStrictEqual(yield* memory.fork(ref, child), {
          ref: { resourceId: child },
          workingKeysCopied: 1,
          semanticFactsCopied: 0
        })
      }).pipe(Effect.provide(Layer.fresh(Memory.layerWorking)))
      assert.isTrue((yield* Memory.Memory).hasSemanticMemory)
    })
  )

  it.effect("a provider that cannot list and forget says so", () =>
    Effect.gen(function* () {
      const semantic = yield* SemanticMemory
      const memory = yield* Effect.provideService(Memory.makeFull(), SemanticMemory, {
        ...semantic,
        prunable: Option.none()
      })
      const ref = yield* freshRef
      yield* memory.remember(ref, { content: "a" })
      assert.deepStrictEqual(contents(yield* memory.recall(ref, "a")), ["a"])
      const listing: ReadonlyArray<Effect.Effect<unknown, Memory.FactError | MemoryCapabilityError>> = [
        collect(memory.listAll(ref)),
        memory.forget(ref, []),
        memory.compactSemanticMemory(ref, { maxFacts: 0 })
      ]
      for (const unavailable of listing) {
        const error = yield* failsWith("MemoryCapabilityError", unavailable)
        assert.strictEqual(error.capability, "Prunable")
      }
      yield* memory.working.set(ref, "k", 1)
      const forked = yield* memory.fork(ref, yield* fresh("child"))
      assert.deepStrictEqual([forked.workingKeysCopied, forked.semanticFactsCopied], [1, 0])
    })
  )
}
