import * as LanguageModel from "@effect/ai/LanguageModel"
import type * as Response from "@effect/ai/Response"
import * as Tool from "@effect/ai/Tool"
import { assert, describe, it } from "@effect/vitest"
import { Ledger } from "@sandglass/core"
import { EmbeddingModel, Memory, MemoryError, MemoryTools, WorkingMemory } from "@sandglass/memory"
import { MemoryToolkit } from "@sandglass/memory/ai"
import { Ajv } from "ajv"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"

const ref = { resourceId: "user-7" }
const live = Memory.layerMemory.pipe(Layer.provideMerge(Layer.merge(EmbeddingModel.layerLexical(), Ledger.layerMemory)))

/** A model that calls these tools, and does not hear of the results. */
const calling = (...calls: ReadonlyArray<readonly [name: string, params: unknown]>) =>
  Layer.effect(
    LanguageModel.LanguageModel,
    LanguageModel.make({
      generateText: () =>
        Effect.succeed(
          calls.map(
            ([name, params], index): Response.PartEncoded => ({
              type: "tool-call",
              id: `call-${index}`,
              name,
              params,
              providerExecuted: false
            })
          )
        ),
      streamText: () => Stream.empty
    })
  )

describe("the tools of a model", () => {
  it.effect("a toolkit of @effect/ai, with its handlers", () =>
    Effect.gen(function* () {
      const response = yield* LanguageModel.generateText({ prompt: "go", toolkit: MemoryToolkit.toolkit }).pipe(
        Effect.provide(
          calling(
            ["set_working_memory", { key: "timezone", value: { zone: ["Europe/Vienna"] } }],
            ["remember_fact", { content: "Prefers the window seat", metadata: { topic: "travel" } }]
          )
        )
      )
      const [fact] = yield* (yield* Memory.FullMemory).recall(ref, "seat")
      assert.deepStrictEqual(
        response.toolResults.map(({ encodedResult, isFailure, name }) => [name, isFailure, encodedResult]),
        [
          ["set_working_memory", false, { key: "timezone", saved: true }],
          ["remember_fact", false, { id: fact?.id, content: "Prefers the window seat" }]
        ]
      )
      const recalled = yield* LanguageModel.generateText({ prompt: "go", toolkit: MemoryToolkit.toolkit }).pipe(
        Effect.provide(
          calling(
            ["recall_facts", { query: "window seat" }],
            ["get_working_memory", {}],
            ["set_working_memory", { key: "\0", value: "a\0b" }]
          )
        )
      )
      const [facts, values] = recalled.toolResults.map(({ encodedResult }): unknown => encodedResult)
      const [best] = yield* (yield* Memory.FullMemory).recall(ref, "window seat")
      assert.deepStrictEqual(facts, {
        facts: [
          {
            content: "Prefers the window seat",
            score: best?.score,
            verified: false,
            metadata: { topic: "travel" }
          }
        ]
      })
      assert.deepStrictEqual(values, { values: { timezone: { zone: ["Europe/Vienna"] } } })
      const memory = yield* Memory.Memory
      assert.deepStrictEqual(yield* memory.working.get(ref, "\0"), Option.some("a\0b"))
    }).pipe(Effect.provide(MemoryToolkit.layer(ref)), Effect.provide(live))
  )

  it.effect("two tools for a memory without a semantic memory", () =>
    Effect.gen(function* () {
      const toolkit = yield* MemoryToolkit.workingToolkit
      assert.deepStrictEqual(Object.keys(toolkit.tools), ["set_working_memory", "get_working_memory"])
      const { encodedResult } = yield* toolkit.handle("set_working_memory", { key: "k", value: 1 })
      assert.deepStrictEqual(encodedResult, { key: "k", saved: true })
      const read = yield* toolkit.handle("get_working_memory", { key: "k" })
      assert.deepStrictEqual(read.encodedResult, { key: "k", found: true, value: 1 })
    }).pipe(
      Effect.provide(MemoryToolkit.layerWorking(ref)),
      Effect.provide(Memory.layerWorking),
      Effect.provide(Layer.merge(WorkingMemory.layerMemory, Ledger.layerMemory))
    )
  )

  it.effect("what storage fails with is a failure of the call, a ref that names nobody one of the Layer", () =>
    Effect.gen(function* () {
      const broken = new MemoryError.MemoryStoreError({ method: "WorkingMemory.get", reason: "Connection" })
      const full = yield* Memory.FullMemory
      const memory: Memory.FullService = {
        ...full,
        working: { ...full.working, get: () => Effect.fail(broken) }
      }
      const failed = yield* Effect.flatMap(MemoryToolkit.toolkit, (toolkit) =>
        toolkit.handle("get_working_memory", { key: "k" })
      ).pipe(Effect.provide(MemoryToolkit.layer(ref)), Effect.provideService(Memory.FullMemory, memory), Effect.flip)
      assert.strictEqual(failed._tag, "MemoryStoreError")
      const nobody = yield* Effect.flip(Layer.build(MemoryToolkit.layer({ resourceId: " " })))
      assert.strictEqual(nobody._tag, "InvalidResourceRef")
    }).pipe(Effect.scoped, Effect.provide(live))
  )

  it.effect("their JSON Schemas are valid, and mean what the executors check", () =>
    Effect.gen(function* () {
      const tools = yield* MemoryTools.createMemoryTools(ref)
      const ajv = new Ajv({ strict: true, strictTypes: false })
      const inputs: ReadonlyArray<unknown> = [
        {},
        null,
        [],
        "text",
        { key: "k" },
        { key: "" },
        { key: 7 },
        { key: "k", value: 1 },
        { key: "k", value: null },
        { key: "k", value: { a: [1, "b", false, null] } },
        { key: "k", value: 1, more: true },
        { content: "a" },
        { content: "" },
        { content: 7 },
        { content: "a", metadata: { b: 1 } },
        { content: "a", metadata: [] },
        { query: "a" },
        { query: "a", limit: 0 },
        { query: "a", limit: 1 },
        { query: "a", limit: 50 },
        { query: "a", limit: 51 },
        { query: "a", limit: 2.5 }
      ]
      for (const tool of tools) {
        const validate = ajv.compile(tool.parameters)
        for (const input of inputs) {
          const accepted = yield* Effect.isSuccess(tool.execute(input))
          assert.strictEqual(accepted, validate(input), `${tool.name} ${JSON.stringify(input)}`)
        }
      }
      // Both kinds of tools say the same.
      for (const [index, { description, name, parametersSchema }] of Object.values(
        MemoryToolkit.toolkit.tools
      ).entries()) {
        const parameters: unknown = JSON.parse(JSON.stringify(Tool.getJsonSchemaFromSchemaAst(parametersSchema.ast)))
        const { execute: _, ...tool } = tools[index] ?? {}
        assert.deepStrictEqual({ name, description, parameters }, tool)
      }
    }).pipe(Effect.provide(live))
  )
})
