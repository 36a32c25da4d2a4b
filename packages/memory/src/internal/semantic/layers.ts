import * as Effect from "effect/Effect"
import { make } from "./make.js"
import * as Memory from "./memory.js"

export const makeMemory = Effect.flatMap(Memory.make, make)
