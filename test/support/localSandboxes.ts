import { Ledger, Sandboxes } from "@sandglass/core"
import { LocalOpenSandbox } from "@sandglass/local"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Scope from "effect/Scope"

type Provided = Sandboxes.Sandboxes | Ledger.Ledger | LocalOpenSandbox.LocalServer

/** Runs a test with sandboxes on a real local server of its own and a ledger in memory. */
export const withLocal =
  (options: LocalOpenSandbox.Options = {}) =>
  <A, E>(self: Effect.Effect<A, E, Provided | Scope.Scope>) =>
    self.pipe(
      Effect.scoped,
      Effect.provide(
        Sandboxes.layer.pipe(Layer.provideMerge(Layer.merge(LocalOpenSandbox.layerWith(options), Ledger.layerMemory)))
      )
    )

export const create = (options: Partial<Sandboxes.CreateOptions> = {}) =>
  Effect.flatMap(Sandboxes.Sandboxes, (sandboxes) => sandboxes.create({ image: "node:22", name: "it", ...options }))
