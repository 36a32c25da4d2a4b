import { assert, describe, it } from "@effect/vitest"
import * as LocalOpenSandbox from "@sandglass/local/LocalOpenSandbox"
import * as Effect from "effect/Effect"
import * as TestClock from "effect/TestClock"
import type { Server } from "./support.js"
import { fromImage, idle, modes, send, start } from "./support.js"

const mode = "plain"
const create = (server: Server, extra: object = {}) =>
  server.request("POST", "/sandboxes", { body: { ...fromImage, ...extra } })

describe("lifecycle", () => {
  it.scopedLive("refuses requests without the key, and tells nothing by it", () =>
    Effect.gen(function* () {
      const server = yield* start({ mode, apiKey: "right" })
      for (const headers of [
        {},
        { "OPEN-SANDBOX-API-KEY": "wrong" },
        { "OPEN-SANDBOX-API-KEY": "" },
        { "OPEN-SANDBOX-API-KEY": "right2" }
      ]) {
        const answer = yield* send("GET", `${server.url}/v1/sandboxes`, { headers })
        assert.strictEqual(answer.status, 401)
        assert.strictEqual(answer.json.code, "UNAUTHORIZED")
        assert.notInclude(answer.text, "right")
      }
      assert.strictEqual((yield* server.request("GET", "/sandboxes")).status, 200)
      const box = yield* server.box()
      for (const path of ["/ping", "/metrics", "/files/info?path=/"]) {
        assert.strictEqual((yield* send("GET", `${box.url}${path}`)).status, 401)
        assert.strictEqual(
          (yield* send("GET", `${box.url}${path}`, { headers: { "X-EXECD-ACCESS-TOKEN": server.apiKey } })).status,
          401
        )
        assert.strictEqual((yield* box.request("GET", path)).status, 200)
      }
    })
  )

  it.scopedLive("refuses a large body in a way that clients see", () =>
    Effect.gen(function* () {
      const server = yield* start({ mode })
      const box = yield* server.box()
      for (const path of ["/files/upload", "/command", "/nothing"]) {
        for (let i = 0; i < 3; i++) {
          const refused = yield* send("POST", `${box.url}${path}`, { body: new Uint8Array(5_000_000) })
          assert.strictEqual(refused.status, 401)
        }
      }
      assert.strictEqual((yield* box.request("POST", "/nothing", { body: new Uint8Array(5_000_000) })).status, 404)
      assert.strictEqual((yield* box.request("POST", "/command", { body: new Uint8Array(5_000_000) })).status, 400)
    })
  )

  it.scopedLive("creates, shows and deletes", () =>
    Effect.gen(function* () {
      const server = yield* start({ mode })
      const made = yield* create(server, { metadata: { team: "a" }, timeout: 3600 })
      assert.strictEqual(made.status, 202)
      assert.strictEqual(made.json.status.state, "Pending")
      assert.deepStrictEqual(made.json.entrypoint, idle.entrypoint)
      assert.strictEqual(made.headers.get("location"), `/v1/sandboxes/${made.json.id}`)
      assert.match(made.headers.get("x-request-id") ?? "", /^[0-9a-f-]{36}$/)
      const shown = (yield* server.request("GET", `/sandboxes/${made.json.id}`)).json
      assert.strictEqual(shown.status.state, "Running")
      assert.deepStrictEqual(shown.image, { uri: "node:22" })
      assert.deepStrictEqual(shown.metadata, { team: "a" })
      assert.strictEqual(Date.parse(shown.expiresAt) - Date.parse(shown.createdAt), 3_600_000)
      assert.strictEqual((yield* server.request("DELETE", `/sandboxes/${made.json.id}`)).status, 204)
      for (const [method, path] of [
        ["GET", ""],
        ["DELETE", ""],
        ["POST", "/pause"],
        ["POST", "/resume"],
        ["POST", "/snapshots"],
        ["GET", "/endpoints/44772"]
      ] as const) {
        const gone = yield* server.request(method, `/sandboxes/${made.json.id}${path}`)
        assert.strictEqual(gone.status, 404)
        assert.strictEqual(gone.json.code, "LOCAL::SANDBOX_NOT_FOUND")
      }
    })
  )

  it.scopedLive("says what is wrong with a request", () =>
    Effect.gen(function* () {
      const server = yield* start({ mode })
      const bad: ReadonlyArray<object> = [
        idle,
        { ...fromImage, snapshotId: "x" },
        { image: { uri: "a" }, resourceLimits: {} },
        { image: { uri: "a" }, entrypoint: ["a"] },
        { ...fromImage, timeout: 5 },
        { ...fromImage, timeout: "60" },
        { ...fromImage, image: "node" },
        { ...fromImage, metadata: { "opensandbox.io/x": "a" } },
        { ...fromImage, metadata: { a: "spaced out" } },
        { ...fromImage, metadata: { a: "x".repeat(64) } },
        { ...fromImage, metadata: { "a b": "x" } },
        { ...fromImage, platform: "linux/amd64" },
        { ...fromImage, secureAccess: "yes" }
      ]
      for (const body of bad) {
        const answer = yield* server.request("POST", "/sandboxes", { body })
        assert.strictEqual(answer.status, 400, JSON.stringify(body))
        assert.match(answer.json.code, /^SANDBOX::INVALID_/)
        assert.isString(answer.json.message)
      }
      assert.strictEqual((yield* server.request("POST", "/sandboxes", { body: "{no json" })).status, 400)
      assert.strictEqual(
        (yield* server.request("POST", "/sandboxes", { body: { snapshotId: "none", resourceLimits: {} } })).status,
        404
      )
      assert.strictEqual((yield* server.request("GET", "/nothing/here")).status, 404)
    })
  )

  it.scopedLive("refuses what it cannot do, instead of leaving it out", () =>
    Effect.gen(function* () {
      const server = yield* start({ mode })
      for (const [extra, word] of [
        [{ volumes: [{ name: "a", mountPath: "/a", host: { path: "/" } }] }, "volumes"],
        [{ extensions: { poolRef: "warm" } }, "pools"],
        [{ image: undefined, entrypoint: undefined, extensions: { poolRef: "warm" } }, "pools"],
        [{ extensions: { "access.renew.extend.seconds": "600" } }, "access.renew.extend.seconds"],
        [{ platform: { os: "windows", arch: "amd64" } }, "windows/amd64"],
        [{ platform: { os: "linux", arch: "riscv64" } }, "linux/riscv64"]
      ] as const) {
        const answer = yield* create(server, extra)
        assert.deepStrictEqual([answer.status, answer.json.code], [501, "NOT_IMPLEMENTED"], word)
        assert.include(answer.json.message, word)
      }
      for (const path of ["/pools", "/pools/a"]) {
        const answer = yield* server.request("GET", path)
        assert.deepStrictEqual([answer.status, answer.json.code], [501, "NOT_IMPLEMENTED"], path)
      }
      const { id } = yield* server.box()
      for (const path of ["diagnostics/summary", "endpoints/80?expires=9999999999"]) {
        const answer = yield* server.request("GET", `/sandboxes/${id}/${path}`)
        assert.deepStrictEqual([answer.status, answer.json.code], [501, "NOT_IMPLEMENTED"], path)
      }
      const arch = process.arch === "x64" ? "amd64" : process.arch
      const own = yield* create(server, { platform: { os: "linux", arch }, extensions: { "my.own/key": "kept" } })
      assert.strictEqual(own.status, 202)
    })
  )

  it.scopedLive("accepts null and absent options alike", () =>
    Effect.gen(function* () {
      const server = yield* start({ mode })
      const answer = yield* create(server, {
        timeout: null,
        metadata: null,
        env: null,
        extensions: null,
        platform: null,
        secureAccess: null,
        snapshotId: null,
        volumes: null
      })
      assert.strictEqual(answer.status, 202)
      assert.notProperty(answer.json, "expiresAt")
    })
  )

  it.scopedLive("lists by page, state and metadata", () =>
    Effect.gen(function* () {
      const server = yield* start({ mode })
      const ids: Array<string> = []
      for (let i = 0; i < 5; i++)
        ids.push((yield* create(server, { metadata: { n: String(i), odd: String(i % 2) } })).json.id)
      const seen: Array<string> = []
      for (let page = 1; page <= 3; page++) {
        const { items, pagination } = (yield* server.request("GET", `/sandboxes?page=${page}&pageSize=2`)).json
        assert.deepStrictEqual(pagination, { page, pageSize: 2, totalItems: 5, totalPages: 3, hasNextPage: page < 3 })
        seen.push(...items.map((item: { id: string }) => item.id))
      }
      assert.sameMembers(seen, ids)
      const listed = (query: string) =>
        Effect.map(server.request("GET", `/sandboxes?${query}`), (answer) =>
          answer.json.items.map((item: { id: string }) => item.id)
        )
      assert.sameMembers(yield* listed(`metadata=${encodeURIComponent("odd=1")}`), [ids[1], ids[3]])
      assert.deepStrictEqual(yield* listed(`metadata=${encodeURIComponent("odd=1&n=3")}`), [ids[3]])
      yield* server.request("POST", `/sandboxes/${ids[0]}/pause`)
      assert.deepStrictEqual(yield* listed("state=Paused"), [ids[0]])
      assert.strictEqual((yield* listed("state=Paused&state=Running")).length, 5)
      assert.deepStrictEqual(yield* listed("state=Failed"), [])
      assert.strictEqual((yield* server.request("GET", "/sandboxes?page=0")).status, 400)
    })
  )

  it.scopedLive("patches metadata", () =>
    Effect.gen(function* () {
      const server = yield* start({ mode })
      const { id } = (yield* create(server, { metadata: { a: "1", b: "2" } })).json
      const patch = (body: object) => server.request("PATCH", `/sandboxes/${id}/metadata`, { body })
      assert.deepStrictEqual((yield* patch({ a: null, c: "3", none: null })).json.metadata, { b: "2", c: "3" })
      assert.deepStrictEqual((yield* patch({})).json.metadata, { b: "2", c: "3" })
      assert.strictEqual((yield* patch({ "opensandbox.io/a": "1" })).status, 400)
      assert.strictEqual((yield* patch({ b: "-" })).status, 400)
      assert.deepStrictEqual((yield* server.request("GET", `/sandboxes/${id}`)).json.metadata, { b: "2", c: "3" })
    })
  )

  it.scopedLive("tells endpoints without a scheme", () =>
    Effect.gen(function* () {
      const server = yield* start({ mode })
      const box = yield* server.box()
      const authority = server.url.replace("http://", "")
      const endpoint = (path: string) =>
        Effect.map(server.request("GET", `/sandboxes/${box.id}/endpoints/${path}`), (answer) => answer.json)
      const direct = yield* endpoint("44772")
      assert.strictEqual(direct.endpoint, `${authority}/sandboxes/${box.id}/port/44772`)
      assert.deepStrictEqual(Object.keys(direct.headers), ["X-EXECD-ACCESS-TOKEN"])
      const proxied = yield* endpoint("44772?use_server_proxy=true")
      assert.strictEqual(
        (yield* send("GET", `http://${proxied.endpoint}/ping`, { headers: proxied.headers })).status,
        200
      )
      assert.deepStrictEqual(yield* endpoint("3000"), { endpoint: "127.0.0.1:3000" })
      assert.strictEqual((yield* server.request("GET", `/sandboxes/${box.id}/endpoints/70000`)).status, 400)
      assert.strictEqual((yield* box.request("GET", "/nothing")).status, 404)
      assert.strictEqual((yield* box.request("PUT", "/command")).status, 405)
    })
  )

  for (const mode of modes) {
    it.scopedLive(`pauses and resumes, with a new token (${mode})`, () =>
      Effect.gen(function* () {
        const server = yield* start({ mode })
        const box = yield* server.box()
        const running = yield* box.start("i=0; while true; do i=$((i+1)); echo $i >$HOME/count; sleep 0.01; done")
        yield* Effect.sleep(100)
        assert.strictEqual((yield* server.request("POST", `/sandboxes/${box.id}/resume`)).status, 409)
        assert.strictEqual((yield* server.request("POST", `/sandboxes/${box.id}/pause`)).status, 202)
        assert.strictEqual((yield* server.request("GET", `/sandboxes/${box.id}`)).json.status.state, "Paused")
        assert.strictEqual((yield* server.request("POST", `/sandboxes/${box.id}/pause`)).status, 409)
        assert.strictEqual((yield* server.request("POST", `/sandboxes/${box.id}/snapshots`)).status, 409)
        assert.strictEqual((yield* box.request("GET", "/ping")).status, 503)
        assert.strictEqual((yield* server.request("POST", `/sandboxes/${box.id}/resume`)).status, 202)
        assert.strictEqual((yield* box.request("GET", "/ping")).status, 401)
        const again = yield* server.connect(box.id)
        assert.notDeepEqual(again.headers, box.headers)
        assert.strictEqual((yield* again.status(running.id)).running, true)
        assert.strictEqual((yield* again.request("DELETE", `/command?id=${running.id}`)).status, 200)
        assert.strictEqual((yield* again.status(running.id)).running, false)
      })
    )
  }

  it.scoped("ends a sandbox when its time has come", () =>
    Effect.gen(function* () {
      const server = yield* start({ mode })
      const { id } = (yield* create(server, { timeout: 60 })).json
      const { id: renewed } = (yield* create(server, { timeout: 60 })).json
      const { id: endless } = (yield* create(server)).json
      const state = (sandbox: string) =>
        Effect.map(server.request("GET", `/sandboxes/${sandbox}`), (answer) => answer.status)
      const renew = (expiresAt: string) =>
        server.request("POST", `/sandboxes/${renewed}/renew-expiration`, { body: { expiresAt } })
      yield* TestClock.adjust("59 seconds")
      assert.strictEqual(yield* state(id), 200)
      assert.strictEqual((yield* renew(new Date(30_000).toISOString())).status, 400)
      assert.strictEqual((yield* renew(new Date(60_000).toISOString())).status, 400)
      assert.strictEqual((yield* renew("tomorrow")).status, 400)
      assert.deepStrictEqual((yield* renew("1970-01-01T01:02:00+01:00")).json, {
        expiresAt: "1970-01-01T00:02:00.000Z"
      })
      yield* TestClock.adjust("2 seconds")
      while ((yield* state(id)) !== 404) yield* Effect.promise(() => new Promise((resume) => setTimeout(resume, 10)))
      assert.strictEqual(yield* state(renewed), 200)
      yield* TestClock.adjust("1 minute")
      while ((yield* state(renewed)) !== 404)
        yield* Effect.promise(() => new Promise((resume) => setTimeout(resume, 10)))
      assert.strictEqual(yield* state(endless), 200)
    })
  )

  it.scopedLive("listens on loopback only", () =>
    Effect.gen(function* () {
      for (const host of ["0.0.0.0", "::", "192.168.1.1", "example.com"]) {
        const error = yield* Effect.flip(LocalOpenSandbox.make({ host }))
        assert.strictEqual(error.reason, "Host")
      }
    })
  )

  it.scopedLive("says how it isolates", () =>
    Effect.gen(function* () {
      const server = yield* start({ mode })
      const info = (yield* server.request("GET", "/local/info")).json
      assert.strictEqual(info.mode, "plain")
      assert.strictEqual(info.securityBoundary, false)
    })
  )
})
