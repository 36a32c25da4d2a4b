/**
 * A client of the OpenSandbox lifecycle API: sandboxes, snapshots, endpoints, diagnostics.
 *
 * Every call validates what it can before anything is sent, and fails with `OpenSandboxError` only. GET and DELETE are repeated a few times when the
 * connection fails, and after 429 and 5xx answers; POST and PATCH are sent exactly once.
 *
 * @since 0.1.0
 */
import * as FetchHttpClient from "@effect/platform/FetchHttpClient"
import * as HttpClient from "@effect/platform/HttpClient"
import * as Config from "effect/Config"
import type * as ConfigError from "effect/ConfigError"
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import { identity } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import type * as Stream from "effect/Stream"
import { IdGenerator } from "./IdGenerator.js"
import * as Http from "./internal/http/client.js"
import * as Client from "./internal/http/endpointClient.js"
import * as Labels from "./internal/labels.js"
import { makeCaller } from "./internal/openSandbox/caller.js"
import { makeCreate } from "./internal/openSandbox/create.js"
import { makeDiagnostics } from "./internal/openSandbox/diagnostics.js"
import { makeEndpoint } from "./internal/openSandbox/endpoints.js"
import { makeSandboxes } from "./internal/openSandbox/sandboxes.js"
import { makeSnapshots } from "./internal/openSandbox/snapshots.js"
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
  /** What it was restricted to. */
  readonly platform?: { readonly os: string; readonly arch: string } | undefined
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
 * Which hosts a sandbox may reach. With rules and no `defaultAction`, what no rule allows is denied.
 *
 * @since 0.1.0
 * @category models
 */
export interface NetworkPolicy {
  readonly defaultAction?: "allow" | "deny" | undefined
  /** In order of evaluation. */
  readonly egress?: ReadonlyArray<NetworkRule> | undefined
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
 * What to make a sandbox from. Exactly one of `image`, `snapshotId` and `extensions.poolRef` must be given; a pool may be given an image as well.
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
  /** Everything is allowed when absent. */
  readonly networkPolicy?: NetworkPolicy | undefined
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
 * Which kind of endpoint to ask for.
 *
 * @since 0.1.0
 * @category models
 */
export interface EndpointOptions {
  /** One that leads through the control plane. Default: what `Options.useServerProxy` says. */
  readonly useServerProxy?: boolean | undefined
  /**
   * One with a signed route that is good for this long, by the clock of this machine, rounded up to whole seconds. Not through the control plane.
   */
  readonly expires?: Duration.DurationInput | undefined
}

/**
 * A text for people who look for the cause of a problem; its lines have no fixed form.
 *
 * @since 0.1.0
 * @category models
 */
export interface Diagnostic {
  readonly sandboxId: string
  readonly kind: "logs" | "events"
  readonly scope: string
  /** Whether the text came with the description, or has to be fetched. */
  readonly delivery: "inline" | "url"
  readonly contentType?: string | undefined
  /** Where it can be fetched, until `expiresAt`. Secret: the address itself may be the permission. */
  readonly contentUrl?: Redacted.Redacted | undefined
  /** In bytes. */
  readonly contentLength?: number | undefined
  /** Epoch milliseconds. */
  readonly expiresAt?: number | undefined
  /** Whether the server cut the text. */
  readonly truncated: boolean
  /** What is missing for other reasons. */
  readonly warnings: ReadonlyArray<string>
  /**
   * The text itself, of at most 64 MiB; fetched anew each time where it did not come inline. The API key goes along only to the control plane's own origin.
   */
  readonly text: Effect.Effect<string, OpenSandboxError>
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
    readonly endpoint: (
      sandboxId: string,
      port: number,
      options?: EndpointOptions
    ) => Effect.Effect<Endpoint, OpenSandboxError>
    /**
     * What the server kept about a sandbox, for people to read. Scopes are the server's own: `container`, `lifecycle`, `runtime`, `network`, `process`, `all`, …
     * A server without them answers 501.
     */
    readonly diagnosticLogs: (sandboxId: string, scope: string) => Effect.Effect<Diagnostic, OpenSandboxError>
    /** The same of what happened to it. */
    readonly diagnosticEvents: (sandboxId: string, scope: string) => Effect.Effect<Diagnostic, OpenSandboxError>
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
 * export const signed = (sandboxId: string) =>
 *   Effect.gen(function*() {
 *     const api = yield* OpenSandbox.OpenSandbox
 *     const endpoint = yield* api.endpoint(sandboxId, 3000, { expires: "10 minutes" })
 *     return OpenSandbox.endpointClient(api.httpClient, endpoint)
 *   })
 * ```
 *
 * @since 0.1.0
 * @category utils
 */
export const endpointClient: (client: HttpClient.HttpClient, endpoint: Endpoint) => HttpClient.HttpClient =
  Client.endpointClient

/**
 * A client for what listens on a port of a sandbox: relative requests go there, with the headers that the endpoint wants. It is asked for once, here; make a new
 * client after pause and resume.
 *
 * @example
 * ```ts
 * import { OpenSandbox } from "@sandglass/core"
 * import * as Effect from "effect/Effect"
 *
 * export const health = (sandboxId: string) =>
 *   Effect.gen(function*() {
 *     const client = yield* OpenSandbox.portClient(sandboxId, 3000)
 *     const response = yield* client.get("/health")
 *     return response.status
 *   })
 * ```
 *
 * @since 0.1.0
 * @category utils
 */
export const portClient = (
  sandboxId: string,
  port: number,
  options?: EndpointOptions
): Effect.Effect<HttpClient.HttpClient, OpenSandboxError, OpenSandbox> =>
  Effect.flatMap(OpenSandbox, (api) =>
    Effect.map(api.endpoint(sandboxId, port, options), (endpoint) => endpointClient(api.httpClient, endpoint))
  )

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
    const caller = makeCaller(options, httpClient)
    return OpenSandbox.of({
      create: makeCreate(caller, next),
      ...makeSandboxes(caller),
      endpoint: makeEndpoint(caller),
      ...makeSnapshots(caller),
      ...makeDiagnostics(caller),
      httpClient
    })
  })

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
