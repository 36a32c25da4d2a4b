/** @internal */
import * as HttpClient from "@effect/platform/HttpClient"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import * as Redacted from "effect/Redacted"
import type { Endpoint } from "../../OpenSandbox.js"
import { redacting } from "./client.js"

/**
 * The headers of an endpoint, in the clear.
 *
 * @internal
 */
export const endpointHeaders = (endpoint: Endpoint): ReadonlyArray<readonly [string, string]> =>
  Object.entries(endpoint.headers).map(([name, value]) => [name, Redacted.value(value)] as const)

/** @internal */
export const endpointClient = (client: HttpClient.HttpClient, endpoint: Endpoint): HttpClient.HttpClient =>
  redacting(
    HttpClient.mapRequest(client, (request) =>
      HttpClientRequest.setHeaders(HttpClientRequest.prependUrl(request, endpoint.url), endpointHeaders(endpoint))
    ),
    Object.keys(endpoint.headers).map((name) => name.toLowerCase())
  )
