/**
 * What happened.
 */
import { assert } from "@effect/vitest"
import { Ledger } from "@sandglass/core/Ledger"
import type { LedgerEntry } from "@sandglass/core/LedgerEvent"
import * as Arr from "effect/Array"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import type { EpisodicRecallOptions } from "../../EpisodicMemory.js"
import { EpisodicMemory } from "../../EpisodicMemory.js"
import { Memory } from "../../Memory.js"
import type { ResourceRef } from "../../ResourceRef.js"
import { confusable, failsWith, fresh, freshRef, invalidRefs } from "../contract.js"
import type { It } from "./support.js"
import { collect, forWhom, note, session } from "./support.js"

const recall = (ref: ResourceRef, options?: EpisodicRecallOptions) =>
  Effect.flatMap(EpisodicMemory, (episodic) => collect(episodic.episodicRecall(ref, options)))

class Refused extends Data.TaggedError("Refused")<object> {}

/** What entries are called in these cases: their text, or their event. */
const texts = (entries: ReadonlyArray<LedgerEntry>): ReadonlyArray<string> =>
  entries.map(({ event, payload }) =>
    typeof payload === "object" && payload !== null && "text" in payload ? String(payload.text) : event
  )

export const episodes = (it: It): void => {
  it.effect("the sessions of a resource follow each other, with nobody else's in between", () =>
    Effect.gen(function* () {
      const [ref, other] = yield* Effect.all([freshRef, freshRef])
      const first = yield* session(forWhom(ref))
      const others = yield* session(forWhom(other))
      const second = yield* session(forWhom(ref))
      yield* note(second, "b1")
      yield* note(first, "a1")
      yield* note(others, "x")
      yield* note(first, "a2", "exec.output")
      yield* note(second, "b2")
      const entries = yield* recall(ref)
      assert.deepStrictEqual(texts(entries), ["sandbox.created", "a1", "a2", "sandbox.created", "b1", "b2"])
      assert.deepStrictEqual(entries[0], first.created)
      assert.deepStrictEqual(yield* recall(ref, { order: "desc" }), entries.toReversed())
      assert.deepStrictEqual(
        yield* recall(ref, { events: ["note"] }),
        [1, 4, 5].flatMap((at) => entries[at] ?? [])
      )
      assert.deepStrictEqual(
        yield* recall(ref, { withoutOutput: true }),
        [0, 1, 3, 4, 5].flatMap((at) => entries[at] ?? [])
      )
      assert.deepStrictEqual(texts(yield* recall(other)), ["sandbox.created", "x"])
      assert.deepStrictEqual(yield* recall(yield* freshRef), [])
      assert.deepStrictEqual(yield* collect((yield* Memory).episodicRecall(ref)), entries)
    })
  )

  it.effect("a limit means the newest", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const ref = yield* freshRef
      const sessions = yield* Effect.all([session(forWhom(ref)), session(forWhom(ref)), session(forWhom(ref))])
      for (const [place, { name, sandboxId }] of sessions.entries()) {
        yield* ledger.appendAll(
          Arr.makeBy(350, (index) => ({ sandboxId, name, event: "note", payload: { text: `${place}-${index}` } }))
        )
      }
      const all = yield* recall(ref)
      assert.strictEqual(all.length, 3 * 351)
      for (const limit of [1, 350, 351, 352, 800, 1053, 5000]) {
        assert.deepStrictEqual(yield* recall(ref, { limit }), all.slice(-limit))
        assert.deepStrictEqual(yield* recall(ref, { limit, order: "desc" }), all.slice(-limit).toReversed())
      }
      assert.deepStrictEqual(yield* recall(ref, { limit: 0 }), [])
      assert.deepStrictEqual(texts(yield* recall(ref, { limit: 2, events: ["sandbox.created"] })).length, 2)
    })
  )

  it.effect("resources that look alike have episodes of their own", () =>
    Effect.gen(function* () {
      const refs = yield* confusable
      for (const [place, ref] of refs.entries()) yield* note(yield* session(forWhom(ref)), `${place}`)
      for (const [place, ref] of refs.entries()) {
        assert.deepStrictEqual(texts(yield* recall(ref)), ["sandbox.created", `${place}`])
      }
    })
  )

  it.effect("rows that say nothing of a resource are found by the name of the session", () =>
    Effect.gen(function* () {
      const ref = yield* freshRef
      const older = yield* session({ runId: "run" }, ref.resourceId)
      const newer = yield* session(forWhom(ref))
      const namesake = yield* session(forWhom(yield* freshRef), ref.resourceId)
      const newest = yield* session({}, ref.resourceId)
      for (const [place, one] of [older, newer, namesake, newest].entries()) yield* note(one, `${place}`)
      assert.deepStrictEqual(texts(yield* recall(ref, { events: ["note"] })), ["0", "1", "3"])
      assert.deepStrictEqual(texts(yield* recall(ref, { events: ["note"], order: "desc" })), ["3", "1", "0"])
      // A row without a team belongs to no team.
      assert.deepStrictEqual(yield* recall({ ...ref, teamId: "t" }), [])
    })
  )

  it.effect("a lineage is what came before, up to where it branched off", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const [grandparent, parent, ref] = yield* Effect.all([freshRef, freshRef, freshRef])
      const root = yield* session(forWhom(grandparent))
      yield* note(root, "root before")
      const middle = yield* session({ ...forWhom(parent), parentSandboxId: root.sandboxId, snapshotId: "gone" })
      yield* note(root, "root after")
      yield* note(middle, "middle before")
      const { name, sandboxId } = middle
      yield* ledger.append({ sandboxId, name, event: "sandbox.checkpoint_created", payload: { snapshotId: "snap" } })
      yield* note(middle, "middle after the checkpoint")
      const fork = yield* session({ ...forWhom(ref), parentSandboxId: sandboxId, snapshotId: "snap" })
      yield* note(middle, "middle after")
      yield* note(fork, "fork")
      const resumed = yield* session({ ...forWhom(ref), resumedFrom: fork.sandboxId })
      yield* note(resumed, "resumed")
      yield* note(fork, "fork, later")
      const lineage = yield* recall(ref, { branch: "lineage" })
      assert.deepStrictEqual(
        texts(lineage).filter((text) => text !== "sandbox.created"),
        ["root before", "middle before", "sandbox.checkpoint_created", "fork", "fork, later", "resumed"]
      )
      assert.deepStrictEqual(yield* recall(ref, { branch: "lineage", order: "desc" }), lineage.toReversed())
      assert.deepStrictEqual(yield* recall(ref, { branch: "lineage", limit: 5 }), lineage.slice(-5))
      assert.deepStrictEqual(texts(yield* recall(ref, { branch: "self", events: ["note"] })), [
        "fork",
        "fork, later",
        "resumed"
      ])
    })
  )

  it.effect("sessions may be chosen by the caller", () =>
    Effect.gen(function* () {
      const episodic = yield* EpisodicMemory
      const ref = yield* freshRef
      const own = yield* session(forWhom(ref))
      const others = yield* session(forWhom(yield* freshRef))
      yield* note(own, "own")
      yield* note(others, "other")
      const resolveSessions = () => Effect.succeed([others.sandboxId, "unknown", own.sandboxId, own.sandboxId])
      const chosen = yield* recall(ref, { resolveSessions })
      assert.deepStrictEqual(texts(chosen), ["sandbox.created", "own", "sandbox.created", "other"])
      const tree = yield* episodic.episodicTree(ref, { resolveSessions })
      assert.deepStrictEqual(
        tree.map((node) => node.session.sandboxId),
        [own.sandboxId, others.sandboxId]
      )
      const failing = { resolveSessions: () => Effect.fail(new Refused()) }
      yield* failsWith("Refused", collect(episodic.episodicRecall(ref, failing)))
      yield* failsWith("Refused", episodic.episodicTree(ref, failing))
    })
  )

  it.effect("forks make a tree, below what they came from", () =>
    Effect.gen(function* () {
      const episodic = yield* EpisodicMemory
      const [ref, other] = yield* Effect.all([freshRef, freshRef])
      const above = yield* session(forWhom(other))
      const aunt = yield* session({ ...forWhom(other), parentSandboxId: above.sandboxId })
      const root = yield* session({ ...forWhom(ref), parentSandboxId: above.sandboxId })
      const left = yield* session({ ...forWhom(ref), parentSandboxId: root.sandboxId })
      const right = yield* session({ ...forWhom(ref), resumedFrom: root.sandboxId })
      const leaf = yield* session({ ...forWhom(ref), parentSandboxId: left.sandboxId })
      const orphan = yield* session({ ...forWhom(ref), parentSandboxId: yield* fresh("sbx") })
      yield* note(leaf, "leaf")
      const tree = yield* episodic.episodicTree(ref)
      const [first, second] = tree
      assert.deepStrictEqual(
        tree.map((node) => [node.session.sandboxId, node.own, node.children.length]),
        [
          [above.sandboxId, false, 1],
          [orphan.sandboxId, true, 0]
        ]
      )
      assert.deepStrictEqual(second?.session.cursor, { ts: orphan.created.ts, id: orphan.created.id })
      const top = first?.children[0]
      assert.strictEqual(top?.session.sandboxId, root.sandboxId)
      assert.deepStrictEqual(
        top?.children.map((node) => node.session.sandboxId),
        [left.sandboxId, right.sandboxId]
      )
      const bottom = top?.children[0]?.children[0]
      assert.isDefined(bottom)
      assert.deepStrictEqual(texts(yield* collect(bottom.entries)), ["sandbox.created", "leaf"])
      assert.deepStrictEqual(yield* collect(first?.entries ?? bottom.entries), [above.created])
      assert.notInclude(JSON.stringify(tree.map((node) => node.children.map((child) => child.session))), aunt.sandboxId)
      assert.deepStrictEqual(yield* episodic.episodicTree(yield* freshRef), [])
      assert.strictEqual((yield* (yield* Memory).episodicTree(ref)).length, 2)
    })
  )

  it.effect("cycles are survived", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const episodic = yield* EpisodicMemory
      const [ref, other] = yield* Effect.all([freshRef, freshRef])
      const ids = yield* Effect.all(Arr.makeBy(6, () => fresh("sbx")))
      const [itself, a, b, c, below, stranger] = ids
      const parents: ReadonlyArray<readonly [id: string | undefined, parent: string | undefined, of: ResourceRef]> = [
        [itself, itself, ref],
        [b, c, ref],
        [a, b, ref],
        [below, a, ref],
        [stranger, below, other],
        [c, a, ref]
      ]
      for (const [sandboxId = "", parentSandboxId = "", of] of parents) {
        const payload = { ...forWhom(of), parentSandboxId }
        yield* ledger.append({ sandboxId, name: "cycle", event: "sandbox.created", payload })
      }
      const tree = yield* episodic.episodicTree(ref)
      assert.deepStrictEqual(
        tree.map((node) => node.session.sandboxId),
        [itself, b]
      )
      assert.deepStrictEqual(
        tree[1]?.children.map((node) => node.session.sandboxId),
        [a]
      )
      assert.deepStrictEqual(
        tree[1]?.children[0]?.children.map((node) => node.session.sandboxId),
        [below, c]
      )
      const lineage = yield* recall(ref, { branch: "lineage" })
      assert.deepStrictEqual(
        lineage.map(({ sandboxId }) => sandboxId),
        [itself, b, a, below, c]
      )
      // Ancestors that are not those of the resource may go round as well.
      const ring = yield* Effect.all(Arr.makeBy(3, () => fresh("sbx")))
      for (const [place, sandboxId] of ring.entries()) {
        const payload = { ...forWhom(other), parentSandboxId: ring[(place + 1) % 3] ?? "" }
        yield* ledger.append({ sandboxId, name: "ring", event: "sandbox.created", payload })
      }
      const bystander = yield* freshRef
      const outside = yield* session({ ...forWhom(bystander), parentSandboxId: ring[1] ?? "" })
      const rings = yield* episodic.episodicTree(bystander)
      assert.deepStrictEqual(
        rings.map((node) => node.session.sandboxId),
        [ring[0]]
      )
      assert.strictEqual((yield* recall(bystander, { branch: "lineage" })).at(-1)?.sandboxId, outside.sandboxId)
    })
  )

  it.effect("thousands of sessions, in a chain", () =>
    Effect.gen(function* () {
      const ledger = yield* Ledger
      const episodic = yield* EpisodicMemory
      const ref = yield* freshRef
      const id = (index: number) => `${ref.resourceId}-${index}`
      const count = 2_300
      yield* ledger.appendAll(
        Arr.makeBy(count, (index) => ({
          sandboxId: id(index),
          name: "chain",
          event: "sandbox.created",
          payload: { ...forWhom(ref), ...(index === 0 ? {} : { parentSandboxId: id(index - 1) }) }
        }))
      )
      let depth = 0
      for (let nodes = yield* episodic.episodicTree(ref); nodes[0] !== undefined; nodes = nodes[0].children) {
        assert.strictEqual(nodes.length, 1)
        assert.strictEqual(nodes[0].session.sandboxId, id(depth))
        depth++
      }
      assert.strictEqual(depth, count)
      const found = yield* recall(ref, { limit: 3, branch: "lineage" })
      assert.deepStrictEqual(
        found.map(({ sandboxId }) => sandboxId),
        [id(count - 3), id(count - 2), id(count - 1)]
      )
    })
  )

  it.effect("an entry can be named", () =>
    Effect.gen(function* () {
      const episodic = yield* EpisodicMemory
      const ref = yield* freshRef
      const one = yield* session(forWhom(ref))
      yield* note(yield* session(forWhom(ref)), "in between")
      const entry = yield* note(one, "the entry")
      yield* note(one, "after it")
      assert.deepStrictEqual(yield* episodic.sourceRef(entry), { sandboxId: one.sandboxId, entryIndex: 1 })
      assert.deepStrictEqual(yield* episodic.sourceRef(one.created), { sandboxId: one.sandboxId, entryIndex: 0 })
    })
  )

  it.effect("whoever asks for nobody, or for nonsense, is told so", () =>
    Effect.gen(function* () {
      const episodic = yield* EpisodicMemory
      for (const ref of invalidRefs) {
        yield* failsWith("InvalidResourceRef", collect(episodic.episodicRecall(ref)))
        yield* failsWith("InvalidResourceRef", episodic.episodicTree(ref))
      }
      const ref = yield* freshRef
      for (const limit of [-1, 0.5, Number.NaN]) {
        yield* failsWith("InvalidInput", collect(episodic.episodicRecall(ref, { limit })))
      }
      // What a program without types may do.
      yield* failsWith("InvalidInput", collect(episodic.episodicRecall(ref, JSON.parse(`{"branch":"all"}`))))
      yield* failsWith("InvalidInput", collect(episodic.episodicRecall(ref, JSON.parse(`{"order":"up"}`))))
    })
  )
}
