import { inspect } from "node:util"
import * as HttpClient from "@effect/platform/HttpClient"
import { assert, describe, it } from "@effect/vitest"
import { Ledger, Sandboxes } from "@sandglass/core"
import * as Chunk from "effect/Chunk"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as LogLevel from "effect/LogLevel"
import * as Redacted from "effect/Redacted"
import * as Stream from "effect/Stream"
import * as ScriptedSandboxes from "../support/ScriptedSandboxes.js"
import * as ScriptedServer from "../support/ScriptedServer.js"
import * as Spans from "../support/Spans.js"

const setup = (script: ScriptedSandboxes.Script) =>
  Effect.gen(function* () {
    const server = yield* ScriptedSandboxes.make(script)
    const context = yield* Layer.build(
      Sandboxes.layer.pipe(Layer.provideMerge(Layer.merge(server.layer, Ledger.layerMemory)))
    )
    const sandboxes = Context.get(context, Sandboxes.Sandboxes)
    return { server, sandboxes }
  })

/** An egress sidecar behind the scripted server. */
const sidecar: ScriptedSandboxes.Script["override"] = (request) => {
  const port = request.headers["host"]?.split(":")[1]
  if (request.path.endsWith("/endpoints/18080")) {
    return ScriptedServer.json(200, {
      endpoint: `127.0.0.1:${port}/egress`,
      headers: { "OPENSANDBOX-EGRESS-AUTH": "egress-secret" }
    })
  }
  if (request.path.endsWith("/endpoints/3000")) {
    return ScriptedServer.json(200, { endpoint: `127.0.0.1:${port}/app`, headers: { "X-ROUTE": "route-secret" } })
  }
  if (request.path === "/app/away") return ScriptedServer.empty(302, { location: "/other" })
  if (request.path === "/app/moved") return ScriptedServer.empty(302, { location: "health" })
  if (request.path === "/other") return ScriptedServer.text(200, `route ${request.headers["x-route"] ?? "none"}`)
  if (request.path === "/app/health") return ScriptedServer.text(200, request.headers["x-route"] ?? "none")
  const state = {
    revision: 1,
    credentials: [{ name: "token", sourceType: "inline", revision: 1 }],
    bindings: [{ name: "api", revision: 1, match: { hosts: ["api.example.com"] }, auth: { type: "bearer" } }]
  }
  if (request.path === "/egress/policy") {
    return request.method === "DELETE" && request.text.includes("refused")
      ? ScriptedServer.text(400, "no such thing")
      : ScriptedServer.json(200, { status: "ok", mode: "deny_all" })
  }
  if (request.path === "/egress/credential-vault") {
    return request.method === "DELETE"
      ? ScriptedServer.empty(204)
      : ScriptedServer.json(request.method === "POST" ? 201 : 200, state)
  }
  return undefined
}

describe("egress of a sandbox", () => {
  it.scopedLive("every change is in the ledger, a credential's value nowhere", () =>
    Effect.gen(function* () {
      const { sandboxes } = yield* setup({ override: sidecar })
      const sandbox = yield* sandboxes.create({ image: "i" })
      const { egress } = sandbox
      assert.strictEqual((yield* egress.policy).mode, "deny_all")
      yield* egress.addRules([
        { action: "allow", target: "pypi.org" },
        { action: "deny", target: "*.example.com" },
        // The first of those for a target counts.
        { action: "allow", target: "*.Example.com" }
      ])
      yield* egress.removeRules(["pypi.org", "PyPI.org."])
      const refused = yield* Effect.flip(egress.removeRules(["refused"]))
      assert.deepInclude(refused, { _tag: "OpenSandboxError", status: 400 })
      const binding = {
        name: "api",
        match: { hosts: ["api.example.com"] },
        auth: { type: "bearer" as const, credential: "token" }
      }
      yield* egress.createVault({
        credentials: [{ name: "token", value: Redacted.make("vault-secret") }],
        bindings: [binding]
      })
      const value = Redacted.make("vault-secret")
      const headers = ["token", "second", "token"].map((credential, n) => ({ name: `x-${n}`, credential }))
      yield* egress.mutateVault({
        credentials: { add: [{ name: "second", value }], replace: [{ name: "token", value }], delete: ["gone"] },
        bindings: { delete: ["old"], replace: [{ ...binding, auth: { type: "customHeaders", headers } }] },
        expectedRevision: 1
      })
      yield* egress.deleteVault
      const entries = Chunk.toReadonlyArray(yield* Stream.runCollect(sandbox.history))
      assert.deepStrictEqual(
        entries.slice(1).map((entry) => [entry.event, entry.payload]),
        [
          ["egress.rule_added", { action: "allow", target: "pypi.org" }],
          ["egress.rule_added", { action: "deny", target: "*.example.com" }],
          ["egress.rule_removed", { target: "pypi.org" }],
          ["credential.added", { name: "token" }],
          ["credential.bound", { name: "api", hosts: ["api.example.com"], credentials: ["token"] }],
          ["credential.removed", { name: "gone" }],
          ["credential.replaced", { name: "token" }],
          ["credential.added", { name: "second" }],
          ["credential.revoked", { name: "old" }],
          ["credential.bound", { name: "api", hosts: ["api.example.com"], credentials: ["token", "second"] }],
          ["credential.revoked", { name: "api" }],
          ["credential.removed", { name: "token" }]
        ]
      )
      assert.notInclude(JSON.stringify(entries), "vault-secret")
    })
  )

  it.scopedLive("a vault that is not there is deleted, and that is no change", () =>
    Effect.gen(function* () {
      const { sandboxes } = yield* setup({
        override: (request) =>
          request.path === "/egress/credential-vault" ? ScriptedServer.text(404, "no vault") : sidecar?.(request)
      })
      const sandbox = yield* sandboxes.create({ image: "i" })
      yield* sandbox.egress.deleteVault
      assert.strictEqual((yield* Effect.flip(sandbox.egress.vault)).reason, "NotFound")
      assert.strictEqual(yield* Stream.runCount(sandbox.history), 1)
    })
  )

  it.scopedLive("a change that may have been made is recorded: interrupted, or with its answer lost", () =>
    Effect.gen(function* () {
      const asked = yield* Effect.makeLatch(false)
      const answered = yield* Effect.makeLatch(false)
      const { sandboxes } = yield* setup({
        override: (request) => {
          if (request.path !== "/egress/policy") return sidecar?.(request)
          if (request.text.includes("lost.example")) return ScriptedServer.resetConnection
          if (request.text.includes("refused.example")) return ScriptedServer.text(400, "no")
          return asked.open.pipe(Effect.zipRight(answered.await), Effect.as(ScriptedServer.json(200, { status: "ok" })))
        }
      })
      const sandbox = yield* sandboxes.create({ image: "i" })
      const add = (target: string) => sandbox.egress.addRules([{ action: "allow", target }])
      const fiber = yield* Effect.fork(add("slow.example"))
      yield* asked.await
      const interrupted = yield* Effect.fork(Fiber.interrupt(fiber))
      yield* answered.open
      assert.isTrue(Exit.isInterrupted(yield* Fiber.join(interrupted)))
      assert.deepInclude(yield* Effect.flip(add("lost.example")), { _tag: "OpenSandboxError", reason: "Transport" })
      assert.deepInclude(yield* Effect.flip(add("refused.example")), { _tag: "OpenSandboxError", status: 400 })
      const entries = Chunk.toReadonlyArray(yield* Stream.runCollect(Stream.drop(sandbox.history, 1)))
      assert.deepStrictEqual(
        entries.map(({ error, event, payload }) => [event, payload, error?.split(":")[0]]),
        [
          ["egress.rule_added", { action: "allow", target: "slow.example" }, undefined],
          ["egress.rule_added", { action: "allow", target: "lost.example" }, "it may not have been made"]
        ]
      )
    })
  )

  it.scopedLive("what limits a sandbox limits its forks and what goes on from it", () =>
    Effect.gen(function* () {
      const { sandboxes, server } = yield* setup({ override: sidecar })
      const networkPolicy = { defaultAction: "deny", egress: [{ action: "allow", target: "pypi.org" }] } as const
      const other = { defaultAction: "allow" } as const
      const sandbox = yield* sandboxes.create({
        image: "i",
        networkPolicy,
        secureAccess: true,
        credentialProxy: true,
        timeout: "2 minutes",
        env: { A: Redacted.make("1") },
        metadata: { own: "x" },
        idempotencyKey: "once"
      })
      const [created] = Chunk.toReadonlyArray(yield* Stream.runCollect(sandbox.history))
      assert.deepInclude(created?.payload, { networkPolicy })
      const fork = yield* sandbox.fork()
      yield* fork.fork({ networkPolicy: other, timeout: undefined, secureAccess: false, credentialProxy: false })
      const resumed = yield* sandboxes.resume(sandbox.id)
      yield* sandboxes.resume(sandbox.id, { networkPolicy: other })
      yield* resumed.checkpoint()
      yield* sandboxes.resume(resumed.id)
      yield* sandboxes.restoreSnapshot(server.snapshots[0] ?? "", { networkPolicy: undefined })
      const shared = { env: { A: "1" }, timeout: 120 }
      assert.deepStrictEqual(
        server.created.slice(1).map(({ metadata, resourceLimits: _, snapshotId, ...rest }) => {
          assert.isString(snapshotId)
          assert.notProperty(metadata, "own")
          assert.notProperty(metadata, "sandglass.idempotency-key")
          return rest
        }),
        [
          { ...shared, networkPolicy, secureAccess: true, credentialProxy: { enabled: true } },
          { ...shared, networkPolicy: other, secureAccess: false, credentialProxy: { enabled: false } },
          { networkPolicy },
          { networkPolicy: other },
          { networkPolicy },
          { networkPolicy }
        ]
      )
    })
  )

  it.scopedLive("a server that repeats a secret does not make it known", () =>
    Effect.gen(function* () {
      const text = 's3cr"et\nvalue'
      const value = Redacted.make(text)
      const refuse = new Set(["POST /v1/sandboxes", "POST /egress/credential-vault", "POST /command"])
      const { sandboxes } = yield* setup({
        override: (request) => {
          if (
            refuse.has(`${request.method} ${request.path.replace(/^\/execd\/[^/]+/, "")}`) &&
            request.text.includes("s3cr")
          ) {
            return ScriptedServer.json(422, { detail: [{ loc: ["body"], msg: `what is ${request.text}?` }] })
          }
          // An answer that is none, as a cause of the failure to read it.
          return request.path === "/egress/credential-vault" && request.method === "PATCH"
            ? ScriptedServer.json(200, { revision: text })
            : sidecar?.(request)
        }
      })
      const logged: Array<unknown> = []
      const logger = Logger.make(({ cause, message }) => logged.push(message, cause))
      const recorded = yield* Effect.gen(function* () {
        const sandbox = yield* sandboxes.create({ image: "i" })
        const credentials = [{ name: "token", value }]
        const errors = [
          yield* Effect.flip(sandboxes.create({ image: "i", env: { A: value } })),
          yield* Effect.flip(sandbox.egress.createVault({ credentials, bindings: [] })),
          yield* Effect.flip(sandbox.egress.mutateVault({ credentials: { add: credentials } })),
          yield* Effect.flip(sandbox.exec("make", { env: { A: value } }))
        ]
        yield* Effect.logError("all", ...errors)
        return { errors, entries: yield* Stream.runCollect(sandbox.history) }
      }).pipe(
        Spans.record,
        Effect.provide(Layer.merge(Logger.replace(Logger.defaultLogger, logger), Logger.minimumLogLevel(LogLevel.All)))
      )
      const { entries, errors } = recorded.value
      assert.deepStrictEqual(
        errors.map((error) => ("status" in error ? [error.method, error.status] : [])),
        [
          ["create", 422],
          ["createVault", 422],
          ["mutateVault", 200],
          ["command", 422]
        ]
      )
      for (const error of errors.filter((_, n) => n !== 2)) assert.include(String(error), "<redacted>")
      assert.notInclude(inspect([entries, errors, logged, recorded.text], { depth: 20 }), "s3cr")
      assert.notInclude(JSON.stringify([entries, errors, logged]) + recorded.text, "s3cr")
    })
  )

  it.scopedLive("a port comes with a client that is bound to it", () =>
    Effect.gen(function* () {
      const { sandboxes } = yield* setup({ override: sidecar })
      const sandbox = yield* sandboxes.create({ image: "i" })
      const { client, url } = yield* sandbox.proxy(3000)
      assert.match(url, /^http:\/\/127\.0\.0\.1:\d+\/app$/)
      for (const path of ["/health", "health", `${url}/health`]) {
        const response = yield* client.get(path)
        assert.strictEqual(yield* response.text, "route-secret", path)
      }
      const elsewhere = new URL(url).origin
      for (const path of ["http://example.com/", "//example.com/", `${elsewhere}/application`]) {
        assert.deepInclude(yield* Effect.flip(client.get(path)), { _tag: "RequestError", reason: "InvalidUrl" })
      }
      assert.strictEqual((yield* client.get("/away")).status, 302)
      const followed = yield* HttpClient.followRedirects(client).get("/away")
      assert.strictEqual(yield* followed.text, "route none")
      const within = yield* HttpClient.followRedirects(client).get("/moved")
      assert.strictEqual(yield* within.text, "route-secret")
    })
  )

  it.scopedLive("what a sandbox is created with goes to the server as it is", () =>
    Effect.gen(function* () {
      const { sandboxes, server } = yield* setup({ override: sidecar })
      const secret = Redacted.make("oss-secret")
      const sandbox = yield* sandboxes.create({
        extensions: { poolRef: "warm", "vendor.example/x": "y" },
        platform: { os: "linux", arch: "arm64" },
        secureAccess: true,
        networkPolicy: { defaultAction: "deny", egress: [{ action: "allow", target: "pypi.org" }] },
        credentialProxy: true,
        timeout: "90 seconds",
        volumes: [
          { name: "data", mountPath: "/data", readOnly: true, host: { path: "/srv" } },
          {
            name: "oss",
            mountPath: "/oss",
            ossfs: { bucket: "b", endpoint: "oss.example.com", accessKeyId: secret, accessKeySecret: secret }
          }
        ]
      })
      const { metadata: _, ...body } = server.created[0] ?? {}
      assert.deepStrictEqual(body, {
        extensions: { poolRef: "warm", "vendor.example/x": "y" },
        platform: { os: "linux", arch: "arm64" },
        secureAccess: true,
        networkPolicy: { defaultAction: "deny", egress: [{ action: "allow", target: "pypi.org" }] },
        credentialProxy: { enabled: true },
        timeout: 90,
        volumes: [
          { name: "data", mountPath: "/data", readOnly: true, host: { path: "/srv" } },
          {
            name: "oss",
            mountPath: "/oss",
            ossfs: {
              bucket: "b",
              endpoint: "oss.example.com",
              accessKeyId: "oss-secret",
              accessKeySecret: "oss-secret"
            }
          }
        ]
      })
      const entries = yield* Stream.runCollect(sandbox.history)
      assert.notInclude(JSON.stringify(entries), "oss-secret")
      yield* sandboxes.create({ image: "i" })
      assert.deepStrictEqual(server.created[1]?.["resourceLimits"], { cpu: "500m", memory: "512Mi" })
    })
  )

  it.scopedLive("a create with an idempotency key finds what the first one made", () =>
    Effect.gen(function* () {
      const { sandboxes, server } = yield* setup({})
      const options = { image: "i", idempotencyKey: "nightly @ 1" }
      const first = yield* sandboxes.create({ ...options, detached: true })
      yield* first.exec("make")
      const [second, third] = yield* Effect.all([sandboxes.create(options), sandboxes.create(options)], {
        concurrency: 2
      })
      assert.deepStrictEqual([second.id, third.id], [first.id, first.id])
      assert.strictEqual((yield* second.exec("make")).seq, 2, "it goes on with the session")
      assert.strictEqual(server.created.length, 1)
      yield* first.close
      const blank = yield* Effect.flip(sandboxes.create({ image: "i", idempotencyKey: " " }))
      assert.deepInclude(blank, { _tag: "SandboxError", reason: "InvalidOptions" })
    })
  )

  it.scopedLive("a create with a key takes no other sandbox, none that is closed, and the older of two", () =>
    Effect.gen(function* () {
      let others: ReadonlyArray<{ readonly [field: string]: unknown }> = []
      let made = 0
      let seenFrom = 0
      const { sandboxes, server } = yield* setup({
        // A server that knows no filter, and tells of some only after something was made.
        override: (request) => {
          if (request.path !== "/v1/sandboxes") return undefined
          if (request.method !== "GET") {
            made++
            return undefined
          }
          return ScriptedServer.json(200, {
            items: made >= seenFrom ? others : [],
            pagination: { page: 1, pageSize: 100, totalItems: 1, totalPages: 1, hasNextPage: false }
          })
        }
      })
      const info = (id: string, key: string, createdAt: string) => ({
        id,
        status: { state: "Running" },
        createdAt,
        metadata: { "sandglass.idempotency-key": key }
      })
      others = [info("theirs", "other", "2020-01-01T00:00:00Z"), { ...info("none", "", ""), metadata: {} }]
      const options = { image: "i", idempotencyKey: "k" }
      const first = yield* sandboxes.create(options)
      assert.strictEqual(first.id, "sbx1")
      yield* first.close
      // It is still there for a moment.
      others = [info("sbx1", "k", "2020-01-01T00:00:00Z")]
      const second = yield* sandboxes.create(options)
      assert.strictEqual(second.id, "sbx2")
      yield* second.close
      seenFrom = made + 1
      others = [info("sbx3", "k", "2026-01-01T00:00:01Z"), info("sbx0", "k", "2025-12-31T23:59:59Z")]
      const third = yield* sandboxes.create({ ...options, detached: true })
      assert.strictEqual(third.id, "sbx0")
      assert.deepStrictEqual(server.deleted, ["sbx1", "sbx2", "sbx3"])
    })
  )

  it.scopedLive("what a create finds that no ledger knows belongs to the run that asks", () =>
    Effect.gen(function* () {
      const { sandboxes, server } = yield* setup({})
      const options = { image: "i", idempotencyKey: "nightly", runId: "run-1", detached: true }
      const { id } = yield* sandboxes.create(options)
      // The ledger of a process that was killed before it could record the container.
      const empty = Sandboxes.layer.pipe(Layer.provide(Layer.merge(server.layer, Ledger.layerMemory)))
      const found = yield* Effect.provide(
        Effect.flatMap(Sandboxes.Sandboxes, (_) => _.create(options)),
        empty
      )
      assert.deepInclude(found, { id, runId: "run-1" })
    })
  )
})
