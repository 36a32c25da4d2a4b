/**
 * What every store of conversations does, as tests: for those who write a backend.
 *
 * The tests are isolated by their data, so they may run against a database that holds something already. Time is real in
 * them.
 *
 * @since 0.1.0
 */
import { layer as testLayer } from "@effect/vitest"
import type * as Layer from "effect/Layer"
import type { Conversations } from "../Conversations.js"
import { creating, deleting, listing, patching } from "../internal/conversationsContract/conversations.js"
import { reading } from "../internal/conversationsContract/history.js"
import { input } from "../internal/conversationsContract/input.js"
import { counting, removing, storing } from "../internal/conversationsContract/messages.js"
import { modelled } from "../internal/conversationsContract/model.js"
import { secondHandle } from "../internal/conversationsContract/secondHandle.js"
import { roundTrip } from "../internal/conversationsContract/texts.js"

/**
 * What a backend can be tested for beyond the common part.
 *
 * @since 0.1.0
 * @category models
 */
export interface Capabilities<E = never> {
  /** Another handle to the same store, as another process would have it. */
  readonly second?: Layer.Layer<Conversations, E> | undefined
}

/**
 * Runs the whole contract against a store of conversations.
 *
 * @example
 * ```ts
 * import { Conversations } from "@sandglass/memory"
 * import { ConversationsContract } from "@sandglass/memory/testing"
 *
 * ConversationsContract.suite("memory", Conversations.layerMemory)
 * ```
 *
 * @since 0.1.0
 * @category suites
 */
export const suite = <E, E2 = never>(
  name: string,
  layer: Layer.Layer<Conversations, E>,
  capabilities: Capabilities<E2> = {}
): void =>
  testLayer(layer, { timeout: "60 seconds", excludeTestServices: true })(`Conversations contract: ${name}`, (it) => {
    creating(it)
    patching(it)
    listing(it)
    deleting(it)
    storing(it)
    removing(it)
    counting(it)
    reading(it)
    input(it)
    roundTrip(it)
    modelled(it)
    if (capabilities.second !== undefined) {
      secondHandle(it, capabilities.second)
    }
  })
