/** The egress sidecar's API, whose errors are plain text. @internal */

import * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import * as HttpServerResponse from "@effect/platform/HttpServerResponse"
import * as Effect from "effect/Effect"
import * as ParseResult from "effect/ParseResult"
import * as Schema from "effect/Schema"
import { ApiError, badRequest } from "./apiError.js"
import type { Egress } from "./egress.js"
import { attempt, body, empty, json } from "./http.js"

const Rule = Schema.Struct({
  action: Schema.Literal("allow", "deny"),
  target: Schema.String.pipe(Schema.pattern(/^\S+$/))
})

/** As a sandbox is created with: with rules, and no word on the rest, the rest is denied. */
export const NetworkPolicy = Schema.Struct({
  defaultAction: Schema.optionalWith(Schema.Literal("allow", "deny"), { nullable: true }),
  egress: Schema.optionalWith(Schema.Array(Rule), { nullable: true })
})

export const CredentialProxy = Schema.Struct({ enabled: Schema.optionalWith(Schema.Boolean, { nullable: true }) })

/** Undefined where it says nothing, which allows everything. */
export const initialPolicy = (given: typeof NetworkPolicy.Type | undefined) =>
  given === undefined || (given.defaultAction === undefined && given.egress === undefined)
    ? undefined
    : { defaultAction: given.defaultAction ?? "deny", egress: given.egress ?? [] }

const Credential = Schema.Struct({
  name: Schema.NonEmptyString,
  source: Schema.Struct({ type: Schema.Literal("inline"), value: Schema.String })
})

const list = <A, I>(item: Schema.Schema<A, I>, otherwise: ReadonlyArray<NoInfer<A>>) =>
  Schema.optionalWith(Schema.Array(item), { nullable: true, default: () => otherwise })

const Header = Schema.String.pipe(Schema.pattern(/^[A-Za-z0-9!#$%&'*+\-.^_`|~]+$/))

const Binding = Schema.Struct({
  name: Schema.NonEmptyString,
  match: Schema.Struct({
    hosts: Schema.NonEmptyArray(Schema.NonEmptyString),
    schemes: list(Schema.Literal("https", "http"), ["https"]),
    ports: list(Schema.Int.pipe(Schema.between(1, 65535)), [443]),
    methods: list(Schema.String, ["GET", "POST", "PUT", "PATCH", "DELETE"]),
    paths: list(Schema.String, ["/*"])
  }),
  auth: Schema.Union(
    Schema.Struct({ type: Schema.Literal("bearer", "basic"), credential: Schema.NonEmptyString }),
    Schema.Struct({ type: Schema.Literal("apiKey"), name: Header, credential: Schema.NonEmptyString }),
    Schema.Struct({
      type: Schema.Literal("customHeaders"),
      headers: Schema.NonEmptyArray(Schema.Struct({ name: Header, credential: Schema.NonEmptyString }))
    })
  )
})

const changes = <A, I>(item: Schema.Schema<A, I>) =>
  Schema.optionalWith(
    Schema.Struct({ add: list(item, []), replace: list(item, []), delete: list(Schema.String, []) }),
    {
      nullable: true,
      default: () => ({ add: [], replace: [], delete: [] })
    }
  )

const CreateVault = Schema.Struct({ credentials: Schema.Array(Credential), bindings: Schema.Array(Binding) })

const ChangeVault = Schema.Struct({
  expectedRevision: Schema.optionalWith(Schema.Int, { nullable: true }),
  credentials: changes(Credential),
  bindings: changes(Binding)
})

const Rules = Schema.NonEmptyArray(Rule)
const Targets = Schema.NonEmptyArray(Schema.NonEmptyString)

/** Errors of decoding show what they are about, which may be a secret here: only the place is told. */
const given = <A, I>(schema: Schema.Schema<A, I>) =>
  Effect.flatMap(body(Schema.Unknown, badRequest), (value) =>
    Effect.mapError(Schema.decodeUnknown(schema)(value), (error) => {
      const places = ParseResult.ArrayFormatter.formatErrorSync(error).map(({ path }) => path.map(String).join("."))
      return badRequest(`the request body is invalid, at ${[...new Set(places)].join(", ") || "its top"}`)
    })
  )

type Answer = Effect.Effect<HttpServerResponse.HttpServerResponse, ApiError, HttpServerRequest.HttpServerRequest>

const routes: ReadonlyArray<readonly [method: string, path: RegExp, answer: (egress: Egress, name: string) => Answer]> =
  [
    ["GET", /^\/policy$/, (egress) => Effect.sync(() => json(egress.status()))],
    [
      "PATCH",
      /^\/policy$/,
      (egress) =>
        Effect.map(given(Rules), (rules) => {
          egress.addRules(rules)
          return json(egress.status())
        })
    ],
    [
      "DELETE",
      /^\/policy$/,
      (egress) =>
        Effect.map(given(Targets), (targets) => {
          egress.removeRules(targets)
          return json(egress.status())
        })
    ],
    [
      "POST",
      /^\/credential-vault$/,
      (egress) =>
        Effect.flatMap(given(CreateVault), ({ bindings, credentials }) =>
          attempt(() => json(egress.createVault(credentials, bindings), 201))
        )
    ],
    ["GET", /^\/credential-vault$/, (egress) => attempt(() => json(egress.vaultState()))],
    [
      "PATCH",
      /^\/credential-vault$/,
      (egress) =>
        Effect.flatMap(given(ChangeVault), ({ bindings, credentials, expectedRevision }) =>
          attempt(() => json(egress.changeVault(expectedRevision, credentials, bindings)))
        )
    ],
    [
      "DELETE",
      /^\/credential-vault$/,
      (egress) =>
        attempt(() => {
          egress.removeVault()
          return empty(204)
        })
    ],
    ["GET", /^\/credential-vault\/credentials$/, (egress) => attempt(() => json(egress.credentials()))],
    [
      "GET",
      /^\/credential-vault\/credentials\/([^/]+)$/,
      (egress, name) => attempt(() => json(egress.credential(name)))
    ],
    ["GET", /^\/credential-vault\/bindings$/, (egress) => attempt(() => json(egress.bindings()))],
    ["GET", /^\/credential-vault\/bindings\/([^/]+)$/, (egress, name) => attempt(() => json(egress.binding(name)))]
  ]

const decoded = (text: string): string => {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

/** Answers what the sidecar is asked by somebody who may. */
export const egressApi = (
  egress: Egress,
  path: string
): Effect.Effect<HttpServerResponse.HttpServerResponse, never, HttpServerRequest.HttpServerRequest> =>
  Effect.gen(function* () {
    const request = yield* HttpServerRequest.HttpServerRequest
    let known = false
    for (const [method, pattern, answer] of routes) {
      const match = pattern.exec(path)
      if (match === null) continue
      known = true
      if (method === request.method) return yield* answer(egress, decoded(match[1] ?? ""))
    }
    return yield* new ApiError({
      status: known ? 405 : 404,
      code: known ? "METHOD_NOT_ALLOWED" : "NOT_FOUND",
      message: known ? `${request.method} is not possible on ${path}` : `There is no ${path}`
    })
  }).pipe(Effect.catchTag("ApiError", (error) => Effect.succeed(plainError(error))))

export const plainError = (error: ApiError): HttpServerResponse.HttpServerResponse =>
  HttpServerResponse.text(error.message, { status: error.status })
