/** @internal */
import * as Duration from "effect/Duration"
import * as Predicate from "effect/Predicate"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import type { CreateRequest, SandboxInfo, SnapshotInfo, Volume } from "../OpenSandbox.js"
import { metadataProblem } from "./labels.js"
import { instant, nullish } from "./nullish.js"

const Status = Schema.Struct({
  state: Schema.String,
  reason: nullish(Schema.String),
  message: nullish(Schema.String)
})

const statusOf = (status: typeof Status.Type) => ({
  state: status.state,
  reason: status.reason ?? undefined,
  message: status.message ?? undefined
})

const Sandbox = Schema.Struct({
  id: Schema.NonEmptyString,
  status: Status,
  image: nullish(Schema.Union(Schema.String, Schema.Struct({ uri: Schema.String }))),
  snapshotId: nullish(Schema.String),
  metadata: nullish(Schema.Record({ key: Schema.String, value: Schema.Unknown })),
  entrypoint: nullish(Schema.Array(Schema.String)),
  createdAt: Schema.optional(Schema.Unknown),
  expiresAt: Schema.optional(Schema.Unknown)
})

/** @internal */
export const sandboxInfo = (wire: typeof Sandbox.Type): SandboxInfo => {
  const metadata: Record<string, string> = {}
  for (const [key, value] of Object.entries(wire.metadata ?? {})) {
    if (value !== null && value !== undefined) metadata[key] = typeof value === "string" ? value : JSON.stringify(value)
  }
  return {
    id: wire.id,
    status: statusOf(wire.status),
    image: typeof wire.image === "string" ? wire.image : wire.image?.uri,
    snapshotId: wire.snapshotId ?? undefined,
    metadata,
    entrypoint: wire.entrypoint ?? undefined,
    createdAt: instant(wire.createdAt),
    expiresAt: instant(wire.expiresAt)
  }
}

const Snapshot = Schema.Struct({
  id: Schema.NonEmptyString,
  sandboxId: nullish(Schema.String),
  name: nullish(Schema.String),
  status: Status,
  createdAt: Schema.optional(Schema.Unknown)
})

/** @internal */
export const snapshotInfo = (wire: typeof Snapshot.Type): SnapshotInfo => ({
  id: wire.id,
  sandboxId: wire.sandboxId ?? "",
  name: wire.name ?? undefined,
  status: statusOf(wire.status),
  createdAt: instant(wire.createdAt)
})

const page = <A, I>(item: Schema.Schema<A, I>) =>
  Schema.Struct({
    items: nullish(Schema.Array(item)),
    pagination: nullish(Schema.Struct({ hasNextPage: nullish(Schema.Boolean) }))
  })

const EndpointDocument = Schema.Struct({
  endpoint: Schema.NonEmptyString,
  headers: nullish(Schema.Record({ key: Schema.String, value: Schema.String }))
})

const Renewal = Schema.Struct({ expiresAt: Schema.optional(Schema.Unknown) })

/** @internal */
export const schemas = {
  Sandbox,
  SandboxPage: page(Sandbox),
  Snapshot,
  SnapshotPage: page(Snapshot),
  Endpoint: EndpointDocument,
  Renewal: Schema.NullOr(Renewal)
} as const

/** @internal */
export const revealed = (values: { readonly [key: string]: string | Redacted.Redacted }): Record<string, string> => {
  const out: Record<string, string> = {}
  for (const [key, value] of Object.entries(values)) {
    out[key] = Redacted.isRedacted(value) ? Redacted.value(value) : value
  }
  return out
}

const volumeBody = (volume: Volume) => ({
  name: volume.name,
  mountPath: volume.mountPath,
  readOnly: volume.readOnly,
  subPath: volume.subPath,
  host: volume.host,
  pvc: volume.pvc,
  ossfs:
    volume.ossfs === undefined
      ? undefined
      : {
          ...volume.ossfs,
          accessKeyId: Redacted.value(volume.ossfs.accessKeyId),
          accessKeySecret: Redacted.value(volume.ossfs.accessKeySecret)
        }
})

/** @internal */
export const defaultResources: { readonly [key: string]: string } = { cpu: "500m", memory: "512Mi" }

/** @internal */
export const defaultEntrypoint: ReadonlyArray<string> = ["tail", "-f", "/dev/null"]

/**
 * What the server would refuse, or worse, read differently.
 *
 * @internal
 */
export const createProblem = (request: CreateRequest): string | undefined => {
  const poolRef = request.extensions?.poolRef
  const sources = [
    ["image", request.image],
    ["snapshotId", request.snapshotId],
    ["extensions.poolRef", poolRef]
  ] as const
  const given = sources.filter(([, value]) => value !== undefined)
  if (given.length !== 1) {
    return `exactly one of image, snapshotId and extensions.poolRef must be given, not ${
      given.length === 0 ? "none" : given.map(([name]) => name).join(" and ")
    }`
  }
  for (const [name, value] of given) {
    const text = Predicate.isString(value) ? value : value?.uri
    if (text === undefined || text.trim() === "") return `${name} is empty`
  }
  if (request.timeout !== undefined) {
    const timeout = Duration.decode(request.timeout)
    if (Duration.lessThan(timeout, Duration.seconds(60))) {
      return `the timeout of a sandbox is at least 60 seconds, not ${Duration.format(timeout)}`
    }
  }
  if (request.entrypoint !== undefined && request.entrypoint.length === 0) return "entrypoint is empty"
  return metadataProblem(request.metadata ?? {})
}

/**
 * The JSON of a create request, secrets unwrapped. Absent fields are `undefined`, which JSON leaves out.
 *
 * @internal
 */
export const createBody = (request: CreateRequest, createKey: string): { readonly [key: string]: unknown } => {
  const image = request.image
  const pooled = request.extensions?.poolRef !== undefined
  const timeout = request.timeout === undefined ? undefined : Duration.decode(request.timeout)
  return {
    image:
      image === undefined
        ? undefined
        : typeof image === "string"
          ? { uri: image }
          : {
              uri: image.uri,
              auth:
                image.auth === undefined
                  ? undefined
                  : { username: image.auth.username, password: Redacted.value(image.auth.password) }
            },
    snapshotId: request.snapshotId,
    timeout: timeout === undefined || !Duration.isFinite(timeout) ? undefined : Math.ceil(Duration.toSeconds(timeout)),
    resourceLimits: request.resources ?? (pooled ? undefined : defaultResources),
    env: request.env === undefined ? undefined : revealed(request.env),
    metadata: { ...request.metadata, [createKeyLabel]: createKey },
    entrypoint: request.entrypoint ?? (image === undefined ? undefined : defaultEntrypoint),
    extensions: request.extensions,
    platform: request.platform,
    networkPolicy: request.networkPolicy,
    credentialProxy: request.credentialProxy === undefined ? undefined : { enabled: request.credentialProxy },
    secureAccess: request.secureAccess,
    volumes: request.volumes?.map(volumeBody)
  }
}

/** @internal */
export const createKeyLabel = "sandglass.create-key"
