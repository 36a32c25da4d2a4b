/**
 * Embedding models behind an OpenAI-compatible API: OpenAI, NVIDIA, Ollama, vLLM, and many others.
 *
 * @since 0.1.0
 */
import * as FetchHttpClient from "@effect/platform/FetchHttpClient"
import * as HttpClient from "@effect/platform/HttpClient"
import type { Json } from "@sandglass/core/LedgerEvent"
import * as Config from "effect/Config"
import type { ConfigError } from "effect/ConfigError"
import type * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import { identity } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { EmbeddingModel } from "./EmbeddingModel.js"
import * as internal from "./internal/embedding/openAi.js"

/**
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** As the server calls it, e.g. `text-embedding-3-small`. It is also the model's id, unless there is an `id`. */
  readonly model: string
  /** How many numbers its vectors have. Other vectors are an error. */
  readonly dimensions: number
  /** What is kept with every fact. Default: `model`. */
  readonly id?: string | undefined
  /** Up to and including the version. Default: `https://api.openai.com/v1`. */
  readonly url?: string | undefined
  /** Sent as a bearer token. Default: none. */
  readonly apiKey?: Redacted.Redacted<string> | undefined
  /** What else goes into each request, e.g. `{ dimensions: 256 }` or `{ input_type: "passage" }`. */
  readonly body?: { readonly [key: string]: Json } | undefined
  /** Texts in one request at most. Default: 128. */
  readonly batchSize?: number | undefined
  /** UTF-16 code units in one request at most; a longer text is sent alone. Default: 200,000. */
  readonly batchCharacters?: number | undefined
  /** Requests at once. Default: 2. */
  readonly concurrency?: number | undefined
  /** How often a request is repeated that found no server, or one that is too busy. Default: 4. */
  readonly retries?: number | undefined
  /** The longest pause before a repetition. Where the server asks for a longer one, that is an error. Default: 30 seconds. */
  readonly maxRetryDelay?: Duration.DurationInput | undefined
  /** How long one request may take. Default: 60 seconds. */
  readonly timeout?: Duration.DurationInput | undefined
  /** Proxies, tracing, other headers. */
  readonly transformClient?: ((client: HttpClient.HttpClient) => HttpClient.HttpClient) | undefined
}

/**
 * Builds the model on whatever `HttpClient` is there. Options that make no sense are defects.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (
  options: Options
): Effect.Effect<Context.Tag.Service<EmbeddingModel>, never, HttpClient.HttpClient> =>
  Effect.gen(function* () {
    for (const name of ["dimensions", "batchSize", "batchCharacters", "concurrency"] as const) {
      const value = options[name] ?? 1
      if (!Number.isSafeInteger(value) || value < 1) {
        return yield* Effect.die(new RangeError(`${name} must be a positive whole number, not ${value}`))
      }
    }
    const client = (options.transformClient ?? identity)(yield* HttpClient.HttpClient)
    const id = options.id ?? options.model
    return EmbeddingModel.of({
      id,
      dimensions: options.dimensions,
      embed: internal.make({
        client,
        id,
        model: options.model,
        url: options.url ?? "https://api.openai.com/v1",
        apiKey: options.apiKey === undefined ? "" : Redacted.value(options.apiKey),
        dimensions: options.dimensions,
        body: options.body ?? {},
        batchSize: options.batchSize ?? 128,
        batchCharacters: options.batchCharacters ?? 200_000,
        concurrency: options.concurrency ?? 2,
        retries: options.retries ?? 4,
        maxRetryDelay: Duration.decode(options.maxRetryDelay ?? "30 seconds"),
        timeout: Duration.decode(options.timeout ?? "60 seconds")
      })
    })
  })

/**
 * The model on an `HttpClient` of the application's own.
 *
 * @since 0.1.0
 * @category layers
 */
export const layerWithoutHttpClient = (options: Options): Layer.Layer<EmbeddingModel, never, HttpClient.HttpClient> =>
  Layer.effect(EmbeddingModel, make(options))

/**
 * The model on the platform's `fetch`.
 *
 * @example
 * ```ts
 * import { OpenAiEmbeddingModel } from "@sandglass/memory"
 * import { Redacted } from "effect"
 *
 * export const openAi = OpenAiEmbeddingModel.layer({
 *   model: "text-embedding-3-small",
 *   dimensions: 1536,
 *   apiKey: Redacted.make("secret")
 * })
 *
 * export const ollama = OpenAiEmbeddingModel.layer({
 *   url: "http://localhost:11434/v1",
 *   model: "nomic-embed-text",
 *   dimensions: 768
 * })
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (options: Options): Layer.Layer<EmbeddingModel> =>
  Layer.provide(layerWithoutHttpClient(options), FetchHttpClient.layer)

/**
 * Where {@link layerConfig} takes what it is not given: `EMBEDDING_MODEL`, `EMBEDDING_DIMENSIONS`, and, where they are set,
 * `EMBEDDING_URL` and `EMBEDDING_API_KEY`.
 *
 * @since 0.1.0
 * @category config
 */
export const config: Config.Config<Pick<Options, "model" | "dimensions" | "url" | "apiKey">> = Config.all({
  model: Config.nonEmptyString("EMBEDDING_MODEL").pipe(
    Config.withDescription("The embedding model, as its server calls it")
  ),
  dimensions: Config.integer("EMBEDDING_DIMENSIONS").pipe(Config.withDescription("How many numbers its vectors have")),
  url: Config.withDefault(Config.nonEmptyString("EMBEDDING_URL"), undefined),
  apiKey: Config.withDefault(Config.redacted(Config.nonEmptyString("EMBEDDING_API_KEY")), undefined)
})

/**
 * As {@link layer}, from the configuration.
 *
 * @since 0.1.0
 * @category layers
 */
export const layerConfig = (
  options: Config.Config.Wrap<Omit<Options, "transformClient">> = config
): Layer.Layer<EmbeddingModel, ConfigError> => Layer.unwrapEffect(Effect.map(Config.unwrap(options), layer))
