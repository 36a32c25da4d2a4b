/** @internal */
import type { IncomingMessage } from "node:http"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import * as HttpClientResponse from "@effect/platform/HttpClientResponse"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Scope from "effect/Scope"
import { WebSocket } from "ws"
import { OpenSandboxError } from "../../../OpenSandboxError.js"
import { snippet } from "../../http/body.js"
import type { Where } from "../../http/error.js"
import { fromResponse, invalidRequest, timedOut } from "../../http/error.js"

/** @internal */
export interface Handlers {
  readonly onText: (text: string) => void
  readonly onBinary: (bytes: Uint8Array) => void
  /** A sign of life that is no message. */
  readonly onHeartbeat: () => void
  /** Once, after everything else, and only for a socket that was open. */
  readonly onClose: (code: number, reason: string, error: Error | undefined) => void
}

/** @internal */
export interface Socket {
  /** Waits until the operating system has taken it. */
  readonly send: (data: string | Uint8Array) => Effect.Effect<void, Error>
  /** For what may get lost. */
  readonly unsafeSend: (data: string) => void
  /** Stops reading; the sender has to wait then. */
  readonly pause: () => void
  readonly resume: () => void
  readonly terminate: () => void
}

const refusal = (at: Where, message: IncomingMessage): Effect.Effect<OpenSandboxError> =>
  Effect.async<Uint8Array>((resume) => {
    const chunks: Array<Uint8Array> = []
    let size = 0
    const done = () => resume(Effect.succeed(Buffer.concat(chunks)))
    message.on("data", (chunk: Uint8Array) => {
      size += chunk.length
      if (size <= 64 * 1024) chunks.push(chunk)
      else done()
    })
    message.on("end", done)
    message.on("error", done)
    message.on("close", done)
  }).pipe(
    Effect.flatMap((body) => {
      const headers = new Headers()
      for (const [name, value] of Object.entries(message.headers)) {
        if (value !== undefined) headers.set(name, Array.isArray(value) ? value.join(", ") : value)
      }
      const status = message.statusCode ?? 0
      if (status >= 200 && status < 300) {
        const said = snippet(new TextDecoder().decode(body))
        const description = said === "" ? "no WebSocket was opened" : `no WebSocket was opened: ${said}`
        return Effect.succeed(new OpenSandboxError({ ...at, reason: "Decode", status, description }))
      }
      return status >= 300 && status <= 599 && status !== 304
        ? fromResponse(
            at,
            HttpClientResponse.fromWeb(
              HttpClientRequest.get("/"),
              new Response(new Uint8Array(body), { status, headers })
            )
          )
        : Effect.succeed(
            new OpenSandboxError({ ...at, reason: "Decode", status, description: "no WebSocket was opened" })
          )
    })
  )

const failed = (at: Where, error: Error | undefined): OpenSandboxError =>
  new OpenSandboxError({
    ...at,
    reason: "Transport",
    description: error === undefined ? "the connection was closed" : error.message,
    cause: error
  })

/**
 * Opens a WebSocket with headers of its own, which the standard client does not have. A refusal comes as the error that its HTTP answer stands for. The scope
 * closes it.
 *
 * @internal
 */
export const openSocket = (
  at: Where,
  url: string,
  headers: { readonly [name: string]: string },
  timeout: Duration.Duration,
  handlers: Handlers
): Effect.Effect<Socket, OpenSandboxError, Scope.Scope> =>
  Effect.gen(function* () {
    const opened = yield* Deferred.make<void, OpenSandboxError>()
    const ws = yield* Effect.acquireRelease(
      Effect.try({
        try: () => {
          const ws = new WebSocket(url, {
            headers,
            followRedirects: false,
            perMessageDeflate: false,
            maxPayload: 64 * 1024 * 1024
          })
          let isOpen = false
          let problem: Error | undefined
          ws.on("open", () => {
            isOpen = true
            Deferred.unsafeDone(opened, Exit.void)
          })
          ws.on("unexpected-response", (_request, message) => {
            Deferred.unsafeDone(opened, Effect.flatMap(refusal(at, message), Effect.fail))
          })
          ws.on("message", (data, isBinary) => {
            const bytes = Array.isArray(data)
              ? Buffer.concat(data)
              : data instanceof ArrayBuffer
                ? new Uint8Array(data)
                : data
            if (isBinary) handlers.onBinary(bytes)
            else handlers.onText(new TextDecoder().decode(bytes))
          })
          ws.on("ping", handlers.onHeartbeat)
          ws.on("pong", handlers.onHeartbeat)
          ws.on("error", (error) => {
            problem ??= error
          })
          ws.on("close", (code, reason) => {
            Deferred.unsafeDone(opened, Exit.fail(failed(at, problem)))
            if (isOpen) handlers.onClose(code, reason.toString("utf8"), problem)
          })
          return ws
        },
        catch: (cause) => invalidRequest(at, cause instanceof Error ? cause.message : "no address of a WebSocket")
      }),
      (ws) =>
        Effect.sync(() => {
          ws.close(1000)
          // an answer to the close frame is not waited for
          ws.terminate()
        })
    )
    yield* Deferred.await(opened).pipe(
      Effect.interruptible,
      Effect.timeoutFail({
        duration: timeout,
        onTimeout: () => timedOut(at, `no WebSocket within ${Duration.format(timeout)}`)
      })
    )
    return {
      send: (data) =>
        Effect.async<void, Error>((resume) => {
          ws.send(data, (error) => resume(error === undefined || error === null ? Effect.void : Effect.fail(error)))
        }),
      unsafeSend: (data) => ws.send(data, () => {}),
      pause: () => ws.pause(),
      resume: () => ws.resume(),
      terminate: () => ws.terminate()
    }
  })
