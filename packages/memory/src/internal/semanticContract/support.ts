import type { Vitest } from "@effect/vitest"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import type { Vector } from "../../EmbeddingModel.js"
import { EmbeddingModel, makeLexical } from "../../EmbeddingModel.js"
import type { EmbeddingError } from "../../MemoryError.js"
import type { ResourceRef } from "../../ResourceRef.js"
import { SemanticMemory } from "../../SemanticMemory.js"

/** How a case is added to the suite that is being defined. */
export type It = Vitest.MethodsNonLive<SemanticMemory>

export type Embed = (texts: ReadonlyArray<string>) => Effect.Effect<ReadonlyArray<Vector>, EmbeddingError>

/** A model that a test looks into, and lets misbehave. */
export interface Model {
  readonly layer: Layer.Layer<EmbeddingModel>
  /** What it was asked for. */
  readonly asked: Array<string>
  /** Runs an effect while the model does something else. */
  readonly misbehaving: (embed: Embed) => <A, E, R>(self: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
}

const dimensions = 32

/** A text that begins with a list of numbers has them as its vector. */
const vectorOf = (text: string, count: number): Vector | undefined => {
  const end = text.startsWith("[") ? text.indexOf("]") : -1
  if (end < 0) {
    return undefined
  }
  const numbers: ReadonlyArray<number> = JSON.parse(text.slice(0, end + 1))
  return Array.from({ length: count }, (_, index) => numbers[index] ?? 0)
}

export const makeModel = (id: string, count = dimensions): Model => {
  const lexical = makeLexical({ dimensions: count })
  const asked: Array<string> = []
  const proper: Embed = (texts) =>
    Effect.map(lexical.embed(texts), (vectors) =>
      texts.map((text, index) => vectorOf(text, count) ?? vectors[index] ?? [])
    )
  let embed = proper
  return {
    layer: Layer.succeed(EmbeddingModel, {
      id,
      dimensions: count,
      embed: (texts) => {
        asked.push(...texts)
        return embed(texts)
      }
    }),
    asked,
    misbehaving: (other) => (self) =>
      Effect.acquireUseRelease(
        Effect.sync(() => {
          embed = other
        }),
        () => self,
        () =>
          Effect.sync(() => {
            embed = proper
          })
      )
  }
}

export const contents = (facts: ReadonlyArray<{ readonly content: string }>): ReadonlyArray<string> =>
  facts.map(({ content }) => content)

export const recalled = (ref: ResourceRef, query: string, topK: number) =>
  Effect.flatMap(SemanticMemory, (semantic) => Effect.map(semantic.recall(ref, query, { topK }), contents))

export const prunable = Effect.flatMap(SemanticMemory, ({ prunable }) => Effect.orDie(prunable))

/** Every fact of a resource, in order. */
export const listed = (ref: ResourceRef) =>
  Effect.flatMap(prunable, ({ listAll }) => Effect.map(Stream.runCollect(listAll(ref)), Chunk.toReadonlyArray))

export const count = (ref: ResourceRef) => Effect.flatMap(prunable, (_) => _.count(ref))

export const transaction = Effect.map(SemanticMemory, ({ transaction }) => Option.getOrUndefined(transaction))
