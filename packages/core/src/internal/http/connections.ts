/** @internal */
import type * as HttpClient from "@effect/platform/HttpClient"
import type * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as FiberId from "effect/FiberId"
import type { Endpoint, OpenSandbox } from "../../OpenSandbox.js"
import type { OpenSandboxError } from "../../OpenSandboxError.js"
import type { RetryPolicy } from "./client.js"
import { isTransient, retryDelay } from "./client.js"
import { endpointClient } from "./endpointClient.js"

/** @internal */
export interface Connection {
  readonly endpoint: Endpoint
  readonly client: HttpClient.HttpClient
}

/**
 * The endpoint of one port of a sandbox: asked for on first use, once for all who want it then, and kept until it is dropped.
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
export const makeConnections = (
  api: Context.Tag.Service<OpenSandbox>,
  sandboxId: string,
  port: number
): Connections => {
  let current: Connection | undefined
  let asking: Deferred.Deferred<Connection, OpenSandboxError> | undefined
  let generation = 0
  const resolve: Effect.Effect<Connection, OpenSandboxError> = Effect.suspend(() => {
    if (current !== undefined) return Effect.succeed(current)
    const asked = generation
    return Effect.flatMap(api.endpoint(sandboxId, port), (endpoint) => {
      // dropped while it was on its way: it may be the old one
      if (asked !== generation) return resolve
      current = { endpoint, client: endpointClient(api.httpClient, endpoint) }
      return Effect.succeed(current)
    })
  })
  const get: Effect.Effect<Connection, OpenSandboxError> = Effect.suspend(() => {
    if (current !== undefined) return Effect.succeed(current)
    if (asking !== undefined) return Deferred.await(asking)
    const answer = Deferred.unsafeMake<Connection, OpenSandboxError>(FiberId.none)
    asking = answer
    return Effect.onExit(resolve, (exit) =>
      Effect.sync(() => {
        asking = undefined
        // Where the one who asked has gone, the next does.
        Deferred.unsafeDone(answer, Exit.isInterrupted(exit) ? get : exit)
      })
    )
  })
  return {
    get,
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

/** Whether the sandbox is to blame, rather than the control plane that was asked for its endpoint. */
const isInside = (error: OpenSandboxError): boolean => error.module !== "OpenSandbox"

/** Whether an error may mean that the sandbox has moved. */
const isStale = (error: OpenSandboxError): boolean => error.reason === "Transport" || error.status === 401

/** An error in execd's own words is its last; what stands between may do better next time. */
const isWorthRepeating = (error: OpenSandboxError): boolean =>
  isInside(error) && isTransient(error) && !(error.status === 500 && error.code !== undefined)

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
      isInside(error) && (isStale(error) || error.reason === "Timeout") ? connections.drop(connection) : Effect.void
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
        if (isInside(error) && isStale(error) && !resolved) return loop(attempt + 1, repeated, true)
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
