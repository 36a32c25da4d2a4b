/**
 * What every memory does that is composed of a working memory, a semantic memory and a ledger, as tests: for those who
 * write a backend of any of them.
 *
 * The tests are isolated by their data, so they may run against a database that holds something already.
 *
 * @since 0.1.0
 */
import { layer as testLayer } from "@effect/vitest"
import type { Ledger } from "@sandglass/core/Ledger"
import type * as Layer from "effect/Layer"
import type { EpisodicMemory } from "../EpisodicMemory.js"
import { compaction } from "../internal/memoryContract/compaction.js"
import { context } from "../internal/memoryContract/context.js"
import { episodes } from "../internal/memoryContract/episodes.js"
import { facts } from "../internal/memoryContract/facts.js"
import { forking } from "../internal/memoryContract/forking.js"
import { hooks } from "../internal/memoryContract/hooks.js"
import { schemas } from "../internal/memoryContract/schemas.js"
import { tools } from "../internal/memoryContract/tools.js"
import type { FullMemory, Memory } from "../Memory.js"
import type { SemanticMemory } from "../SemanticMemory.js"
import type { WorkingMemory } from "../WorkingMemory.js"

/**
 * Runs the whole contract against a memory. Its embedding model should be `EmbeddingModel.layerLexical()`.
 *
 * @example
 * ```ts
 * import { Ledger } from "@sandglass/core"
 * import { EmbeddingModel, Memory } from "@sandglass/memory"
 * import { MemoryContract } from "@sandglass/memory/testing"
 * import { Layer } from "effect"
 *
 * const memory = Memory.layerMemory.pipe(
 *   Layer.provideMerge(Layer.merge(Ledger.layerMemory, EmbeddingModel.layerLexical()))
 * )
 *
 * MemoryContract.suite("memory", memory)
 * ```
 *
 * @since 0.1.0
 * @category suites
 */
export const suite = <E>(
  name: string,
  layer: Layer.Layer<Memory | FullMemory | WorkingMemory | SemanticMemory | EpisodicMemory | Ledger, E>
): void =>
  testLayer(layer, { timeout: "60 seconds" })(`Memory contract: ${name}`, (it) => {
    episodes(it)
    facts(it)
    compaction(it)
    context(it)
    forking(it)
    schemas(it)
    tools(it)
    hooks(it)
  })
