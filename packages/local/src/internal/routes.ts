/** What execd's routes are made of. @internal */
import type * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import type * as HttpServerResponse from "@effect/platform/HttpServerResponse"
import type * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import type { ApiError } from "./apiError.js"
import type { Sandbox, Sandboxes } from "./sandboxes.js"

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
