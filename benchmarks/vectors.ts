/** Vectors like those of embedding models: in clusters, and of far fewer directions than they have numbers. The same on every run. */
import type { EmbeddingModel } from "@sandglass/memory"
import { EmbeddingModel as Model } from "@sandglass/memory"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"

export const dimensions = 384
const directions = 32
const clusters = 500
/** How far the members of a cluster are from its middle, and everything from the directions. */
const spread = 0.35
const noise = 0.02

const random = (seed: number) => {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

/** Of a normal distribution. */
const normals = (next: () => number, count: number): Float32Array => {
  const values = new Float32Array(count)
  for (let index = 0; index < count; index += 2) {
    const radius = Math.sqrt(-2 * Math.log(1 - next()))
    const angle = 2 * Math.PI * next()
    values[index] = radius * Math.cos(angle)
    if (index + 1 < count) values[index + 1] = radius * Math.sin(angle)
  }
  return values
}

const basis = normals(random(1), directions * dimensions)
const middles = normals(random(2), clusters * directions)

/** The vector with a number. */
const vectorOf = (seed: number): Float32Array => {
  const next = random(seed + 1_000)
  const middle = Math.floor(next() * clusters) * directions
  const place = normals(next, directions)
  const vector = normals(next, dimensions)
  for (let index = 0; index < dimensions; index++) {
    let value = (vector[index] ?? 0) * noise * Math.sqrt(directions)
    for (let direction = 0; direction < directions; direction++) {
      const along = (middles[middle + direction] ?? 0) + spread * (place[direction] ?? 0)
      value += along * (basis[direction * dimensions + index] ?? 0)
    }
    vector[index] = value
  }
  return vector
}

/**
 * Makes the vector of the first number in a text: anew for a fact, once for a query, and one of a few for a note. What it costs to make
 * one is then no part of what is measured with queries and notes.
 */
export const model: Layer.Layer<EmbeddingModel.EmbeddingModel> = Layer.sync(Model.EmbeddingModel, () => {
  const known = new Map<number, Float32Array>()
  const once = (number: number) => {
    const vector = known.get(number) ?? vectorOf(number)
    known.set(number, vector)
    return vector
  }
  return {
    id: "benchmark",
    dimensions,
    embed: (texts) =>
      Effect.sync(() =>
        texts.map((text) => {
          const number = Number(/\d+/.exec(text)?.[0])
          return text.startsWith("fact") ? vectorOf(number) : once(text.startsWith("note") ? number % 1_000 : number)
        })
      )
  }
})
