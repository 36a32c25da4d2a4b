/** @internal */
import * as Duration from "effect/Duration"
import * as Predicate from "effect/Predicate"
import * as Redacted from "effect/Redacted"
import type { CreateRequest, Volume } from "../../OpenSandbox.js"
import { metadataProblem } from "../labels.js"
import { revealed } from "../revealed.js"

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

/**
 * What a request carries that nobody is to see.
 *
 * @internal
 */
export const secretsOf = ({
  env,
  image,
  volumes
}: CreateRequest): ReadonlyArray<string | Redacted.Redacted | undefined> => [
  ...Object.values(env ?? {}),
  typeof image === "string" ? undefined : image?.auth?.password,
  ...(volumes ?? []).flatMap(({ ossfs }) => [ossfs?.accessKeyId, ossfs?.accessKeySecret])
]

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
  const names = given.map(([name]) => name)
  // a pool may be asked for another image than its own
  if (names.length !== 1 && !(names.length === 2 && request.snapshotId === undefined)) {
    return `exactly one of image, snapshotId and extensions.poolRef must be given (or image with poolRef), not ${
      names.length === 0 ? "none" : names.join(" and ")
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
  if (request.credentialProxy === true && request.networkPolicy === undefined) {
    return "credentialProxy needs networkPolicy"
  }
  for (const { host, name, ossfs, pvc } of request.volumes ?? []) {
    if ([host, pvc, ossfs].filter((backend) => backend !== undefined).length !== 1) {
      return `the volume ${JSON.stringify(name)} needs exactly one of host, pvc and ossfs`
    }
  }
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
    entrypoint: request.entrypoint ?? (image === undefined || pooled ? undefined : defaultEntrypoint),
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
