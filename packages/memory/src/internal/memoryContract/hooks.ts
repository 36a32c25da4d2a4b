/**
 * The note of the last sandbox and checkpoint.
 */
import { assert } from "@effect/vitest"
import type { Checkpoint } from "@sandglass/core/Ledger"
import type { HookSandbox } from "@sandglass/core/SandboxHooks"
import { composeHooks } from "@sandglass/core/SandboxHooks"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { createMemoryLifecycleHooks, lastSession } from "../../MemoryHooks.js"
import type { ResourceRef } from "../../ResourceRef.js"
import { WorkingMemory } from "../../WorkingMemory.js"
import { failsWith, fresh, freshRef, invalidRefs } from "../contract.js"
import type { It } from "./support.js"

const sandbox = (id: string, ref?: ResourceRef): HookSandbox => ({ id, name: "n", runId: "run", ...ref })

const checkpoint = (sandboxId: string, snapshotId: string, tag?: string): Checkpoint => ({
  sandboxId,
  name: "n",
  snapshotId,
  ...(tag === undefined ? {} : { tag }),
  cursor: { ts: 5, id: 7 },
  payload: {}
})

export const hooks = (it: It): void => {
  it.effect("the most recent sandbox and checkpoint are noted", () =>
    Effect.gen(function* () {
      const ref = yield* freshRef
      assert.deepStrictEqual(yield* lastSession(ref), Option.none())
      const { onCheckpoint, onCreated } = composeHooks(yield* createMemoryLifecycleHooks(ref))
      yield* onCreated(sandbox("a", ref))
      assert.deepStrictEqual(yield* lastSession(ref), Option.some({ sandboxId: "a" }))
      yield* onCheckpoint(sandbox("a", ref), checkpoint("a", "snap-1", "tag"))
      const first = { sandboxId: "a", snapshotId: "snap-1", tag: "tag", createdAt: 5 }
      assert.deepStrictEqual(yield* lastSession(ref), Option.some({ sandboxId: "a", checkpoint: first }))
      yield* onCreated(sandbox("b", ref))
      assert.deepStrictEqual(yield* lastSession(ref), Option.some({ sandboxId: "b", checkpoint: first }))
      yield* onCheckpoint(sandbox("b", ref), checkpoint("b", "snap-2"))
      assert.deepStrictEqual(
        yield* lastSession(ref),
        Option.some({ sandboxId: "b", checkpoint: { sandboxId: "b", snapshotId: "snap-2", createdAt: 5 } })
      )
    })
  )

  it.effect("sandboxes of others are not noted, those of nobody are", () =>
    Effect.gen(function* () {
      const ref: ResourceRef = { resourceId: yield* fresh("r"), teamId: "t" }
      const { onCheckpoint, onCreated } = composeHooks(yield* createMemoryLifecycleHooks(ref))
      const others: ReadonlyArray<ResourceRef> = [
        { resourceId: "other", teamId: "t" },
        { resourceId: ref.resourceId },
        { resourceId: ref.resourceId, teamId: "u" }
      ]
      for (const other of others) {
        yield* onCreated(sandbox("x", other))
        yield* onCheckpoint(sandbox("x", other), checkpoint("x", "snap"))
      }
      assert.deepStrictEqual(yield* lastSession(ref), Option.none())
      yield* onCreated(sandbox("y"))
      assert.deepStrictEqual(yield* lastSession(ref), Option.some({ sandboxId: "y" }))
    })
  )

  it.effect("they get along with other hooks, and with a note that cannot be read", () =>
    Effect.gen(function* () {
      const working = yield* WorkingMemory
      const ref = yield* freshRef
      const told: Array<string> = []
      const others = { onCreated: ({ id }: HookSandbox) => Effect.sync(() => told.push(id)) }
      const failing = { onCreated: () => Effect.fail("no") }
      const { onCreated } = composeHooks(failing, yield* createMemoryLifecycleHooks(ref), others)
      yield* working.set(ref, "sandglass.session", "unreadable")
      yield* failsWith("InvalidStoredValue", lastSession(ref))
      yield* onCreated(sandbox("a", ref))
      assert.deepStrictEqual([told, yield* lastSession(ref)], [["a"], Option.some({ sandboxId: "a" })])
      for (const nobody of invalidRefs) yield* failsWith("InvalidResourceRef", createMemoryLifecycleHooks(nobody))
    })
  )
}
