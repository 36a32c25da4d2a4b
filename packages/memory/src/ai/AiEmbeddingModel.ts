/**
 * The embedding models of `@effect/ai`.
 *
 * @since 0.1.0
 */
import type * as AiError from "@effect/ai/AiError"
import * as Ai from "@effect/ai/EmbeddingModel"
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { EmbeddingModel } from "../EmbeddingModel.js"
import type { EmbeddingErrorReason } from "../MemoryError.js"
import { EmbeddingError } from "../MemoryError.js"

/**
 * What the models of `@effect/ai` do not tell.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** Names the model; kept with every fact. */
  readonly id: string
  /** How many numbers its vectors have. Other vectors are an error. */
  readonly dimensions: number
}

const byStatus = (status: number): EmbeddingErrorReason =>
  status === 401 || status === 403
    ? "Unauthorized"
    : status === 429
      ? "RateLimited"
      : status === 408 || status >= 500
        ? "Connection"
        : "InvalidRequest"

const reasonOf = (error: AiError.AiError): EmbeddingErrorReason => {
  switch (error._tag) {
    case "HttpRequestError":
      return error.reason === "Transport" ? "Connection" : "InvalidRequest"
    case "HttpResponseError":
      return error.reason === "StatusCode" ? byStatus(error.response.status) : "InvalidVector"
    case "MalformedInput":
      return "InvalidRequest"
    case "MalformedOutput":
      return "InvalidVector"
    default:
      return "Unknown"
  }
}

/** The error of an answer holds the request with its headers, so nothing but its words is kept of it. */
const toEmbeddingError =
  (model: string) =>
  (error: AiError.AiError): EmbeddingError =>
    new EmbeddingError({
      model,
      reason: reasonOf(error),
      description: "description" in error && error.description !== undefined ? error.description : error._tag,
      ...(error._tag === "HttpResponseError" && { status: error.response.status }),
      ...((error._tag === "UnknownError" || error._tag === "MalformedOutput") && { cause: error.cause })
    })

const forgotten = (model: string) =>
  new EmbeddingError({ model, reason: "InvalidVector", description: "the model made no vector of some of the texts" })

/**
 * The embedding model of `@effect/ai` that is there.
 *
 * @example
 * ```ts
 * import { EmbeddingModel as Ai } from "@effect/ai"
 * import { SemanticMemory } from "@sandglass/memory"
 * import { AiEmbeddingModel } from "@sandglass/memory/ai"
 * import { Layer } from "effect"
 *
 * // For example of `@effect/ai-openai`.
 * declare const openAi: Layer.Layer<Ai.EmbeddingModel>
 *
 * export const semantic = SemanticMemory.layerMemory.pipe(
 *   Layer.provide(AiEmbeddingModel.layer({ id: "text-embedding-3-small", dimensions: 1536 })),
 *   Layer.provide(openAi)
 * )
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = ({ dimensions, id }: Options): Layer.Layer<EmbeddingModel, never, Ai.EmbeddingModel> =>
  Layer.effect(
    EmbeddingModel,
    Effect.map(Ai.EmbeddingModel, (model) => ({
      id,
      dimensions,
      embed: (texts) =>
        texts.length === 0
          ? Effect.succeed([])
          : model.embedMany(texts, { concurrency: "unbounded" }).pipe(
              Effect.mapError(toEmbeddingError(id)),
              // A text that a model forgets looks like an interruption; a fiber that is interrupted does not come here.
              Effect.catchAllCause((cause) =>
                Cause.isInterruptedOnly(cause) ? Effect.fail(forgotten(id)) : Effect.failCause(cause)
              )
            )
    }))
  )
