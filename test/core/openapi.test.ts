import { assert, describe, it } from "@effect/vitest"
import { Egress, Execd, OpenSandbox } from "@sandglass/core"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Stream from "effect/Stream"
import * as OpenApi from "../support/OpenApi.js"
import * as ScriptedServer from "../support/ScriptedServer.js"

const { empty, frame, json, stream, webSocket, wsClose, wsText } = ScriptedServer

const sandbox = { id: "s1", status: { state: "Running" }, createdAt: "2026-01-01T00:00:00Z", entrypoint: ["tail"] }
const snapshot = { id: "n1", sandboxId: "s1", status: { state: "Ready" }, createdAt: "2026-01-01T00:00:00Z" }
const page = { page: 1, pageSize: 100, totalItems: 0, totalPages: 1, hasNextPage: false }
const diagnostic = { sandboxId: "s1", kind: "logs", scope: "all", delivery: "inline", content: "x", truncated: false }
const events = () => stream([frame({ type: "execution_complete", execution_time: 1 })])
const metrics = { cpu_count: 1, cpu_used_pct: 1, mem_total_mib: 1, mem_used_mib: 1, timestamp: 1 }
const file = { path: "/a", size: 1, mode: 644, owner: "u", group: "g", modified_at: "", created_at: "" }
const vault = { revision: 1, credentials: [], bindings: [] }
const credential = { name: "c", sourceType: "inline", revision: 1 }

type Answer = (request: ScriptedServer.RecordedRequest) => ScriptedServer.Reply

const answers: { readonly [operation: string]: Answer } = {
  "GET /sandboxes": () => json(200, { items: [], pagination: page }),
  "POST /sandboxes": () => json(202, sandbox),
  "GET /sandboxes/{sandboxId}": () => json(200, sandbox),
  "PATCH /sandboxes/{sandboxId}/metadata": () => json(200, sandbox),
  "POST /sandboxes/{sandboxId}/renew-expiration": () => json(200, { expiresAt: "2099-01-01T00:00:00Z" }),
  "GET /sandboxes/{sandboxId}/endpoints/{port}": (request) =>
    json(200, {
      endpoint: `${request.headers.host}/${/44772/.test(request.path) ? "execd" : "egress"}`,
      headers: { "X-EXECD-ACCESS-TOKEN": "t", "OPENSANDBOX-EGRESS-AUTH": "t" }
    }),
  "POST /sandboxes/{sandboxId}/snapshots": () => json(202, snapshot),
  "GET /snapshots": () => json(200, { items: [], pagination: page }),
  "GET /snapshots/{snapshotId}": () => json(200, snapshot),
  "GET /sandboxes/{sandboxId}/diagnostics/logs": () => json(200, diagnostic),
  "GET /sandboxes/{sandboxId}/diagnostics/events": () => json(200, diagnostic),
  "POST /command": events,
  "GET /command/status/{id}": () => json(200, { id: "c1", running: false, exit_code: 0 }),
  "POST /session": () => json(200, { session_id: "b1" }),
  "POST /session/{sessionId}/run": events,
  "POST /code": events,
  "POST /code/context": () => json(200, { id: "x1", language: "python" }),
  "GET /code/contexts": () => json(200, []),
  "GET /code/contexts/{context_id}": () => json(200, { id: "x1", language: "python" }),
  "GET /files/info": () => json(200, { "/a": file }),
  "GET /files/search": () => json(200, []),
  "POST /files/replace": () => json(200, { "/a": { replacedCount: 1 } }),
  "GET /files/download": () => stream(["bytes"], { headers: { "content-type": "application/octet-stream" } }),
  "GET /directories/list": () => json(200, []),
  "GET /metrics": () => json(200, metrics),
  "GET /metrics/watch": () => stream([`${JSON.stringify(metrics)}\n\n`, ScriptedServer.hold]),
  "GET /policy": () => json(200, { status: "ok" }),
  "PATCH /policy": () => json(200, { status: "ok" }),
  "DELETE /policy": () => json(200, { status: "ok" }),
  "GET /credential-vault": () => json(200, vault),
  "POST /credential-vault": () => json(201, vault),
  "PATCH /credential-vault": () => json(200, vault),
  "DELETE /credential-vault": () => empty(204),
  "GET /credential-vault/credentials": () => json(200, vault),
  "GET /credential-vault/credentials/{credential_name}": () => json(200, credential),
  "GET /credential-vault/bindings": () => json(200, vault),
  "GET /credential-vault/bindings/{binding_name}": () => json(200, credential),
  "POST /pty": () => json(201, { session_id: "t1" }),
  "GET /pty/{id}": () => json(200, { session_id: "t1", running: true, output_offset: 0 }),
  "GET /pty/{id}/ws": (request) =>
    webSocket(request, [
      wsText({ type: "connected", mode: "pipe" }),
      wsText({ type: "exit", exit_code: 0 }),
      wsClose(1000)
    ])
}

/** The part of a path that the documents name, and the documents that may name it. */
const located = (path: string): readonly [string, ReadonlyArray<string>] =>
  path.startsWith("/execd/")
    ? [path.slice("/execd".length), ["execd", "pty"]]
    : path.startsWith("/egress/")
      ? [path.slice("/egress".length), ["egress"]]
      : [path.replace(/^\/v1/, ""), ["lifecycle", "diagnostics"]]

const find = (method: string, path: string) => {
  const [rest, documents] = located(path)
  const candidates = OpenApi.operations.filter(({ document }) => documents.includes(document))
  return { operation: OpenApi.operationOf(candidates, method, rest), rest }
}

const secret = Redacted.make("s3cret")

const lifecycle = Effect.gen(function* () {
  const api = yield* OpenSandbox.OpenSandbox
  yield* api.create({
    image: { uri: "r.example/x:1", auth: { username: "u", password: secret } },
    timeout: "2 minutes",
    resources: { cpu: "500m", memory: "512Mi", gpu: "1" },
    env: { A: "1", B: secret },
    metadata: { run: "r1" },
    entrypoint: ["sleep", "9"],
    extensions: { "access.renew.extend.seconds": "600" },
    platform: { os: "linux", arch: "arm64" },
    networkPolicy: { defaultAction: "deny", egress: [{ action: "allow", target: "pypi.org" }] },
    credentialProxy: true,
    secureAccess: true,
    volumes: [
      { name: "h", mountPath: "/h", readOnly: true, subPath: "a/b", host: { path: "/data" } },
      {
        name: "p",
        mountPath: "/p",
        pvc: {
          claimName: "claim",
          createIfNotExists: true,
          deleteOnSandboxTermination: true,
          storageClass: "fast",
          storage: "1Gi",
          accessModes: ["ReadWriteOnce"]
        }
      },
      {
        name: "o",
        mountPath: "/o",
        ossfs: {
          bucket: "bucket",
          endpoint: "oss.example.com",
          version: "2.0",
          options: ["x"],
          accessKeyId: secret,
          accessKeySecret: secret
        }
      }
    ]
  })
  yield* api.create({ snapshotId: "n1" })
  yield* api.create({ image: "x", extensions: { poolRef: "pool" } })
  yield* api.get("s 1/2")
  yield* Stream.runDrain(api.list({ states: ["Running", "Paused"], metadata: { run: "r1" }, pageSize: 50 }))
  yield* api.pause("s1")
  yield* api.resume("s1")
  yield* api.renew("s1", "1 hour")
  yield* api.patchMetadata("s1", { a: "1", b: null })
  yield* api.endpoint("s1", 8080, { useServerProxy: true })
  yield* api.endpoint("s1", 8080, { expires: "1 hour" })
  yield* api.createSnapshot("s1", { name: "n" })
  yield* api.createSnapshot("s1")
  yield* api.getSnapshot("n1")
  yield* Stream.runDrain(api.listSnapshots({ sandboxId: "s1", states: ["Ready"], pageSize: 50 }))
  yield* api.deleteSnapshot("n1")
  yield* api.diagnosticLogs("s1", "container")
  yield* api.diagnosticEvents("s1", "runtime")
  yield* api.delete("s1")
})

const execd = Effect.gen(function* () {
  const client = yield* Effect.flatMap(Execd.Execd, (execd) => execd.connect("s1"))
  const permission = { mode: 0o644, owner: "u", group: "g" }
  yield* client.ping
  yield* Stream.runDrain(
    client.command({
      command: "ls",
      cwd: "/w",
      env: { A: "1", B: secret },
      timeout: "5 seconds",
      uid: 1,
      gid: 1,
      background: true
    })
  )
  yield* client.interrupt("c1")
  yield* client.status("c1")
  yield* client.logs("c1", "12")
  yield* client.createSession({ cwd: "/w" })
  yield* client.createSession()
  yield* Stream.runDrain(client.runInSession("b1", { command: "ls", cwd: "/w", timeout: "5 seconds" }))
  yield* client.deleteSession("b1")
  yield* client.createCodeContext("python")
  yield* client.codeContexts("python")
  yield* client.codeContext("x1")
  yield* Stream.runDrain(client.runCode({ code: "1", context: { id: "x1", language: "python" } }))
  yield* client.interruptCode("x1")
  yield* client.deleteCodeContext("x1")
  yield* client.deleteCodeContexts("python")
  yield* client.metrics
  yield* Stream.runDrain(Stream.take(client.watchMetrics, 1))
  yield* client.upload([
    { path: "/a", content: "text", ...permission },
    { path: "/b", content: new Uint8Array([1]) }
  ])
  yield* Stream.runDrain(client.download("/a", { offset: 1, length: 2 }))
  yield* client.info(["/a", "/b"])
  yield* client.search("/", "*.ts")
  yield* client.move([{ from: "/a", to: "/b" }])
  yield* client.replace({ "/a": { old: "x", new: "y" } })
  yield* client.setPermissions({ "/a": permission })
  yield* client.removeFiles(["/a", "/b"])
  yield* client.listDirectory("/", { depth: 2 })
  yield* client.makeDirectories({ "/d": permission })
  yield* client.removeDirectories(["/d"])
  yield* client.createTerminal({ cwd: "/w", command: "top" })
  yield* client.terminal("t1")
  yield* Effect.flatMap(client.attachTerminal("t1", { pipe: true, since: 3, takeover: true }), ({ output }) =>
    Stream.runDrain(output)
  )
  yield* client.deleteTerminal("t1")
})

const egress = Effect.gen(function* () {
  const client = yield* Effect.flatMap(Egress.Egress, (egress) => egress.connect("s1"))
  const credentials = [{ name: "c", value: secret }]
  const match = {
    hosts: ["x.org"],
    schemes: ["https", "http"],
    ports: [443],
    methods: ["GET"],
    paths: ["/*"]
  } as const
  const bindings: ReadonlyArray<Egress.CredentialBinding> = [
    { name: "1", match, auth: { type: "bearer", credential: "c" } },
    { name: "2", match: { hosts: ["y.org"] }, auth: { type: "basic", credential: "c" } },
    { name: "3", match, auth: { type: "apiKey", name: "x-key", credential: "c" } },
    { name: "4", match, auth: { type: "customHeaders", headers: [{ name: "x-a", credential: "c" }] } }
  ]
  yield* client.policy
  yield* client.addRules([{ action: "deny", target: "*.x.org" }])
  yield* client.removeRules(["*.x.org"])
  yield* client.createVault({ credentials, bindings })
  yield* client.vault
  yield* client.mutateVault({
    expectedRevision: 1,
    credentials: { add: credentials, replace: credentials, delete: ["d"] },
    bindings: { add: bindings, replace: bindings, delete: ["d"] }
  })
  yield* client.credentials
  yield* client.credential("c")
  yield* client.bindings
  yield* client.binding("1")
  yield* client.deleteVault
})

const recorded = Effect.gen(function* () {
  const server = yield* ScriptedServer.make((request) => {
    const { operation } = find(request.method, request.path)
    if (operation === undefined) return json(500, { code: "NO_OPERATION", message: request.target })
    return answers[`${operation.method} ${operation.path}`]?.(request) ?? empty(200)
  })
  yield* Effect.all([lifecycle, execd, egress], { discard: true }).pipe(
    Effect.provide(
      Layer.provideMerge(
        Layer.merge(Execd.layer, Egress.layer),
        OpenSandbox.layer({ url: server.url, apiKey: Redacted.make("k3y"), retry: { times: 0 } })
      )
    )
  )
  return server.requests
}).pipe(Effect.scoped)

describe("the contracts", () => {
  it.live("every operation has a method whose requests are valid, and every part of them can be given", () =>
    Effect.gen(function* () {
      const requests = yield* recorded
      const problems: Array<string> = []
      const open = new Map(
        OpenApi.operations.map((operation) => [operation, new Set(OpenApi.placesOf(operation))] as const)
      )
      const hit = new Set<OpenApi.Operation>()
      for (const request of requests) {
        const { operation, rest } = find(request.method, request.path)
        if (operation === undefined) {
          problems.push(`${request.method} ${request.target} is no operation`)
          continue
        }
        hit.add(operation)
        for (const place of OpenApi.placesIn(operation, request)) open.get(operation)?.delete(place)
        for (const problem of OpenApi.problemsOf(operation, request, rest)) {
          problems.push(`${OpenApi.nameOf(operation)}: ${problem}`)
        }
      }
      for (const [operation, places] of open) {
        if (!hit.has(operation)) problems.push(`${OpenApi.nameOf(operation)}: no method`)
        else for (const place of places) problems.push(`${OpenApi.nameOf(operation)}: ${place} is never given`)
      }
      assert.deepStrictEqual(problems, [])
      assert.strictEqual(hit.size, OpenApi.operations.length)
    })
  )

  it("are all there", () => {
    const count = (document: string) => OpenApi.operations.filter((operation) => operation.document === document).length
    assert.deepStrictEqual(OpenApi.documents.map(count), [13, 2, 28, 11, 4])
  })
})
