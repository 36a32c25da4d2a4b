/** Requests to what listens on a port, through this server. @internal */

import * as Http from "node:http"
import * as Net from "node:net"
import type { Duplex } from "node:stream"
import { pipeline } from "node:stream"
import * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import * as HttpServerResponse from "@effect/platform/HttpServerResponse"
import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import * as Effect from "effect/Effect"
import { ApiError } from "./apiError.js"

/** Of one connection only, or for this server only. */
const OWN_HEADERS: ReadonlySet<string> = new Set([
  "connection",
  "host",
  "keep-alive",
  "open-sandbox-api-key",
  "opensandbox-secure-access",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade"
])

const passedOn = (raw: ReadonlyArray<string>): Array<[string, string]> => {
  const headers: Array<[string, string]> = []
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const [name = "", value = ""] = raw.slice(i, i + 2)
    if (!OWN_HEADERS.has(name.toLowerCase())) headers.push([name, value])
  }
  return headers
}

const grouped = (headers: ReadonlyArray<readonly [string, string]>): { [name: string]: Array<string> } => {
  const result: { [name: string]: Array<string> } = {}
  for (const [name, value] of headers) {
    const key = name.toLowerCase()
    result[key] = [...(result[key] ?? []), value]
  }
  return result
}

const unreachable = (port: number, cause: Error) =>
  new ApiError({ status: 502, code: "BAD_GATEWAY", message: `Nothing answers on port ${port}: ${cause.message}` })

/** Both bodies are streamed. The answer is written here, because it may carry a header several times. */
export const proxyRequest = (
  port: number,
  path: string
): Effect.Effect<HttpServerResponse.HttpServerResponse, ApiError, HttpServerRequest.HttpServerRequest> =>
  Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) =>
    Effect.async<HttpServerResponse.HttpServerResponse, ApiError>((resume) => {
      const incoming = NodeHttpServerRequest.toIncomingMessage(request)
      const answer = NodeHttpServerRequest.toServerResponse(request)
      const outgoing = Http.request({
        host: "127.0.0.1",
        port,
        method: request.method,
        path,
        agent: false,
        headers: {
          ...grouped(passedOn(incoming.rawHeaders)),
          host: `127.0.0.1:${port}`,
          ...(incoming.headers["transfer-encoding"] === undefined ? {} : { "transfer-encoding": "chunked" })
        }
      })
      outgoing.on("error", (cause) => {
        if (answer.headersSent) answer.destroy()
        else resume(Effect.fail(unreachable(port, cause)))
      })
      outgoing.on("response", (response) => {
        answer.writeHead(response.statusCode ?? 502, response.statusMessage, grouped(passedOn(response.rawHeaders)))
        pipeline(response, answer, () => resume(Effect.succeed(HttpServerResponse.empty())))
      })
      pipeline(incoming, outgoing, () => {})
      return Effect.sync(() => outgoing.destroy())
    })
  )

/** A WebSocket, or whatever else the two agree on: bytes in both directions. */
export const proxyUpgrade = (
  port: number,
  path: string,
  request: Http.IncomingMessage,
  socket: Duplex,
  head: Buffer
): Effect.Effect<void, ApiError> =>
  Effect.async<void, ApiError>((resume) => {
    const target = Net.connect(port, "127.0.0.1")
    target.on("error", (cause) => {
      resume(Effect.fail(unreachable(port, cause)))
      target.destroy()
    })
    target.on("connect", () => {
      const headers = [
        ["Host", `127.0.0.1:${port}`],
        ["Connection", "Upgrade"],
        ["Upgrade", request.headers.upgrade ?? "websocket"],
        ...passedOn(request.rawHeaders)
      ]
      const lines = headers.map(([name, value]) => `${name}: ${value}\r\n`).join("")
      target.write(`${request.method} ${path} HTTP/1.1\r\n${lines}\r\n`)
      if (head.length > 0) target.write(head)
      pipeline(target, socket, () => {})
      pipeline(socket, target, () => {})
    })
    target.on("close", () => resume(Effect.void))
    socket.on("close", () => target.destroy())
    return Effect.sync(() => target.destroy())
  })
