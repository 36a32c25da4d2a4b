/** execd's events, and the streams of them. @internal */

import * as HttpServerResponse from "@effect/platform/HttpServerResponse"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import type { EventQueue } from "./output.js"
import type { Process } from "./processes.js"

export const event = (value: { readonly type: string; readonly [key: string]: unknown }): string =>
  `${JSON.stringify(value)}\n\n`

export const initEvent = (id: string, now: number): string => event({ type: "init", text: id, timestamp: now })

export const pingEvent = (now: number): string => event({ type: "ping", text: "pong", timestamp: now })

export const completeEvent = (startedAt: number, now: number): string =>
  event({ type: "execution_complete", execution_time: now - startedAt, timestamp: now })

const errorEvent = (evalue: string, traceback: string, now: number): string =>
  event({ type: "error", error: { ename: "CommandExecError", evalue, traceback: [traceback] }, timestamp: now })

/** How a command ended. */
export const endEvent = ({ ended, pid }: Process, startedAt: number, now: number): string => {
  if (ended === undefined) return ""
  if (ended.exitCode === 0) return completeEvent(startedAt, now)
  const error = ended.error ?? `exit status ${ended.exitCode}`
  return errorEvent(pid === undefined ? error : String(ended.exitCode), error, now)
}

const HEARTBEAT = "3 seconds"

export const encode = (text: string): Uint8Array => Buffer.from(text)

export const eventStream = <E>(stream: Stream.Stream<Uint8Array, E>): HttpServerResponse.HttpServerResponse =>
  HttpServerResponse.stream(stream, { contentType: "text/event-stream", headers: { "cache-control": "no-cache" } })

/** With a heartbeat. The end of the connection is not the end of the command: what it prints from then on is dropped. */
export const outputStream = (output: EventQueue): HttpServerResponse.HttpServerResponse =>
  eventStream(
    Stream.unwrapScoped(
      Effect.gen(function* () {
        const clock = yield* Effect.clock
        yield* Effect.addFinalizer(() => Effect.sync(() => output.discard()))
        yield* Effect.sync(() => output.push(pingEvent(clock.unsafeCurrentTimeMillis()))).pipe(
          Effect.delay(HEARTBEAT),
          Effect.forever,
          Effect.interruptible,
          Effect.forkScoped
        )
        return Stream.repeatEffectChunkOption(output.take)
      })
    )
  )
