import { assert, describe, it } from "@effect/vitest"
import type { OpenSandboxError } from "@sandglass/core"
import { Egress, OpenSandbox } from "@sandglass/core"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as ScriptedServer from "../support/ScriptedServer.js"
import * as Spans from "../support/Spans.js"

const { empty, json, text } = ScriptedServer

const withEgress = <A, E, R>(
  handler: ScriptedServer.Handler,
  use: (client: Egress.EgressClient, server: ScriptedServer.ScriptedServer) => Effect.Effect<A, E, R>,
  options: Egress.Options = {}
) =>
  Effect.flatMap(
    ScriptedServer.make((request, index) =>
      request.path === "/v1/sandboxes/s1/endpoints/18080"
        ? json(200, { endpoint: `${request.headers.host}/egress`, headers: { "OPENSANDBOX-EGRESS-AUTH": "t0ken" } })
        : handler(request, index)
    ),
    (server) =>
      Effect.gen(function* () {
        const client = yield* Effect.flatMap(Egress.Egress, (egress) => egress.connect("s1"))
        return yield* use(client, server)
      }).pipe(
        Effect.provide(
          Layer.provide(
            Egress.layerWith({ retry: { baseDelay: 1 }, ...options }),
            OpenSandbox.layer({ url: server.url, apiKey: Redacted.make("k3y"), retry: { baseDelay: 1 } })
          )
        )
      )
  )

const toEgress = (server: ScriptedServer.ScriptedServer) =>
  server.requests.filter(({ path }) => path.startsWith("/egress/"))

const rule = { action: "allow", target: "pypi.org" } as const
const vault = {
  credentials: [{ name: "a", value: Redacted.make("s3cret") }],
  bindings: [
    {
      name: "b",
      match: { hosts: ["api.example.com"], ports: [443] },
      auth: { type: "apiKey", name: "x-key", credential: "a" }
    }
  ]
} as const
const state = {
  revision: 4,
  credentials: [{ name: "a", sourceType: "inline", revision: 1, future: true }],
  bindings: [{ name: "b", revision: 4, match: { hosts: ["api.example.com"] }, auth: { type: "apiKey", name: "X-Key" } }]
}

describe("policy", () => {
  it.scopedLive("is read and changed, whatever form the answer has", () =>
    withEgress(
      ScriptedServer.sequence(
        json(200, {
          status: "ok",
          mode: "enforcing",
          enforcementMode: "dns",
          policy: { defaultAction: "deny", egress: [rule] },
          future: 1
        }),
        json(200, { mode: "allow_all", policy: null }),
        json(200, { status: "ok", mode: "deny_all" }),
        text(200, "rules removed"),
        empty(200)
      ),
      (client, server) =>
        Effect.gen(function* () {
          assert.deepStrictEqual(yield* client.policy, {
            status: "ok",
            mode: "enforcing",
            enforcementMode: "dns",
            reason: undefined,
            policy: { defaultAction: "deny", egress: [rule] }
          })
          assert.isUndefined((yield* client.policy).policy)
          assert.strictEqual((yield* client.addRules([rule])).mode, "deny_all")
          assert.deepStrictEqual(yield* client.removeRules(["pypi.org", "*.x.org"]), { reason: "rules removed" })
          assert.deepStrictEqual(yield* client.removeRules(["pypi.org"]), {})
          assert.deepStrictEqual(
            toEgress(server)
              .slice(2)
              .map(({ json, method, target }) => [method, target, json]),
            [
              ["PATCH", "/egress/policy", [rule]],
              ["DELETE", "/egress/policy", ["pypi.org", "*.x.org"]],
              ["DELETE", "/egress/policy", ["pypi.org"]]
            ]
          )
          for (const request of toEgress(server)) {
            assert.strictEqual(request.headers["opensandbox-egress-auth"], "t0ken")
            assert.isUndefined(request.headers["open-sandbox-api-key"])
          }
          assert.lengthOf(server.requests, 6)
        })
    )
  )

  it.scopedLive("nothing to change is refused before anything is sent", () =>
    withEgress(
      () => empty(200),
      (client, server) =>
        Effect.gen(function* () {
          for (const bad of [
            client.addRules([]),
            client.addRules([{ action: "deny", target: " " }]),
            client.removeRules([]),
            client.removeRules([""])
          ]) {
            assert.strictEqual((yield* Effect.flip(bad)).reason, "InvalidRequest")
          }
          assert.lengthOf(server.requests, 0)
        })
    )
  )

  it.scopedLive("GET and DELETE are repeated, PATCH is sent once; errors are plain text", () =>
    withEgress(
      ScriptedServer.sequence(
        text(502, "bad gateway"),
        json(200, {}),
        text(503, "soon"),
        empty(200),
        text(500, "failed to apply policy: nft")
      ),
      (client, server) =>
        Effect.gen(function* () {
          yield* client.policy
          yield* client.removeRules(["a"])
          const error = yield* Effect.flip(client.addRules([rule]))
          assert.deepInclude(error, {
            module: "Egress",
            method: "addRules",
            reason: "ServerError",
            status: 500,
            description: "failed to apply policy: nft"
          })
          assert.lengthOf(toEgress(server), 5)
        })
    )
  )

  it.scopedLive("a page is no policy", () =>
    withEgress(
      () => text(200, "<html>"),
      (client) => Effect.map(Effect.flip(client.policy), ({ reason }) => assert.strictEqual(reason, "Decode"))
    )
  )

  it.scopedLive("asks for the endpoint again after a 401", () =>
    withEgress(ScriptedServer.sequence(text(401, "unauthorized"), json(200, {})), (client, server) =>
      Effect.gen(function* () {
        yield* client.policy
        assert.lengthOf(server.requests, 4)
      })
    )
  )
})

describe("credential vault", () => {
  it.scopedLive("is made, read, changed and deleted", () =>
    withEgress(
      ScriptedServer.sequence(
        json(201, { ...state, revision: 1 }),
        json(200, state),
        json(200, { revision: 5, credentials: null, bindings: [] }),
        empty(204),
        text(404, "credential vault not found"),
        json(200, { revision: 4, credentials: state.credentials }),
        json(200, state.credentials[0]),
        json(200, { revision: 4, bindings: state.bindings }),
        json(200, state.bindings[0])
      ),
      (client, server) =>
        Effect.gen(function* () {
          assert.strictEqual((yield* client.createVault(vault)).revision, 1)
          const credential = { name: "a", sourceType: "inline", revision: 1 }
          const binding = {
            name: "b",
            revision: 4,
            match: {
              hosts: ["api.example.com"],
              schemes: undefined,
              ports: undefined,
              methods: undefined,
              paths: undefined
            },
            auth: { type: "apiKey", name: "X-Key" }
          }
          assert.deepStrictEqual(yield* client.vault, { revision: 4, credentials: [credential], bindings: [binding] })
          const changed = yield* client.mutateVault({
            expectedRevision: 4,
            credentials: { add: [{ name: "c", value: Redacted.make("n3w") }], delete: ["a"] },
            bindings: {
              replace: [{ name: "b", match: { hosts: ["x"] }, auth: { type: "bearer", credential: "c" } }],
              delete: []
            }
          })
          assert.deepStrictEqual(changed, { revision: 5, credentials: [], bindings: [] })
          yield* client.deleteVault
          yield* client.deleteVault
          assert.deepStrictEqual(yield* client.credentials, [credential])
          assert.deepStrictEqual(yield* client.credential("a/b"), credential)
          assert.deepStrictEqual(yield* client.bindings, [binding])
          assert.deepStrictEqual(yield* client.binding("b"), binding)
          const requests = toEgress(server)
          assert.deepStrictEqual(
            requests.map(({ method, target }) => `${method} ${target.slice("/egress".length)}`),
            [
              "POST /credential-vault",
              "GET /credential-vault",
              "PATCH /credential-vault",
              "DELETE /credential-vault",
              "DELETE /credential-vault",
              "GET /credential-vault/credentials",
              "GET /credential-vault/credentials/a%2Fb",
              "GET /credential-vault/bindings",
              "GET /credential-vault/bindings/b"
            ]
          )
          assert.deepStrictEqual(requests[0]?.json, {
            credentials: [{ name: "a", source: { type: "inline", value: "s3cret" } }],
            bindings: vault.bindings
          })
          assert.deepStrictEqual(requests[2]?.json, {
            expectedRevision: 4,
            credentials: { add: [{ name: "c", source: { type: "inline", value: "n3w" } }], delete: ["a"] },
            bindings: {
              replace: [{ name: "b", match: { hosts: ["x"] }, auth: { type: "bearer", credential: "c" } }],
              delete: []
            }
          })
        })
    )
  )

  it.scopedLive("a stale revision, and a proxy that is not there, are conflicts that say which", () =>
    withEgress(
      ScriptedServer.sequence(
        text(409, "expectedRevision 1 does not match current revision 4"),
        text(412, "credential vault requires transparent mitmproxy"),
        text(404, "credential vault not found")
      ),
      (client, server) =>
        Effect.gen(function* () {
          const stale = yield* Effect.flip(client.mutateVault({ expectedRevision: 1 }))
          assert.deepInclude(stale, { reason: "Conflict", status: 409 })
          assert.match(stale.message, /current revision 4/)
          const absent = yield* Effect.flip(client.createVault(vault))
          assert.deepInclude(absent, { reason: "Conflict", status: 412 })
          assert.strictEqual((yield* Effect.flip(client.vault)).reason, "NotFound")
          assert.lengthOf(toEgress(server), 3)
        })
    )
  )

  it.scopedLive("refuses before anything is sent, without the values", () =>
    withEgress(
      () => empty(200),
      (client, server) =>
        Effect.gen(function* () {
          const credential = { name: "a", value: Redacted.make("s3cret") }
          const bad: ReadonlyArray<Effect.Effect<unknown, OpenSandboxError.OpenSandboxError>> = [
            client.createVault({ credentials: [{ ...credential, name: " " }], bindings: [] }),
            client.createVault({ credentials: [{ name: "a", value: Redacted.make("") }], bindings: [] }),
            client.mutateVault({ expectedRevision: 1.5 }),
            client.mutateVault({
              credentials: { add: [credential] },
              bindings: { add: [{ name: "b", match: { hosts: [] }, auth: { type: "bearer", credential: "a" } }] }
            }),
            client.credential(""),
            client.binding("..")
          ]
          for (const one of bad) {
            const error = yield* Effect.flip(one)
            assert.strictEqual(error.reason, "InvalidRequest")
            assert.notInclude(error.message, "s3cret")
          }
          assert.lengthOf(server.requests, 0)
        })
    )
  )

  it.scopedLive("no value and no token shows in a span or an error", () =>
    Effect.gen(function* () {
      const { text: shown } = yield* Spans.record(
        withEgress(
          () => text(400, "invalid credential"),
          (client) =>
            Effect.gen(function* () {
              const error = yield* Effect.flip(client.createVault(vault))
              assert.notInclude(JSON.stringify(error), "s3cret")
              yield* Effect.flip(client.vault)
            })
        )
      )
      assert.include(shown, "Egress.createVault")
      assert.include(shown, "opensandbox-egress-auth")
      for (const secret of ["s3cret", "t0ken", "k3y"]) assert.notInclude(shown, secret)
    })
  )
})
