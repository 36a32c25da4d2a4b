/**
 * What makes vectors of texts, so that they can be compared by meaning.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Lexical from "./internal/embedding/lexical.js"
import type { EmbeddingError } from "./MemoryError.js"

/**
 * The vector of a text: an array of numbers, or a typed array.
 *
 * @since 0.1.0
 * @category models
 */
export type Vector = ArrayLike<number>

/**
 * Makes vectors of texts. Vectors of one model can be compared with each other, and with those of no other.
 *
 * @since 0.1.0
 * @category tags
 */
export class EmbeddingModel extends Context.Tag("@sandglass/memory/EmbeddingModel")<
  EmbeddingModel,
  {
    /** Names the model; kept with every fact. Another id, or another dimension, is another model. */
    readonly id: string
    /** How many numbers each vector has. */
    readonly dimensions: number
    /** One vector for each text, in order. Splits what is too much for one request. Of no texts it makes no vectors. */
    readonly embed: (texts: ReadonlyArray<string>) => Effect.Effect<ReadonlyArray<Vector>, EmbeddingError>
  }
>() {}

/**
 * @since 0.1.0
 * @category models
 */
export interface LexicalOptions {
  /** Default 384. At least 8. */
  readonly dimensions?: number | undefined
}

/**
 * An offline model that compares letters, not meaning: it counts words and parts of words (2 to 4 letters), each at a
 * place in the vector that is a hash of it. Texts are close when they have words or parts of words in common, whatever
 * case and accents they are written with; `car` and `automobile` have nothing in common. The same text has the same
 * vector on every machine. For tests, examples, and programs that must work without a network.
 *
 * @since 0.1.0
 * @category constructors
 */
export const makeLexical = (options: LexicalOptions = {}): Context.Tag.Service<EmbeddingModel> => {
  const dimensions = options.dimensions ?? 384
  if (!Number.isInteger(dimensions) || dimensions < 8) {
    throw new RangeError(`dimensions must be a whole number from 8 on, not ${dimensions}`)
  }
  return EmbeddingModel.of({
    id: Lexical.id,
    dimensions,
    embed: (texts) => Effect.sync(() => texts.map((text) => Lexical.embed(text, dimensions)))
  })
}

/**
 * The offline model of {@link makeLexical}.
 *
 * @since 0.1.0
 * @category layers
 */
export const layerLexical = (options: LexicalOptions = {}): Layer.Layer<EmbeddingModel> =>
  Layer.sync(EmbeddingModel, () => makeLexical(options))
