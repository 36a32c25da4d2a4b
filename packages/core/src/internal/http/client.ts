/** @internal */
import * as FetchHttpClient from "@effect/platform/FetchHttpClient"
import * as Headers from "@effect/platform/Headers"
import * as HttpClient from "@effect/platform/HttpClient"
import * as HttpClientError from "@effect/platform/HttpClientError"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import type * as HttpClientResponse from "@effect/platform/HttpClientResponse"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Random from "effect/Random"
import * as Schema from "effect/Schema"
import { OpenSandboxError } from "../../OpenSandboxError.js"
import { decodeUtf8, readCapped, snippet } from "./body.js"
import type { Where } from "./error.js"
import { fromClientError, fromResponse, invalidRequest, timedOut } from "./error.js"

/** @internal */
export const apiKeyHeader = "open-sandbox-api-key"

// names that the contract knows, and what an endpoint's own secrets are likely to be called
const secretHeaders: ReadonlyArray<string | RegExp> = [
  apiKeyHeader,
  "x-execd-access-token",
  "opensandbox-egress-auth",
  /token|secret|auth|api-?key|password|credential/i
]

/** An error carries its request, and the runtime logs the errors of fibers that nobody waits for: without the values of these headers. */
const conceal =
  (names: ReadonlyArray<string | RegExp>) =>
  (error: HttpClientError.HttpClientError): HttpClientError.HttpClientError => {
    if (error._tag !== "RequestError") return error
    const { cause, description, reason, request } = error
    const shown = Object.entries(Headers.redact(request.headers, names)).map(
      ([name, value]) => [name, String(value)] as const
    )
    return new HttpClientError.RequestError({
      request: HttpClientRequest.setHeaders(request, shown),
      reason,
      cause,
      ...(description === undefined ? {} : { description })
    })
  }

/**
 * A client whose spans and errors never show the values of these headers. On the client itself, because a setting made by a Layer does not reach code that
 * only gets a prebuilt context.
 *
 * @internal
 */
export const redacting = (
  client: HttpClient.HttpClient,
  names: ReadonlyArray<string | RegExp>
): HttpClient.HttpClient =>
  HttpClient.transformResponse(client, (effect) =>
    Effect.mapError(
      Effect.locallyWith(effect, Headers.currentRedactedNames, (known) => [...known, ...names]),
      conceal(names)
    )
  )

/**
 * The client that everything is sent by: secrets hidden in spans; redirects reported instead of followed, because fetch would carry the secret headers along
 * to another origin; and what must not be sent twice goes on a connection of its own, because one that is used again may be closed by the server at that very
 * moment, which leaves open whether it was received. (`keepalive` does that in Bun; elsewhere it changes nothing.)
 *
 * @internal
 */
export const bareClient = (
  base: HttpClient.HttpClient,
  init: Option.Option<globalThis.RequestInit>,
  transform: (client: HttpClient.HttpClient) => HttpClient.HttpClient
): HttpClient.HttpClient =>
  redacting(
    HttpClient.transform(transform(base), (effect, request) =>
      Effect.mapInputContext(effect, (context: Context.Context<never>) =>
        Context.add(context, FetchHttpClient.RequestInit, {
          redirect: "manual",
          ...(request.method === "GET" || request.method === "DELETE" ? undefined : { keepalive: false }),
          ...Option.getOrUndefined(init),
          ...Option.getOrUndefined(Context.getOption(context, FetchHttpClient.RequestInit))
        })
      )
    ),
    secretHeaders
  )

/** @internal */
export interface RetryPolicy {
  readonly times: number
  readonly baseMillis: number
  readonly maxMillis: number
}

/** @internal */
export interface RetryOptions {
  readonly times?: number | undefined
  readonly baseDelay?: Duration.DurationInput | undefined
  readonly maxDelay?: Duration.DurationInput | undefined
}

/** @internal */
export const retryPolicy = (options: RetryOptions | undefined): RetryPolicy => ({
  times: Math.max(0, options?.times ?? 3),
  baseMillis: Duration.toMillis(options?.baseDelay ?? "200 millis"),
  maxMillis: Duration.toMillis(options?.maxDelay ?? "10 seconds")
})

/** @internal */
export const isTransient = (error: OpenSandboxError): boolean =>
  error.reason === "Transport" ||
  error.reason === "RateLimited" ||
  (error.reason === "ServerError" && error.status !== undefined && error.status >= 500 && error.status !== 501)

/**
 * How long to wait before attempt `attempt + 1`: what the server asked for, else a growing delay with jitter; never more than the policy's cap.
 *
 * @internal
 */
export const retryDelay = (policy: RetryPolicy, attempt: number, error: OpenSandboxError): Effect.Effect<number> =>
  error.retryAfter !== undefined
    ? Effect.succeed(Math.min(error.retryAfter, policy.maxMillis))
    : Effect.map(Random.next, (jitter) => Math.min(policy.baseMillis * 2 ** attempt * (0.5 + jitter), policy.maxMillis))

/**
 * Repeats a request that may be repeated. Nothing but GET and DELETE may.
 *
 * @internal
 */
export const retrying =
  (policy: RetryPolicy, when: (error: OpenSandboxError) => boolean = isTransient) =>
  <A, R>(self: Effect.Effect<A, OpenSandboxError, R>): Effect.Effect<A, OpenSandboxError, R> => {
    const loop = (attempt: number): Effect.Effect<A, OpenSandboxError, R> =>
      Effect.catchAll(self, (error) =>
        attempt < policy.times && when(error)
          ? retryDelay(policy, attempt, error).pipe(
              Effect.flatMap((millis) => Effect.sleep(millis)),
              Effect.zipRight(Effect.suspend(() => loop(attempt + 1)))
            )
          : Effect.fail(error)
      )
    return loop(0)
  }

/** @internal */
export const isOk = (response: HttpClientResponse.HttpClientResponse): boolean =>
  response.status >= 200 && response.status < 300

/**
 * One request and one answer, decoded, within a time limit. An error status becomes a typed error.
 *
 * @internal
 */
export const send = <A>(
  client: HttpClient.HttpClient,
  where: Where,
  timeout: Duration.Duration,
  request: HttpClientRequest.HttpClientRequest,
  decode: (response: HttpClientResponse.HttpClientResponse) => Effect.Effect<A, OpenSandboxError>
): Effect.Effect<A, OpenSandboxError> =>
  client.execute(request).pipe(
    Effect.mapError(fromClientError(where)),
    Effect.flatMap((response) =>
      isOk(response) ? decode(response) : Effect.flatMap(fromResponse(where, response), Effect.fail)
    ),
    // in an uninterruptible region, such as a finalizer, the timeout would wait for what it is meant to cut
    Effect.interruptible,
    Effect.timeoutFail({
      duration: timeout,
      onTimeout: () => timedOut(where, `no complete answer within ${Duration.format(timeout)}`)
    })
  )

/** A success document longer than this is refused rather than held in memory. */
const jsonCap = 32 * 1024 * 1024

const answerError = (
  where: Where,
  response: HttpClientResponse.HttpClientResponse,
  description: string,
  cause?: unknown
): OpenSandboxError =>
  new OpenSandboxError({
    ...where,
    reason: "Decode",
    status: response.status,
    requestId: response.headers["x-request-id"],
    description,
    cause
  })

/** @internal */
export const textBody =
  (where: Where, cap: number) =>
  (response: HttpClientResponse.HttpClientResponse): Effect.Effect<Uint8Array, OpenSandboxError> =>
    readCapped(response, cap).pipe(
      Effect.mapError(fromClientError(where)),
      Effect.filterOrFail(
        ({ truncated }) => !truncated,
        () => answerError(where, response, `the answer is longer than ${cap} bytes`)
      ),
      Effect.map(({ bytes }) => bytes)
    )

/**
 * A JSON body, through a schema. An empty body is `null`.
 *
 * @internal
 */
export const jsonBody = <A, I>(where: Where, schema: Schema.Schema<A, I>) => {
  const decode = Schema.decodeUnknown(schema)
  return (response: HttpClientResponse.HttpClientResponse): Effect.Effect<A, OpenSandboxError> =>
    Effect.flatMap(textBody(where, jsonCap)(response), (bytes) => {
      const text = decodeUtf8(bytes)
      return Effect.try(() => (text.trim() === "" ? null : (JSON.parse(text) as unknown))).pipe(
        Effect.flatMap(decode),
        Effect.mapError((cause) =>
          answerError(
            where,
            response,
            text.trim() === "" ? "the answer is empty" : `unexpected answer: ${snippet(text)}`,
            cause
          )
        )
      )
    })
}

/**
 * A body that says nothing: read, so that the connection can be used again.
 *
 * @internal
 */
export const noBody = (response: HttpClientResponse.HttpClientResponse): Effect.Effect<void, OpenSandboxError> =>
  // the status has said it all, a cut body included
  Effect.ignore(readCapped(response, 64 * 1024))

/**
 * One segment of a path, percent-encoded.
 *
 * @internal
 */
export const segment = (where: Where, what: string, value: string): Effect.Effect<string, OpenSandboxError> => {
  if (value.trim() === "") return Effect.fail(invalidRequest(where, `the ${what} is empty`))
  // a URL resolves these away, however they are encoded
  if (value === "." || value === "..") {
    return Effect.fail(invalidRequest(where, `the ${what} ${JSON.stringify(value)} cannot stand in a path`))
  }
  return Effect.try({
    try: () => encodeURIComponent(value),
    catch: () => invalidRequest(where, `the ${what} ${JSON.stringify(value)} holds half a character`)
  })
}
