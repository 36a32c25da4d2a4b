/**
 * What the egress sidecar of a sandbox is told: rules and credentials. This server only keeps them; it neither filters nor injects anything, and has no use
 * for the credentials' values, which are therefore not even kept.
 *
 * @internal
 */
import { ApiError, badRequest, conflict } from "./apiError.js"

export interface Rule {
  readonly action: "allow" | "deny"
  readonly target: string
}

export interface Policy {
  readonly defaultAction: "allow" | "deny"
  readonly egress: ReadonlyArray<Rule>
}

export interface Credential {
  readonly name: string
  readonly source: { readonly type: string }
}

export interface Match {
  readonly hosts: ReadonlyArray<string>
  readonly schemes: ReadonlyArray<string>
  readonly ports: ReadonlyArray<number>
  readonly methods: ReadonlyArray<string>
  readonly paths: ReadonlyArray<string>
}

export type Auth =
  | { readonly type: "bearer" | "basic"; readonly credential: string }
  | { readonly type: "apiKey"; readonly name: string; readonly credential: string }
  | {
      readonly type: "customHeaders"
      readonly headers: ReadonlyArray<{ readonly name: string; readonly credential: string }>
    }

export interface Binding {
  readonly name: string
  readonly match: Match
  readonly auth: Auth
}

export interface Changes<A> {
  readonly add: ReadonlyArray<A>
  readonly replace: ReadonlyArray<A>
  readonly delete: ReadonlyArray<string>
}

interface Kept<A> {
  readonly revision: number
  readonly item: A
}

interface Vault {
  readonly revision: number
  readonly credentials: ReadonlyMap<string, Kept<{ readonly sourceType: string }>>
  readonly bindings: ReadonlyMap<string, Kept<Binding>>
}

const notFound = (what: string) => new ApiError({ status: 404, code: "NOT_FOUND", message: `${what} not found` })

/** Names are those of hosts: their case and a dot at the end mean nothing. */
const normal = (target: string): string => target.trim().toLowerCase().replace(/\.$/, "")

const withoutDoubles = (rules: ReadonlyArray<Rule>): ReadonlyArray<Rule> => {
  const seen = new Set<string>()
  return rules.filter((rule) => {
    const target = normal(rule.target)
    return !seen.has(target) && seen.add(target)
  })
}

const change = <A extends { readonly name: string }, B>(
  what: string,
  before: ReadonlyMap<string, Kept<B>>,
  changes: Changes<A>,
  revision: number,
  keep: (given: A) => B
): ReadonlyMap<string, Kept<B>> => {
  const after = new Map(before)
  for (const name of changes.delete) if (!after.delete(name)) throw notFound(`${what} ${name}`)
  for (const given of changes.replace) {
    if (!after.has(given.name)) throw notFound(`${what} ${given.name}`)
    after.set(given.name, { revision, item: keep(given) })
  }
  for (const given of changes.add) {
    if (after.has(given.name)) throw conflict("CONFLICT", `${what} ${given.name} exists already`)
    after.set(given.name, { revision, item: keep(given) })
  }
  return after
}

const credentialsOf = (auth: Auth): ReadonlyArray<string> =>
  auth.type === "customHeaders" ? auth.headers.map((header) => header.credential) : [auth.credential]

export class Egress {
  private policy: Policy
  private vault: Vault | undefined

  constructor(
    /** What the sandbox was created with; without one everything is allowed. */
    initial: Policy | undefined,
    private readonly credentialProxy: boolean
  ) {
    this.policy = initial ?? { defaultAction: "allow", egress: [] }
  }

  status() {
    return {
      status: "ok",
      mode: this.policy.defaultAction === "deny" ? "deny_all" : "allow_all",
      enforcementMode: "none",
      reason: "the local server keeps the policy and filters nothing",
      policy: this.policy
    }
  }

  /** The new ones come first, and of several for one target the first. */
  addRules(rules: ReadonlyArray<Rule>): void {
    this.policy = { ...this.policy, egress: withoutDoubles([...rules, ...this.policy.egress]) }
  }

  removeRules(targets: ReadonlyArray<string>): void {
    const gone = new Set(targets.map(normal))
    this.policy = { ...this.policy, egress: this.policy.egress.filter((rule) => !gone.has(normal(rule.target))) }
  }

  createVault(credentials: ReadonlyArray<Credential>, bindings: ReadonlyArray<Binding>) {
    this.checkProxy()
    if (this.vault !== undefined) throw conflict("CONFLICT", "there is a credential vault already")
    const empty: Vault = { revision: 0, credentials: new Map(), bindings: new Map() }
    return this.become(empty, { add: credentials, replace: [], delete: [] }, { add: bindings, replace: [], delete: [] })
  }

  /** All of it, or nothing. */
  changeVault(expected: number | undefined, credentials: Changes<Credential>, bindings: Changes<Binding>) {
    this.checkProxy()
    const vault = this.existing()
    if (expected !== undefined && expected !== vault.revision)
      throw conflict("CONFLICT", `the revision is ${vault.revision}, not ${expected}`)
    return this.become(vault, credentials, bindings)
  }

  removeVault(): void {
    this.existing()
    this.vault = undefined
  }

  vaultState() {
    const { revision } = this.existing()
    return { revision, credentials: this.credentials().credentials, bindings: this.bindings().bindings }
  }

  credentials() {
    const { credentials, revision } = this.existing()
    return {
      revision,
      credentials: [...credentials].map(([name, kept]) => ({ name, ...kept.item, revision: kept.revision }))
    }
  }

  bindings() {
    const { bindings, revision } = this.existing()
    return {
      revision,
      bindings: [...bindings].map(([name, { item, revision }]) => ({
        name,
        revision,
        match: item.match,
        auth: item.auth.type === "apiKey" ? { type: item.auth.type, name: item.auth.name } : { type: item.auth.type }
      }))
    }
  }

  credential(name: string) {
    const found = this.credentials().credentials.find((each) => each.name === name)
    if (found === undefined) throw notFound(`credential ${name}`)
    return found
  }

  binding(name: string) {
    const found = this.bindings().bindings.find((each) => each.name === name)
    if (found === undefined) throw notFound(`binding ${name}`)
    return found
  }

  private checkProxy(): void {
    if (this.credentialProxy) return
    throw new ApiError({
      status: 412,
      code: "PRECONDITION_FAILED",
      message: "the credential proxy is not enabled: credentialProxy.enabled was not set when the sandbox was created"
    })
  }

  private existing(): Vault {
    if (this.vault === undefined) throw notFound("credential vault")
    return this.vault
  }

  private become(before: Vault, credentials: Changes<Credential>, bindings: Changes<Binding>) {
    const revision = before.revision + 1
    const after: Vault = {
      revision,
      credentials: change("credential", before.credentials, credentials, revision, ({ source }) => ({
        sourceType: source.type
      })),
      bindings: change("binding", before.bindings, bindings, revision, (binding) => binding)
    }
    for (const [name, { item }] of after.bindings) {
      for (const credential of credentialsOf(item.auth)) {
        if (!after.credentials.has(credential))
          throw badRequest(`binding ${name} names the credential ${credential}, which there is not`)
      }
    }
    this.vault = after
    return this.vaultState()
  }
}
