/**
 * Memory as tools.
 */
import { assert } from "@effect/vitest"
import type { Json } from "@sandglass/core/LedgerEvent"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Memory from "../../Memory.js"
import { MemoryStoreError } from "../../MemoryError.js"
import { createMemoryTools } from "../../MemoryTools.js"
import type { ResourceRef } from "../../ResourceRef.js"
import { WorkingMemory } from "../../WorkingMemory.js"
import { failsWith, freshRef, invalidRefs } from "../contract.js"
import type { It } from "./support.js"
import { contents, forWhom, listed, session } from "./support.js"

/** Calls a tool as a model does: by its name. */
const caller = (ref: ResourceRef) =>
  Effect.map(createMemoryTools(ref), (tools) => (name: string, input: unknown) => {
    const tool = tools.find((one) => one.name === name)
    return tool === undefined ? Effect.dieMessage(`no tool ${name}`) : tool.execute(input)
  })

export const tools = (it: It): void => {
  it.effect("four tools, and two without a semantic memory", () =>
    Effect.gen(function* () {
      const ref = yield* freshRef
      const all = yield* createMemoryTools(ref)
      const names = ["set_working_memory", "get_working_memory", "remember_fact", "recall_facts"]
      assert.deepStrictEqual(
        all.map(({ name }) => name),
        names
      )
      for (const { description, parameters } of all) {
        assert.isAbove(description.length, 40)
        assert.deepInclude(parameters, { type: "object", additionalProperties: false })
        assert.notProperty(parameters, "$schema")
        assert.notInclude(JSON.stringify(parameters), "$ref")
      }
      const two = yield* Effect.provide(createMemoryTools(ref), Layer.fresh(Memory.layerWorking))
      assert.deepStrictEqual(
        two.map(({ name }) => name),
        names.slice(0, 2)
      )
      for (const nobody of invalidRefs) yield* failsWith("InvalidResourceRef", createMemoryTools(nobody))
    })
  )

  it.effect("values are saved and read", () =>
    Effect.gen(function* () {
      const memory = yield* Memory.Memory
      const ref = yield* freshRef
      const call = yield* caller(ref)
      assert.deepStrictEqual(yield* call("get_working_memory", {}), { values: {} })
      assert.deepStrictEqual(yield* call("get_working_memory", { key: "k" }), { key: "k", found: false })
      const values: ReadonlyArray<Json> = [null, "text", 7, false, [1, [2]], { a: { b: null } }]
      for (const value of values) {
        assert.deepStrictEqual(yield* call("set_working_memory", { key: "k", value }), { key: "k", saved: true })
        assert.deepStrictEqual(yield* call("get_working_memory", { key: "k" }), { key: "k", found: true, value })
      }
      yield* call("set_working_memory", { key: "__proto__", value: 1 })
      yield* memory.working.set(ref, "sandglass.session", "secret")
      const all = yield* call("get_working_memory", {})
      assert.strictEqual(JSON.stringify(all), `{"values":{"__proto__":1,"k":{"a":{"b":null}}}}`)
      // What the package notes for itself is neither read nor changed.
      assert.deepStrictEqual(yield* call("get_working_memory", { key: "sandglass.session" }), {
        key: "sandglass.session",
        found: false
      })
      yield* failsWith("InvalidInput", call("set_working_memory", { key: "sandglass.session", value: 1 }))
      assert.deepStrictEqual(yield* memory.working.get(ref, "sandglass.session"), Option.some("secret"))
    })
  )

  it.effect("facts are remembered and recalled", () =>
    Effect.gen(function* () {
      const memory = yield* Memory.FullMemory
      const ref = yield* freshRef
      const call = yield* caller(ref)
      assert.deepStrictEqual(yield* call("recall_facts", { query: "train" }), { facts: [] })
      const content = "Prefers the window seat on night trains"
      const answer = yield* call("remember_fact", { content, metadata: { topic: "travel" } })
      const [fact] = yield* listed(ref)
      assert.deepStrictEqual(answer, { id: fact?.id ?? "", content })
      assert.deepStrictEqual(fact?.metadata, { topic: "travel" })
      yield* call("remember_fact", { content: "Speaks Portuguese" })
      const one = yield* session(forWhom(ref))
      const sourceRef = { sandboxId: one.sandboxId, entryIndex: 0 }
      yield* memory.remember(ref, { content: "Speaks Portuguese", sourceRef })
      const found = yield* call("recall_facts", { query: "window seat", limit: 1 })
      const [best] = yield* memory.recall(ref, "window seat", { topK: 1 })
      assert.deepStrictEqual(found, {
        facts: [{ content, score: best?.score ?? 0, verified: false, metadata: { topic: "travel" } }]
      })
      const proved = yield* call("recall_facts", { query: "Speaks Portuguese", limit: 1 })
      assert.include(JSON.stringify(proved), `"verified":true`)
    })
  )

  it.effect("what does not fit the parameters is refused, and nothing was done", () =>
    Effect.gen(function* () {
      const memory = yield* Memory.FullMemory
      const ref = yield* freshRef
      const call = yield* caller(ref)
      const refused: ReadonlyArray<readonly [tool: string, input: unknown]> = [
        ["set_working_memory", { key: "k" }],
        ["set_working_memory", { value: 1 }],
        ["set_working_memory", { key: "", value: 1 }],
        ["set_working_memory", { key: 7, value: 1 }],
        ["set_working_memory", { key: "k", value: 1, resourceId: "somebody else" }],
        ["set_working_memory", { key: "k", value: undefined }],
        ["set_working_memory", { key: "k", value: () => 1 }],
        ["set_working_memory", null],
        ["set_working_memory", `{"key":"k","value":1}`],
        ["get_working_memory", { key: 7 }],
        ["get_working_memory", []],
        ["remember_fact", {}],
        ["remember_fact", { content: " " }],
        ["remember_fact", { content: ["a"] }],
        ["remember_fact", { content: "a", metadata: [] }],
        ["remember_fact", { content: "a", verified: true }],
        ["recall_facts", { query: "" }],
        ["recall_facts", { query: "a", limit: 0 }],
        ["recall_facts", { query: "a", limit: 51 }],
        ["recall_facts", { query: "a", limit: 1.5 }]
      ]
      for (const [tool, input] of refused) {
        const error = yield* failsWith("InvalidInput", call(tool, input))
        assert.strictEqual(error.method, tool)
      }
      assert.strictEqual((yield* memory.working.list(ref)).size, 0)
      assert.deepStrictEqual(contents(yield* listed(ref)), [])
    })
  )

  it.effect("what fails is a failure", () =>
    Effect.gen(function* () {
      const working = yield* WorkingMemory
      const broken = new MemoryStoreError({ method: "WorkingMemory.set", reason: "Connection" })
      const ref = yield* freshRef
      const made = yield* Memory.makeFull().pipe(
        Effect.provideService(WorkingMemory, { ...working, set: () => Effect.fail(broken) })
      )
      const call = yield* Effect.provideService(caller(ref), Memory.Memory, made)
      const error = yield* failsWith("MemoryStoreError", call("set_working_memory", { key: "k", value: 1 }))
      assert.strictEqual(error.method, "WorkingMemory.set")
    })
  )
}
