/**
 * A client of the OpenSandbox lifecycle API: sandboxes, snapshots, endpoints.
 *
 * @since 0.1.0
 */
import type * as HttpClient from "@effect/platform/HttpClient"
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import type * as Effect from "effect/Effect"
import type * as Redacted from "effect/Redacted"
import type * as Stream from "effect/Stream"
import type { OpenSandboxError } from "./OpenSandboxError.js"

/** Open enum: new values appear; treat what you do not know as "not yet". */
export type SandboxState =
  | "Pending" | "Running" | "Pausing" | "Paused" | "Resuming" | "Stopping" | "Terminated" | "Failed"
  | (string & {})

export type SnapshotState =
  | "Creating" | "Pending" | "Committing" | "Pushing" | "Ready" | "Failed" | "Deleting"
  | (string & {})

export interface Status<State> {
  readonly state: State
  readonly reason?: string | undefined
  readonly message?: string | undefined
}

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

export interface SnapshotInfo {
  readonly id: string
  readonly sandboxId: string
  readonly name?: string | undefined
  readonly status: Status<SnapshotState>
  readonly createdAt?: number | undefined
}

export interface CreateRequest {
  /** An image reference such as `node:22`, with credentials for a private registry. Exactly one of `image` and `snapshotId` (or `extensions.poolRef`). */
  readonly image?: string | { readonly uri: string; readonly auth?: { readonly username: string; readonly password: Redacted.Redacted } | undefined } | undefined
  readonly snapshotId?: string | undefined
  /** At least 60 seconds; default: lives until it is deleted. */
  readonly timeout?: Duration.DurationInput | undefined
  /** Default `{ cpu: "500m", memory: "512Mi" }`. */
  readonly resources?: { readonly [key: string]: string } | undefined
  readonly env?: { readonly [key: string]: string | Redacted.Redacted } | undefined
  /** Values must follow the Kubernetes label rules; see `labelValue`. */
  readonly metadata?: { readonly [key: string]: string } | undefined
  /** Default `["tail", "-f", "/dev/null"]`. */
  readonly entrypoint?: ReadonlyArray<string> | undefined
  readonly extensions?: { readonly [key: string]: string } | undefined
}

export interface Endpoint {
  /** With scheme, without a trailing slash. */
  readonly url: string
  /** What every request to it must carry. Secret. */
  readonly headers: { readonly [key: string]: Redacted.Redacted }
}

export interface ListOptions {
  readonly states?: ReadonlyArray<SandboxState> | undefined
  readonly metadata?: { readonly [key: string]: string } | undefined
  /** Default 100. */
  readonly pageSize?: number | undefined
}

export class OpenSandbox extends Context.Tag("@sandglass/core/OpenSandbox")<
  OpenSandbox,
  {
    /**
     * Asks for a sandbox; it may still be `Pending` when this returns. Sent once. If the answer is lost, the sandbox is looked
     * for by a key in its metadata, and returned if the server did make it.
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
    /** Sets the expiry to `duration` from now **by the server's clock**; returns the new expiry in epoch milliseconds. */
    readonly renew: (sandboxId: string, duration: Duration.DurationInput) => Effect.Effect<number, OpenSandboxError>
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
    readonly listSnapshots: (
      options?: { readonly sandboxId?: string | undefined; readonly states?: ReadonlyArray<SnapshotState> | undefined; readonly pageSize?: number | undefined }
    ) => Stream.Stream<SnapshotInfo, OpenSandboxError>
    /** A snapshot that is gone already counts as deleted. */
    readonly deleteSnapshot: (snapshotId: string) => Effect.Effect<void, OpenSandboxError>
    /** The HTTP client underneath, without the API key: for what `endpoint` points at. */
    readonly httpClient: HttpClient.HttpClient
  }
>() {}
