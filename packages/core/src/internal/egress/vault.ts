/** @internal */
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import type {
  Credential,
  CredentialBinding,
  CredentialBindingInfo,
  CredentialInfo,
  CredentialVault,
  CredentialVaultMutation,
  EgressClient
} from "../../Egress.js"
import * as Http from "../http/client.js"
import { concealed } from "../http/concealed.js"
import { nullish } from "../http/nullish.js"
import type { PortCaller } from "../http/portCaller.js"
import { check } from "../http/portCaller.js"

const Info = Schema.Struct({
  name: Schema.String,
  sourceType: nullish(Schema.String),
  revision: nullish(Schema.Number)
})

const Texts = nullish(Schema.Array(Schema.String))

const BindingInfo = Schema.Struct({
  name: Schema.String,
  revision: nullish(Schema.Number),
  match: nullish(
    Schema.Struct({
      hosts: Texts,
      schemes: Texts,
      ports: nullish(Schema.Array(Schema.Number)),
      methods: Texts,
      paths: Texts
    })
  ),
  auth: nullish(Schema.Struct({ type: Schema.String, name: nullish(Schema.String) }))
})

const Credentials = Schema.Struct({ revision: nullish(Schema.Number), credentials: nullish(Schema.Array(Info)) })
const Bindings = Schema.Struct({ revision: nullish(Schema.Number), bindings: nullish(Schema.Array(BindingInfo)) })
const Vault = Schema.Struct({ ...Credentials.fields, ...Bindings.fields, revision: Schema.Number })

const infoOf = (wire: typeof Info.Type): CredentialInfo => ({
  name: wire.name,
  sourceType: wire.sourceType ?? "inline",
  revision: wire.revision ?? 0
})

const bindingOf = (wire: typeof BindingInfo.Type): CredentialBindingInfo => ({
  name: wire.name,
  revision: wire.revision ?? 0,
  match:
    wire.match === undefined || wire.match === null
      ? undefined
      : {
          hosts: wire.match.hosts ?? [],
          schemes: wire.match.schemes ?? undefined,
          ports: wire.match.ports ?? undefined,
          methods: wire.match.methods ?? undefined,
          paths: wire.match.paths ?? undefined
        },
  auth:
    wire.auth === undefined || wire.auth === null
      ? undefined
      : { type: wire.auth.type, name: wire.auth.name ?? undefined }
})

const vaultOf = (wire: typeof Vault.Type): CredentialVault => ({
  revision: wire.revision,
  credentials: (wire.credentials ?? []).map(infoOf),
  bindings: (wire.bindings ?? []).map(bindingOf)
})

const credentialBody = ({ name, value }: Credential) => ({
  name,
  source: { type: "inline", value: Redacted.value(value) }
})

const bindingBody = ({ auth, match, name }: CredentialBinding) => ({ name, match, auth })

const mutationBody = ({ bindings, credentials, expectedRevision }: CredentialVaultMutation) => ({
  expectedRevision,
  credentials:
    credentials === undefined
      ? undefined
      : {
          add: credentials.add?.map(credentialBody),
          replace: credentials.replace?.map(credentialBody),
          delete: credentials.delete
        },
  bindings:
    bindings === undefined
      ? undefined
      : { add: bindings.add?.map(bindingBody), replace: bindings.replace?.map(bindingBody), delete: bindings.delete }
})

const valuesOf = (credentials: ReadonlyArray<Credential>) => credentials.map(({ value }) => value)

/** Only names may show in an error. */
const problem = (
  credentials: ReadonlyArray<Credential>,
  bindings: ReadonlyArray<CredentialBinding>
): string | undefined => {
  if ([...credentials, ...bindings].some(({ name }) => name.trim() === "")) return "a name is empty"
  for (const { name, value } of credentials) {
    if (Redacted.value(value) === "") return `the credential ${JSON.stringify(name)} is empty`
  }
  for (const { match, name } of bindings) {
    if (match.hosts.length === 0) return `the binding ${JSON.stringify(name)} has no host`
  }
  return undefined
}

/** @internal */
export const makeVault = ({
  get,
  remove,
  span,
  where,
  write
}: PortCaller): Pick<
  EgressClient,
  "createVault" | "vault" | "mutateVault" | "deleteVault" | "credentials" | "credential" | "bindings" | "binding"
> => {
  const path = "/credential-vault"

  const createVault: EgressClient["createVault"] = (vault) => {
    const at = where("createVault")
    return check(at, problem(vault.credentials, vault.bindings)).pipe(
      Effect.zipRight(
        write(
          at,
          "POST",
          path,
          () => ({
            credentials: vault.credentials.map(credentialBody),
            bindings: vault.bindings.map(bindingBody)
          }),
          Http.jsonBody(at, Vault)
        )
      ),
      Effect.mapBoth({ onFailure: concealed(valuesOf(vault.credentials)), onSuccess: vaultOf }),
      span("createVault", { "credentials.count": vault.credentials.length })
    )
  }

  const mutateVault: EgressClient["mutateVault"] = (mutation) => {
    const at = where("mutateVault")
    const { bindings, credentials, expectedRevision } = mutation
    return check(
      at,
      expectedRevision !== undefined && !Number.isInteger(expectedRevision)
        ? `a revision is a whole number, not ${expectedRevision}`
        : problem(
            [...(credentials?.add ?? []), ...(credentials?.replace ?? [])],
            [...(bindings?.add ?? []), ...(bindings?.replace ?? [])]
          )
    ).pipe(
      Effect.zipRight(write(at, "PATCH", path, () => mutationBody(mutation), Http.jsonBody(at, Vault))),
      Effect.mapBoth({
        onFailure: concealed(valuesOf([...(credentials?.add ?? []), ...(credentials?.replace ?? [])])),
        onSuccess: vaultOf
      }),
      span("mutateVault")
    )
  }

  const credential: EgressClient["credential"] = (name) => {
    const at = where("credential")
    return Http.segment(at, "name of the credential", name).pipe(
      Effect.flatMap((segment) => get(at, `${path}/credentials/${segment}`, [], Http.jsonBody(at, Info))),
      Effect.map(infoOf),
      span("credential", { "credential.name": name })
    )
  }

  const binding: EgressClient["binding"] = (name) => {
    const at = where("binding")
    return Http.segment(at, "name of the binding", name).pipe(
      Effect.flatMap((segment) => get(at, `${path}/bindings/${segment}`, [], Http.jsonBody(at, BindingInfo))),
      Effect.map(bindingOf),
      span("binding", { "binding.name": name })
    )
  }

  return {
    createVault,
    vault: get(where("vault"), path, [], Http.jsonBody(where("vault"), Vault)).pipe(Effect.map(vaultOf), span("vault")),
    mutateVault,
    deleteVault: remove(where("deleteVault"), path, []).pipe(
      Effect.catchIf(
        (error) => error.module === "Egress" && error.reason === "NotFound",
        () => Effect.void
      ),
      span("deleteVault")
    ),
    credentials: get(
      where("credentials"),
      `${path}/credentials`,
      [],
      Http.jsonBody(where("credentials"), Credentials)
    ).pipe(
      Effect.map(({ credentials }) => (credentials ?? []).map(infoOf)),
      span("credentials")
    ),
    credential,
    bindings: get(where("bindings"), `${path}/bindings`, [], Http.jsonBody(where("bindings"), Bindings)).pipe(
      Effect.map(({ bindings }) => (bindings ?? []).map(bindingOf)),
      span("bindings")
    ),
    binding
  }
}
