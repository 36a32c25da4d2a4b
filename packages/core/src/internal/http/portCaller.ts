/** @internal */
import * as HttpBody from "@effect/platform/HttpBody"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import type * as HttpClientResponse from "@effect/platform/HttpClientResponse"
import type * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type { OpenSandbox } from "../../OpenSandbox.js"
import type { OpenSandboxError } from "../../OpenSandboxError.js"
import * as Http from "./client.js"
import type { Connection, Connections } from "./connections.js"
import { makeConnections, repeatable, withConnection } from "./connections.js"
import type { Where } from "./error.js"
import { invalidRequest } from "./error.js"

/** @internal */
export type Params = ReadonlyArray<readonly [string, string]>

/** @internal */
export type Decode<A> = (response: HttpClientResponse.HttpClientResponse) => Effect.Effect<A, OpenSandboxError>

/**
 * How requests are sent to one of the servers inside a sandbox.
 *
 * @internal
 */
export interface PortCaller {
  readonly sandboxId: string
  readonly connections: Connections
  readonly policy: Http.RetryPolicy
  readonly requestTimeout: Duration.Duration
  readonly where: (method: string) => Where
  readonly span: (
    method: string,
    attributes?: { readonly [key: string]: unknown }
  ) => <A, E, R>(self: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
  readonly send: <A>(
    connection: Connection,
    at: Where,
    request: HttpClientRequest.HttpClientRequest,
    decode: Decode<A>,
    timeout?: Duration.Duration
  ) => Effect.Effect<A, OpenSandboxError>
  /** Repeated as the policy says. */
  readonly get: <A>(at: Where, path: string, params: Params, decode: Decode<A>) => Effect.Effect<A, OpenSandboxError>
  /** Repeated as the policy says. */
  readonly remove: (at: Where, path: string, params: Params) => Effect.Effect<void, OpenSandboxError>
  /** Sent once. The body is made at the last moment, because it may hold secrets. */
  readonly write: <A>(
    at: Where,
    method: "POST" | "PATCH",
    path: string,
    body: () => unknown,
    decode: Decode<A>,
    params?: Params
  ) => Effect.Effect<A, OpenSandboxError>
}

/** @internal */
export const makePortCaller = (options: {
  readonly api: Context.Tag.Service<OpenSandbox>
  readonly sandboxId: string
  readonly module: "Execd" | "Egress"
  readonly port: number
  readonly policy: Http.RetryPolicy
  readonly requestTimeout: Duration.Duration
}): PortCaller => {
  const { module, policy, requestTimeout, sandboxId } = options
  const connections = makeConnections(options.api, sandboxId, options.port)
  const send: PortCaller["send"] = (connection, at, request, decode, timeout = requestTimeout) =>
    Http.send(connection.client, at, timeout, request, decode)
  return {
    sandboxId,
    connections,
    policy,
    requestTimeout,
    where: (method) => ({ module, method }),
    span: (method, attributes = {}) =>
      Effect.withSpan(`${module}.${method}`, {
        captureStackTrace: false,
        attributes: { "sandbox.id": sandboxId, ...attributes }
      }),
    send,
    get: (at, path, params, decode) =>
      repeatable(connections, policy, (connection) =>
        send(connection, at, HttpClientRequest.get(path, { urlParams: params }), decode)
      ),
    remove: (at, path, params) =>
      repeatable(connections, policy, (connection, attempt) =>
        send(connection, at, HttpClientRequest.del(path, { urlParams: params }), Http.noBody).pipe(
          // an earlier attempt may have done it before its answer was lost
          Effect.catchIf(
            (error) => attempt > 0 && error.reason === "NotFound",
            () => Effect.void
          )
        )
      ),
    write: (at, method, path, body, decode, params = []) =>
      withConnection(connections, (connection) =>
        Effect.suspend(() =>
          send(
            connection,
            at,
            HttpClientRequest.make(method)(path, { urlParams: params, body: HttpBody.unsafeJson(body()) }),
            decode
          )
        )
      )
  }
}

/** @internal */
export const check = (at: Where, problem: string | undefined): Effect.Effect<void, OpenSandboxError> =>
  problem === undefined ? Effect.void : Effect.fail(invalidRequest(at, problem))
