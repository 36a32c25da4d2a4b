import * as Effect from "effect/Effect"
import { make } from "./make.js"
import * as Memory from "./memory.js"
import type { SemanticStore } from "./store.js"

const StoreKey: unique symbol = Symbol.for("@sandglass/memory/MemoryStore")

export interface MemoryStore {
  readonly [StoreKey]: SemanticStore
}

export const makeMemoryStore: Effect.Effect<MemoryStore> = Effect.map(Memory.make, (store) => ({ [StoreKey]: store }))

export const makeMemoryIn = (store: MemoryStore) => make(store[StoreKey])

export const makeMemory = Effect.flatMap(makeMemoryStore, makeMemoryIn)
