/** @internal */
import type * as HttpClientResponse from "@effect/platform/HttpClientResponse"
import * as Clock from "effect/Clock"
import type * as Context from "effect/Context"
import * as DateTime from "effect/DateTime"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import type { ListOptions, OpenSandbox, SandboxInfo } from "../../OpenSandbox.js"
import type { OpenSandboxError } from "../../OpenSandboxError.js"
import * as Http from "../http/client.js"
import type { Where } from "../http/error.js"
import { invalidRequest } from "../http/error.js"
import { instant } from "../http/nullish.js"
import * as Labels from "../labels.js"
import type { Caller, Decode, Params } from "./caller.js"
import { sandboxPath, span, where } from "./caller.js"
import { paged, pageSizeProblem } from "./paging.js"
import * as Wire from "./wire.js"

type Service = Context.Tag.Service<OpenSandbox>

/** @internal */
export const sandboxBody = (at: Where): Decode<SandboxInfo> => {
  const decode = Http.jsonBody(at, Wire.schemas.Sandbox)
  return (response) => Effect.map(decode(response), Wire.sandboxInfo)
}

/**
 * The sandboxes that a filter lets through; `wrap` goes around the request for each page.
 *
 * @internal
 */
export const listAt = (
  { call }: Caller,
  at: Where,
  filter: ListOptions,
  wrap: <A>(self: Effect.Effect<A, OpenSandboxError>) => Effect.Effect<A, OpenSandboxError>
): Stream.Stream<SandboxInfo, OpenSandboxError> => {
  const metadata = Object.entries(filter.metadata ?? {})
  const params: Params = [
    ...(filter.states ?? []).map((state) => ["state", state] as const),
    ...(metadata.length === 0
      ? []
      : [
          [
            "metadata",
            metadata.map(([key, value]) => `${encodeURIComponent(key)}=${encodeURIComponent(value)}`).join("&")
          ] as const
        ])
  ]
  const decode = Http.jsonBody(at, Wire.schemas.SandboxPage)
  return paged(
    filter.pageSize,
    (page) => wrap(call(at, "GET", "/sandboxes", decode, { params: [...params, ...page] })),
    Wire.sandboxInfo
  )
}

/** @internal */
export const removeAt = (
  { call, retry }: Caller,
  at: Where,
  sandboxId: string
): Effect.Effect<void, OpenSandboxError> =>
  Effect.flatMap(sandboxPath(at, sandboxId), (path) =>
    retry(call(at, "DELETE", path, Http.noBody)).pipe(
      Effect.catchIf(
        (error) => error.reason === "NotFound" || error.status === 409,
        () => Effect.void
      )
    )
  )

/** The server's clock when it answered; `undefined` where it does not say. */
const serverTime = (response: HttpClientResponse.HttpClientResponse): number | undefined => {
  const millis = Date.parse(response.headers.date ?? "")
  return Number.isNaN(millis) ? undefined : millis
}

/** @internal */
export const makeSandboxes = (
  caller: Caller
): Pick<Service, "get" | "list" | "delete" | "pause" | "resume" | "renew" | "patchMetadata"> => {
  const { call, retry } = caller

  const list: Service["list"] = (filter = {}) =>
    Stream.suspend(() => {
      const at = where("list")
      const problem = pageSizeProblem(filter.pageSize) ?? Labels.metadataProblem(filter.metadata ?? {})
      return problem === undefined ? listAt(caller, at, filter, retry) : Stream.fail(invalidRequest(at, problem))
    }).pipe(Stream.withSpan("OpenSandbox.list", { captureStackTrace: false }))

  const get: Service["get"] = (sandboxId) => {
    const at = where("get")
    return sandboxPath(at, sandboxId).pipe(
      Effect.flatMap((path) => retry(call(at, "GET", path, sandboxBody(at)))),
      span("get", { "sandbox.id": sandboxId })
    )
  }

  const ask =
    (method: "pause" | "resume") =>
    (sandboxId: string): Effect.Effect<void, OpenSandboxError> => {
      const at = where(method)
      return sandboxPath(at, sandboxId, `/${method}`).pipe(
        Effect.flatMap((path) => call(at, "POST", path, Http.noBody)),
        span(method, { "sandbox.id": sandboxId })
      )
    }

  const renew: Service["renew"] = (sandboxId, duration) => {
    const at = where("renew")
    return Effect.gen(function* () {
      const millis = Duration.toMillis(duration)
      if (!(millis > 0) || !Number.isFinite(millis)) {
        return yield* Effect.fail(invalidRequest(at, "the time to live must be positive and finite"))
      }
      const path = yield* sandboxPath(at, sandboxId)
      const body = sandboxBody(at)
      const [info, now] = yield* retry(
        call(at, "GET", path, (response) => Effect.map(body(response), (info) => [info, serverTime(response)] as const))
      )
      const target = (now ?? (yield* Clock.currentTimeMillis)) + millis
      if (info.expiresAt !== undefined && info.expiresAt >= target) return info.expiresAt
      const expiresAt = DateTime.formatIso(DateTime.unsafeMake(target))
      const renewed = yield* call(at, "POST", `${path}/renew-expiration`, Http.jsonBody(at, Wire.schemas.Renewal), {
        body: () => ({ expiresAt })
      })
      return instant(renewed?.expiresAt) ?? target
    }).pipe(span("renew", { "sandbox.id": sandboxId }))
  }

  const patchMetadata: Service["patchMetadata"] = (sandboxId, patch) => {
    const at = where("patchMetadata")
    return Effect.gen(function* () {
      const problem = Labels.metadataProblem(patch)
      if (problem !== undefined) return yield* Effect.fail(invalidRequest(at, problem))
      const path = yield* sandboxPath(at, sandboxId, "/metadata")
      return yield* call(at, "PATCH", path, sandboxBody(at), { body: () => patch })
    }).pipe(span("patchMetadata", { "sandbox.id": sandboxId }))
  }

  return {
    get,
    list,
    delete: (sandboxId) =>
      removeAt(caller, where("delete"), sandboxId).pipe(span("delete", { "sandbox.id": sandboxId })),
    pause: ask("pause"),
    resume: ask("resume"),
    renew,
    patchMetadata
  }
}
