/**
 * Vectors as they are kept: of length 1, in 32 bits each number. The cosine of two of them is their product.
 */
import * as Effect from "effect/Effect"
import type { Vector } from "../EmbeddingModel.js"
import type { ModelRef } from "../MemoryError.js"
import { EmbeddingError } from "../MemoryError.js"

/** A vector of length 1, or why there is none. */
const normalise = (vector: Vector, dimensions: number): Float32Array | string => {
  if (typeof vector?.length !== "number") {
    return "is no vector"
  }
  if (vector.length !== dimensions) {
    return `has ${vector.length} dimensions instead of ${dimensions}`
  }
  let largest = 0
  for (let index = 0; index < dimensions; index++) {
    const value = vector[index]
    if (typeof value !== "number" || !Number.isFinite(value)) {
      return `has ${String(value)} at position ${index}`
    }
    largest = Math.max(largest, Math.abs(value))
  }
  if (largest === 0) {
    return "has zeros only: it points nowhere"
  }
  // Divided first, so that no square is too large or too small for a number.
  let square = 0
  for (let index = 0; index < dimensions; index++) {
    square += ((vector[index] ?? 0) / largest) ** 2
  }
  const length = Math.sqrt(square)
  return Float32Array.from(vector, (value) => value / largest / length)
}

/** What a model answered for some texts, if it is one proper vector for each. */
export const check = (
  model: ModelRef,
  texts: number,
  vectors: ReadonlyArray<Vector>
): Effect.Effect<ReadonlyArray<Float32Array>, EmbeddingError> =>
  Effect.suspend(() => {
    const invalid = (description: string) =>
      Effect.fail(new EmbeddingError({ model: model.id, reason: "InvalidVector", description }))
    if (!Array.isArray(vectors) || vectors.length !== texts) {
      return invalid(
        Array.isArray(vectors) ? `${vectors.length} vectors for ${texts} texts` : "the answer is no list of vectors"
      )
    }
    const checked: Array<Float32Array> = []
    for (const [index, vector] of vectors.entries()) {
      const unit = normalise(vector, model.dimensions)
      if (typeof unit === "string") {
        return invalid(`the vector of text ${index + 1} ${unit}`)
      }
      checked.push(unit)
    }
    return Effect.succeed(checked)
  })

/** The cosine similarity of two vectors of length 1. */
export const similarity = (a: Float32Array, b: Float32Array): number => {
  let sum = 0
  for (let index = 0; index < a.length; index++) {
    sum += (a[index] ?? 0) * (b[index] ?? 0)
  }
  return Math.max(-1, Math.min(1, sum))
}

/** The bytes of a vector, as databases keep them: little-endian. */
export const toBytes = ({ buffer, byteLength, byteOffset }: Float32Array): Uint8Array =>
  new Uint8Array(buffer, byteOffset, byteLength)

/** A vector from its bytes; `undefined` for what cannot be one. */
export const fromBytes = (bytes: unknown, dimensions: number): Float32Array | undefined =>
  bytes instanceof Uint8Array && bytes.byteLength === dimensions * 4
    ? bytes.byteOffset % 4 === 0
      ? new Float32Array(bytes.buffer, bytes.byteOffset, dimensions)
      : new Float32Array(bytes.slice().buffer)
    : undefined
