/** @internal */
import * as HttpClient from "@effect/platform/HttpClient"
import type * as HttpClientError from "@effect/platform/HttpClientError"
import type * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import type * as HttpClientResponse from "@effect/platform/HttpClientResponse"
import type * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as ExecutionStrategy from "effect/ExecutionStrategy"
import * as Exit from "effect/Exit"
import * as Mailbox from "effect/Mailbox"
import * as Option from "effect/Option"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import type { Endpoint, OpenSandbox } from "../OpenSandbox.js"
import { endpointClient } from "../OpenSandbox.js"
import { OpenSandboxError } from "../OpenSandboxError.js"
import type { RetryPolicy } from "./http.js"
import { isOk, isTransient, retryDelay } from "./http.js"
import type { Where } from "./httpError.js"
import { fromClientError, fromResponse, timedOut } from "./httpError.js"

/** @internal */
export const execdPort = 44772

/** @internal */
export interface Connection {
  readonly endpoint: Endpoint
  readonly client: HttpClient.HttpClient
}

/**
 * The endpoint of one sandbox: asked for on first use, by one caller at a time, and kept until it is dropped.
 *
 * @internal
 */
export interface Connections {
  readonly get: Effect.Effect<Connection, OpenSandboxError>
  /** Forgets this connection, unless a newer one took its place already. */
  readonly drop: (connection: Connection) => Effect.Effect<void>
  readonly dropAll: Effect.Effect<void>
}

/** @internal */
export const makeConnections = (api: Context.Tag.Service<OpenSandbox>, sandboxId: string): Connections => {
  const semaphore = Effect.unsafeMakeSemaphore(1)
  let current: Connection | undefined
  let generation = 0
  const resolve: Effect.Effect<Connection, OpenSandboxError> = Effect.suspend(() => {
    if (current !== undefined) return Effect.succeed(current)
    const asked = generation
    return Effect.flatMap(api.endpoint(sandboxId, execdPort), (endpoint) => {
      // dropped while it was on its way: it may be the old one
      if (asked !== generation) return resolve
      current = { endpoint, client: endpointClient(api.httpClient, endpoint) }
      return Effect.succeed(current)
    })
  })
  return {
    get: Effect.suspend(() => (current === undefined ? semaphore.withPermits(1)(resolve) : Effect.succeed(current))),
    drop: (connection) =>
      Effect.sync(() => {
        if (current === connection) current = undefined
      }),
    dropAll: Effect.sync(() => {
      current = undefined
      generation++
    })
  }
}

/** Whether an error may mean that the sandbox has moved. */
const isStale = (error: OpenSandboxError): boolean => error.reason === "Transport" || error.status === 401

/** An error of execd's own is its last word; what stands between may do better next time. */
const isWorthRepeating = (error: OpenSandboxError): boolean =>
  error.module === "Execd" && isTransient(error) && !(error.status === 500 && error.code !== undefined)

/**
 * Runs `use` with the endpoint, and drops the endpoint where the failure may be its fault.
 *
 * @internal
 */
export const withConnection = <A, R>(
  connections: Connections,
  use: (connection: Connection) => Effect.Effect<A, OpenSandboxError, R>
): Effect.Effect<A, OpenSandboxError, R> =>
  Effect.flatMap(connections.get, (connection) =>
    Effect.tapError(use(connection), (error) =>
      error.module === "Execd" && (isStale(error) || error.reason === "Timeout")
        ? connections.drop(connection)
        : Effect.void
    )
  )

/**
 * The same for what may be repeated: once at once with a new endpoint where the old one may be stale, then as the policy says.
 *
 * @internal
 */
export const repeatable = <A, R>(
  connections: Connections,
  policy: RetryPolicy,
  use: (connection: Connection, attempt: number) => Effect.Effect<A, OpenSandboxError, R>
): Effect.Effect<A, OpenSandboxError, R> => {
  const loop = (attempt: number, repeated: number, resolved: boolean): Effect.Effect<A, OpenSandboxError, R> =>
    Effect.catchAll(
      withConnection(connections, (connection) => use(connection, attempt)),
      (error) => {
        if (error.module === "Execd" && isStale(error) && !resolved) return loop(attempt + 1, repeated, true)
        return repeated < policy.times && isWorthRepeating(error)
          ? retryDelay(policy, repeated, error).pipe(
              Effect.flatMap((millis) => Effect.sleep(millis)),
              Effect.zipRight(Effect.suspend(() => loop(attempt + 1, repeated + 1, resolved)))
            )
          : Effect.fail(error)
      }
    )
  return loop(0, 0, false)
}

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
    const pull = yield* Stream.toPull(opened.response.stream)
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
