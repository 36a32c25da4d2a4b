import * as Effect from "effect/Effect"
import type { CredentialBinding, EgressClient } from "../Egress.js"
import type { EventInput } from "../Ledger.js"
import type { Json } from "../LedgerEvent.js"
import { EventName } from "../LedgerEvent.js"
import type { OpenSandboxError } from "../OpenSandboxError.js"
import type { SandboxEgress } from "../Sandbox.js"
import type { SandboxFailure } from "../SandboxError.js"
import type { ExecContext } from "./exec/context.js"
import { jsonObject } from "./json.js"

/** The egress sidecar of a sandbox; what changes is recorded, values of credentials are not. */
export const make = ({ ledger, sandbox }: ExecContext, client: EgressClient): SandboxEgress => {
  const event = (event: string, payload: { readonly [key: string]: Json | undefined }): EventInput => ({
    sandboxId: sandbox.id,
    name: sandbox.name,
    event,
    payload: jsonObject(payload)
  })

  /** A change that was made is recorded, whoever interrupts. */
  const recorded = <A>(
    change: Effect.Effect<A, OpenSandboxError>,
    events: ReadonlyArray<EventInput>
  ): Effect.Effect<A, SandboxFailure> => Effect.uninterruptible(Effect.tap(change, () => ledger.appendAll(events)))

  const bound = ({ match, name }: CredentialBinding) =>
    event(EventName.credentialBound, { name, hosts: [...match.hosts] })
  const revoked = (name: string) => event(EventName.credentialRevoked, { name })

  return {
    policy: client.policy,
    addRules: (rules) =>
      recorded(
        client.addRules(rules),
        rules.map(({ action, target }) => event(EventName.egressRuleAdded, { action, target }))
      ),
    removeRules: (targets) =>
      recorded(
        client.removeRules(targets),
        targets.map((target) => event(EventName.egressRuleRemoved, { target }))
      ),
    vault: client.vault,
    createVault: (vault) => recorded(client.createVault(vault), vault.bindings.map(bound)),
    mutateVault: (mutation) =>
      recorded(client.mutateVault(mutation), [
        ...(mutation.bindings?.delete ?? []).map(revoked),
        ...[...(mutation.bindings?.replace ?? []), ...(mutation.bindings?.add ?? [])].map(bound)
      ]),
    deleteVault: Effect.flatMap(client.vault, ({ bindings }) =>
      recorded(
        client.deleteVault,
        bindings.map(({ name }) => revoked(name))
      )
    )
  }
}
