/**
 * A real HTTP/1.1 server on 127.0.0.1 that misbehaves on request: it plays back exact bytes with given cuts, delays, resets and held-open
 * sockets, and records what it was asked.
 *
 * ```ts
 * const server = yield* ScriptedServer.make((request, index) =>
 *   request.path === "/command"
 *     ? ScriptedServer.stream(["{\"type\":\"init\",\"text\":\"c1\"}\n\n", ScriptedServer.sleep(20), "{\"type\":\"execution_complete\"}\n\n"])
 *     : ScriptedServer.json(200, { ok: true }))
 * server.url                       // "http://127.0.0.1:49152"
 * server.requests                  // every request so far, in order of arrival: method, path, query, headers, body, …
 * yield* server.waitForRequests(2) // until that many arrived
 * yield* request.disconnected      // until the client went away before the reply was finished
 * ```
 *
 * The handler gets each complete request (body included) and the index of its arrival, and returns a `Reply` or an Effect of one (which is interrupted
 * when the client goes away). `sequence(a, b, c)` is a handler that gives the replies in turn and then repeats the last.
 *
 * Steps of a reply's body: a string or bytes (one socket write each, and a turn of the event loop between two), `sleep(millis)`, `wait(effect)`, and the
 * endings `hold` (keep the socket open, say nothing), `reset` (RST), `drop` (FIN without the end of the body). Without one of these the reply is ended properly.
 *
 * Bun's fetch drops data that it receives together with an unclean end of the connection (about a quarter of the time when nothing lies between): put
 * `sleep(500)`, or a `wait` for the consumer, in front of `reset` and `drop` where the data matters.
 *
 * `webSocket(request, steps)` answers the handshake of a WebSocket; its steps are frames (`wsText`, `wsBinary`, `wsPing`, `wsClose`) among the others, and
 * `request.frames` is what the client sends.
 *
 * It uses real timers and sockets: inside `it.effect` either use `it.live`, or remember that only the client's side is on the TestClock.
 * Closing the scope destroys every socket.
 */

import * as Crypto from "node:crypto"
import * as Net from "node:net"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as FiberId from "effect/FiberId"
import * as Runtime from "effect/Runtime"
import type * as Scope from "effect/Scope"

export interface Frame {
  /** 1 text, 2 binary, 8 close, 9 ping, 10 pong. */
  readonly opcode: number
  readonly payload: Buffer
}

export interface RecordedRequest {
  readonly index: number
  readonly method: string
  /** The request target as sent, percent-encoding included. */
  readonly target: string
  /** The path of the target, still percent-encoded. */
  readonly path: string
  readonly query: URLSearchParams
  /** Names in lower case. */
  readonly headers: { readonly [name: string]: string }
  readonly body: Buffer
  /** The body as UTF-8. */
  readonly text: string
  /** The body as JSON; throws when it is none. */
  readonly json: unknown
  /** What the client sent on a WebSocket, unmasked. */
  readonly frames: ReadonlyArray<Frame>
  /** Waits until the client has sent a frame that the test is looking for. */
  readonly waitForFrame: (matches: (frame: Frame) => boolean) => Effect.Effect<void>
  /** Whether the client closed the connection before the reply was finished. */
  readonly isDisconnected: () => boolean
  /** Waits until the client has closed the connection before the reply was finished. */
  readonly disconnected: Effect.Effect<void>
  /** Waits until the connection is closed, by whomever and for whatever reason. */
  readonly closed: Effect.Effect<void>
}

export type Step =
  | string
  | Uint8Array
  | { readonly _tag: "Sleep"; readonly millis: number }
  | { readonly _tag: "Wait"; readonly effect: Effect.Effect<unknown> }
  | { readonly _tag: "Hold" }
  | { readonly _tag: "Reset" }
  | { readonly _tag: "Drop" }

export interface Reply {
  readonly status: number
  readonly headers: { readonly [name: string]: string }
  readonly body: Iterable<Step>
  /**
   * - `chunked`: each piece is an HTTP chunk of its own (the default of `stream`)
   * - `length`: `Content-Length` of all pieces together, unless the headers give another one
   * - `close`: the end of the connection ends the body
   * - `raw`: the steps are everything, status line included
   */
  readonly framing: "chunked" | "length" | "close" | "raw"
}

export type Handler = (request: RecordedRequest, index: number) => Reply | Effect.Effect<Reply>

export interface ScriptedServer {
  readonly port: number
  readonly url: string
  readonly requests: ReadonlyArray<RecordedRequest>
  readonly waitForRequests: (count: number) => Effect.Effect<void>
  /** Connections that are open now. */
  readonly openSockets: () => number
  /** Replaces the handler for requests to come. */
  readonly setHandler: (handler: Handler) => void
}

export const sleep = (millis: number): Step => ({ _tag: "Sleep", millis })
export const wait = (effect: Effect.Effect<unknown>): Step => ({ _tag: "Wait", effect })
export const hold: Step = { _tag: "Hold" }
export const reset: Step = { _tag: "Reset" }
export const drop: Step = { _tag: "Drop" }

export const json = (status: number, body: unknown, headers: { readonly [name: string]: string } = {}): Reply => ({
  status,
  headers: { "content-type": "application/json", ...headers },
  body: [JSON.stringify(body)],
  framing: "length"
})

export const text = (status: number, body: string, headers: { readonly [name: string]: string } = {}): Reply => ({
  status,
  headers: { "content-type": "text/plain; charset=utf-8", ...headers },
  body: [body],
  framing: "length"
})

export const empty = (status: number, headers: { readonly [name: string]: string } = {}): Reply => ({
  status,
  headers,
  body: [],
  framing: "length"
})

export const stream = (
  body: Iterable<Step>,
  options: {
    readonly status?: number
    readonly headers?: { readonly [name: string]: string }
    readonly framing?: Reply["framing"]
  } = {}
): Reply => ({
  status: options.status ?? 200,
  headers: { "content-type": "text/event-stream", ...options.headers },
  body,
  framing: options.framing ?? "chunked"
})

/** No answer at all: the connection is reset once the request was read. */
export const resetConnection: Reply = { status: 0, headers: {}, body: [reset], framing: "raw" }

/** No answer at all: the connection stays open. */
export const silence: Reply = { status: 0, headers: {}, body: [hold], framing: "raw" }

const wsFrame = (opcode: number, payload: Uint8Array): Uint8Array => {
  const size = payload.length
  const head = size < 126 ? Buffer.alloc(2) : size < 65536 ? Buffer.alloc(4) : Buffer.alloc(10)
  head[0] = 0x80 | opcode
  if (size < 126) {
    head[1] = size
  } else if (size < 65536) {
    head[1] = 126
    head.writeUInt16BE(size, 2)
  } else {
    head[1] = 127
    head.writeBigUInt64BE(BigInt(size), 2)
  }
  return Buffer.concat([head, payload])
}

export const wsText = (value: unknown): Step => wsFrame(1, Buffer.from(JSON.stringify(value)))
export const wsBinary = (...parts: ReadonlyArray<number | string | Uint8Array>): Step =>
  wsFrame(2, Buffer.concat(parts.map((part) => (typeof part === "number" ? Buffer.from([part]) : Buffer.from(part)))))
export const wsPing: Step = wsFrame(9, Buffer.alloc(0))
export const wsClose = (code: number, reason = ""): Step =>
  wsFrame(8, Buffer.concat([Buffer.from([code >> 8, code & 0xff]), Buffer.from(reason)]))

/** The handshake of a WebSocket, and then the steps. Without a `hold`, `reset` or `drop` the connection ends after them. */
export const webSocket = (request: RecordedRequest, steps: Iterable<Step>): Reply => {
  const accept = Crypto.createHash("sha1")
    .update(`${request.headers["sec-websocket-key"]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`)
    .digest("base64")
  return {
    status: 101,
    headers: {},
    framing: "raw",
    body: (function* () {
      yield `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`
      yield* steps
    })()
  }
}

/** Frames out of a byte stream. Fragments count as frames of their own. */
const makeFrameParser = (onFrame: (frame: Frame) => void): Parser => {
  let pending: Buffer = Buffer.alloc(0)
  return {
    push: (data) => {
      pending = Buffer.concat([pending, data])
      for (;;) {
        if (pending.length < 2) return
        const short = pending.readUInt8(1) & 0x7f
        const lengthBytes = short === 126 ? 2 : short === 127 ? 8 : 0
        if (pending.length < 6 + lengthBytes) return
        const size =
          short === 126 ? pending.readUInt16BE(2) : short === 127 ? Number(pending.readBigUInt64BE(2)) : short
        const start = 6 + lengthBytes
        if (pending.length < start + size) return
        const mask = pending.subarray(start - 4, start)
        const payload = Buffer.from(pending.subarray(start, start + size)).map(
          (byte, index) => byte ^ (mask[index % 4] ?? 0)
        )
        onFrame({ opcode: pending.readUInt8(0) & 0x0f, payload: Buffer.from(payload) })
        pending = pending.subarray(start + size)
      }
    }
  }
}

export const sequence = (...replies: ReadonlyArray<Reply | Handler>): Handler => {
  let next = 0
  return (request, index) => {
    const reply = replies[Math.min(next++, replies.length - 1)]
    if (reply === undefined) return json(500, { code: "SCRIPT", message: "no reply was scripted" })
    return typeof reply === "function" ? reply(request, index) : reply
  }
}

/** One execd frame in the bare form: a JSON object and a blank line. */
export const frame = (event: { readonly [key: string]: unknown }): string => `${JSON.stringify(event)}\n\n`

interface Parser {
  readonly push: (data: Buffer) => void
}

/** Requests out of a byte stream: head, then a body by length or in chunks. */
const makeParser = (onRequest: (head: string, body: Buffer) => void, onFrame: (frame: Frame) => void): Parser => {
  let pending: Buffer = Buffer.alloc(0)
  let head: string | undefined
  let body: Array<Buffer> = []
  let remaining = 0
  let mode: "head" | "length" | "size" | "data" | "trailer" | "frames" = "head"
  const frames = makeFrameParser(onFrame)

  const finish = () => {
    const complete = Buffer.concat(body)
    body = []
    const done = head ?? ""
    mode = /^upgrade:\s*websocket/im.test(done) ? "frames" : "head"
    head = undefined
    onRequest(done, complete)
  }
  const takeLine = (): string | undefined => {
    const end = pending.indexOf("\r\n")
    if (end < 0) return undefined
    const line = pending.toString("latin1", 0, end)
    pending = pending.subarray(end + 2)
    return line
  }
  const takeBody = (): boolean => {
    const piece = pending.subarray(0, remaining)
    body.push(piece)
    pending = pending.subarray(piece.length)
    remaining -= piece.length
    return remaining === 0
  }
  return {
    push: (data) => {
      pending = pending.length === 0 ? data : Buffer.concat([pending, data])
      for (;;) {
        if (mode === "frames") {
          const rest = pending
          pending = Buffer.alloc(0)
          frames.push(rest)
          return
        }
        if (mode === "head") {
          const end = pending.indexOf("\r\n\r\n")
          if (end < 0) return
          head = pending.toString("latin1", 0, end)
          pending = pending.subarray(end + 4)
          if (/^transfer-encoding:\s*chunked/im.test(head)) {
            mode = "size"
          } else {
            remaining = Number(/^content-length:\s*(\d+)/im.exec(head)?.[1] ?? 0)
            if (remaining === 0) finish()
            else mode = "length"
          }
        } else if (mode === "length") {
          if (pending.length === 0 || !takeBody()) return
          finish()
        } else if (mode === "size") {
          const line = takeLine()
          if (line === undefined) return
          remaining = Number.parseInt(line, 16)
          mode = remaining === 0 ? "trailer" : "data"
        } else if (mode === "data") {
          if (remaining > 0) {
            if (pending.length === 0 || !takeBody()) return
          }
          if (takeLine() === undefined) return
          mode = "size"
        } else {
          const line = takeLine()
          if (line === undefined) return
          if (line === "") finish()
        }
      }
    }
  }
}

const reasons: { readonly [status: number]: string } = {
  200: "OK",
  202: "Accepted",
  204: "No Content",
  206: "Partial Content"
}

const bytesOf = (step: Step): Uint8Array | undefined =>
  typeof step === "string" ? Buffer.from(step) : step instanceof Uint8Array ? step : undefined

const play = (socket: Net.Socket, reply: Reply): Effect.Effect<void> =>
  Effect.gen(function* () {
    const write = (data: Uint8Array) =>
      Effect.async<void>((resume) => {
        if (socket.destroyed) return resume(Effect.interrupt)
        const proceed = () => resume(Effect.void)
        if (socket.write(data)) {
          setImmediate(proceed)
        } else {
          const either = () => {
            socket.off("drain", either)
            socket.off("close", either)
            proceed()
          }
          socket.on("drain", either)
          socket.on("close", either)
        }
      })
    let steps = reply.body
    if (reply.framing !== "raw") {
      const headers: Record<string, string> = { date: new Date().toUTCString(), ...reply.headers }
      if (reply.framing === "chunked") headers["transfer-encoding"] = "chunked"
      if (reply.framing === "close") headers.connection = "close"
      if (reply.framing === "length" && headers["content-length"] === undefined && reply.status !== 204) {
        const all = [...steps]
        steps = all
        headers["content-length"] = String(all.reduce((sum, step) => sum + (bytesOf(step)?.length ?? 0), 0))
      }
      const lines = Object.entries(headers)
        .map(([name, value]) => `${name}: ${value}\r\n`)
        .join("")
      yield* write(Buffer.from(`HTTP/1.1 ${reply.status} ${reasons[reply.status] ?? "Scripted"}\r\n${lines}\r\n`))
    }
    for (const step of steps) {
      const bytes = bytesOf(step)
      if (bytes !== undefined) {
        if (bytes.length === 0) continue
        yield* write(
          reply.framing === "chunked"
            ? Buffer.concat([Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, Buffer.from("\r\n")])
            : bytes
        )
      } else if (typeof step === "object" && "_tag" in step) {
        switch (step._tag) {
          case "Sleep": {
            yield* Effect.async<void>((resume) => {
              const timer = setTimeout(() => resume(Effect.void), step.millis)
              return Effect.sync(() => clearTimeout(timer))
            })
            break
          }
          case "Wait": {
            yield* step.effect
            break
          }
          case "Hold":
            return yield* Effect.never
          case "Reset":
            socket.resetAndDestroy()
            return
          case "Drop":
            socket.end()
            socket.destroySoon()
            return
        }
      }
    }
    if (reply.framing === "chunked") yield* write(Buffer.from("0\r\n\r\n"))
    if (reply.framing === "close" || reply.framing === "raw") socket.end()
  })

/** Starts a server on a free port; the scope stops it. */
export const make = (handler: Handler): Effect.Effect<ScriptedServer, never, Scope.Scope> =>
  Effect.gen(function* () {
    const runFork = Runtime.runFork(yield* Effect.runtime<never>())
    const requests: Array<RecordedRequest> = []
    const waiting: Array<{ readonly count: number; readonly deferred: Deferred.Deferred<void> }> = []
    const sockets = new Set<Net.Socket>()
    let current = handler

    const onConnection = (socket: Net.Socket) => {
      sockets.add(socket)
      socket.setNoDelay(true)
      socket.on("error", () => {})
      const closed = Deferred.unsafeMake<void>(FiberId.none)
      // replies of one connection are given in order
      let turn: Fiber.RuntimeFiber<void> | undefined
      const running = new Set<Fiber.RuntimeFiber<void>>()
      const unfinished = new Set<() => void>()
      socket.on("close", () => {
        sockets.delete(socket)
        for (const disconnect of unfinished) disconnect()
        for (const fiber of running) fiber.unsafeInterruptAsFork(fiber.id())
        Deferred.unsafeDone(closed, Exit.void)
      })
      let onFrame = (_frame: Frame) => {}
      const parser = makeParser(
        (head, body) => {
          const [requestLine = "", ...headerLines] = head.split("\r\n")
          const [method = "", target = ""] = requestLine.split(" ")
          const headers: Record<string, string> = {}
          for (const line of headerLines) {
            const colon = line.indexOf(":")
            headers[line.slice(0, colon).toLowerCase()] = line.slice(colon + 1).trim()
          }
          const mark = target.indexOf("?")
          const disconnected = Deferred.unsafeMake<void>(FiberId.none)
          let isDisconnected = false
          const frames: Array<Frame> = []
          const frameWaiters = new Set<(frame: Frame) => void>()
          onFrame = (frame) => {
            frames.push(frame)
            for (const waiter of frameWaiters) waiter(frame)
          }
          const request: RecordedRequest = {
            index: requests.length,
            method,
            target,
            path: mark < 0 ? target : target.slice(0, mark),
            query: new URLSearchParams(mark < 0 ? "" : target.slice(mark + 1)),
            headers,
            body,
            get text() {
              return body.toString("utf8")
            },
            get json(): unknown {
              return JSON.parse(body.toString("utf8"))
            },
            frames,
            waitForFrame: (matches) =>
              Effect.async<void>((resume) => {
                if (frames.some(matches)) return resume(Effect.void)
                const waiter = (frame: Frame) => {
                  if (matches(frame)) resume(Effect.void)
                }
                frameWaiters.add(waiter)
                return Effect.sync(() => frameWaiters.delete(waiter))
              }),
            isDisconnected: () => isDisconnected,
            disconnected: Deferred.await(disconnected),
            closed: Deferred.await(closed)
          }
          requests.push(request)
          for (const waiter of waiting) {
            if (requests.length >= waiter.count) Deferred.unsafeDone(waiter.deferred, Exit.void)
          }
          const disconnect = () => {
            isDisconnected = true
            Deferred.unsafeDone(disconnected, Exit.void)
          }
          unfinished.add(disconnect)
          const previous = turn
          const fiber = runFork(
            (previous === undefined ? Effect.void : Fiber.await(previous)).pipe(
              Effect.flatMap(() => {
                const reply = current(request, request.index)
                return Effect.isEffect(reply) ? reply : Effect.succeed(reply)
              }),
              Effect.flatMap((reply) =>
                play(socket, {
                  ...reply,
                  body: (function* () {
                    for (const step of reply.body) {
                      // an ending chosen by the script is not the client's doing
                      if (
                        typeof step === "object" &&
                        "_tag" in step &&
                        (step._tag === "Reset" || step._tag === "Drop")
                      ) {
                        unfinished.delete(disconnect)
                      }
                      yield step
                    }
                    if (reply.framing === "close" || reply.framing === "raw") unfinished.delete(disconnect)
                  })()
                })
              ),
              Effect.onExit((exit) =>
                Effect.sync(() => {
                  if (Exit.isSuccess(exit)) unfinished.delete(disconnect)
                  else if (!Exit.isInterrupted(exit)) socket.destroy()
                })
              )
            )
          )
          turn = fiber
          running.add(fiber)
          fiber.addObserver(() => running.delete(fiber))
        },
        (frame) => onFrame(frame)
      )
      socket.on("data", parser.push)
    }

    const server = yield* Effect.acquireRelease(
      Effect.async<Net.Server>((resume) => {
        const server = Net.createServer({ allowHalfOpen: false }, onConnection)
        server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
      }),
      (server) =>
        Effect.async<void>((resume) => {
          server.close(() => resume(Effect.void))
          for (const socket of sockets) socket.destroy()
        })
    )
    const address = server.address()
    const port = typeof address === "object" && address !== null ? address.port : 0

    return {
      port,
      url: `http://127.0.0.1:${port}`,
      requests,
      waitForRequests: (count) =>
        Effect.suspend(() => {
          if (requests.length >= count) return Effect.void
          const deferred = Deferred.unsafeMake<void>(FiberId.none)
          waiting.push({ count, deferred })
          return Deferred.await(deferred)
        }),
      openSockets: () => sockets.size,
      setHandler: (handler) => {
        current = handler
      }
    }
  })
