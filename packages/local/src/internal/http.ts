/** @internal */

import { createHash, timingSafeEqual } from "node:crypto"
import type { RouteNotFound } from "@effect/platform/HttpServerError"
import * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import * as HttpServerResponse from "@effect/platform/HttpServerResponse"
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as ParseResult from "effect/ParseResult"
import * as Schema from "effect/Schema"
import { ApiError, badRequest, runtimeError } from "./apiError.js"
import { uuid } from "./ids.js"

export const iso = (millis: number): string => DateTime.formatIso(DateTime.unsafeMake(millis))

export const json = (body: unknown, status = 200, headers: { readonly [name: string]: string } = {}) =>
  HttpServerResponse.text(JSON.stringify(body), { status, contentType: "application/json", headers })

/** Says so in a header: clients under Node take a body without a length for one that is to be parsed. */
export const empty = (status: number) =>
  HttpServerResponse.empty({ status, headers: status === 204 ? {} : { "content-length": "0" } })

export const errorResponse = (error: ApiError) => json({ code: error.code, message: error.message }, error.status)

/** Compares in a time that does not tell where the two differ, lengths included. */
export const sameSecret = (given: string | undefined, wanted: string): boolean => {
  const digest = (text: string) => createHash("sha256").update(text).digest()
  return timingSafeEqual(digest(given ?? ""), digest(wanted)) && given !== undefined
}

export const unauthorized = (header: string) =>
  new ApiError({ status: 401, code: "UNAUTHORIZED", message: `The ${header} header is missing or wrong` })

/** Throws from the small synchronous steps become failures; anything that is no `ApiError` is a bug, told as a 500. */
export const attempt = <A>(body: () => A): Effect.Effect<A, ApiError> =>
  Effect.try({ try: body, catch: (cause) => (cause instanceof ApiError ? cause : runtimeError(String(cause))) })

/** The body as JSON, `{}` where there is none. */
export const body = <A, I>(schema: Schema.Schema<A, I>, invalid: (message: string) => ApiError) => {
  const decode = Schema.decodeUnknown(schema)
  return Effect.gen(function* () {
    const request = yield* HttpServerRequest.HttpServerRequest
    const text = yield* Effect.mapError(request.text, () =>
      badRequest("The request body could not be read", "INVALID_REQUEST_BODY")
    )
    const value = yield* Effect.try({
      try: (): unknown => (text.trim() === "" ? {} : JSON.parse(text)),
      catch: () => badRequest("The request body is not JSON", "INVALID_REQUEST_BODY")
    })
    return yield* Effect.mapError(decode(value), (error) => invalid(ParseResult.TreeFormatter.formatErrorSync(error)))
  })
}

export const query = Effect.map(
  HttpServerRequest.HttpServerRequest,
  (request) => new URLSearchParams(request.url.includes("?") ? request.url.slice(request.url.indexOf("?") + 1) : "")
)

/** Every answer carries an id; every failure becomes `{code, message}`. */
export const answering = <R>(
  app: Effect.Effect<HttpServerResponse.HttpServerResponse, ApiError | RouteNotFound, R>
): Effect.Effect<HttpServerResponse.HttpServerResponse, never, R> =>
  Effect.suspend(() => {
    const requestId = uuid()
    return app.pipe(
      Effect.catchTags({
        ApiError: (error) => Effect.succeed(errorResponse(error)),
        RouteNotFound: ({ request }) =>
          Effect.succeed(
            errorResponse(new ApiError({ status: 404, code: "NOT_FOUND", message: `There is no ${request.url}` }))
          )
      }),
      Effect.catchAllDefect((defect) =>
        Effect.as(
          Effect.logError("sandglass-local: request failed", defect),
          errorResponse(runtimeError("Internal error", "INTERNAL_ERROR"))
        )
      ),
      Effect.map(HttpServerResponse.setHeader("X-Request-ID", requestId)),
      Effect.annotateLogs("requestId", requestId)
    )
  })
