/**
 * What every semantic memory does that can list and forget, as tests: for those who write a backend.
 *
 * The tests are isolated by their data, so they may run against a database that holds something already.
 *
 * @since 0.1.0
 */
import { assert, layer as testLayer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { EmbeddingModel } from "../EmbeddingModel.js"
import { failing, otherModels } from "../internal/semanticContract/models.js"
import { pruning, secondHandle } from "../internal/semanticContract/pruning.js"
import { recalling } from "../internal/semanticContract/recalling.js"
import { remembering } from "../internal/semanticContract/remembering.js"
import { makeModel } from "../internal/semanticContract/support.js"
import { SemanticMemory } from "../SemanticMemory.js"

/**
 * What a backend can be tested for beyond the common part.
 *
 * @since 0.1.0
 * @category models
 */
export interface Capabilities<E = never> {
  /** Another handle to the same store, as another process would have it. */
  readonly second?: Layer.Layer<SemanticMemory, E, EmbeddingModel> | undefined
  /** What `hasVectorIndex` says. Default: false. */
  readonly vectorIndex?: boolean | undefined
  /** False for an index that may miss a few of the closest among thousands. Default: true. */
  readonly exact?: boolean | undefined
}

/**
 * Runs the whole contract against a semantic memory, with embedding models of its own.
 *
 * @example
 * ```ts
 * import { SemanticMemory } from "@sandglass/memory"
 * import { SemanticMemoryContract } from "@sandglass/memory/testing"
 *
 * SemanticMemoryContract.suite("memory", SemanticMemory.layerMemory)
 * ```
 *
 * @since 0.1.0
 * @category suites
 */
export const suite = <E, E2 = never>(
  name: string,
  layer: Layer.Layer<SemanticMemory, E, EmbeddingModel>,
  capabilities: Capabilities<E2> = {}
): void => {
  const model = makeModel("the model of the suite")
  testLayer(Layer.provide(layer, model.layer), { timeout: "60 seconds" })(`Semantic memory contract: ${name}`, (it) => {
    it.effect("it says what it is", () =>
      Effect.gen(function* () {
        const semantic = yield* SemanticMemory
        assert.strictEqual(semantic.hasVectorIndex, capabilities.vectorIndex ?? false)
        assert.deepStrictEqual(semantic.model, { id: "the model of the suite", dimensions: 32 })
      })
    )
    remembering(it, model)
    recalling(it, capabilities.exact ?? true)
    failing(it, model)
    pruning(it, model)
    if (capabilities.second !== undefined) {
      otherModels(it, capabilities.second)
      secondHandle(it, Layer.provide(capabilities.second, model.layer))
    }
  })
}
