import type { LedgerEvent } from "@sandglass/core"
import { Egress, Execd, Ledger, LedgerError, Sandboxes } from "@sandglass/core"
import * as Chunk from "effect/Chunk"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Stream from "effect/Stream"
import * as ScriptedSandboxes from "./ScriptedSandboxes.js"

/** A sandbox on a scripted server, with a ledger in memory. */
export const oneScripted = (script: ScriptedSandboxes.Script, options: OneScriptedOptions = {}) =>
  Effect.gen(function* () {
    const server = yield* ScriptedSandboxes.make(script)
    const context = yield* Layer.build(
      Layer.effect(Sandboxes.Sandboxes, Sandboxes.make({ closeTimeout: "2 seconds" })).pipe(
        Layer.provide(Layer.merge(Execd.layerWith({ retry: { baseDelay: 1 }, ...options.execd }), Egress.layer)),
        Layer.provideMerge(Layer.merge(server.layer, options.ledger ?? Ledger.layerMemory))
      )
    )
    const sandbox = yield* Context.get(context, Sandboxes.Sandboxes).create({ image: "i" })
    const entries = Effect.map(Stream.runCollect(sandbox.history), Chunk.toReadonlyArray)
    return { server, sandbox, entries, context }
  })

export interface OneScriptedOptions {
  readonly ledger?: Layer.Layer<Ledger.Ledger>
  readonly execd?: Execd.Options
}

/** A ledger in memory that refuses the appends with such an event. */
export const refusing = (refused: (event: LedgerEvent.LedgerEvent | { readonly event: string }) => boolean) =>
  Layer.map(Ledger.layerMemory, (context) => {
    const ledger = Context.get(context, Ledger.Ledger)
    const error = (method: string) => new LedgerError.LedgerError({ method, reason: "Connection" })
    return Context.make(Ledger.Ledger, {
      ...ledger,
      append: (event) => (refused(event) ? Effect.fail(error("append")) : ledger.append(event)),
      appendAll: (events) => (events.some(refused) ? Effect.fail(error("appendAll")) : ledger.appendAll(events))
    })
  })

export const payloadsOf = (entries: ReadonlyArray<LedgerEvent.LedgerEntry>, event: string) =>
  entries
    .filter((entry) => entry.event === event)
    .map((entry) => entry.payload as { readonly [key: string]: LedgerEvent.Json })
