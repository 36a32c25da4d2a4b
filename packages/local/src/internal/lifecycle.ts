/** @internal */
import * as HttpRouter from "@effect/platform/HttpRouter"
import * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import type * as HttpServerResponse from "@effect/platform/HttpServerResponse"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import { ApiError, invalidParameter, notImplemented } from "./apiError.js"
import type { Kind } from "./diagnostics.js"
import { diagnose } from "./diagnostics.js"
import { CredentialProxy, egressApi, initialPolicy, NetworkPolicy, plainError } from "./egressApi.js"
import { execd, mayReach } from "./execd.js"
import { attempt, body, empty, iso, json, query, sameSecret, unauthorized } from "./http.js"
import { checkMetadata, mergeMetadata } from "./labels.js"
import { proxyRequest } from "./proxy.js"
import { ACCESS_HEADER, EGRESS_PORT, EXECD_PORT, parseService } from "./routes.js"
import type { Sandbox, Sandboxes } from "./sandboxes.js"
import type { Snapshot, Snapshots } from "./snapshots.js"

const Strings = Schema.Record({ key: Schema.String, value: Schema.String })

const CreateSandbox = Schema.Struct({
  image: Schema.optionalWith(
    Schema.Struct({ uri: Schema.NonEmptyString, auth: Schema.optionalWith(Schema.Unknown, { nullable: true }) }),
    { nullable: true }
  ),
  snapshotId: Schema.optionalWith(Schema.NonEmptyString, { nullable: true }),
  timeout: Schema.optionalWith(Schema.Int, { nullable: true }),
  resourceLimits: Schema.optionalWith(Strings, { nullable: true }),
  env: Schema.optionalWith(Schema.Record({ key: Schema.String, value: Schema.NullOr(Schema.String) }), {
    nullable: true
  }),
  metadata: Schema.optionalWith(Strings, { nullable: true }),
  entrypoint: Schema.optionalWith(Schema.NonEmptyArray(Schema.String), { nullable: true }),
  platform: Schema.optionalWith(Schema.Struct({ os: Schema.String, arch: Schema.String }), { nullable: true }),
  extensions: Schema.optionalWith(Strings, { nullable: true }),
  networkPolicy: Schema.optionalWith(NetworkPolicy, { nullable: true }),
  credentialProxy: Schema.optionalWith(CredentialProxy, { nullable: true }),
  secureAccess: Schema.optionalWith(Schema.Boolean, { nullable: true }),
  volumes: Schema.optionalWith(Schema.Array(Schema.Unknown), { nullable: true })
})

/** What is asked for and cannot be had, rather than a sandbox that lacks it in silence. */
const missingIn = ({ extensions, platform, volumes }: typeof CreateSandbox.Type): string | undefined => {
  if (extensions?.poolRef !== undefined) return "pools"
  if (extensions?.["access.renew.extend.seconds"] !== undefined) return "access.renew.extend.seconds"
  if (volumes !== undefined && volumes.length > 0) return "volumes"
  const own = { os: process.platform, arch: process.arch === "x64" ? "amd64" : process.arch }
  return platform === undefined || (platform.os === own.os && platform.arch === own.arch)
    ? undefined
    : `the platform ${platform.os}/${platform.arch} (this machine is ${own.os}/${own.arch})`
}

const Renew = Schema.Struct({ expiresAt: Schema.String })
const CreateSnapshot = Schema.Struct({ name: Schema.optionalWith(Schema.NonEmptyString, { nullable: true }) })
const MetadataPatch = Schema.Record({ key: Schema.String, value: Schema.NullOr(Schema.String) })

const statusJson = (status: {
  readonly state: string
  readonly reason: string
  readonly message: string
  readonly lastTransitionAt: number
}) => ({
  state: status.state,
  reason: status.reason,
  message: status.message,
  lastTransitionAt: iso(status.lastTransitionAt)
})

const common = (sandbox: Sandbox) => ({
  id: sandbox.id,
  metadata: sandbox.metadata,
  ...(sandbox.spec.platform === undefined ? {} : { platform: sandbox.spec.platform }),
  ...(sandbox.expiresAt === undefined ? {} : { expiresAt: iso(sandbox.expiresAt) }),
  createdAt: iso(sandbox.createdAt),
  entrypoint: sandbox.spec.entrypoint
})

const sandboxJson = (sandbox: Sandbox) => ({
  ...common(sandbox),
  status: statusJson(sandbox.status),
  ...(sandbox.spec.image === undefined ? {} : { image: { uri: sandbox.spec.image } }),
  ...(sandbox.spec.snapshotId === undefined ? {} : { snapshotId: sandbox.spec.snapshotId })
})

const snapshotJson = (snapshot: Snapshot) => ({
  id: snapshot.id,
  sandboxId: snapshot.sandboxId,
  ...(snapshot.name === undefined ? {} : { name: snapshot.name }),
  status: statusJson({ ...snapshot, reason: `snapshot_${snapshot.state.toLowerCase()}` }),
  createdAt: iso(snapshot.createdAt)
})

const positive = (params: URLSearchParams, name: string, otherwise: number): Effect.Effect<number, ApiError> => {
  const text = params.get(name)
  if (text === null) return Effect.succeed(otherwise)
  return /^[1-9]\d{0,8}$/.test(text)
    ? Effect.succeed(Number(text))
    : Effect.fail(invalidParameter(`${name} must be a positive integer`))
}

/** One page, newest first, with the words about pages that go with it. */
const paged = <A extends { readonly createdAt: number }>(all: ReadonlyArray<A>, show: (item: A) => unknown) =>
  Effect.gen(function* () {
    const params = yield* query
    const page = yield* positive(params, "page", 1)
    const pageSize = yield* positive(params, "pageSize", 20)
    if (pageSize > 200) return yield* invalidParameter("pageSize must be at most 200")
    const sorted = all
      .map((item, index) => ({ item, index }))
      .sort((a, b) => b.item.createdAt - a.item.createdAt || b.index - a.index)
    const totalPages = Math.ceil(all.length / pageSize)
    return json({
      items: sorted.slice((page - 1) * pageSize, page * pageSize).map(({ item }) => show(item)),
      pagination: { page, pageSize, totalItems: all.length, totalPages, hasNextPage: page < totalPages }
    })
  })

const stateFilter = (params: URLSearchParams) => {
  const states = params
    .getAll("state")
    .flatMap((state) => state.split(","))
    .map((state) => state.toLowerCase())
  return (state: string) => states.length === 0 || states.includes(state.toLowerCase())
}

export interface LifecycleOptions {
  readonly sandboxes: Sandboxes
  readonly snapshots: Snapshots
  readonly apiKey: string
  /** `host:port`, for endpoints. */
  readonly authority: string
  readonly info: { readonly [key: string]: unknown }
}

type Answer<E = ApiError> = Effect.Effect<
  HttpServerResponse.HttpServerResponse,
  E,
  HttpServerRequest.HttpServerRequest | HttpRouter.RouteContext
>

export const makeRouter = (options: LifecycleOptions) => {
  const { apiKey, authority, sandboxes, snapshots } = options
  const param = (name: string) => Effect.map(HttpRouter.params, (params) => params[name] ?? "")

  const withKey = (answer: Answer): Answer =>
    Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) =>
      sameSecret(request.headers["open-sandbox-api-key"], apiKey)
        ? answer
        : Effect.fail(unauthorized("OPEN-SANDBOX-API-KEY"))
    )

  const create: Answer = Effect.gen(function* () {
    const request = yield* body(CreateSandbox, invalidParameter)
    const missing = missingIn(request)
    if (missing !== undefined) return yield* notImplemented(missing)
    if ((request.image === undefined) === (request.snapshotId === undefined)) {
      return yield* invalidParameter("exactly one of image and snapshotId must be given")
    }
    if (request.resourceLimits === undefined) return yield* invalidParameter("resourceLimits is required")
    if (request.image !== undefined && request.entrypoint === undefined)
      return yield* invalidParameter("entrypoint is required with image")
    if (request.timeout !== undefined && request.timeout < 60)
      return yield* invalidParameter("timeout must be at least 60 seconds")
    const credentialProxy = request.credentialProxy?.enabled === true
    if (credentialProxy && request.networkPolicy === undefined)
      return yield* invalidParameter("credentialProxy needs a networkPolicy")
    yield* checkMetadata(request.metadata ?? {})
    const saved = request.snapshotId === undefined ? undefined : yield* snapshots.get(request.snapshotId)
    const sandbox = yield* sandboxes.create({
      image: request.image?.uri,
      snapshotId: request.snapshotId,
      entrypoint: request.entrypoint ?? saved?.entrypoint ?? ["tail", "-f", "/dev/null"],
      env: Object.fromEntries(
        Object.entries(request.env ?? {}).flatMap(([key, value]) => (value === null ? [] : [[key, value]]))
      ),
      metadata: request.metadata ?? {},
      platform: request.platform,
      resourceLimits: request.resourceLimits,
      extensions: request.extensions,
      timeoutSeconds: request.timeout,
      policy: initialPolicy(request.networkPolicy),
      credentialProxy,
      secureAccess: request.secureAccess ?? false
    })
    return json(
      {
        ...common(sandbox),
        // It runs already; the contract says that it is pending, and clients are to look again anyway.
        status: statusJson({
          ...sandbox.status,
          state: "Pending",
          reason: "CONTAINER_STARTING",
          message: "The sandbox is being started"
        })
      },
      202,
      { location: `/v1/sandboxes/${sandbox.id}` }
    )
  })

  const list: Answer = Effect.gen(function* () {
    const params = yield* query
    const inState = stateFilter(params)
    const wanted = [...new URLSearchParams(params.getAll("metadata").join("&"))]
    const all = yield* sandboxes.list
    return yield* paged(
      all.filter(
        (sandbox) => inState(sandbox.status.state) && wanted.every(([key, value]) => sandbox.metadata[key] === value)
      ),
      sandboxJson
    )
  })

  const get: Answer = Effect.map(Effect.flatMap(param("id"), sandboxes.get), (sandbox) => json(sandboxJson(sandbox)))

  const remove: Answer = Effect.as(Effect.flatMap(param("id"), sandboxes.remove), empty(204))

  const pause: Answer = Effect.as(Effect.flatMap(param("id"), sandboxes.pause), empty(202))

  const resume: Answer = Effect.as(Effect.flatMap(param("id"), sandboxes.resume), empty(202))

  const renew: Answer = Effect.gen(function* () {
    const sandbox = yield* Effect.flatMap(param("id"), sandboxes.get)
    const { expiresAt } = yield* body(Renew, invalidParameter)
    const millis = /^\d{4}-\d\d-\d\d[Tt ]/.test(expiresAt) ? Date.parse(expiresAt) : Number.NaN
    if (Number.isNaN(millis)) return yield* invalidParameter("expiresAt must be an RFC 3339 instant")
    if (millis <= (yield* Clock.currentTimeMillis)) return yield* invalidParameter("expiresAt must be in the future")
    if (sandbox.expiresAt !== undefined && millis <= sandbox.expiresAt) {
      return yield* invalidParameter("expiresAt must be later than the present expiry")
    }
    yield* sandboxes.renew(sandbox.id, millis)
    return json({ expiresAt: iso(millis) })
  })

  const patchMetadata: Answer = Effect.gen(function* () {
    const sandbox = yield* Effect.flatMap(param("id"), sandboxes.get)
    const patch = yield* body(MetadataPatch, invalidParameter)
    sandbox.metadata = yield* mergeMetadata(sandbox.metadata, patch)
    return json(sandboxJson(sandbox))
  })

  const endpoint: Answer = Effect.gen(function* () {
    const sandbox = yield* Effect.flatMap(param("id"), sandboxes.get)
    const given = yield* param("port")
    const port = Number(given)
    if (!/^\d{1,5}$/.test(given) || port < 1 || port > 65535)
      return yield* invalidParameter("port must be between 1 and 65535")
    const params = yield* query
    if (params.has("expires")) return yield* notImplemented("signed endpoints")
    const proxied = params.get("use_server_proxy")?.toLowerCase() === "true"
    const throughServer = `${authority}/v1/sandboxes/${sandbox.id}/proxy/${port}`
    if (port !== EXECD_PORT && port !== EGRESS_PORT) {
      const { secureAccess } = sandbox.spec
      // Sandboxes share the network of the host; only a request that comes by here can be asked for a header.
      return json({
        endpoint: proxied || secureAccess ? throughServer : `127.0.0.1:${port}`,
        ...(secureAccess ? { headers: { [ACCESS_HEADER]: sandbox.accessToken } } : {})
      })
    }
    return json({
      endpoint: proxied ? throughServer : `${authority}/sandboxes/${sandbox.id}/port/${port}`,
      headers:
        port === EXECD_PORT
          ? { "X-EXECD-ACCESS-TOKEN": sandbox.token }
          : { "OPENSANDBOX-EGRESS-AUTH": sandbox.egressToken }
    })
  })

  const createSnapshot: Answer = Effect.gen(function* () {
    const { name } = yield* body(CreateSnapshot, invalidParameter)
    const snapshot = yield* sandboxes.snapshot(yield* param("id"), name)
    return json(snapshotJson({ ...snapshot, state: "Creating" }), 202, { location: `/v1/snapshots/${snapshot.id}` })
  })

  const listSnapshots: Answer = Effect.gen(function* () {
    const params = yield* query
    const inState = stateFilter(params)
    const sandboxId = params.get("sandboxId")
    const all = yield* snapshots.list
    return yield* paged(
      all.filter((snapshot) => inState(snapshot.state) && (sandboxId === null || snapshot.sandboxId === sandboxId)),
      snapshotJson
    )
  })

  const getSnapshot: Answer = Effect.map(Effect.flatMap(param("id"), snapshots.get), (snapshot) =>
    json(snapshotJson(snapshot))
  )

  const removeSnapshot: Answer = Effect.as(Effect.flatMap(param("id"), snapshots.remove), empty(204))

  /** The sandbox's own services, below the address that `endpoint` told. */
  const service = Effect.gen(function* () {
    const request = yield* HttpServerRequest.HttpServerRequest
    const asked = parseService(request.url)
    if (asked === undefined)
      return yield* new ApiError({ status: 404, code: "NOT_FOUND", message: "There is no such address" })
    const { id, path, port, search } = asked
    if (port === EXECD_PORT) return yield* execd(sandboxes, id, path)
    const sandbox = yield* sandboxes.get(id)
    if (port !== EGRESS_PORT) {
      yield* mayReach(sandbox, request.headers)
      return yield* proxyRequest(port, path + search)
    }
    return sameSecret(request.headers["opensandbox-egress-auth"], sandbox.egressToken)
      ? yield* egressApi(sandbox.egress, path)
      : plainError(unauthorized("OPENSANDBOX-EGRESS-AUTH"))
  })

  const diagnostics = (kind: Kind): Answer =>
    Effect.gen(function* () {
      const sandbox = yield* Effect.flatMap(param("id"), sandboxes.get)
      const scope = (yield* query).get("scope")
      return yield* Effect.map(
        attempt(() => diagnose(sandbox, kind, scope)),
        (found) => json(found)
      )
    })

  const missing = (what: string): Answer => withKey(Effect.fail(notImplemented(what)))

  const sandboxPath = "/v1/sandboxes/:id" as const
  const lifecycle = HttpRouter.empty.pipe(
    HttpRouter.get("/health", Effect.succeed(json({ status: "healthy" }))),
    HttpRouter.get("/v1/local/info", withKey(Effect.succeed(json(options.info)))),
    HttpRouter.post("/v1/sandboxes", withKey(create)),
    HttpRouter.get("/v1/sandboxes", withKey(list)),
    HttpRouter.get(sandboxPath, withKey(get)),
    HttpRouter.del(sandboxPath, withKey(remove)),
    HttpRouter.post(`${sandboxPath}/pause`, withKey(pause)),
    HttpRouter.post(`${sandboxPath}/resume`, withKey(resume)),
    HttpRouter.post(`${sandboxPath}/renew-expiration`, withKey(renew)),
    HttpRouter.patch(`${sandboxPath}/metadata`, withKey(patchMetadata)),
    HttpRouter.get(`${sandboxPath}/endpoints/:port`, withKey(endpoint)),
    HttpRouter.post(`${sandboxPath}/snapshots`, withKey(createSnapshot)),
    HttpRouter.get("/v1/snapshots", withKey(listSnapshots)),
    HttpRouter.get("/v1/snapshots/:id", withKey(getSnapshot)),
    HttpRouter.del("/v1/snapshots/:id", withKey(removeSnapshot))
  )
  return lifecycle.pipe(
    // What the official clients report about themselves; nobody here wants to know.
    HttpRouter.post("/v1/metrics/events", withKey(Effect.succeed(empty(204)))),
    HttpRouter.get(`${sandboxPath}/diagnostics/logs`, withKey(diagnostics("logs"))),
    HttpRouter.get(`${sandboxPath}/diagnostics/events`, withKey(diagnostics("events"))),
    HttpRouter.all(`${sandboxPath}/diagnostics/*`, missing("this kind of diagnostics")),
    HttpRouter.all("/v1/pools", missing("pools")),
    HttpRouter.all("/v1/pools/*", missing("pools")),
    HttpRouter.all("/v1/sandboxes/:id/proxy/:port/*", service),
    HttpRouter.all("/v1/sandboxes/:id/proxy/:port", service),
    HttpRouter.all("/sandboxes/:id/port/:port/*", service),
    HttpRouter.all(
      "*",
      Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) =>
        Effect.fail(
          new ApiError({
            status: 404,
            code: "NOT_FOUND",
            message: `There is no ${request.method} ${request.url.split("?", 1)[0]}`
          })
        )
      )
    )
  )
}
