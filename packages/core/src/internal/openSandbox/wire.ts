/** @internal */
import * as Schema from "effect/Schema"
import type { SandboxInfo, SnapshotInfo } from "../../OpenSandbox.js"
import { instant, nullish } from "../http/nullish.js"

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
  platform: nullish(Schema.Struct({ os: nullish(Schema.String), arch: nullish(Schema.String) })),
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
    platform:
      wire.platform === undefined || wire.platform === null
        ? undefined
        : { os: wire.platform.os ?? "", arch: wire.platform.arch ?? "" },
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

const DiagnosticDocument = Schema.Struct({
  sandboxId: nullish(Schema.String),
  scope: nullish(Schema.String),
  contentType: nullish(Schema.String),
  content: nullish(Schema.String),
  contentUrl: nullish(Schema.String),
  contentLength: nullish(Schema.Number),
  expiresAt: Schema.optional(Schema.Unknown),
  truncated: nullish(Schema.Boolean),
  warnings: nullish(Schema.Array(Schema.String))
})

const Renewal = Schema.Struct({ expiresAt: Schema.optional(Schema.Unknown) })

/** @internal */
export const schemas = {
  Sandbox,
  SandboxPage: page(Sandbox),
  Snapshot,
  SnapshotPage: page(Snapshot),
  Endpoint: EndpointDocument,
  Diagnostic: DiagnosticDocument,
  Renewal: Schema.NullOr(Renewal)
} as const
