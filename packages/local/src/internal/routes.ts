/** What execd's routes are made of. @internal */
import type * as Http from "node:http"
import type * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import type * as HttpServerResponse from "@effect/platform/HttpServerResponse"
import type * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import type { ApiError } from "./apiError.js"
import type { Sandbox, Sandboxes } from "./sandboxes.js"

export const EXECD_PORT = 44772
export const EGRESS_PORT = 18080

/** What requests to the ports of a sandbox with secure access must carry. */
export const ACCESS_HEADER = "OPENSANDBOX-SECURE-ACCESS"

export type Handler = (
  sandbox: Sandbox,
  sandboxes: Sandboxes,
  params: ReadonlyArray<string>
) => Effect.Effect<HttpServerResponse.HttpServerResponse, ApiError, HttpServerRequest.HttpServerRequest | Scope.Scope>

export interface Route {
  readonly method: string
  /** Its groups are the parameters, still encoded. */
  readonly path: RegExp
  readonly handle: Handler
}

export const route = (method: string, path: RegExp, handle: Handler): Route => ({ method, path, handle })

/** What a sandbox's service is asked at the address that `GET …/endpoints/{port}` told. */
export interface Service {
  readonly id: string
  readonly port: number
  /** What follows that address. */
  readonly path: string
  /** With its question mark, or empty. */
  readonly search: string
}

export const parseService = (url: string): Service | undefined => {
  const match = /^(?:\/v1\/sandboxes\/([^/?]+)\/proxy|\/sandboxes\/([^/?]+)\/port)\/(\d{1,5})(\/[^?]*)?(\?.*)?$/.exec(
    url
  )
  if (match === null) return undefined
  const [, proxied, direct, port, path = "/", search = ""] = match
  return { id: proxied ?? direct ?? "", port: Number(port), path, search }
}

export interface ServiceUpgrade {
  readonly id: string
  readonly path: string
  readonly query: URLSearchParams
  readonly headers: Http.IncomingHttpHeaders
}
