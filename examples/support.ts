import { BunRuntime } from "@effect/platform-bun"
import { Ledger, Sandboxes } from "@sandglass/core"
import { LocalOpenSandbox } from "@sandglass/local"
import type { Scope } from "effect"
import { Effect, Layer } from "effect"

/** Runs an example with sandboxes on a server of its own and a ledger in memory. */
export const runExample = <A, E>(example: Effect.Effect<A, E, Sandboxes.Sandboxes | Ledger.Ledger | Scope.Scope>) =>
  example.pipe(
    Effect.scoped,
    Effect.provide(Sandboxes.layer.pipe(Layer.provideMerge(Layer.merge(LocalOpenSandbox.layer, Ledger.layerMemory)))),
    BunRuntime.runMain
  )
