/** @internal */
import * as HttpBody from "@effect/platform/HttpBody"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as Redacted from "effect/Redacted"
import * as Stream from "effect/Stream"
import type { ExecdEvent } from "../../Execd.js"
import { OpenSandboxError } from "../../OpenSandboxError.js"
import { concealed } from "../http/concealed.js"
import { withConnection } from "../http/connections.js"
import type { Where } from "../http/error.js"
import { reasonOf } from "../http/error.js"
import { open, reads } from "../http/opened.js"
import type { Caller } from "./caller.js"
import type { FrameOptions } from "./frames.js"
import { makeFrameDecoder } from "./frames.js"

interface Tagged {
  readonly _tag: string
}

const isInit = (event: Tagged): event is Extract<ExecdEvent, { readonly _tag: "Init" }> => event._tag === "Init"

interface Run<Other extends Tagged> {
  readonly path: string
  /** Made at the last moment, because it may hold secrets. */
  readonly body: () => unknown
  readonly frames: FrameOptions<Other>
  readonly attributes?: { readonly [key: string]: unknown } | undefined
}

/**
 * The events of something that a POST runs: sent once, ended by the terminal event.
 *
 * @internal
 */
export const runEvents = <Other extends Tagged = never>(
  { connections, idleTimeout, requestTimeout, sandboxId }: Caller,
  at: Where,
  prepare: Effect.Effect<Run<Other>, OpenSandboxError>,
  /** What the body carries that no error may repeat. */
  secrets: ReadonlyArray<string | Redacted.Redacted> = []
): Stream.Stream<ExecdEvent | Other, OpenSandboxError> =>
  Stream.unwrapScoped(
    Effect.gen(function* () {
      const run = yield* prepare
      if (run.attributes !== undefined) yield* Effect.annotateCurrentSpan(run.attributes)
      const connection = yield* connections.get
      const { close, pull, requestId } = yield* withConnection(connections, () =>
        Effect.gen(function* () {
          const opened = yield* open(
            connection,
            at,
            requestTimeout,
            HttpClientRequest.post(run.path, {
              // compressed, a proxy may hold output back
              headers: { accept: "text/event-stream", "accept-encoding": "identity" },
              body: HttpBody.unsafeJson(run.body())
            })
          )
          return {
            close: opened.close,
            pull: yield* reads(at, opened, idleTimeout),
            requestId: opened.response.headers["x-request-id"]
          }
        })
      )
      const span = yield* Effect.option(Effect.currentSpan)
      const decoder = makeFrameDecoder(run.frames)
      let ended: OpenSandboxError | undefined

      const brokenOff = (): OpenSandboxError => {
        const failure = decoder.failure()
        if (failure?._tag === "Reported") {
          const { code, description } = failure.document
          return new OpenSandboxError({
            ...at,
            reason: reasonOf(at, 500, failure.document),
            code,
            description,
            requestId
          })
        }
        return new OpenSandboxError({
          ...at,
          reason: "Decode",
          description: `no event stream: ${failure?.description ?? ""}`,
          requestId
        })
      }

      const deliver = (events: Array<ExecdEvent | Other>) => {
        for (const event of events) {
          if (isInit(event) && Option.isSome(span)) span.value.attribute("command.id", event.commandId)
        }
        return Chunk.unsafeFromArray(events)
      }

      const step: Effect.Effect<Chunk.Chunk<ExecdEvent | Other>, Option.Option<OpenSandboxError>> = Effect.suspend(
        () => {
          if (decoder.isDone()) return Effect.fail(Option.none())
          if (decoder.failure() !== undefined) return Effect.fail(Option.some(brokenOff()))
          if (ended !== undefined) {
            // the sandbox may have moved
            return Effect.zipRight(connections.drop(connection), Effect.fail(Option.some(ended)))
          }
          return Effect.matchEffect(pull, {
            onSuccess: (bytes) => settle(decoder.push(bytes)),
            onFailure: (end) => {
              const events = decoder.end()
              ended = Option.getOrElse(
                end,
                () =>
                  new OpenSandboxError({
                    ...at,
                    reason: "Transport",
                    description: decoder.isEmpty()
                      ? "the event stream was empty"
                      : "the event stream ended without a terminal event",
                    requestId
                  })
              )
              return settle(events)
            }
          })
        }
      )

      // what is over frees its socket before anyone looks at it
      const settle = (events: Array<ExecdEvent | Other>) => {
        const next = events.length === 0 ? step : Effect.succeed(deliver(events))
        return decoder.isDone() || ended !== undefined || decoder.failure() !== undefined
          ? Effect.zipRight(close, next)
          : next
      }

      return Stream.repeatEffectChunkOption(step)
    })
  ).pipe(
    Stream.mapError(concealed(secrets)),
    Stream.withSpan(`Execd.${at.method}`, { captureStackTrace: false, attributes: { "sandbox.id": sandboxId } })
  )
