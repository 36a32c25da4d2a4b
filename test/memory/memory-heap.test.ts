/** Resources that come and go leave nothing behind in the process. */

import { heapStats } from "bun:jsc"
import { assert, describe, it } from "@effect/vitest"
import type { Json } from "@sandglass/core/LedgerEvent"
import { EmbeddingModel, SemanticMemory, WorkingMemory } from "@sandglass/memory"
import { SqliteMemory } from "@sandglass/sql-sqlite"
import { gc } from "bun"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"

const heap = Effect.promise(async () => {
  for (let turn = 0; turn < 5; turn++) {
    await new Promise((resolve) => setTimeout(resolve, 5))
    gc(true)
  }
  return heapStats()
})

const visit = (from: number, count: number, forget: boolean) =>
  Effect.gen(function* () {
    const working = yield* WorkingMemory.WorkingMemory
    const semantic = yield* SemanticMemory.SemanticMemory
    const { clear } = yield* semantic.prunable
    for (let index = from; index < from + count; index++) {
      const ref = { resourceId: `resource-${index}`, teamId: `team-${index % 100}` }
      yield* working.modify(ref, "visits", () => Effect.succeed([undefined, Option.some<Json>(index)]))
      yield* semantic.remember(ref, { content: "seen" })
      if (forget) {
        yield* working.clear(ref)
        yield* clear(ref)
      }
    }
  }).pipe(Effect.withTracerEnabled(false))

const model = Layer.succeed(EmbeddingModel.EmbeddingModel, {
  id: "m",
  dimensions: 2,
  embed: (texts) => Effect.succeed(texts.map(() => [1, 2]))
})

/** How much the heap grows between the first resources and the last. */
const growth = (warmUp: number, count: number, forget: boolean) =>
  Effect.gen(function* () {
    yield* visit(0, warmUp, forget)
    const before = yield* heap
    yield* visit(warmUp, count, forget)
    const after = yield* heap
    return {
      bytes: after.heapSize - before.heapSize,
      objects: after.objectCount - before.objectCount
    }
  })

describe("a hundred thousand resources", () => {
  it.live(
    "in memory, when they are cleared",
    () =>
      Effect.gen(function* () {
        const { bytes, objects } = yield* growth(5_000, 100_000, true)
        // An entry of a map for each of them would be ten times as much.
        assert.isBelow(bytes, 1_500_000)
        assert.isBelow(objects, 20_000)
      }).pipe(Effect.provide(Layer.merge(WorkingMemory.layerMemory, Layer.provide(SemanticMemory.layerMemory, model)))),
    240_000
  )

  it.live(
    "in a database, a tenth of them",
    () =>
      Effect.gen(function* () {
        const { bytes, objects } = yield* growth(1_000, 10_000, false)
        assert.isBelow(bytes, 500_000)
        assert.isBelow(objects, 5_000)
      }).pipe(Effect.provide(Layer.provide(SqliteMemory.layer({ filename: ":memory:" }), model))),
    240_000
  )
})
