/** WebSockets. The server's own way to make them hides what is needed here: how much waits for a client, and that it may be told to wait. @internal */

import * as Http from "node:http"
import type * as Net from "node:net"
import type { Duplex } from "node:stream"
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as FiberSet from "effect/FiberSet"
import type * as Scope from "effect/Scope"
import * as WS from "ws"
import { ApiError } from "./apiError.js"
import { execdUpgrade, mayReach } from "./execd.js"
import { uuid } from "./ids.js"
import { proxyUpgrade } from "./proxy.js"
import { EGRESS_PORT, EXECD_PORT, parseService } from "./routes.js"
import type { Sandboxes } from "./sandboxes.js"

const MAX_FRAME = 16 * 1024 * 1024

const refuse = (socket: Duplex, error: ApiError): void => {
  const body = JSON.stringify({ code: error.code, message: error.message })
  socket.end(
    [
      `HTTP/1.1 ${error.status} ${Http.STATUS_CODES[error.status] ?? ""}`,
      "Content-Type: application/json",
      `Content-Length: ${Buffer.byteLength(body)}`,
      `X-Request-ID: ${uuid()}`,
      "Connection: close",
      "",
      body
    ].join("\r\n")
  )
}

/** Answers `Upgrade` requests of the server: WebSockets here, anything else as if it had not asked for an upgrade. */
export const serveUpgrades = (
  server: Http.Server,
  sandboxes: Sandboxes,
  handler: (request: Http.IncomingMessage, response: Http.ServerResponse) => void
): Effect.Effect<void, never, Scope.Scope> =>
  Effect.gen(function* () {
    const run = yield* FiberSet.makeRuntime<never>()
    const webSockets = yield* Effect.acquireRelease(
      Effect.sync(() => new WS.WebSocketServer({ noServer: true, perMessageDeflate: false, maxPayload: MAX_FRAME })),
      (made) =>
        Effect.sync(() => {
          for (const client of made.clients) client.terminate()
          made.close()
        })
    )

    const handshake = (request: Http.IncomingMessage, socket: Duplex, head: Buffer) =>
      Effect.async<WS.WebSocket, ApiError>((resume) => {
        // A handshake that is refused ends the socket, and nothing else.
        const gone = () => resume(Effect.fail(new ApiError({ status: 400, code: "NOT_UPGRADED", message: "gone" })))
        socket.once("close", gone)
        webSockets.handleUpgrade(request, socket, head, (made) => {
          socket.off("close", gone)
          // Until there is somebody to listen.
          made.pause()
          resume(Effect.succeed(made))
        })
      })

    const upgraded = (request: Http.IncomingMessage, socket: Duplex, head: Buffer): Effect.Effect<void, ApiError> =>
      Effect.suspend(() => {
        const asked = parseService(request.url ?? "")
        if (asked !== undefined && asked.port !== EXECD_PORT && asked.port !== EGRESS_PORT) {
          const reached = Effect.flatMap(sandboxes.get(asked.id), (sandbox) => mayReach(sandbox, request.headers))
          return Effect.flatMap(reached, () =>
            proxyUpgrade(asked.port, asked.path + asked.search, request, socket, head)
          )
        }
        if (asked?.port !== EXECD_PORT) {
          return Effect.fail(new ApiError({ status: 404, code: "NOT_FOUND", message: "There is no such WebSocket" }))
        }
        return execdUpgrade(
          sandboxes,
          { id: asked.id, path: asked.path, query: new URLSearchParams(asked.search), headers: request.headers },
          handshake(request, socket, head)
        )
      })

    const listener = (request: Http.IncomingMessage, socket: Duplex, head: Buffer) => {
      socket.on("error", () => {})
      if (request.headers.upgrade?.toLowerCase() !== "websocket") {
        const response = new Http.ServerResponse(request)
        // The listener's type says `Duplex`; what an HTTP server gives is a `Socket`.
        response.assignSocket(socket as Net.Socket)
        response.on("finish", () => socket.end())
        handler(request, response)
        return
      }
      run(
        upgraded(request, socket, head).pipe(
          Effect.catchAll((error) => Effect.sync(() => (socket.writable ? refuse(socket, error) : undefined))),
          Effect.catchAllCause((cause) =>
            Cause.isInterruptedOnly(cause)
              ? Effect.void
              : Effect.zipRight(
                  Effect.logError("sandglass-local: request failed", cause),
                  Effect.sync(() => socket.destroy())
                )
          )
        )
      )
    }
    yield* Effect.acquireRelease(
      Effect.sync(() => server.on("upgrade", listener)),
      () => Effect.sync(() => server.off("upgrade", listener))
    )
  })
