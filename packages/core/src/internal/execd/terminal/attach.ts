/** @internal */
import * as Chunk from "effect/Chunk"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as ExecutionStrategy from "effect/ExecutionStrategy"
import * as Exit from "effect/Exit"
import * as FiberId from "effect/FiberId"
import * as Mailbox from "effect/Mailbox"
import * as Option from "effect/Option"
import * as Scope from "effect/Scope"
import type { AttachOptions, TerminalConnection, TerminalEvent } from "../../../Execd.js"
import { OpenSandboxError } from "../../../OpenSandboxError.js"
import * as Http from "../../http/client.js"
import type { Connection } from "../../http/connections.js"
import { repeatable } from "../../http/connections.js"
import { endpointHeaders } from "../../http/endpointClient.js"
import type { Where } from "../../http/error.js"
import { invalidRequest, timedOut } from "../../http/error.js"
import { check } from "../../http/portCaller.js"
import type { Caller } from "../caller.js"
import { isCode } from "../caller.js"
import type { ServerMessage } from "./protocol.js"
import * as Protocol from "./protocol.js"
import type { Socket } from "./socket.js"
import { openSocket } from "./socket.js"

/** Reading stops when this many bytes wait for the consumer, */
const highWater = 1024 * 1024
/** and goes on below this many. */
const lowWater = 256 * 1024
/** How long after the exit of the process the server has for the last of the output, and to end the connection. */
const exitGrace = "2 seconds"
/** The longest piece of stdin in one message. */
const maxStdin = 64 * 1024

/** @internal */
export interface Attached extends Omit<TerminalConnection, "output"> {
  /** Why the connection has ended, if it has: nothing can be sent any more. */
  readonly ended: () => OpenSandboxError | undefined
  readonly pull: Effect.Effect<Chunk.Chunk<TerminalEvent>, Option.Option<OpenSandboxError>>
}

const socketUrl = (endpoint: string, id: string, { pipe, since, takeover }: AttachOptions): string => {
  const params = new URLSearchParams()
  if (pipe === true) params.set("pty", "0")
  if (since !== undefined) params.set("since", String(since))
  if (takeover === true) params.set("takeover", "1")
  const query = params.toString()
  return `${endpoint.replace(/^http/i, "ws")}/pty/${id}/ws${query === "" ? "" : `?${query}`}`
}

const closedError = (
  at: Where,
  code: number,
  reason: string,
  error: Error | undefined,
  reported: Extract<ServerMessage, { readonly _tag: "Error" }> | undefined
): OpenSandboxError => {
  if (code === 4001) {
    return new OpenSandboxError({
      ...at,
      reason: "Conflict",
      code: "TAKEN_OVER",
      description: "another client has taken the terminal over"
    })
  }
  if (reported !== undefined) {
    return new OpenSandboxError({
      ...at,
      reason: reported.code === "ALREADY_CONNECTED" ? "Conflict" : "ServerError",
      code: reported.code,
      description: reported.message
    })
  }
  const words = [String(code), reason, error?.message].filter((word) => word !== undefined && word !== "").join(" ")
  return new OpenSandboxError({
    ...at,
    reason: "Transport",
    description: `the connection to the terminal ended without an exit code (${words})`,
    cause: error
  })
}

const connect = (
  { idleTimeout, requestTimeout }: Caller,
  at: Where,
  connection: Connection,
  id: string,
  options: AttachOptions
): Effect.Effect<Attached, OpenSandboxError, Scope.Scope> =>
  Effect.gen(function* () {
    const clock = yield* Effect.clock
    // what it holds is bounded by `highWater`: the socket is paused then
    const mailbox = yield* Mailbox.make<TerminalEvent, OpenSandboxError>()
    const connected = yield* Deferred.make<"pty" | "pipe", OpenSandboxError>()
    const exited = yield* Deferred.make<void>()
    const waiting = new Set<Deferred.Deferred<void, OpenSandboxError>>()
    const pongs = new Set<Deferred.Deferred<void, OpenSandboxError>>()
    let isConnected = false
    let position = options.since ?? 0
    let exit: Extract<ServerMessage, { readonly _tag: "Exit" }> | undefined
    let reported: Extract<ServerMessage, { readonly _tag: "Error" }> | undefined
    let held = 0
    let paused = false
    let ended: OpenSandboxError | undefined
    let lastSeen = clock.unsafeCurrentTimeMillis()
    let reading: Socket | undefined

    // not before the handshake is over, whose last word comes behind the replay
    const pauseWhenFull = () => {
      if (reading === undefined || !isConnected || paused || held < highWater) return
      paused = true
      reading.pause()
    }

    const finish = (error: OpenSandboxError) => {
      if (ended !== undefined) return
      ended = error
      if (exit !== undefined) {
        ended = new OpenSandboxError({ ...at, reason: "NotFound", description: "the process has ended" })
        mailbox.unsafeOffer({ _tag: "Exit", exitCode: exit.exitCode })
      }
      mailbox.unsafeDone(exit === undefined ? Exit.fail(error) : Exit.void)
      Deferred.unsafeDone(connected, Exit.fail(ended))
      for (const deferred of [...waiting, ...pongs]) Deferred.unsafeDone(deferred, Exit.fail(ended))
    }

    const deliver = (channel: "stdout" | "stderr", bytes: Uint8Array, replayed: boolean) => {
      if (bytes.length === 0) return
      position += bytes.length
      held += bytes.length
      mailbox.unsafeOffer({ _tag: "Output", channel, bytes, offset: position, replayed })
      pauseWhenFull()
    }

    const handle = (message: ServerMessage | undefined) => {
      lastSeen = clock.unsafeCurrentTimeMillis()
      switch (message?._tag) {
        case "Connected":
          isConnected = true
          Deferred.unsafeDone(connected, Exit.succeed(message.mode))
          return
        case "Output":
          // what came before was not the end
          reported = undefined
          return deliver(message.channel, message.bytes, false)
        case "Replay": {
          const { bytes, offset } = message
          // the offset of the first byte; where it can only be that of the end, it is taken for that
          const start = offset === position + bytes.length ? position : offset
          const known = Math.max(0, position - start)
          if (known >= bytes.length) return
          position = Math.max(position, start)
          return deliver("stdout", bytes.subarray(known), true)
        }
        case "Exit":
          exit = message
          Deferred.unsafeDone(exited, Exit.void)
          return
        case "Error":
          reported = message
          return
        case "Pong":
          for (const pong of pongs) Deferred.unsafeDone(pong, Exit.void)
          return
      }
    }

    const socket = yield* openSocket(
      at,
      socketUrl(connection.endpoint.url, id, options),
      Object.fromEntries(endpointHeaders(connection.endpoint)),
      requestTimeout,
      {
        onText: (text) => handle(Protocol.parseText(text)),
        onBinary: (bytes) => handle(Protocol.parseBinary(bytes)),
        onHeartbeat: () => handle(undefined),
        onClose: (code, reason, error) => finish(closedError(at, code, reason, error, reported))
      }
    )
    reading = socket
    yield* Effect.addFinalizer(() =>
      Effect.sync(() =>
        finish(new OpenSandboxError({ ...at, reason: "Transport", description: "the connection was closed" }))
      )
    )
    const mode = yield* Effect.timeoutFail(Effect.interruptible(Deferred.await(connected)), {
      duration: requestTimeout,
      onTimeout: () => timedOut(at, `no terminal within ${Duration.format(requestTimeout)}`)
    })

    pauseWhenFull()

    /** The exit is the last word, whether or not the server ends the connection. */
    const hangUp: Effect.Effect<void> = Effect.suspend(() => {
      const seen = position
      return Effect.sleep(exitGrace).pipe(
        Effect.flatMap(() => {
          if (paused || seen !== position) return hangUp
          finish(new OpenSandboxError({ ...at, reason: "Transport", description: "the process has ended" }))
          return Effect.sync(() => socket.terminate())
        })
      )
    })
    yield* Effect.forkScoped(Effect.interruptible(Effect.zipRight(Deferred.await(exited), hangUp)))

    const idleMillis = Duration.toMillis(idleTimeout)
    const beat = Effect.sync(() => {
      if (ended !== undefined) return
      const now = clock.unsafeCurrentTimeMillis()
      if (paused) lastSeen = now
      if (now - lastSeen >= idleMillis) {
        finish(timedOut(at, `silence for ${Duration.format(idleTimeout)}`))
        socket.terminate()
      } else {
        socket.unsafeSend(Protocol.pingFrame)
      }
    })
    yield* Effect.sleep(Number.isFinite(idleMillis) ? idleMillis / 3 : 5000).pipe(
      Effect.zipRight(beat),
      Effect.forever,
      Effect.interruptible,
      Effect.forkScoped
    )

    const order = yield* Effect.makeSemaphore(1)

    /** The socket's own word, or the end of the connection, whichever comes first. */
    const send = (data: string | Uint8Array): Effect.Effect<void, OpenSandboxError> =>
      Effect.suspend(() => {
        if (ended !== undefined) return Effect.fail(ended)
        const cut = Deferred.unsafeMake<void, OpenSandboxError>(FiberId.none)
        waiting.add(cut)
        return socket.send(data).pipe(
          Effect.mapError(
            (cause) => ended ?? new OpenSandboxError({ ...at, reason: "Transport", description: cause.message, cause })
          ),
          Effect.raceFirst(Deferred.await(cut)),
          Effect.ensuring(Effect.sync(() => waiting.delete(cut)))
        )
      })

    const write = (data: Uint8Array | string): Effect.Effect<void, OpenSandboxError> => {
      const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data
      const from = (start: number): Effect.Effect<void, OpenSandboxError> =>
        start >= bytes.length
          ? Effect.void
          : Effect.flatMap(send(Protocol.stdinFrame(bytes, start, Math.min(start + maxStdin, bytes.length))), () =>
              from(start + maxStdin)
            )
      return order.withPermits(1)(from(0))
    }

    const ping: Effect.Effect<void, OpenSandboxError> = Effect.flatMap(
      Deferred.make<void, OpenSandboxError>(),
      (pong) =>
        Effect.sync(() => pongs.add(pong)).pipe(
          Effect.zipRight(send(Protocol.pingFrame)),
          Effect.zipRight(Deferred.await(pong)),
          Effect.timeoutFail({
            duration: requestTimeout,
            onTimeout: () => timedOut(at, `no pong within ${Duration.format(requestTimeout)}`)
          }),
          Effect.ensuring(Effect.sync(() => pongs.delete(pong)))
        )
    )

    return {
      mode,
      ended: () => ended,
      pull: mailbox.takeAll.pipe(
        Effect.mapError(Option.some),
        Effect.flatMap(([events, done]) => {
          for (const event of events) if (event._tag === "Output") held -= event.bytes.length
          if (paused && held <= lowWater) {
            paused = false
            lastSeen = clock.unsafeCurrentTimeMillis()
            socket.resume()
          }
          return done && Chunk.isEmpty(events) ? Effect.fail(Option.none()) : Effect.succeed(events)
        })
      ),
      write,
      resize: (cols, rows) =>
        [cols, rows].every((size) => Number.isInteger(size) && size >= 1 && size <= 65535)
          ? send(Protocol.resizeFrame(cols, rows))
          : Effect.fail(invalidRequest(at, `a window has from 1 to 65535 columns and rows, not ${cols} and ${rows}`)),
      signal: (name) =>
        name === ""
          ? Effect.fail(invalidRequest(at, "the name of the signal is empty"))
          : send(Protocol.signalFrame(name)),
      ping
    }
  })

/**
 * One connection to a terminal.
 *
 * @internal
 */
export const attach = (
  caller: Caller,
  terminalId: string,
  options: AttachOptions
): Effect.Effect<Attached, OpenSandboxError, Scope.Scope> => {
  const at = caller.where("attachTerminal")
  return Effect.gen(function* () {
    const { since } = options
    yield* check(
      at,
      since === undefined || isCode(since) ? undefined : `since is a whole number from 0 on, not ${since}`
    )
    const id = yield* Http.segment(at, "terminal id", terminalId)
    const parent = yield* Effect.scope
    // at once with a new endpoint where the old one may be stale, and no more than that
    return yield* repeatable(caller.connections, { ...caller.policy, times: 0 }, (connection) =>
      Effect.flatMap(Scope.fork(parent, ExecutionStrategy.sequential), (scope) =>
        connect(caller, at, connection, id, options).pipe(
          Scope.extend(scope),
          Effect.onError(() => Scope.close(scope, Exit.void))
        )
      )
    )
  })
}
