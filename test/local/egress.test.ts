import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import type { RequestOptions } from "./support.js"
import { fromImage, send, start } from "./support.js"

const sidecar = (request: object = fromImage) =>
  Effect.gen(function* () {
    const server = yield* start({ mode: "plain" })
    const box = yield* server.box(request)
    const { json } = yield* server.request("GET", `/sandboxes/${box.id}/endpoints/18080`)
    const at = (method: string, path: string, body?: unknown, options: RequestOptions = {}) =>
      send(method, `http://${json.endpoint}${path}`, {
        headers: json.headers,
        ...(body === undefined ? {} : { body }),
        ...options
      })
    return { at, box, server }
  })

const rule = (target: string, action = "allow") => ({ action, target })

describe("egress", () => {
  it.scopedLive("keeps a policy, and says that it does no more", () =>
    Effect.gen(function* () {
      const { at } = yield* sidecar()
      const first = yield* at("GET", "/policy")
      assert.deepInclude(first.json, { status: "ok", mode: "allow_all", enforcementMode: "none" })
      assert.deepStrictEqual(first.json.policy, { defaultAction: "allow", egress: [] })
      assert.include(first.json.reason, "filters nothing")
      yield* at("PATCH", "/policy", [rule("a.com"), rule("b.com", "deny"), rule("A.com.", "deny")])
      yield* at("PATCH", "/policy", [rule("*.c.com"), rule("b.com")])
      const rules = Effect.map(at("GET", "/policy"), ({ json }) => json.policy.egress)
      assert.deepStrictEqual(yield* rules, [rule("*.c.com"), rule("b.com"), rule("a.com")])
      for (let i = 0; i < 2; i++) {
        assert.strictEqual((yield* at("DELETE", "/policy", ["a.com", "unknown.com"])).status, 200)
        assert.deepStrictEqual(yield* rules, [rule("*.c.com"), rule("b.com")])
      }
      for (const body of [[], {}, [{ action: "maybe", target: "a.com" }], [{ target: "a" }], "{", [rule("a b")]]) {
        const answer = yield* at("PATCH", "/policy", body)
        assert.strictEqual(answer.status, 400, JSON.stringify(body))
        assert.match(answer.headers.get("content-type") ?? "", /^text\/plain/)
      }
      assert.strictEqual((yield* at("DELETE", "/policy", [])).status, 400)
      assert.strictEqual((yield* at("PUT", "/policy", [])).status, 405)
      assert.strictEqual((yield* at("GET", "/other")).status, 404)
      const denied = yield* at("GET", "/policy", undefined, { headers: {} })
      assert.strictEqual(denied.status, 401)
      assert.match(denied.headers.get("content-type") ?? "", /^text\/plain/)
    })
  )

  it.scopedLive("begins with the policy that the sandbox was created with", () =>
    Effect.gen(function* () {
      for (const [networkPolicy, wanted] of [
        [{ egress: [rule("a.com")] }, { defaultAction: "deny", egress: [rule("a.com")] }],
        [{ defaultAction: "allow" }, { defaultAction: "allow", egress: [] }],
        [{}, { defaultAction: "allow", egress: [] }],
        [null, { defaultAction: "allow", egress: [] }]
      ] as const) {
        const { at } = yield* sidecar({ ...fromImage, networkPolicy })
        const { json } = yield* at("GET", "/policy")
        assert.deepStrictEqual(json.policy, wanted)
        assert.strictEqual(json.mode, wanted.defaultAction === "deny" ? "deny_all" : "allow_all")
      }
    })
  )

  it.scopedLive("keeps credentials, never their values, by revision", () =>
    Effect.gen(function* () {
      const { at, server } = yield* sidecar({ ...fromImage, networkPolicy: {}, credentialProxy: { enabled: true } })
      const credential = (name: string) => ({ name, source: { type: "inline", value: "s3cret" } })
      const binding = (name: string, uses: string) => ({
        name,
        match: { hosts: ["api.example.com"] },
        auth: { type: "bearer", credential: uses }
      })
      assert.strictEqual((yield* at("GET", "/credential-vault")).status, 404)
      assert.strictEqual((yield* at("PATCH", "/credential-vault", {})).status, 404)
      const dangling = { credentials: [credential("a")], bindings: [binding("x", "b")] }
      assert.strictEqual((yield* at("POST", "/credential-vault", dangling)).status, 400)
      const made = yield* at("POST", "/credential-vault", {
        credentials: [credential("a"), credential("b")],
        bindings: [binding("x", "a")]
      })
      assert.strictEqual(made.status, 201)
      assert.deepStrictEqual(made.json, {
        revision: 1,
        credentials: [
          { name: "a", sourceType: "inline", revision: 1 },
          { name: "b", sourceType: "inline", revision: 1 }
        ],
        bindings: [
          {
            name: "x",
            revision: 1,
            match: {
              hosts: ["api.example.com"],
              schemes: ["https"],
              ports: [443],
              methods: ["GET", "POST", "PUT", "PATCH", "DELETE"],
              paths: ["/*"]
            },
            auth: { type: "bearer" }
          }
        ]
      })
      assert.strictEqual((yield* at("POST", "/credential-vault", { credentials: [], bindings: [] })).status, 409)
      const changed = yield* at("PATCH", "/credential-vault", {
        expectedRevision: 1,
        credentials: { replace: [credential("b")], add: [credential("c/d")] },
        bindings: {
          replace: [{ name: "x", match: { hosts: ["*"] }, auth: { type: "apiKey", name: "X-Key", credential: "c/d" } }]
        }
      })
      assert.strictEqual(changed.json.revision, 2)
      assert.deepStrictEqual(
        changed.json.credentials.map((each: { name: string; revision: number }) => [each.name, each.revision]),
        [
          ["a", 1],
          ["b", 2],
          ["c/d", 2]
        ]
      )
      assert.deepStrictEqual((yield* at("GET", "/credential-vault/bindings/x")).json.auth, {
        type: "apiKey",
        name: "X-Key"
      })
      assert.strictEqual((yield* at("GET", "/credential-vault/credentials/c%2Fd")).json.name, "c/d")
      for (const [status, body] of [
        [409, { expectedRevision: 1 }],
        [409, { credentials: { add: [credential("a")] } }],
        [404, { credentials: { delete: ["none"] } }],
        [404, { bindings: { replace: [binding("none", "a")] } }],
        [400, { credentials: { delete: ["c/d"] } }],
        [400, { credentials: { add: [{ name: "z", source: { type: "vault", value: "s3cret" } }] } }]
      ] as const) {
        const answer = yield* at("PATCH", "/credential-vault", body)
        assert.strictEqual(answer.status, status, JSON.stringify(body))
        assert.notInclude(answer.text, "s3cret")
      }
      assert.strictEqual((yield* at("GET", "/credential-vault")).json.revision, 2)
      assert.lengthOf((yield* at("GET", "/credential-vault/credentials")).json.credentials, 3)
      assert.strictEqual((yield* at("GET", "/credential-vault/credentials/none")).status, 404)
      for (const path of ["", "/credentials", "/bindings", "/bindings/x"])
        assert.notInclude((yield* at("GET", `/credential-vault${path}`)).text, "s3cret")
      assert.strictEqual((yield* at("DELETE", "/credential-vault")).status, 204)
      assert.strictEqual((yield* at("DELETE", "/credential-vault")).status, 404)
      const without = yield* server.request("POST", "/sandboxes", {
        body: { ...fromImage, credentialProxy: { enabled: true } }
      })
      assert.strictEqual(without.status, 400)
    })
  )

  it.scopedLive("has no credentials where their proxy was not asked for", () =>
    Effect.gen(function* () {
      const { at } = yield* sidecar()
      const answer = yield* at("POST", "/credential-vault", { credentials: [], bindings: [] })
      assert.strictEqual(answer.status, 412)
      assert.match(answer.headers.get("content-type") ?? "", /^text\/plain/)
      assert.strictEqual((yield* at("PATCH", "/credential-vault", {})).status, 412)
    })
  )
})
