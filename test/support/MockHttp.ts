/**
 * An `HttpClient` that answers from a function, for tests on the virtual clock: no socket, no timer. It records what was sent.
 */
import * as HttpClient from "@effect/platform/HttpClient"
import * as HttpClientError from "@effect/platform/HttpClientError"
import type * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import * as HttpClientResponse from "@effect/platform/HttpClientResponse"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"

export interface Sent {
  readonly method: string
  readonly url: URL
  readonly headers: { readonly [name: string]: string }
  readonly body: unknown
}

export interface MockHttp {
  readonly sent: ReadonlyArray<Sent>
  readonly layer: Layer.Layer<HttpClient.HttpClient>
}

/** A connection that fails before any answer. */
export class ConnectionFailed {
  readonly _tag = "ConnectionFailed"
  constructor(readonly code: string = "ECONNRESET") {}
}

const bodyOf = (request: HttpClientRequest.HttpClientRequest): unknown =>
  request.body._tag === "Uint8Array" ? JSON.parse(new TextDecoder().decode(request.body.body)) : undefined

export const make = (
  answer: (sent: Sent, index: number) => Response | ConnectionFailed | Effect.Effect<Response>
): MockHttp => {
  const sent: Array<Sent> = []
  const client = HttpClient.make((request, url) =>
    Effect.suspend(() => {
      const one: Sent = { method: request.method, url, headers: request.headers, body: bodyOf(request) }
      sent.push(one)
      const result = answer(one, sent.length - 1)
      if (result instanceof ConnectionFailed) {
        const cause = Object.assign(new Error("the connection failed"), { code: result.code })
        return Effect.fail(new HttpClientError.RequestError({ request, reason: "Transport", cause }))
      }
      return Effect.map(Effect.isEffect(result) ? result : Effect.succeed(result), (response) =>
        HttpClientResponse.fromWeb(request, response)
      )
    })
  )
  return { sent, layer: Layer.succeed(HttpClient.HttpClient, client) }
}

export const json = (status: number, body: unknown, headers: { readonly [name: string]: string } = {}): Response =>
  new Response(JSON.stringify(body), { status, headers: { "content-type": "application/json", ...headers } })
