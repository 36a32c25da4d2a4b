/**
 * What every ledger does, as tests: for those who write a backend.
 *
 * The tests are isolated by their data, so they may run against a database that holds something already.
 *
 * @since 0.1.0
 */
import { layer as testLayer } from "@effect/vitest"
import type * as FastCheck from "effect/FastCheck"
import type * as Layer from "effect/Layer"
import { appending } from "../internal/ledgerContract/append.js"
import { checkpoints } from "../internal/ledgerContract/checkpoints.js"
import { environments } from "../internal/ledgerContract/environments.js"
import { exporting } from "../internal/ledgerContract/export.js"
import { legacy } from "../internal/ledgerContract/legacy.js"
import { reading } from "../internal/ledgerContract/read.js"
import { retention } from "../internal/ledgerContract/retention.js"
import { sandboxes } from "../internal/ledgerContract/sandboxes.js"
import { secondHandle } from "../internal/ledgerContract/secondHandle.js"
import { tailing } from "../internal/ledgerContract/tail.js"
import * as Texts from "../internal/ledgerContract/texts.js"
import type { Ledger } from "../Ledger.js"
import type { Json } from "../LedgerEvent.js"

/**
 * What a backend can be tested for beyond the common part.
 *
 * @since 0.1.0
 * @category models
 */
export interface Capabilities<E = never> {
  /** Another handle to the same store, as another process would have it. */
  readonly second?: Layer.Layer<Ledger, E> | undefined
}

/**
 * Arbitrary JSON, rich in what databases dislike.
 *
 * @since 0.1.0
 * @category arbitraries
 */
export const arbitraryJson: FastCheck.Arbitrary<Json> = Texts.arbitraryJson

/**
 * Runs the whole contract against a ledger.
 *
 * @example
 * ```ts
 * import { Ledger } from "@sandglass/core"
 * import { LedgerContract } from "@sandglass/core/testing"
 *
 * LedgerContract.suite("memory", Ledger.layerMemory)
 * ```
 *
 * @since 0.1.0
 * @category suites
 */
export const suite = <E, E2 = never>(
  name: string,
  layer: Layer.Layer<Ledger, E>,
  capabilities: Capabilities<E2> = {}
): void =>
  testLayer(layer, { timeout: "60 seconds" })(`Ledger contract: ${name}`, (it) => {
    appending(it)
    Texts.roundTrip(it)
    reading(it)
    tailing(it)
    sandboxes(it)
    checkpoints(it)
    environments(it)
    retention(it)
    exporting(it)
    legacy(it)
    if (capabilities.second !== undefined) {
      secondHandle(it, capabilities.second)
    }
  })
