/** @internal */
import * as HttpBody from "@effect/platform/HttpBody"
import type * as HttpClient from "@effect/platform/HttpClient"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import type * as HttpClientResponse from "@effect/platform/HttpClientResponse"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import type { Options } from "../../OpenSandbox.js"
import type { OpenSandboxError } from "../../OpenSandboxError.js"
import { lifecycleBase } from "../http/address.js"
import * as Http from "../http/client.js"
import type { Where } from "../http/error.js"

/** @internal */
export const defaultUrl = "http://127.0.0.1:8080"

/** @internal */
export type Params = ReadonlyArray<readonly [string, string]>

/** @internal */
export type Decode<A> = (response: HttpClientResponse.HttpClientResponse) => Effect.Effect<A, OpenSandboxError>

/**
 * How every operation of the lifecycle API is sent.
 *
 * @internal
 */
export interface Caller {
  /** Ends in `/v1`. */
  readonly base: string
  readonly options: Options
  readonly client: HttpClient.HttpClient
  readonly requestTimeout: Duration.Duration
  /** For the answer to what has to make something first. */
  readonly createTimeout: Duration.Duration
  readonly call: <A>(
    where: Where,
    method: "GET" | "POST" | "PATCH" | "DELETE",
    path: string,
    decode: Decode<A>,
    init?: {
      readonly params?: Params | undefined
      /** Made for each attempt, so that secrets are unwrapped at the last moment. */
      readonly body?: (() => unknown) | undefined
      readonly timeout?: Duration.Duration | undefined
    }
  ) => Effect.Effect<A, OpenSandboxError>
  /** For GET and DELETE only. */
  readonly retry: <A>(self: Effect.Effect<A, OpenSandboxError>) => Effect.Effect<A, OpenSandboxError>
}

/** @internal */
export const makeCaller = (options: Options, client: HttpClient.HttpClient): Caller => {
  const base = lifecycleBase(options.url ?? defaultUrl)
  const requestTimeout = Duration.decode(options.requestTimeout ?? "30 seconds")
  return {
    base,
    options,
    client,
    requestTimeout,
    createTimeout: Duration.decode(options.createTimeout ?? "5 minutes"),
    call: (where, method, path, decode, init = {}) =>
      Effect.suspend(() =>
        Http.send(
          client,
          where,
          init.timeout ?? requestTimeout,
          HttpClientRequest.make(method)(`${base}${path}`, {
            acceptJson: true,
            ...(init.params === undefined ? {} : { urlParams: init.params }),
            ...(init.body === undefined ? {} : { body: HttpBody.unsafeJson(init.body()) }),
            ...(options.apiKey === undefined
              ? {}
              : { headers: { [Http.apiKeyHeader]: Redacted.value(options.apiKey) } })
          }),
          decode
        )
      ),
    retry: Http.retrying(Http.retryPolicy(options.retry))
  }
}

/** @internal */
export const where = (method: string): Where => ({ module: "OpenSandbox", method })

/** @internal */
export const span = (method: string, attributes: { readonly [key: string]: unknown } = {}) =>
  Effect.withSpan(`OpenSandbox.${method}`, { captureStackTrace: false, attributes })

/** @internal */
export const sandboxPath = (at: Where, sandboxId: string, rest = ""): Effect.Effect<string, OpenSandboxError> =>
  Effect.map(Http.segment(at, "sandbox id", sandboxId), (id) => `/sandboxes/${id}${rest}`)

/** @internal */
export const snapshotPath = (at: Where, snapshotId: string): Effect.Effect<string, OpenSandboxError> =>
  Effect.map(Http.segment(at, "snapshot id", snapshotId), (id) => `/snapshots/${id}`)
