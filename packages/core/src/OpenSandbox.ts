/**
 * A client of the OpenSandbox lifecycle API: sandboxes, snapshots, endpoints.
 *
 * Every call validates what it can before anything is sent, and fails with `OpenSandboxError` only. GET and DELETE are repeated a few times when the
 * connection fails, and after 429 and 5xx answers; POST and PATCH are sent exactly once.
 *
 * @since 0.1.0
 */
import * as FetchHttpClient from "@effect/platform/FetchHttpClient"
import * as HttpBody from "@effect/platform/HttpBody"
import * as HttpClient from "@effect/platform/HttpClient"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import type * as HttpClientResponse from "@effect/platform/HttpClientResponse"
import * as Arr from "effect/Array"
import * as Chunk from "effect/Chunk"
import * as Clock from "effect/Clock"
import * as Config from "effect/Config"
import type * as ConfigError from "effect/ConfigError"
import * as Context from "effect/Context"
import * as DateTime from "effect/DateTime"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import { identity } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Stream from "effect/Stream"
import { IdGenerator } from "./IdGenerator.js"
import { endpointUrl, lifecycleBase, originOf } from "./internal/address.js"
import * as Http from "./internal/http.js"
import type { Where } from "./internal/httpError.js"
import { invalidRequest, neverSent } from "./internal/httpError.js"
import * as Labels from "./internal/labels.js"
import * as Wire from "./internal/lifecycleWire.js"
import { instant } from "./internal/nullish.js"
import type { OpenSandboxError } from "./OpenSandboxError.js"

/**
 * The state of a sandbox. An open enum: new values appear; treat what you do not know as "not yet".
 *
 * @since 0.1.0
 * @category models
 */
export type SandboxState =
  | "Pending"
  | "Running"
  | "Pausing"
  | "Paused"
  | "Resuming"
  | "Stopping"
  | "Terminated"
  | "Failed"
  | (string & {})

/**
 * The state of a snapshot. An open enum, like `SandboxState`.
 *
 * @since 0.1.0
 * @category models
 */
export type SnapshotState =
  | "Creating"
  | "Pending"
  | "Committing"
  | "Pushing"
  | "Ready"
  | "Failed"
  | "Deleting"
  | (string & {})

/**
 * A state, and what the server says about it.
 *
 * @since 0.1.0
 * @category models
 */
export interface Status<State> {
  readonly state: State
  readonly reason?: string | undefined
  readonly message?: string | undefined
}

/**
 * A sandbox as the server describes it.
 *
 * @since 0.1.0
 * @category models
 */
export interface SandboxInfo {
  readonly id: string
  readonly status: Status<SandboxState>
  readonly image?: string | undefined
  readonly snapshotId?: string | undefined
  readonly metadata: { readonly [key: string]: string }
  readonly entrypoint?: ReadonlyArray<string> | undefined
  /** Epoch milliseconds, by the server's clock. */
  readonly createdAt?: number | undefined
  readonly expiresAt?: number | undefined
}

/**
 * A snapshot as the server describes it.
 *
 * @since 0.1.0
 * @category models
 */
export interface SnapshotInfo {
  readonly id: string
  readonly sandboxId: string
  readonly name?: string | undefined
  readonly status: Status<SnapshotState>
  readonly createdAt?: number | undefined
}

/**
 * One outbound network rule.
 *
 * @since 0.1.0
 * @category models
 */
export interface NetworkRule {
  readonly action: "allow" | "deny"
  /** A domain name, or a wildcard such as `*.example.com`. */
  readonly target: string
}

/**
 * A mount of a sandbox, from exactly one of `host`, `pvc` and `ossfs`.
 *
 * @since 0.1.0
 * @category models
 */
export interface Volume {
  /** A DNS label, unique among the volumes of the sandbox. */
  readonly name: string
  /** Absolute. */
  readonly mountPath: string
  /** Default `false`. */
  readonly readOnly?: boolean | undefined
  readonly subPath?: string | undefined
  /** A directory of the host, if the server allows it. */
  readonly host?: { readonly path: string } | undefined
  /** A volume of the platform: a Kubernetes claim, or a named Docker volume. */
  readonly pvc?:
    | {
        readonly claimName: string
        readonly createIfNotExists?: boolean | undefined
        readonly deleteOnSandboxTermination?: boolean | undefined
        readonly storageClass?: string | undefined
        readonly storage?: string | undefined
        readonly accessModes?: ReadonlyArray<string> | undefined
      }
    | undefined
  /** Alibaba Cloud object storage. */
  readonly ossfs?:
    | {
        readonly bucket: string
        readonly endpoint: string
        readonly version?: "1.0" | "2.0" | undefined
        readonly options?: ReadonlyArray<string> | undefined
        readonly accessKeyId: Redacted.Redacted
        readonly accessKeySecret: Redacted.Redacted
      }
    | undefined
}

/**
 * What to make a sandbox from. Exactly one of `image`, `snapshotId` and `extensions.poolRef` must be given.
 *
 * @since 0.1.0
 * @category models
 */
export interface CreateRequest {
  /** An image reference such as `node:22`, with credentials for a private registry. */
  readonly image?:
    | string
    | {
        readonly uri: string
        readonly auth?: { readonly username: string; readonly password: Redacted.Redacted } | undefined
      }
    | undefined
  readonly snapshotId?: string | undefined
  /** At least 60 seconds, rounded up to whole seconds; default: lives until it is deleted. */
  readonly timeout?: Duration.DurationInput | undefined
  /** Default `{ cpu: "500m", memory: "512Mi" }`, or what the pool says. */
  readonly resources?: { readonly [key: string]: string } | undefined
  readonly env?: { readonly [key: string]: string | Redacted.Redacted } | undefined
  /** Values must follow the Kubernetes label rules; see `labelValue`. */
  readonly metadata?: { readonly [key: string]: string } | undefined
  /** Default `["tail", "-f", "/dev/null"]` for an image; what the snapshot or the pool says otherwise. */
  readonly entrypoint?: ReadonlyArray<string> | undefined
  readonly extensions?: { readonly [key: string]: string } | undefined
  /** Where the sandbox must run; the server's own choice by default. */
  readonly platform?: { readonly os: string; readonly arch: string } | undefined
  /** Outbound rules; everything is allowed when absent. With rules and no `defaultAction`, what no rule allows is denied. */
  readonly networkPolicy?:
    | {
        readonly defaultAction?: "allow" | "deny" | undefined
        readonly egress?: ReadonlyArray<NetworkRule> | undefined
      }
    | undefined
  /** Prepares the sandbox for credential injection; needs `networkPolicy`. Default `false`. */
  readonly credentialProxy?: boolean | undefined
  /** Asks for endpoints that need access headers. Default `false`. */
  readonly secureAccess?: boolean | undefined
  readonly volumes?: ReadonlyArray<Volume> | undefined
}

/**
 * Where a port of a sandbox is reached from outside.
 *
 * @since 0.1.0
 * @category models
 */
export interface Endpoint {
  /** With scheme, without a trailing slash. */
  readonly url: string
  /** What every request to it must carry. Secret. */
  readonly headers: { readonly [key: string]: Redacted.Redacted }
}

/**
 * Which sandboxes to list: those in any of the states, with all of the metadata.
 *
 * @since 0.1.0
 * @category models
 */
export interface ListOptions {
  readonly states?: ReadonlyArray<SandboxState> | undefined
  readonly metadata?: { readonly [key: string]: string } | undefined
  /** Default 100. */
  readonly pageSize?: number | undefined
}

/**
 * The lifecycle API as a service.
 *
 * @example
 * ```ts
 * import { OpenSandbox } from "@sandglass/core"
 * import * as Effect from "effect/Effect"
 * import * as Stream from "effect/Stream"
 *
 * export const program = Effect.gen(function*() {
 *   const api = yield* OpenSandbox.OpenSandbox
 *   const { id } = yield* api.create({ image: "node:22", metadata: { owner: OpenSandbox.labelValue("me@example.com") } })
 *   yield* Effect.log(yield* Stream.runCollect(api.list({ states: ["Running"] })))
 *   yield* api.delete(id)
 * }).pipe(Effect.provide(OpenSandbox.layerConfig()))
 * ```
 *
 * @since 0.1.0
 * @category tags
 */
export class OpenSandbox extends Context.Tag("@sandglass/core/OpenSandbox")<
  OpenSandbox,
  {
    /**
     * Asks for a sandbox; it may still be `Pending` when this returns. Sent once. If the answer is lost, the sandbox is looked
     * for by a key in its metadata (`sandglass.create-key`), and returned if the server did make it. If it is interrupted, what the server made is looked for
     * in the same way and deleted, within 10 seconds.
     */
    readonly create: (request: CreateRequest) => Effect.Effect<SandboxInfo, OpenSandboxError>
    readonly get: (sandboxId: string) => Effect.Effect<SandboxInfo, OpenSandboxError>
    /** All pages. */
    readonly list: (options?: ListOptions) => Stream.Stream<SandboxInfo, OpenSandboxError>
    /** A sandbox that is gone already (404) or going (409) counts as deleted. */
    readonly delete: (sandboxId: string) => Effect.Effect<void, OpenSandboxError>
    /** Asks only: poll `get` until `Paused`. */
    readonly pause: (sandboxId: string) => Effect.Effect<void, OpenSandboxError>
    /** Asks only: poll `get` until `Running`. */
    readonly resume: (sandboxId: string) => Effect.Effect<void, OpenSandboxError>
    /**
     * Sets the expiry to `duration` from now **by the server's clock**; returns the new expiry in epoch milliseconds. An expiry that is later already stays
     * as it is: the server refuses to shorten one.
     */
    readonly renew: (sandboxId: string, duration: Duration.DurationInput) => Effect.Effect<number, OpenSandboxError>
    /** Where a port is reached now; it changes with every pause and resume, and may differ from call to call. */
    readonly endpoint: (sandboxId: string, port: number) => Effect.Effect<Endpoint, OpenSandboxError>
    /** `null` removes a key. */
    readonly patchMetadata: (
      sandboxId: string,
      patch: { readonly [key: string]: string | null }
    ) => Effect.Effect<SandboxInfo, OpenSandboxError>
    /** Asks only: poll `getSnapshot` until `Ready`. */
    readonly createSnapshot: (
      sandboxId: string,
      options?: { readonly name?: string | undefined }
    ) => Effect.Effect<SnapshotInfo, OpenSandboxError>
    readonly getSnapshot: (snapshotId: string) => Effect.Effect<SnapshotInfo, OpenSandboxError>
    readonly listSnapshots: (options?: {
      readonly sandboxId?: string | undefined
      readonly states?: ReadonlyArray<SnapshotState> | undefined
      readonly pageSize?: number | undefined
    }) => Stream.Stream<SnapshotInfo, OpenSandboxError>
    /** A snapshot that is gone already counts as deleted. */
    readonly deleteSnapshot: (snapshotId: string) => Effect.Effect<void, OpenSandboxError>
    /**
     * The HTTP client underneath, without the API key: for what `endpoint` points at (see `endpointClient`). It repeats nothing, follows no redirects,
     * and hides the values of secret headers in spans.
     */
    readonly httpClient: HttpClient.HttpClient
  }
>() {}

/**
 * How to reach a server.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** Default `http://127.0.0.1:8080`. With or without a scheme (`http`), a slash at the end, or `/v1`. */
  readonly url?: string | undefined
  /** Sent as `OPEN-SANDBOX-API-KEY`. */
  readonly apiKey?: Redacted.Redacted | undefined
  /**
   * Ask for endpoints that lead through the control plane, for when the sandboxes' own addresses cannot be reached. Default `false`.
   *
   * An endpoint of that kind which lies on the control plane's own origin gets the API key as well; no other endpoint ever does.
   */
  readonly useServerProxy?: boolean | undefined
  /** For one complete answer. Default 30 seconds. */
  readonly requestTimeout?: Duration.DurationInput | undefined
  /** For the answer to a create, which may have to wait for an image. Default 5 minutes. */
  readonly createTimeout?: Duration.DurationInput | undefined
  /**
   * How GET and DELETE are repeated: `times` (default 3) after growing delays with jitter from `baseDelay` on (default 200 milliseconds), or after what
   * `Retry-After` says, but never more than `maxDelay` (default 10 seconds).
   */
  readonly retry?: RetryOptions | undefined
  /** Wraps the HTTP client that everything is sent by, endpoints included. */
  readonly transformClient?: ((client: HttpClient.HttpClient) => HttpClient.HttpClient) | undefined
}

/**
 * How GET and DELETE are repeated. POST and PATCH never are.
 *
 * @since 0.1.0
 * @category models
 */
export interface RetryOptions {
  /** Repetitions after the first attempt; 0 turns them off. Default 3. */
  readonly times?: number | undefined
  /** Default 200 milliseconds. */
  readonly baseDelay?: Duration.DurationInput | undefined
  /** Default 10 seconds. */
  readonly maxDelay?: Duration.DurationInput | undefined
}

/**
 * Any text as a valid metadata value: valid ones as they are, others as a readable remainder with a hash of the whole, always the same for the same text. So
 * an id with `@`, spaces or 80 characters can be stored in the metadata of a sandbox, and listed by.
 *
 * @example
 * ```ts
 * import { OpenSandbox } from "@sandglass/core"
 *
 * OpenSandbox.labelValue("run-42") // "run-42"
 * OpenSandbox.labelValue("me@example.com") // "me-example-com.…"
 * ```
 *
 * @since 0.1.0
 * @category utils
 */
export const labelValue: (text: string) => string = Labels.labelValue

/**
 * A client whose relative requests go to an endpoint, with its headers, whose values never show in spans. It repeats nothing.
 *
 * @example
 * ```ts
 * import { OpenSandbox } from "@sandglass/core"
 * import * as Effect from "effect/Effect"
 *
 * export const health = (sandboxId: string) =>
 *   Effect.gen(function*() {
 *     const api = yield* OpenSandbox.OpenSandbox
 *     const client = OpenSandbox.endpointClient(api.httpClient, yield* api.endpoint(sandboxId, 3000))
 *     const response = yield* client.get("/health")
 *     return response.status
 *   })
 * ```
 *
 * @since 0.1.0
 * @category utils
 */
export const endpointClient = (client: HttpClient.HttpClient, endpoint: Endpoint): HttpClient.HttpClient => {
  const names = Object.keys(endpoint.headers)
  return Http.redacting(
    HttpClient.mapRequest(client, (request) =>
      HttpClientRequest.setHeaders(
        HttpClientRequest.prependUrl(request, endpoint.url),
        names.map((name): [string, string] => {
          const value = endpoint.headers[name]
          return [name, value === undefined ? "" : Redacted.value(value)]
        })
      )
    ),
    names.map((name) => name.toLowerCase())
  )
}

const sourceAttributes = (request: CreateRequest): { readonly [key: string]: string } => {
  const image = typeof request.image === "string" ? request.image : request.image?.uri
  const out: Record<string, string> = {}
  if (image !== undefined) out["sandbox.image"] = image
  if (request.snapshotId !== undefined) out["snapshot.id"] = request.snapshotId
  return out
}

const span = (method: string, attributes: { readonly [key: string]: unknown } = {}) =>
  Effect.withSpan(`OpenSandbox.${method}`, { captureStackTrace: false, attributes })

/**
 * Builds the service on whatever `HttpClient` is there. The wait between the looks for a lost create is 0.5 to 4 seconds.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (
  options: Options = {}
): Effect.Effect<Context.Tag.Service<OpenSandbox>, never, HttpClient.HttpClient> =>
  Effect.gen(function* () {
    const { next } = yield* IdGenerator
    const httpClient = Http.bareClient(
      yield* HttpClient.HttpClient,
      yield* Effect.serviceOption(FetchHttpClient.RequestInit),
      options.transformClient ?? identity
    )
    const base = lifecycleBase(options.url ?? defaultUrl)
    const requestTimeout = Duration.decode(options.requestTimeout ?? "30 seconds")
    const createTimeout = Duration.decode(options.createTimeout ?? "5 minutes")
    const policy = Http.retryPolicy(options.retry)
    const retry = Http.retrying(policy)

    const request = (
      method: "GET" | "POST" | "PATCH" | "DELETE",
      path: string,
      init: {
        readonly params?: ReadonlyArray<readonly [string, string]> | undefined
        readonly body?: unknown
      } = {}
    ): HttpClientRequest.HttpClientRequest =>
      HttpClientRequest.make(method)(`${base}${path}`, {
        acceptJson: true,
        ...(init.params === undefined ? {} : { urlParams: init.params }),
        ...(init.body === undefined ? {} : { body: HttpBody.unsafeJson(init.body) }),
        ...(options.apiKey === undefined ? {} : { headers: { [Http.apiKeyHeader]: Redacted.value(options.apiKey) } })
      })

    // built anew for each attempt, so that the key is unwrapped at the last moment
    const call = <A>(
      where: Where,
      make: () => HttpClientRequest.HttpClientRequest,
      decode: (response: HttpClientResponse.HttpClientResponse) => Effect.Effect<A, OpenSandboxError>,
      timeout: Duration.Duration = requestTimeout
    ): Effect.Effect<A, OpenSandboxError> => Effect.suspend(() => Http.send(httpClient, where, timeout, make(), decode))

    const where = (method: string): Where => ({ module: "OpenSandbox", method })

    const sandboxPath = (at: Where, sandboxId: string, rest = "") =>
      Effect.map(Http.segment(at, "sandbox id", sandboxId), (id) => `/sandboxes/${id}${rest}`)

    const snapshotPath = (at: Where, snapshotId: string) =>
      Effect.map(Http.segment(at, "snapshot id", snapshotId), (id) => `/snapshots/${id}`)

    const sandboxBody = (at: Where) => {
      const decode = Http.jsonBody(at, Wire.schemas.Sandbox)
      return (response: HttpClientResponse.HttpClientResponse) => Effect.map(decode(response), Wire.sandboxInfo)
    }

    const snapshotBody = (at: Where) => {
      const decode = Http.jsonBody(at, Wire.schemas.Snapshot)
      return (response: HttpClientResponse.HttpClientResponse) => Effect.map(decode(response), Wire.snapshotInfo)
    }

    const paged = <Item, A extends { readonly id: string }>(
      page: (number: number) => Effect.Effect<
        {
          readonly items?: ReadonlyArray<Item> | null | undefined
          readonly pagination?: { readonly hasNextPage?: boolean | null | undefined } | null | undefined
        },
        OpenSandboxError
      >,
      convert: (item: Item) => A
    ): Stream.Stream<A, OpenSandboxError> =>
      Stream.suspend(() => {
        // what is created while the pages are read pushes others on to the next page, where they come a second time
        const seen = new Set<string>()
        return Stream.paginateChunkEffect(1, (number) =>
          Effect.map(page(number), ({ items, pagination }) => {
            const fresh = (items ?? []).map(convert).filter(({ id }) => !seen.has(id))
            for (const { id } of fresh) seen.add(id)
            const more = pagination?.hasNextPage === true && (items ?? []).length > 0
            return [Chunk.unsafeFromArray(fresh), more ? Option.some(number + 1) : Option.none()]
          })
        )
      })

    const listAt = (
      at: Where,
      filter: ListOptions,
      wrap: <A>(self: Effect.Effect<A, OpenSandboxError>) => Effect.Effect<A, OpenSandboxError>
    ): Stream.Stream<SandboxInfo, OpenSandboxError> => {
      const metadata = Object.entries(filter.metadata ?? {})
      const params: ReadonlyArray<readonly [string, string]> = [
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
        (number) =>
          wrap(
            call(
              at,
              () =>
                request("GET", "/sandboxes", {
                  params: [...params, ["page", String(number)], ["pageSize", String(filter.pageSize ?? 100)]]
                }),
              decode
            )
          ),
        Wire.sandboxInfo
      )
    }

    const pageSizeProblem = (pageSize: number | undefined): string | undefined =>
      pageSize === undefined || (Number.isInteger(pageSize) && pageSize >= 1)
        ? undefined
        : `pageSize is a whole number from 1 on, not ${pageSize}`

    const list = (filter: ListOptions = {}): Stream.Stream<SandboxInfo, OpenSandboxError> =>
      Stream.suspend(() => {
        const at = where("list")
        const problem = pageSizeProblem(filter.pageSize) ?? Labels.metadataProblem(filter.metadata ?? {})
        return problem === undefined ? listAt(at, filter, retry) : Stream.fail(invalidRequest(at, problem))
      }).pipe(Stream.withSpan("OpenSandbox.list", { captureStackTrace: false }))

    const remove = (at: Where, sandboxId: string): Effect.Effect<void, OpenSandboxError> =>
      Effect.flatMap(sandboxPath(at, sandboxId), (path) =>
        retry(call(at, () => request("DELETE", path), Http.noBody)).pipe(
          Effect.catchIf(
            (error) => error.reason === "NotFound" || error.status === 409,
            () => Effect.void
          )
        )
      )

    /** Looks for the sandbox of a create whose answer never came. */
    const findCreated = (
      at: Where,
      createKey: string,
      delays: ReadonlyArray<number>
    ): Effect.Effect<Option.Option<SandboxInfo>> => {
      const look = listAt(at, { metadata: { [Wire.createKeyLabel]: createKey } }, identity).pipe(
        // a server that ignores the filter answers with everybody's
        Stream.filter((sandbox) => sandbox.metadata[Wire.createKeyLabel] === createKey),
        Stream.runHead,
        Effect.orElseSucceed(() => Option.none<SandboxInfo>())
      )
      const loop = (index: number): Effect.Effect<Option.Option<SandboxInfo>> => {
        const delay = delays[index]
        return delay === undefined
          ? Effect.succeedNone
          : Effect.sleep(delay).pipe(
              Effect.zipRight(look),
              Effect.flatMap((found) => (Option.isSome(found) ? Effect.succeed(found) : loop(index + 1)))
            )
      }
      return loop(0)
    }

    const isAmbiguous = (error: OpenSandboxError): boolean => {
      switch (error.reason) {
        case "Transport":
          return !neverSent(error)
        case "Timeout":
        case "Decode":
          return true
        case "ServerError":
          // with a code it is the server itself that says no; without one it is something in between
          return error.status !== undefined && error.status >= 500 && error.status !== 501 && error.code === undefined
        default:
          return false
      }
    }

    const create = (input: CreateRequest): Effect.Effect<SandboxInfo, OpenSandboxError> => {
      const at = where("create")
      return Effect.suspend(() => {
        const problem = Wire.createProblem(input)
        return problem === undefined ? next : Effect.fail(invalidRequest(at, problem))
      }).pipe(
        Effect.flatMap((createKey) =>
          call(
            at,
            () => request("POST", "/sandboxes", { body: Wire.createBody(input, createKey) }),
            sandboxBody(at),
            createTimeout
          ).pipe(
            Effect.catchIf(isAmbiguous, (error) =>
              Effect.flatMap(
                findCreated(at, createKey, [0, 500, 1000, 2000, 4000]),
                Option.match({ onNone: () => Effect.fail(error), onSome: Effect.succeed })
              )
            ),
            Effect.onInterrupt(() =>
              findCreated(at, createKey, [100, 500, 1500, 2500]).pipe(
                Effect.flatMap(
                  Option.match({
                    onNone: () => Effect.void,
                    onSome: ({ id }) => remove(at, id)
                  })
                ),
                Effect.interruptible,
                Effect.timeout("10 seconds"),
                Effect.catchAllCause((cause) =>
                  Effect.logWarning("a sandbox may be left over from an interrupted create", cause).pipe(
                    Effect.annotateLogs({ [Wire.createKeyLabel]: createKey })
                  )
                )
              )
            )
          )
        ),
        Effect.tap(({ id }) => Effect.annotateCurrentSpan("sandbox.id", id)),
        span("create", sourceAttributes(input))
      )
    }

    const get = (sandboxId: string): Effect.Effect<SandboxInfo, OpenSandboxError> => {
      const at = where("get")
      return sandboxPath(at, sandboxId).pipe(
        Effect.flatMap((path) => retry(call(at, () => request("GET", path), sandboxBody(at)))),
        span("get", { "sandbox.id": sandboxId })
      )
    }

    const ask =
      (method: "pause" | "resume") =>
      (sandboxId: string): Effect.Effect<void, OpenSandboxError> => {
        const at = where(method)
        return sandboxPath(at, sandboxId, `/${method}`).pipe(
          Effect.flatMap((path) => call(at, () => request("POST", path), Http.noBody)),
          span(method, { "sandbox.id": sandboxId })
        )
      }

    /** The server's clock when it answered; `undefined` where it does not say. */
    const serverTime = (response: HttpClientResponse.HttpClientResponse): number | undefined => {
      const millis = Date.parse(response.headers.date ?? "")
      return Number.isNaN(millis) ? undefined : millis
    }

    const renew = (sandboxId: string, duration: Duration.DurationInput): Effect.Effect<number, OpenSandboxError> => {
      const at = where("renew")
      return Effect.gen(function* () {
        const millis = Duration.toMillis(duration)
        if (!(millis > 0) || !Number.isFinite(millis)) {
          return yield* Effect.fail(invalidRequest(at, "the time to live must be positive and finite"))
        }
        const path = yield* sandboxPath(at, sandboxId)
        const body = sandboxBody(at)
        const [info, now] = yield* retry(
          call(
            at,
            () => request("GET", path),
            (response) => Effect.map(body(response), (info) => [info, serverTime(response)] as const)
          )
        )
        const target = (now ?? (yield* Clock.currentTimeMillis)) + millis
        if (info.expiresAt !== undefined && info.expiresAt >= target) return info.expiresAt
        const expiresAt = DateTime.formatIso(DateTime.unsafeMake(target))
        const renewed = yield* call(
          at,
          () => request("POST", `${path}/renew-expiration`, { body: { expiresAt } }),
          Http.jsonBody(at, Wire.schemas.Renewal)
        )
        return instant(renewed?.expiresAt) ?? target
      }).pipe(span("renew", { "sandbox.id": sandboxId }))
    }

    const endpoint = (sandboxId: string, port: number): Effect.Effect<Endpoint, OpenSandboxError> => {
      const at = where("endpoint")
      return Effect.gen(function* () {
        if (!Number.isInteger(port) || port < 1 || port > 65535) {
          return yield* Effect.fail(invalidRequest(at, `a port is a whole number from 1 to 65535, not ${port}`))
        }
        const path = yield* sandboxPath(at, sandboxId, `/endpoints/${port}`)
        const params = options.useServerProxy === true ? [["use_server_proxy", "true"] as const] : undefined
        const document = yield* retry(
          call(at, () => request("GET", path, { params }), Http.jsonBody(at, Wire.schemas.Endpoint))
        )
        const url = endpointUrl(document.endpoint, base)
        const headers: Record<string, Redacted.Redacted> = {}
        for (const [name, value] of Object.entries(document.headers ?? {})) headers[name] = Redacted.make(value)
        const origin = originOf(url)
        if (
          options.useServerProxy === true &&
          options.apiKey !== undefined &&
          origin !== undefined &&
          origin === originOf(base) &&
          !Object.keys(headers).some((name) => name.toLowerCase() === Http.apiKeyHeader)
        ) {
          headers[Http.apiKeyHeader] = options.apiKey
        }
        return { url, headers }
      }).pipe(span("endpoint", { "sandbox.id": sandboxId, "sandbox.port": port }))
    }

    const patchMetadata = (
      sandboxId: string,
      patch: { readonly [key: string]: string | null }
    ): Effect.Effect<SandboxInfo, OpenSandboxError> => {
      const at = where("patchMetadata")
      return Effect.gen(function* () {
        const problem = Labels.metadataProblem(patch)
        if (problem !== undefined) return yield* Effect.fail(invalidRequest(at, problem))
        const path = yield* sandboxPath(at, sandboxId, "/metadata")
        return yield* call(at, () => request("PATCH", path, { body: patch }), sandboxBody(at))
      }).pipe(span("patchMetadata", { "sandbox.id": sandboxId }))
    }

    const createSnapshot = (
      sandboxId: string,
      input: { readonly name?: string | undefined } = {}
    ): Effect.Effect<SnapshotInfo, OpenSandboxError> => {
      const at = where("createSnapshot")
      return Effect.gen(function* () {
        if (input.name === "") return yield* Effect.fail(invalidRequest(at, "the name of the snapshot is empty"))
        const path = yield* sandboxPath(at, sandboxId, "/snapshots")
        return yield* call(
          at,
          () => request("POST", path, { body: { name: input.name } }),
          snapshotBody(at),
          createTimeout
        )
      }).pipe(
        Effect.tap(({ id }) => Effect.annotateCurrentSpan("snapshot.id", id)),
        span("createSnapshot", { "sandbox.id": sandboxId })
      )
    }

    const getSnapshot = (snapshotId: string): Effect.Effect<SnapshotInfo, OpenSandboxError> => {
      const at = where("getSnapshot")
      return snapshotPath(at, snapshotId).pipe(
        Effect.flatMap((path) => retry(call(at, () => request("GET", path), snapshotBody(at)))),
        span("getSnapshot", { "snapshot.id": snapshotId })
      )
    }

    const listSnapshots: Context.Tag.Service<OpenSandbox>["listSnapshots"] = (filter = {}) =>
      Stream.suspend(() => {
        const at = where("listSnapshots")
        const problem = pageSizeProblem(filter.pageSize)
        if (problem !== undefined) return Stream.fail(invalidRequest(at, problem))
        const params: ReadonlyArray<readonly [string, string]> = [
          ...(filter.sandboxId === undefined ? [] : [["sandboxId", filter.sandboxId] as const]),
          ...(filter.states ?? []).map((state) => ["state", state] as const)
        ]
        const decode = Http.jsonBody(at, Wire.schemas.SnapshotPage)
        return paged(
          (number) =>
            retry(
              call(
                at,
                () =>
                  request("GET", "/snapshots", {
                    params: Arr.appendAll(params, [
                      ["page", String(number)] as const,
                      ["pageSize", String(filter.pageSize ?? 100)] as const
                    ])
                  }),
                decode
              )
            ),
          Wire.snapshotInfo
        )
      }).pipe(Stream.withSpan("OpenSandbox.listSnapshots", { captureStackTrace: false }))

    const deleteSnapshot = (snapshotId: string): Effect.Effect<void, OpenSandboxError> => {
      const at = where("deleteSnapshot")
      return snapshotPath(at, snapshotId).pipe(
        Effect.flatMap((path) => retry(call(at, () => request("DELETE", path), Http.noBody))),
        Effect.catchIf(
          (error) => error.reason === "NotFound",
          () => Effect.void
        ),
        span("deleteSnapshot", { "snapshot.id": snapshotId })
      )
    }

    return OpenSandbox.of({
      create,
      get,
      list,
      delete: (sandboxId) => remove(where("delete"), sandboxId).pipe(span("delete", { "sandbox.id": sandboxId })),
      pause: ask("pause"),
      resume: ask("resume"),
      renew,
      endpoint,
      patchMetadata,
      createSnapshot,
      getSnapshot,
      listSnapshots,
      deleteSnapshot,
      httpClient
    })
  })

const defaultUrl = "http://127.0.0.1:8080"

/**
 * The service on an `HttpClient` of the application's own.
 *
 * @since 0.1.0
 * @category layers
 */
export const layerWithoutHttpClient = (options?: Options): Layer.Layer<OpenSandbox, never, HttpClient.HttpClient> =>
  Layer.effect(OpenSandbox, make(options))

/**
 * The service on the platform's `fetch`.
 *
 * @example
 * ```ts
 * import { OpenSandbox } from "@sandglass/core"
 * import * as Redacted from "effect/Redacted"
 *
 * export const Live = OpenSandbox.layer({ url: "https://sandboxes.example.com", apiKey: Redacted.make("secret") })
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layer = (options?: Options): Layer.Layer<OpenSandbox> =>
  Layer.provide(layerWithoutHttpClient(options), FetchHttpClient.layer)

const blankAsAbsent = <A>(config: Config.Config<A>, isBlank: (value: A) => boolean): Config.Config<A | undefined> =>
  Config.map(Config.option(config), (value) => Option.getOrUndefined(Option.filter(value, (given) => !isBlank(given))))

/**
 * Where `layerConfig` takes what it is not given: `OPEN_SANDBOX_URL`, `OPEN_SANDBOX_API_KEY` and `OPEN_SANDBOX_USE_SERVER_PROXY`, all optional. A variable that is
 * set to nothing counts as absent.
 *
 * @since 0.1.0
 * @category config
 */
export const config: Config.Config<Pick<Options, "url" | "apiKey" | "useServerProxy">> = Config.all({
  url: blankAsAbsent(Config.string("OPEN_SANDBOX_URL"), (url) => url.trim() === ""),
  apiKey: blankAsAbsent(Config.redacted("OPEN_SANDBOX_API_KEY"), (key) => Redacted.value(key).trim() === ""),
  useServerProxy: Config.withDefault(Config.boolean("OPEN_SANDBOX_USE_SERVER_PROXY"), false)
})

/**
 * The service on the platform's `fetch`, configured by `config`, or by the given configs where they are given.
 *
 * @example
 * ```ts
 * import { OpenSandbox } from "@sandglass/core"
 * import * as Config from "effect/Config"
 *
 * export const Live = OpenSandbox.layerConfig()
 * export const Staging = OpenSandbox.layerConfig({ url: Config.string("STAGING_URL") })
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layerConfig = (
  options?: Config.Config.Wrap<Omit<Options, "transformClient">>
): Layer.Layer<OpenSandbox, ConfigError.ConfigError> =>
  Layer.unwrapEffect(
    Effect.gen(function* () {
      const given: Omit<Options, "transformClient"> = options === undefined ? {} : yield* Config.unwrap(options)
      const defaults = yield* config
      return layer({
        ...given,
        url: given.url ?? defaults.url,
        apiKey: given.apiKey ?? defaults.apiKey,
        useServerProxy: given.useServerProxy ?? defaults.useServerProxy
      })
    })
  )
