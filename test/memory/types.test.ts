import { assert, describe, it } from "@effect/vitest"
import { Ledger } from "@sandglass/core"
import { EmbeddingModel, Memory, WorkingMemory } from "@sandglass/memory"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"

const working = Layer.merge(WorkingMemory.layerMemory, Ledger.layerMemory)
const full = Layer.merge(EmbeddingModel.layerLexical(), Ledger.layerMemory)
const ref = { resourceId: "user-7" }

/** Compiles where everything that the effect needs is provided. */
const runnable = <A, E>(self: Effect.Effect<A, E>) => self

describe("what a program may do by its types", () => {
  const remembering = Effect.flatMap(Memory.FullMemory, (memory) => memory.remember(ref, { content: "a" }))

  it.effect("a program that needs a semantic memory does not compile without one", () =>
    Effect.gen(function* () {
      yield* runnable(remembering.pipe(Effect.provide(Memory.layerMemory), Effect.provide(full)))
      const without = remembering.pipe(Effect.provide(Memory.layerWorking), Effect.provide(working))
      // @ts-expect-error: FullMemory is not provided
      // @effect-diagnostics-next-line missingEffectContext:off floatingEffect:off
      runnable(without)
      const context = yield* Layer.build(Layer.provide(Memory.layerWorking, working))
      assert.isFalse(
        Context.getOption(Context.unsafeMake<Memory.FullMemory>(context.unsafeMap), Memory.FullMemory)._tag === "Some"
      )
    }).pipe(Effect.scoped)
  )

  it.effect("a memory without a semantic memory has nothing to do with facts", () =>
    Effect.gen(function* () {
      const memory = yield* Effect.provide(Memory.makeWorking, working)
      // @ts-expect-error: there is no such method
      assert.isUndefined(memory.remember)
      assert.isFalse(memory.hasSemanticMemory)
    })
  )

  it.effect("where it is decided at run time it is an error of its own", () =>
    Effect.gen(function* () {
      const chosen = (semantic: boolean) =>
        Layer.unwrapEffect(
          Effect.sync(
            (): Layer.Layer<Memory.Memory> =>
              semantic ? Layer.provide(Memory.layerMemory, full) : Layer.provide(Memory.layerWorking, working)
          )
        )
      const program = Effect.flatMap(Memory.Memory, (memory) =>
        memory.remember(ref, { content: "a" }).pipe(
          Effect.map(({ content }) => content),
          Effect.catchTag("MemoryCapabilityError", ({ capability }) => Effect.succeed(`no ${capability}`))
        )
      )
      assert.strictEqual(yield* Effect.provide(program, chosen(true)), "a")
      assert.strictEqual(yield* Effect.provide(program, chosen(false)), "no SemanticMemory")
    })
  )
})
