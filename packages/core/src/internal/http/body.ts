/** @internal */
import * as HttpClientError from "@effect/platform/HttpClientError"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import * as HttpClientResponse from "@effect/platform/HttpClientResponse"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"

/** @internal */
export const concat = (chunks: ReadonlyArray<Uint8Array>, size: number): Uint8Array => {
  const first = chunks[0]
  if (chunks.length === 1 && first !== undefined && first.length === size) return first
  const out = new Uint8Array(size)
  let offset = 0
  for (const chunk of chunks) {
    const fitting = offset + chunk.length <= size ? chunk : chunk.subarray(0, size - offset)
    out.set(fitting, offset)
    offset += fitting.length
  }
  return out
}

/**
 * A body, whose failure carries neither the request nor the response as they were: their headers hold keys, and the runtime logs the failures of the fibers
 * that run a stream.
 *
 * @internal
 */
export const bodyOf = (
  response: HttpClientResponse.HttpClientResponse
): Stream.Stream<Uint8Array, HttpClientError.ResponseError> =>
  Stream.mapError(response.stream, (error) => {
    const request = HttpClientRequest.make(error.request.method)(error.request.url)
    return new HttpClientError.ResponseError({
      request,
      response: HttpClientResponse.fromWeb(request, new globalThis.Response(null, { status: 200 })),
      reason: error.reason,
      cause: error.cause,
      ...(error.description === undefined ? {} : { description: error.description })
    })
  })

/**
 * At most `cap` bytes of a body; the rest is not read and the connection is given up. A response without a body has zero bytes.
 *
 * @internal
 */
export const readCapped = (
  response: HttpClientResponse.HttpClientResponse,
  cap: number
): Effect.Effect<{ readonly bytes: Uint8Array; readonly truncated: boolean }, HttpClientError.ResponseError> =>
  Effect.suspend(() => {
    const chunks: Array<Uint8Array> = []
    let size = 0
    return bodyOf(response).pipe(
      Stream.runForEachWhile((chunk) =>
        Effect.sync(() => {
          chunks.push(chunk)
          size += chunk.length
          return size <= cap
        })
      ),
      Effect.catchIf(
        (error) => error.reason === "EmptyBody",
        () => Effect.void
      ),
      Effect.map(() => ({ bytes: concat(chunks, Math.min(size, cap)), truncated: size > cap }))
    )
  })

/** @internal */
export const decodeUtf8 = (bytes: Uint8Array): string => new TextDecoder().decode(bytes)

/**
 * The start of a text that is meant for a person: white space collapsed, at most 200 characters.
 *
 * @internal
 */
export const snippet = (text: string): string => {
  const flat = text.slice(0, 4000).replace(/\s+/g, " ").trim()
  if (flat.length <= 200) return flat
  const last = flat.charCodeAt(198)
  return `${flat.slice(0, last >= 0xd800 && last <= 0xdbff ? 198 : 199)}…`
}
