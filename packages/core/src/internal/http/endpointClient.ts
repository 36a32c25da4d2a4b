/** @internal */
import * as Headers from "@effect/platform/Headers"
import * as HttpClient from "@effect/platform/HttpClient"
import * as HttpClientError from "@effect/platform/HttpClientError"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
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

const isBelow = ({ url }: Endpoint, address: string): boolean =>
  address.startsWith(url) && /^(?:[/?#]|$)/.test(address.slice(url.length))

/** What is asked for, below the endpoint's address, with its headers. */
const located =
  (endpoint: Endpoint) =>
  (
    request: HttpClientRequest.HttpClientRequest
  ): Effect.Effect<HttpClientRequest.HttpClientRequest, HttpClientError.RequestError> => {
    const { url } = request
    const own = HttpClientRequest.setHeaders(request, endpointHeaders(endpoint))
    if (isBelow(endpoint, url)) return Effect.succeed(own)
    if (!/^(?:[a-z][a-z0-9+.-]*:)?\/\//i.test(url)) {
      return Effect.succeed(
        HttpClientRequest.prependUrl(own, /^(?:[/?#]|$)/.test(url) ? endpoint.url : `${endpoint.url}/`)
      )
    }
    const description = `${url} is no address of ${endpoint.url}`
    return Effect.fail(new HttpClientError.RequestError({ request, reason: "InvalidUrl", description }))
  }

const withoutHeaders = (
  { body, hash, headers, method, url, urlParams }: HttpClientRequest.HttpClientRequest,
  names: ReadonlyArray<string>
): HttpClientRequest.HttpClientRequest =>
  HttpClientRequest.make(method)(url, {
    headers: Headers.remove(headers, names),
    urlParams,
    body,
    hash: Option.getOrUndefined(hash)
  })

/**
 * A client for what is below the endpoint's address. Where a redirect that is followed leads away from there, the endpoint's headers stay behind.
 *
 * @internal
 */
export const endpointClient = (client: HttpClient.HttpClient, endpoint: Endpoint): HttpClient.HttpClient => {
  const names = Object.keys(endpoint.headers).map((name) => name.toLowerCase())
  return redacting(
    HttpClient.transform(HttpClient.mapRequestEffect(client, located(endpoint)), (effect, request) =>
      isBelow(endpoint, request.url) ? effect : client.execute(withoutHeaders(request, names))
    ),
    names
  )
}
