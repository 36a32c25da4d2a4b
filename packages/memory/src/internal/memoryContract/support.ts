/**
 * What the cases of the contract have in common.
 */
import type { Vitest } from "@effect/vitest"
import { Ledger } from "@sandglass/core/Ledger"
import type { Json, LedgerEntry } from "@sandglass/core/LedgerEvent"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import type { EpisodicMemory } from "../../EpisodicMemory.js"
import type { Memory } from "../../Memory.js"
import { FullMemory } from "../../Memory.js"
import type { ResourceRef } from "../../ResourceRef.js"
import type { SemanticMemory } from "../../SemanticMemory.js"
import type { WorkingMemory } from "../../WorkingMemory.js"
import { fresh } from "../contract.js"

export type Provided = Memory | FullMemory | WorkingMemory | SemanticMemory | EpisodicMemory | Ledger

/** How a case is added to the suite that is being defined. */
export type It = Vitest.MethodsNonLive<Provided>

export const collect = <A, E, R>(stream: Stream.Stream<A, E, R>) =>
  Effect.map(Stream.runCollect(stream), Chunk.toReadonlyArray)

/** A session of the ledger. */
export interface Session {
  readonly sandboxId: string
  readonly name: string
  readonly created: LedgerEntry
}

/** Records a sandbox, with whatever else its creation says. */
export const session = (
  payload: { readonly [key: string]: Json },
  name?: string
): Effect.Effect<Session, never, Ledger> =>
  Effect.gen(function* () {
    const ledger = yield* Ledger
    const base = { sandboxId: yield* fresh("sbx"), name: name ?? (yield* fresh("name")) }
    const created = yield* Effect.orDie(ledger.append({ ...base, event: "sandbox.created", payload }))
    return { ...base, created }
  })

/** What the creation of a sandbox says of whom it is for. */
export const forWhom = ({ resourceId, teamId }: ResourceRef): { readonly [key: string]: Json } => ({
  resourceId,
  ...(teamId === undefined ? {} : { teamId })
})

/** Appends an event of the application to a session. */
export const note = ({ name, sandboxId }: Session, text: string, event = "note") =>
  Effect.flatMap(Ledger, (ledger) => Effect.orDie(ledger.append({ sandboxId, name, event, payload: { text } })))

export const contents = (facts: ReadonlyArray<{ readonly content: string }>): ReadonlyArray<string> =>
  facts.map(({ content }) => content)

/** Every fact of a resource. */
export const listed = (ref: ResourceRef) => Effect.flatMap(FullMemory, (memory) => collect(memory.listAll(ref)))
