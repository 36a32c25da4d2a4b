/**
 * Requests for embeddings, in the form that OpenAI gave them and most servers speak.
 */
import * as Headers from "@effect/platform/Headers"
import type * as HttpClient from "@effect/platform/HttpClient"
import type * as HttpClientError from "@effect/platform/HttpClientError"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import type * as HttpClientResponse from "@effect/platform/HttpClientResponse"
import type { Json } from "@sandglass/core/LedgerEvent"
import * as Arr from "effect/Array"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import * as Random from "effect/Random"
import type { Vector } from "../../EmbeddingModel.js"
import type { EmbeddingErrorReason } from "../../MemoryError.js"
import { EmbeddingError } from "../../MemoryError.js"

export interface Settings {
  readonly client: HttpClient.HttpClient
  readonly id: string
  readonly model: string
  readonly url: string
  /** Empty for none. */
  readonly apiKey: string
  readonly dimensions: number
  /** What else is asked for. */
  readonly body: { readonly [key: string]: Json }
  readonly batchSize: number
  readonly batchCharacters: number
  readonly concurrency: number
  readonly retries: number
  readonly maxRetryDelay: Duration.Duration
  readonly timeout: Duration.Duration
}

/** What a server says about an error is cut here. */
const maxDescription = 500

const messageIn = (value: unknown, depth = 0): string | undefined => {
  if (typeof value === "string") return value
  if (!Predicate.isRecord(value) || depth > 3) return undefined
  for (const field of [value["error"], value["message"], value["detail"]]) {
    const message = messageIn(field, depth + 1)
    if (message !== undefined) return message
  }
  return undefined
}

const parse = (text: string): unknown => {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** Milliseconds to wait: a number of seconds, or a date. Anything else says nothing. */
const parseRetryAfter = (header: Option.Option<string>, now: number): number | undefined => {
  const text = Option.getOrElse(header, () => "").trim()
  if (/^\d{1,9}(?:\.\d+)?$/.test(text)) return Math.ceil(Number(text) * 1000)
  const at = /^[A-Za-z]{3,9},? /.test(text) ? Date.parse(text) : Number.NaN
  return Number.isNaN(at) ? undefined : Math.max(0, at - now)
}

const reasonOf = (status: number): EmbeddingErrorReason =>
  status === 401 || status === 403
    ? "Unauthorized"
    : status === 429
      ? "RateLimited"
      : status === 408 || status >= 500
        ? "Connection"
        : "InvalidRequest"

/** Numbers, or what some servers make of them: the base64 of little-endian floats. */
const vectorOf = (value: unknown): Vector | undefined => {
  if (Array.isArray(value)) return value
  if (typeof value !== "string") return undefined
  const bytes = Uint8Array.from(Buffer.from(value, "base64"))
  return bytes.byteLength > 0 && bytes.byteLength % 4 === 0 ? new Float32Array(bytes.buffer) : undefined
}

/** The vectors of an answer, in the order of the texts, or what is wrong with it. */
const vectorsOf = (answer: unknown, texts: number): ReadonlyArray<Vector> | string => {
  const data = Predicate.isRecord(answer) ? answer["data"] : undefined
  if (!Array.isArray(data)) return "the answer has no list of vectors"
  if (data.length !== texts) return `${data.length} vectors for ${texts} texts`
  const vectors = new Array<Vector | undefined>(texts).fill(undefined)
  for (const [position, item] of data.entries()) {
    const index = Predicate.isRecord(item) ? (item["index"] ?? position) : undefined
    const vector = Predicate.isRecord(item) ? vectorOf(item["embedding"]) : undefined
    if (typeof index !== "number" || !(index in vectors)) return `the answer has a vector for text ${String(index)}`
    if (vector === undefined) return `the answer has no vector for text ${index}`
    if (vectors[index] !== undefined) return `the answer has two vectors for text ${index}`
    vectors[index] = vector
  }
  return vectors.filter((vector) => vector !== undefined)
}

/** As few requests as the limits allow. A text that is longer than they allow is alone in its own. */
export const batchesOf = (
  texts: ReadonlyArray<string>,
  { batchCharacters, batchSize }: Pick<Settings, "batchSize" | "batchCharacters">
): ReadonlyArray<Arr.NonEmptyReadonlyArray<string>> => {
  const batches: Array<Arr.NonEmptyArray<string>> = []
  let characters = 0
  for (const text of texts) {
    const batch = batches[batches.length - 1]
    if (batch !== undefined && batch.length < batchSize && characters + text.length <= batchCharacters) {
      batch.push(text)
      characters += text.length
    } else {
      batches.push([text])
      characters = text.length
    }
  }
  return batches
}

export const make = (settings: Settings) => {
  const { apiKey, client, id, model, url } = settings
  const withoutSecret = (text: string) => (apiKey === "" ? text : text.split(apiKey).join("<redacted>"))

  const failure = (reason: EmbeddingErrorReason, description: string | undefined, cause?: unknown) =>
    new EmbeddingError({
      model: id,
      reason,
      ...(description !== undefined && { description: withoutSecret(description).slice(0, maxDescription) }),
      ...(cause !== undefined && { cause })
    })

  /** The client's own error holds the request with its headers, so only what caused it is kept. */
  const fromClientError = (error: HttpClientError.HttpClientError): EmbeddingError => {
    const said = error.cause instanceof Error ? error.cause.message : undefined
    const description = error.description ?? said ?? error.reason
    return error._tag === "RequestError" && error.reason !== "Transport"
      ? failure("InvalidRequest", description)
      : failure("Connection", description, error.cause)
  }

  const fromResponse = (response: HttpClientResponse.HttpClientResponse): Effect.Effect<never, EmbeddingError> =>
    Effect.gen(function* () {
      const text = yield* Effect.orElseSucceed(response.text, () => "")
      const now = yield* Clock.currentTimeMillis
      const retryAfter = parseRetryAfter(Headers.get(response.headers, "retry-after"), now)
      return yield* new EmbeddingError({
        model: id,
        reason: reasonOf(response.status),
        description: withoutSecret(messageIn(parse(text)) ?? text).slice(0, maxDescription),
        status: response.status,
        ...(retryAfter !== undefined && { retryAfter: Duration.millis(retryAfter) })
      })
    })

  const request = HttpClientRequest.post(`${url.replace(/\/+$/, "")}/embeddings`).pipe(
    HttpClientRequest.acceptJson,
    apiKey === "" ? (self) => self : HttpClientRequest.bearerToken(apiKey)
  )

  const ask = (texts: Arr.NonEmptyReadonlyArray<string>): Effect.Effect<ReadonlyArray<Vector>, EmbeddingError> =>
    Effect.gen(function* () {
      const response = yield* client.execute(
        HttpClientRequest.bodyUnsafeJson(request, {
          encoding_format: "float",
          ...settings.body,
          model,
          input: texts
        })
      )
      if (response.status < 200 || response.status >= 300) {
        return yield* fromResponse(response)
      }
      const text = yield* response.text
      const answer = parse(text)
      if (answer === undefined) {
        return yield* failure("InvalidVector", `the answer is no JSON: ${text.slice(0, 100)}`)
      }
      const vectors = vectorsOf(answer, texts.length)
      return typeof vectors === "string" ? yield* failure("InvalidVector", vectors) : vectors
    }).pipe(
      Effect.catchTags({
        RequestError: (error) => Effect.fail(fromClientError(error)),
        ResponseError: (error) => Effect.fail(fromClientError(error))
      }),
      Effect.timeoutFail({
        duration: settings.timeout,
        onTimeout: () => failure("Connection", `no answer within ${Duration.format(settings.timeout)}`)
      })
    )

  /** Half a second, a second, two, ..., and a little less, so that many do not come back at once. */
  const pauseOf = (error: EmbeddingError, attempt: number): Effect.Effect<Duration.Duration> =>
    error.retryAfter !== undefined
      ? Effect.succeed(error.retryAfter)
      : Effect.map(Random.nextRange(0.5, 1), (part) =>
          Duration.min(Duration.millis(500 * 2 ** attempt * part), settings.maxRetryDelay)
        )

  /** It has no effect on the server, so it may be sent again. */
  const askAgain = (
    texts: Arr.NonEmptyReadonlyArray<string>,
    attempt: number
  ): Effect.Effect<ReadonlyArray<Vector>, EmbeddingError> =>
    Effect.catchAll(ask(texts), (error) =>
      error.isRetryable && attempt < settings.retries
        ? Effect.flatMap(pauseOf(error, attempt), (pause) =>
            Duration.lessThanOrEqualTo(pause, settings.maxRetryDelay)
              ? Effect.zipRight(Effect.sleep(pause), askAgain(texts, attempt + 1))
              : Effect.fail(error)
          )
        : Effect.fail(error)
    )

  return (texts: ReadonlyArray<string>): Effect.Effect<ReadonlyArray<Vector>, EmbeddingError> =>
    Effect.map(
      Effect.forEach(batchesOf(texts, settings), (batch) => askAgain(batch, 0), { concurrency: settings.concurrency }),
      Arr.flatten
    ).pipe(
      Effect.withSpan("EmbeddingModel.embed", {
        captureStackTrace: false,
        attributes: { "gen_ai.operation.name": "embeddings", "gen_ai.request.model": model }
      })
    )
}
