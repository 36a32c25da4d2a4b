/**
 * What every working memory does, as tests: for those who write a backend.
 *
 * The tests are isolated by their data, so they may run against a database that holds something already.
 *
 * @since 0.1.0
 */
import { layer as testLayer } from "@effect/vitest"
import type * as Layer from "effect/Layer"
import { modifying, secondHandle } from "../internal/workingContract/modify.js"
import { resources } from "../internal/workingContract/resources.js"
import { values } from "../internal/workingContract/values.js"
import type { WorkingMemory } from "../WorkingMemory.js"

/**
 * What a backend can be tested for beyond the common part.
 *
 * @since 0.1.0
 * @category models
 */
export interface Capabilities<E = never> {
  /** Another handle to the same store, as another process would have it. */
  readonly second?: Layer.Layer<WorkingMemory, E> | undefined
}

/**
 * Runs the whole contract against a working memory.
 *
 * @example
 * ```ts
 * import { WorkingMemory } from "@sandglass/memory"
 * import { WorkingMemoryContract } from "@sandglass/memory/testing"
 *
 * WorkingMemoryContract.suite("memory", WorkingMemory.layerMemory)
 * ```
 *
 * @since 0.1.0
 * @category suites
 */
export const suite = <E, E2 = never>(
  name: string,
  layer: Layer.Layer<WorkingMemory, E>,
  capabilities: Capabilities<E2> = {}
): void =>
  testLayer(layer, { timeout: "60 seconds" })(`Working memory contract: ${name}`, (it) => {
    values(it)
    resources(it)
    modifying(it)
    if (capabilities.second !== undefined) {
      secondHandle(it, capabilities.second)
    }
  })
