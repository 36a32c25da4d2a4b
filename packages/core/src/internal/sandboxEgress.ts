import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import type { CredentialAuth, CredentialBinding, EgressClient } from "../Egress.js"
import type { EventInput } from "../Ledger.js"
import type { Json } from "../LedgerEvent.js"
import { EventName } from "../LedgerEvent.js"
import type { OpenSandboxError } from "../OpenSandboxError.js"
import type { SandboxEgress } from "../Sandbox.js"
import type { SandboxFailure } from "../SandboxError.js"
import { bounded } from "./bounded.js"
import type { ExecContext } from "./exec/context.js"
import { isAmbiguous } from "./http/error.js"
import { jsonObject } from "./json.js"

const credentialsOf = (auth: CredentialAuth): ReadonlyArray<string> =>
  auth.type === "customHeaders" ? auth.headers.map(({ credential }) => credential) : [auth.credential]

/** Of several for one target the first counts. Case, and a dot at the end, mean nothing in the name of a host. */
const firstOfEach = <A>(items: ReadonlyArray<A>, target: (item: A) => string): ReadonlyArray<A> => {
  const seen = new Set<string>()
  return items.filter((item) => {
    const name = target(item).trim().toLowerCase().replace(/\.$/, "")
    return !seen.has(name) && seen.add(name)
  })
}

/** The egress sidecar of a sandbox; what changes is recorded, values of credentials are not. */
export const make = ({ ledger, sandbox }: ExecContext, client: EgressClient): SandboxEgress => {
  const event = (event: string, payload: { readonly [key: string]: Json | undefined }): EventInput => ({
    sandboxId: sandbox.id,
    name: sandbox.name,
    event,
    payload: jsonObject(payload)
  })

  /** Where the answer was lost, the record says that. */
  const changed = <A>(change: Effect.Effect<A, OpenSandboxError>, events: ReadonlyArray<EventInput>) =>
    change.pipe(
      Effect.tapError((error) =>
        error.module === "Egress" && isAmbiguous(error)
          ? ledger
              .appendAll(events.map((event) => ({ ...event, error: `it may not have been made: ${error.message}` })))
              .pipe(
                Effect.catchAll((cause) => Effect.logWarning("a change of the egress could not be recorded", cause))
              )
          : Effect.void
      ),
      Effect.tap(() => ledger.appendAll(events))
    )

  /** A change that was asked for is recorded, whoever interrupts. */
  const recorded = <A>(
    method: string,
    change: Effect.Effect<A, OpenSandboxError>,
    events: ReadonlyArray<EventInput>
  ): Effect.Effect<A, SandboxFailure> =>
    Effect.uninterruptibleMask((restore) =>
      Effect.flatMap(Effect.forkDaemon(changed(change, events)), (fiber) =>
        Effect.onInterrupt(restore(Fiber.join(fiber)), () =>
          bounded("recording a change of the egress", "5 seconds", Fiber.await(fiber))
        )
      )
    ).pipe(
      Effect.withSpan(`SandboxEgress.${method}`, { captureStackTrace: false, attributes: { "sandbox.id": sandbox.id } })
    )

  const named = (name: string) => (item: string | { readonly name: string }) =>
    event(name, { name: typeof item === "string" ? item : item.name })
  const added = named(EventName.credentialAdded)
  const replaced = named(EventName.credentialReplaced)
  const removed = named(EventName.credentialRemoved)
  const revoked = named(EventName.credentialRevoked)
  const bound = ({ auth, match, name }: CredentialBinding) =>
    event(EventName.credentialBound, { name, hosts: [...match.hosts], credentials: [...new Set(credentialsOf(auth))] })

  return {
    policy: client.policy,
    addRules: (rules) =>
      recorded(
        "addRules",
        client.addRules(rules),
        firstOfEach(rules, ({ target }) => target).map(({ action, target }) =>
          event(EventName.egressRuleAdded, { action, target })
        )
      ),
    removeRules: (targets) =>
      recorded(
        "removeRules",
        client.removeRules(targets),
        firstOfEach(targets, (target) => target).map((target) => event(EventName.egressRuleRemoved, { target }))
      ),
    vault: client.vault,
    createVault: (vault) =>
      recorded("createVault", client.createVault(vault), [
        ...vault.credentials.map(added),
        ...vault.bindings.map(bound)
      ]),
    mutateVault: (mutation) => {
      const { bindings, credentials } = mutation
      return recorded("mutateVault", client.mutateVault(mutation), [
        ...(credentials?.delete ?? []).map(removed),
        ...(credentials?.replace ?? []).map(replaced),
        ...(credentials?.add ?? []).map(added),
        ...(bindings?.delete ?? []).map(revoked),
        ...[...(bindings?.replace ?? []), ...(bindings?.add ?? [])].map(bound)
      ])
    },
    deleteVault: client.vault.pipe(
      Effect.flatMap(({ bindings, credentials }) =>
        recorded("deleteVault", client.deleteVault, [...bindings.map(revoked), ...credentials.map(removed)])
      ),
      Effect.catchIf(
        (error) => error._tag === "OpenSandboxError" && error.module === "Egress" && error.reason === "NotFound",
        () => Effect.void
      )
    )
  }
}
