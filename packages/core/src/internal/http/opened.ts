/** @internal */
import * as HttpClient from "@effect/platform/HttpClient"
import type * as HttpClientError from "@effect/platform/HttpClientError"
import type * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import type * as HttpClientResponse from "@effect/platform/HttpClientResponse"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as ExecutionStrategy from "effect/ExecutionStrategy"
import * as Exit from "effect/Exit"
import * as Mailbox from "effect/Mailbox"
import * as Option from "effect/Option"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import { OpenSandboxError } from "../../OpenSandboxError.js"
import { bodyOf } from "./body.js"
import { isOk } from "./client.js"
import type { Connection } from "./connections.js"
import type { Where } from "./error.js"
import { fromClientError, fromResponse, timedOut } from "./error.js"

/** @internal */
export interface Opened {
  readonly response: HttpClientResponse.HttpClientResponse
  /** Frees the socket. */
  readonly close: Effect.Effect<void>
}

/**
 * Sends a request and waits for the head of a good answer; its body is the caller's. The scope, or `close`, frees the socket.
 *
 * @internal
 */
export const open = (
  connection: Connection,
  where: Where,
  timeout: Duration.Duration,
  request: HttpClientRequest.HttpClientRequest
): Effect.Effect<Opened, OpenSandboxError, Scope.Scope> =>
  Effect.scopeWith((parent) =>
    Effect.flatMap(Scope.fork(parent, ExecutionStrategy.sequential), (scope) =>
      HttpClient.withScope(connection.client)
        .execute(request)
        .pipe(
          Scope.extend(scope),
          Effect.mapError(fromClientError(where)),
          Effect.flatMap((response) =>
            isOk(response)
              ? Effect.succeed({ response, close: Scope.close(scope, Exit.void) })
              : Effect.flatMap(fromResponse(where, response), Effect.fail)
          ),
          Effect.interruptible,
          Effect.timeoutFail({
            duration: timeout,
            onTimeout: () => timedOut(where, `no answer within ${Duration.format(timeout)}`)
          }),
          Effect.onError(() => Scope.close(scope, Exit.void))
        )
    )
  )

/** How many reads are kept ahead of the consumer. */
const readAhead = 16

/**
 * The reads of a body, one at a time: `None` at its end. Only the time that a read is waited for counts against `idle`, never the consumer's own.
 *
 * A fiber of its own reads ahead, because fetch throws away what it has received and nobody has read yet when the connection breaks. A server that ends
 * uncleanly would take the last output of a command along, terminal event included, whenever the consumer is not waiting for it.
 *
 * @internal
 */
export const reads = (
  where: Where,
  opened: Opened,
  idle: Duration.Duration
): Effect.Effect<Effect.Effect<Uint8Array, Option.Option<OpenSandboxError>>, never, Scope.Scope> =>
  Effect.gen(function* () {
    const mailbox = yield* Mailbox.make<Uint8Array, OpenSandboxError>({ capacity: readAhead, strategy: "suspend" })
    const pull = yield* Stream.toPull(bodyOf(opened.response))
    // no yield between two reads, as `Effect.forever` has it: the next one has to be waiting when the connection breaks
    const pump: Effect.Effect<never, Option.Option<HttpClientError.ResponseError>> = Effect.flatMap(pull, (chunk) =>
      Effect.flatMap(mailbox.offerAll(chunk), () => pump)
    )
    yield* pump.pipe(
      Effect.catchAll(
        Option.match({
          onNone: () => mailbox.end,
          onSome: (error) =>
            error.reason === "EmptyBody"
              ? mailbox.end
              : mailbox.fail(
                  new OpenSandboxError({
                    ...where,
                    reason: "Transport",
                    description: fromClientError(where)(error).description,
                    requestId: opened.response.headers["x-request-id"],
                    cause: error.cause
                  })
                )
        })
      ),
      Effect.interruptible,
      Effect.forkScoped
    )
    const take = mailbox.take.pipe(
      Effect.mapError((error) => (error._tag === "NoSuchElementException" ? Option.none() : Option.some(error)))
    )
    const waiting = Effect.timeoutFail(Effect.interruptible(take), {
      duration: idle,
      onTimeout: () => Option.some(timedOut(where, `silence for ${Duration.format(idle)}`))
    })
    // a read that is there already needs no timer
    return Effect.flatMap(mailbox.size, (size) => (Option.isSome(size) && size.value > 0 ? take : waiting))
  })
