/**
 * A client of the egress sidecar of a sandbox: which hosts it may reach, and the credentials that are put into its requests on their way out.
 *
 * Its address and token come from `OpenSandbox.endpoint`. Reads and deletions are repeated as `Execd` does it; what adds or changes is sent exactly once. A sandbox
 * has a sidecar where it was created with a `networkPolicy`, and a credential vault where it was created with `credentialProxy` as well.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Redacted from "effect/Redacted"
import { egressPort } from "./internal/egress/caller.js"
import { makePolicy } from "./internal/egress/policy.js"
import { makeVault } from "./internal/egress/vault.js"
import { retryPolicy } from "./internal/http/client.js"
import { makePortCaller } from "./internal/http/portCaller.js"
import type { NetworkPolicy, NetworkRule, RetryOptions } from "./OpenSandbox.js"
import { OpenSandbox } from "./OpenSandbox.js"
import type { OpenSandboxError } from "./OpenSandboxError.js"

/**
 * What the sidecar says about its policy.
 *
 * @since 0.1.0
 * @category models
 */
export interface PolicyStatus {
  readonly status?: string | undefined
  /** Derived from the policy: `deny_all`, `allow_all`, `enforcing`, … */
  readonly mode?: string | undefined
  /** How it is enforced: `dns`, `dns+nft`, … */
  readonly enforcementMode?: string | undefined
  readonly reason?: string | undefined
  /** Absent from the answers to changes. */
  readonly policy?: NetworkPolicy | undefined
}

/**
 * A secret under a name. The value goes to the sidecar and never comes back.
 *
 * @since 0.1.0
 * @category models
 */
export interface Credential {
  readonly name: string
  readonly value: Redacted.Redacted
}

/**
 * Which requests of the sandbox a binding is for. Every part has to match.
 *
 * @since 0.1.0
 * @category models
 */
export interface CredentialMatch {
  /** Names, or wildcards such as `*.example.com`; the policy has to allow them by a rule. At least one. */
  readonly hosts: ReadonlyArray<string>
  /** Default `https`. */
  readonly schemes?: ReadonlyArray<"https" | "http"> | undefined
  /** Default 443. */
  readonly ports?: ReadonlyArray<number> | undefined
  /** Default `GET`, `POST`, `PUT`, `PATCH` and `DELETE`. */
  readonly methods?: ReadonlyArray<string> | undefined
  /** Patterns; default `/*`, all of them. */
  readonly paths?: ReadonlyArray<string> | undefined
}

/**
 * How a credential, given by its name, is put into a request.
 *
 * - `bearer`: `Authorization: Bearer …`
 * - `basic`: `Authorization: Basic …`; the value is `user:password` in base64
 * - `apiKey`: a header of its own
 * - `customHeaders`: several headers
 *
 * @since 0.1.0
 * @category models
 */
export type CredentialAuth =
  | { readonly type: "bearer" | "basic"; readonly credential: string }
  | { readonly type: "apiKey"; readonly name: string; readonly credential: string }
  | {
      readonly type: "customHeaders"
      readonly headers: ReadonlyArray<{ readonly name: string; readonly credential: string }>
    }

/**
 * Which credential goes into which requests, and how.
 *
 * @since 0.1.0
 * @category models
 */
export interface CredentialBinding {
  readonly name: string
  readonly match: CredentialMatch
  readonly auth: CredentialAuth
}

/**
 * What the sidecar tells about a credential: never its value.
 *
 * @since 0.1.0
 * @category models
 */
export interface CredentialInfo {
  readonly name: string
  /** `inline`. */
  readonly sourceType: string
  /** The revision of the vault that set it. */
  readonly revision: number
}

/**
 * What the sidecar tells about a binding.
 *
 * @since 0.1.0
 * @category models
 */
export interface CredentialBindingInfo {
  readonly name: string
  readonly revision: number
  readonly match?:
    | {
        readonly hosts: ReadonlyArray<string>
        readonly schemes?: ReadonlyArray<string> | undefined
        readonly ports?: ReadonlyArray<number> | undefined
        readonly methods?: ReadonlyArray<string> | undefined
        readonly paths?: ReadonlyArray<string> | undefined
      }
    | undefined
  readonly auth?: { readonly type: string; readonly name?: string | undefined } | undefined
}

/**
 * The credential vault of a sandbox, without the values.
 *
 * @since 0.1.0
 * @category models
 */
export interface CredentialVault {
  /** Grows by one with every change. */
  readonly revision: number
  readonly credentials: ReadonlyArray<CredentialInfo>
  readonly bindings: ReadonlyArray<CredentialBindingInfo>
}

/**
 * A change of a vault, done as a whole or not at all.
 *
 * @since 0.1.0
 * @category models
 */
export interface CredentialVaultMutation {
  /** Fail with `Conflict` if the vault has another revision by now. Default: change it whatever it is. */
  readonly expectedRevision?: number | undefined
  readonly credentials?:
    | {
        readonly add?: ReadonlyArray<Credential> | undefined
        readonly replace?: ReadonlyArray<Credential> | undefined
        /** By name. */
        readonly delete?: ReadonlyArray<string> | undefined
      }
    | undefined
  readonly bindings?:
    | {
        readonly add?: ReadonlyArray<CredentialBinding> | undefined
        readonly replace?: ReadonlyArray<CredentialBinding> | undefined
        /** By name. */
        readonly delete?: ReadonlyArray<string> | undefined
      }
    | undefined
}

/**
 * The egress sidecar of one sandbox. Its endpoint is resolved on first use and kept.
 *
 * @since 0.1.0
 * @category models
 */
export interface EgressClient {
  readonly sandboxId: string
  /** Forget the endpoint: pause and resume change its port and token. */
  readonly invalidate: Effect.Effect<void>
  readonly policy: Effect.Effect<PolicyStatus, OpenSandboxError>
  /**
   * Adds rules in front of those that are there; one for the same target replaces it. Of several for one target the first counts. At least one rule.
   */
  readonly addRules: (rules: ReadonlyArray<NetworkRule>) => Effect.Effect<PolicyStatus, OpenSandboxError>
  /** Removes the rules for these targets, as far as there are any. At least one target. */
  readonly removeRules: (targets: ReadonlyArray<string>) => Effect.Effect<PolicyStatus, OpenSandboxError>
  /**
   * Makes the vault, with revision 1. Fails with `Conflict` and status 409 where there is one, and with `Conflict` and status 412 where the sandbox has no
   * credential proxy.
   */
  readonly createVault: (vault: {
    readonly credentials: ReadonlyArray<Credential>
    readonly bindings: ReadonlyArray<CredentialBinding>
  }) => Effect.Effect<CredentialVault, OpenSandboxError>
  /** Fails with `NotFound` where there is none. */
  readonly vault: Effect.Effect<CredentialVault, OpenSandboxError>
  /** Fails with `Conflict` and status 409 where the revision is not the expected one, and with status 412 where the proxy is not ready. */
  readonly mutateVault: (mutation: CredentialVaultMutation) => Effect.Effect<CredentialVault, OpenSandboxError>
  /** A vault that is gone already counts as deleted. */
  readonly deleteVault: Effect.Effect<void, OpenSandboxError>
  readonly credentials: Effect.Effect<ReadonlyArray<CredentialInfo>, OpenSandboxError>
  readonly credential: (name: string) => Effect.Effect<CredentialInfo, OpenSandboxError>
  readonly bindings: Effect.Effect<ReadonlyArray<CredentialBindingInfo>, OpenSandboxError>
  readonly binding: (name: string) => Effect.Effect<CredentialBindingInfo, OpenSandboxError>
}

/**
 * The egress sidecars as a service: a client for each sandbox.
 *
 * @example
 * ```ts
 * import { Egress, OpenSandbox } from "@sandglass/core"
 * import * as Effect from "effect/Effect"
 * import * as Layer from "effect/Layer"
 * import * as Redacted from "effect/Redacted"
 *
 * export const program = Effect.gen(function*() {
 *   const egress = yield* Egress.Egress
 *   const client = yield* egress.connect("sandbox-id")
 *   yield* client.addRules([{ action: "allow", target: "api.example.com" }])
 *   yield* client.createVault({
 *     credentials: [{ name: "example", value: Redacted.make("secret") }],
 *     bindings: [{ name: "example", match: { hosts: ["api.example.com"] }, auth: { type: "bearer", credential: "example" } }]
 *   })
 * }).pipe(Effect.provide(Egress.layer.pipe(Layer.provide(OpenSandbox.layerConfig()))))
 * ```
 *
 * @since 0.1.0
 * @category tags
 */
export class Egress extends Context.Tag("@sandglass/core/Egress")<
  Egress,
  {
    /** A client for one sandbox; nothing is sent yet. */
    readonly connect: (sandboxId: string) => Effect.Effect<EgressClient>
  }
>() {}

/**
 * How long to wait for the sidecar, and how often to ask again.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** For one complete answer. Default 30 seconds. */
  readonly requestTimeout?: Duration.DurationInput | undefined
  /** How GET and DELETE are repeated; see `OpenSandbox.Options`. */
  readonly retry?: RetryOptions | undefined
}

/**
 * Builds the service on `OpenSandbox`: its endpoints, and its HTTP client.
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (options: Options = {}): Effect.Effect<Context.Tag.Service<Egress>, never, OpenSandbox> =>
  Effect.map(OpenSandbox, (api) => {
    const requestTimeout = Duration.decode(options.requestTimeout ?? "30 seconds")
    const policy = retryPolicy(options.retry)
    return Egress.of({
      connect: (sandboxId) =>
        Effect.sync(() => {
          const caller = makePortCaller({ api, sandboxId, module: "Egress", port: egressPort, policy, requestTimeout })
          return {
            sandboxId,
            invalidate: caller.connections.dropAll,
            ...makePolicy(caller),
            ...makeVault(caller)
          }
        })
    })
  })

/**
 * The service with options; `layer` is the same with the defaults.
 *
 * @example
 * ```ts
 * import { Egress } from "@sandglass/core"
 *
 * export const Patient = Egress.layerWith({ requestTimeout: "1 minute", retry: { times: 5 } })
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layerWith = (options: Options): Layer.Layer<Egress, never, OpenSandbox> =>
  Layer.effect(Egress, make(options))

/**
 * The service: an answer has 30 seconds.
 *
 * @since 0.1.0
 * @category layers
 */
export const layer: Layer.Layer<Egress, never, OpenSandbox> = Layer.effect(Egress, make())
