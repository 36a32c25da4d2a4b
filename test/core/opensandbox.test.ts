import { createHash } from "node:crypto"
import * as HttpClient from "@effect/platform/HttpClient"
import { assert, describe, it } from "@effect/vitest"
import { IdGenerator, OpenSandbox, OpenSandboxError } from "@sandglass/core"
import * as Chunk from "effect/Chunk"
import * as Config from "effect/Config"
import * as ConfigError from "effect/ConfigError"
import * as ConfigProvider from "effect/ConfigProvider"
import type * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/TestClock"
import * as Tracer from "effect/Tracer"
import * as MockHttp from "../support/MockHttp.js"
import * as ScriptedServer from "../support/ScriptedServer.js"

type Api = Context.Tag.Service<OpenSandbox.OpenSandbox>

const sandbox = (id: string, extra: { readonly [key: string]: unknown } = {}) => ({
  id,
  status: { state: "Running" },
  createdAt: "2026-01-01T00:00:00Z",
  entrypoint: ["tail", "-f", "/dev/null"],
  ...extra
})

const withServer = <A, E, R>(
  handler: ScriptedServer.Handler,
  use: (api: Api, server: ScriptedServer.ScriptedServer) => Effect.Effect<A, E, R>,
  options: OpenSandbox.Options = {}
) =>
  Effect.flatMap(ScriptedServer.make(handler), (server) =>
    Effect.flatMap(OpenSandbox.OpenSandbox, (api) => use(api, server)).pipe(
      Effect.provide(OpenSandbox.layer({ url: server.url, retry: { baseDelay: 1 }, ...options }))
    )
  )

const withMock = <A, E, R>(
  mock: MockHttp.MockHttp,
  use: (api: Api) => Effect.Effect<A, E, R>,
  options: OpenSandbox.Options = {}
) =>
  Effect.flatMap(OpenSandbox.OpenSandbox, use).pipe(
    Effect.provide(Layer.provide(OpenSandbox.layerWithoutHttpClient(options), mock.layer))
  )

describe("labelValue", () => {
  const label = /^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$/

  it("leaves valid values alone", () => {
    for (const text of ["a", "run-42", "A.b_c-9", "x".repeat(63)])
      assert.strictEqual(OpenSandbox.labelValue(text), text)
  })

  it("makes any other text valid, the same way each time, and keeps them apart", () => {
    const texts = [
      "",
      " ",
      "me@example.com",
      "me-example.com ",
      "a b",
      "a  b",
      "🙂",
      "🙂🙂",
      "-a",
      "a-",
      "x".repeat(64),
      "x".repeat(80),
      "報告",
      "a\u0000b",
      "\ud83d",
      "\ude00",
      "line\nbreak"
    ]
    const values = texts.map(OpenSandbox.labelValue)
    for (const value of values) {
      assert.match(value, label)
      assert.isAtMost(value.length, 63)
    }
    assert.strictEqual(new Set(values).size, texts.length)
    assert.deepStrictEqual(texts.map(OpenSandbox.labelValue), values)
  })

  it("takes the hash from SHA-256 of the UTF-16 code units", () => {
    const text = "me@example.com"
    const hash = createHash("sha256").update(Buffer.from(text, "utf16le").swap16()).digest("hex")
    assert.strictEqual(OpenSandbox.labelValue(text), `me-example-com.${hash.slice(0, 32)}`)
  })
})

describe("create", () => {
  it.scopedLive("sends what the server wants, with defaults, seconds and secrets in the clear", () =>
    withServer(
      () => ScriptedServer.json(202, sandbox("s1", { status: { state: "Pending" } })),
      (api, server) =>
        Effect.gen(function* () {
          const info = yield* api.create({
            image: { uri: "r.example/x:1", auth: { username: "u", password: Redacted.make("pw") } },
            timeout: "90500 millis",
            env: { A: "1", B: Redacted.make("secret") },
            metadata: { run: "r1" }
          })
          assert.strictEqual(info.id, "s1")
          assert.strictEqual(info.status.state, "Pending")
          assert.strictEqual(info.createdAt, Date.UTC(2026, 0, 1))
          const request = server.requests[0]
          assert.strictEqual(request?.method, "POST")
          assert.strictEqual(request?.target, "/v1/sandboxes")
          assert.strictEqual(request?.headers["open-sandbox-api-key"], "k3y")
          assert.deepStrictEqual(request?.json, {
            image: { uri: "r.example/x:1", auth: { username: "u", password: "pw" } },
            timeout: 91,
            resourceLimits: { cpu: "500m", memory: "512Mi" },
            env: { A: "1", B: "secret" },
            metadata: { run: "r1", "sandglass.create-key": "fixed" },
            entrypoint: ["tail", "-f", "/dev/null"]
          })
        }),
      { apiKey: Redacted.make("k3y") }
    ).pipe(Effect.provideService(IdGenerator.IdGenerator, { next: Effect.succeed("fixed") }))
  )

  it.scopedLive("leaves to a snapshot and to a pool what they define", () =>
    withServer(
      () => ScriptedServer.json(202, sandbox("s1")),
      (api, server) =>
        Effect.gen(function* () {
          yield* api.create({ snapshotId: "snap" })
          yield* api.create({ extensions: { poolRef: "pool" } })
          yield* api.create({ image: "y", extensions: { poolRef: "pool" } })
          yield* api.create({
            image: "x",
            networkPolicy: { defaultAction: "deny", egress: [{ action: "allow", target: "pypi.org" }] },
            credentialProxy: true,
            resources: { cpu: "2" },
            entrypoint: ["sleep", "9"],
            timeout: Infinity,
            volumes: [
              {
                name: "v",
                mountPath: "/v",
                ossfs: {
                  bucket: "bkt",
                  endpoint: "e",
                  accessKeyId: Redacted.make("i"),
                  accessKeySecret: Redacted.make("s")
                }
              }
            ]
          })
          const [snapshot, pool, pooledImage, image] = server.requests.map(
            ({ json }) => json as { readonly [key: string]: unknown }
          )
          assert.hasAllKeys(snapshot, ["snapshotId", "resourceLimits", "metadata"])
          assert.hasAllKeys(pool, ["extensions", "metadata"])
          assert.hasAllKeys(pooledImage, ["image", "extensions", "metadata"])
          assert.deepInclude(image, {
            networkPolicy: { defaultAction: "deny", egress: [{ action: "allow", target: "pypi.org" }] },
            credentialProxy: { enabled: true },
            resourceLimits: { cpu: "2" },
            entrypoint: ["sleep", "9"],
            volumes: [
              {
                name: "v",
                mountPath: "/v",
                ossfs: { bucket: "bkt", endpoint: "e", accessKeyId: "i", accessKeySecret: "s" }
              }
            ]
          })
          assert.notProperty(image, "timeout")
        })
    )
  )

  it.effect("refuses bad requests before anything is sent", () => {
    const mock = MockHttp.make(() => MockHttp.json(202, sandbox("s1")))
    const cases: ReadonlyArray<readonly [OpenSandbox.CreateRequest, RegExp]> = [
      [{ image: "x", timeout: "59 seconds" }, /at least 60 seconds, not 59s/],
      [{}, /exactly one of .* not none/],
      [{ image: "x", snapshotId: "y" }, /image and snapshotId/],
      [{ snapshotId: "y", extensions: { poolRef: "p" } }, /snapshotId and extensions.poolRef/],
      [{ image: "x", snapshotId: "y", extensions: { poolRef: "p" } }, /image and snapshotId and extensions.poolRef/],
      [{ image: "" }, /image is empty/],
      [{ image: { uri: " " } }, /image is empty/],
      [{ image: "x", entrypoint: [] }, /entrypoint is empty/],
      [{ image: "x", metadata: { run: "a b" } }, /"a b" of "run" .*labelValue/],
      [{ image: "x", metadata: { run: "" } }, /no Kubernetes label value/],
      [{ image: "x", metadata: { "opensandbox.io/x": "a" } }, /reserved/],
      [{ image: "x", metadata: { "a b": "a" } }, /no Kubernetes label name/],
      [{ image: "x", metadata: { "Not_DNS/a": "a" } }, /no Kubernetes label name/]
    ]
    return withMock(mock, (api) =>
      Effect.gen(function* () {
        for (const [request, message] of cases) {
          const error = yield* Effect.flip(api.create(request))
          assert.strictEqual(error.reason, "InvalidRequest")
          assert.match(error.message, message)
        }
        assert.lengthOf(mock.sent, 0)
      })
    )
  })

  it.scopedLive("finds the sandbox again when the answer is lost, and makes no second one", () => {
    let made: string | undefined
    return withServer(
      (request) => {
        if (request.method === "POST") {
          made = (request.json as { metadata: Record<string, string> }).metadata["sandglass.create-key"]
          return ScriptedServer.resetConnection
        }
        const others = [sandbox("other", { metadata: { "sandglass.create-key": "not-ours" } })]
        // not yet listed at the first look
        return ScriptedServer.json(200, {
          items:
            request.index < 2 ? others : [...others, sandbox("ours", { metadata: { "sandglass.create-key": made } })],
          pagination: { hasNextPage: false }
        })
      },
      (api, server) =>
        Effect.gen(function* () {
          const info = yield* api.create({ image: "x" })
          assert.strictEqual(info.id, "ours")
          assert.deepStrictEqual(
            server.requests.map(({ method }) => method),
            ["POST", "GET", "GET"]
          )
          assert.strictEqual(server.requests[1]?.query.get("metadata"), `sandglass.create-key=${made}`)
        })
    )
  })

  for (const [name, answer] of [
    ["a proxy's 502", () => new Response("<html>Bad Gateway</html>", { status: 502 })],
    ["a connection that is reset", () => new MockHttp.ConnectionFailed()],
    ["an answer that is none", () => new Response("garbage", { status: 202 })]
  ] as const) {
    it.effect(`${name}: looks a few times, then fails with the first error`, () => {
      const mock = MockHttp.make(({ method }) =>
        method === "POST" ? answer() : MockHttp.json(200, { items: [], pagination: { hasNextPage: false } })
      )
      return withMock(mock, (api) =>
        Effect.gen(function* () {
          const fiber = yield* Effect.fork(Effect.flip(api.create({ image: "x" })))
          yield* TestClock.adjust("1 minute")
          const error = yield* Fiber.join(fiber)
          assert.strictEqual(error.method, "create")
          assert.include(["ServerError", "Transport", "Decode"], error.reason)
          assert.strictEqual(mock.sent.filter(({ method }) => method === "POST").length, 1)
          assert.strictEqual(mock.sent.length, 6)
        })
      )
    })
  }

  it.effect("does not look where the server itself said no, or was never reached", () => {
    const answers = [
      () => MockHttp.json(500, { code: "DOCKER::IMAGE_PULL_FAILED", message: "no" }),
      () => MockHttp.json(400, { code: "SANDBOX::INVALID_PARAMETER", message: "no" }),
      () => MockHttp.json(429, { code: "BUSY", message: "no" }, { "retry-after": "7" }),
      () => new MockHttp.ConnectionFailed("ECONNREFUSED")
    ]
    const mock = MockHttp.make((_, index) => answers[index]?.() ?? new Response(null, { status: 500 }))
    return withMock(mock, (api) =>
      Effect.gen(function* () {
        const reasons: Array<string> = []
        for (const _ of answers) reasons.push((yield* Effect.flip(api.create({ image: "x" }))).reason)
        assert.deepStrictEqual(reasons, ["ServerError", "InvalidRequest", "RateLimited", "Transport"])
        assert.lengthOf(mock.sent, answers.length)
      })
    )
  })

  it.scopedLive("deletes what an interrupted create has made", () => {
    let key = ""
    return withServer(
      (request) => {
        if (request.method === "POST") {
          key = (request.json as { metadata: Record<string, string> }).metadata["sandglass.create-key"] ?? ""
          return ScriptedServer.silence
        }
        return request.method === "DELETE"
          ? ScriptedServer.empty(204)
          : ScriptedServer.json(200, {
              items: [sandbox("orphan", { metadata: { "sandglass.create-key": key } })],
              pagination: { hasNextPage: false }
            })
      },
      (api, server) =>
        Effect.gen(function* () {
          const fiber = yield* Effect.fork(api.create({ image: "x" }))
          yield* server.waitForRequests(1)
          yield* Fiber.interrupt(fiber)
          const post = server.requests[0]
          if (post !== undefined) yield* post.disconnected
          assert.deepStrictEqual(
            server.requests.map(({ method, path }) => `${method} ${path}`),
            ["POST /v1/sandboxes", "GET /v1/sandboxes", "DELETE /v1/sandboxes/orphan"]
          )
        })
    )
  })

  it.effect("gives the cleanup of an interrupted create a bounded time", () => {
    const mock = MockHttp.make(() => Effect.never)
    return withMock(mock, (api) =>
      Effect.gen(function* () {
        const fiber = yield* Effect.fork(api.create({ image: "x" }))
        yield* Effect.yieldNow()
        const interruption = yield* Effect.fork(Fiber.interrupt(fiber))
        yield* TestClock.adjust("11 seconds")
        yield* Fiber.join(interruption)
        assert.deepStrictEqual(
          mock.sent.map(({ method }) => method),
          ["POST", "GET"]
        )
      })
    )
  })
})

describe("reading", () => {
  it.scopedLive("tolerates unknown states and fields, nulls, and dates of every kind", () =>
    withServer(
      ScriptedServer.sequence(
        ScriptedServer.json(200, {
          id: "s1",
          status: { state: "Hibernating", reason: null, message: "zzz", since: 5 },
          image: { uri: "node:22", auth: null, digest: "x" },
          metadata: { a: "1", n: 5, gone: null },
          platform: null,
          entrypoint: null,
          createdAt: "2026-01-02T03:04:05.123456789+02:00",
          expiresAt: "soon",
          future: { x: [] }
        }),
        ScriptedServer.json(200, {
          id: "s2",
          status: { state: "Running" },
          createdAt: "0001-01-01T00:00:00Z",
          expiresAt: null
        }),
        ScriptedServer.json(200, {
          id: "s3",
          status: { state: "Running" },
          metadata: null,
          platform: { os: "linux", arch: "arm64" },
          createdAt: "2026-01-02T03:04:05"
        })
      ),
      (api) =>
        Effect.gen(function* () {
          const first = yield* api.get("s1")
          assert.deepStrictEqual(first, {
            id: "s1",
            status: { state: "Hibernating", reason: undefined, message: "zzz" },
            image: "node:22",
            snapshotId: undefined,
            metadata: { a: "1", n: "5" },
            entrypoint: undefined,
            platform: undefined,
            createdAt: Date.UTC(2026, 0, 2, 1, 4, 5, 123),
            expiresAt: undefined
          })
          const second = yield* api.get("s2")
          assert.isUndefined(second.createdAt)
          assert.isUndefined(second.expiresAt)
          const third = yield* api.get("s3")
          assert.deepStrictEqual(third.metadata, {})
          assert.deepStrictEqual(third.platform, { os: "linux", arch: "arm64" })
          assert.strictEqual(third.createdAt, Date.UTC(2026, 0, 2, 3, 4, 5))
        })
    )
  )

  it.scopedLive("percent-encodes ids and refuses those that no path can hold", () =>
    withServer(
      () => ScriptedServer.json(200, sandbox("s1")),
      (api, server) =>
        Effect.gen(function* () {
          yield* api.get("a/b?c#d é")
          assert.strictEqual(server.requests[0]?.target, "/v1/sandboxes/a%2Fb%3Fc%23d%20%C3%A9")
          for (const id of ["", " ", ".", "..", "\ud83d"]) {
            const error = yield* Effect.flip(api.get(id))
            assert.strictEqual(error.reason, "InvalidRequest")
            assert.strictEqual((yield* Effect.flip(api.getSnapshot(id))).reason, "InvalidRequest")
          }
          assert.lengthOf(server.requests, 1)
        })
    )
  )

  it.scopedLive("reads every page", () =>
    withServer(
      (request) => {
        const page = Number(request.query.get("page"))
        const size = Number(request.query.get("pageSize"))
        const all = Array.from({ length: 45 }, (_, i) => sandbox(`s${i}`))
        return ScriptedServer.json(200, {
          items: all.slice((page - 1) * size, page * size),
          pagination: { page, pageSize: size, totalItems: 45, totalPages: 3, hasNextPage: page * size < 45 }
        })
      },
      (api, server) =>
        Effect.gen(function* () {
          const all = yield* Stream.runCollect(
            api.list({ pageSize: 20, states: ["Running", "Paused"], metadata: { "a.b/c": "d" } })
          )
          assert.deepStrictEqual(
            Chunk.toReadonlyArray(all).map(({ id }) => id),
            Array.from({ length: 45 }, (_, i) => `s${i}`)
          )
          assert.deepStrictEqual(
            server.requests.map(({ query }) => query.get("page")),
            ["1", "2", "3"]
          )
          assert.deepStrictEqual(server.requests[0]?.query.getAll("state"), ["Running", "Paused"])
          assert.strictEqual(server.requests[0]?.query.get("metadata"), "a.b%2Fc=d")
          const few = yield* Stream.runCollect(Stream.take(api.list({ pageSize: 20 }), 5))
          assert.lengthOf(few, 5)
          assert.lengthOf(server.requests, 4)
        })
    )
  )

  it.effect("survives pages without items, without pagination, and repeated items", () => {
    const pages = [
      MockHttp.json(200, { items: null, pagination: { hasNextPage: true } }),
      MockHttp.json(200, { items: [sandbox("a")] }),
      MockHttp.json(200, { items: [sandbox("a"), sandbox("b")], pagination: { hasNextPage: true } }),
      MockHttp.json(200, { items: [sandbox("b"), sandbox("c")], pagination: { hasNextPage: false } })
    ]
    const mock = MockHttp.make((_, index) => pages[index] ?? new Response(null, { status: 500 }))
    const ids = (api: Api) => Effect.map(Stream.runCollect(api.list()), (all) => Array.from(all, ({ id }) => id))
    return withMock(mock, (api) =>
      Effect.gen(function* () {
        assert.deepStrictEqual(yield* ids(api), [])
        assert.deepStrictEqual(yield* ids(api), ["a"])
        assert.deepStrictEqual(yield* ids(api), ["a", "b", "c"])
        assert.strictEqual((yield* Effect.flip(Stream.runDrain(api.list({ pageSize: 0 })))).reason, "InvalidRequest")
        assert.strictEqual(
          (yield* Effect.flip(Stream.runDrain(api.list({ metadata: { a: "b c" } })))).reason,
          "InvalidRequest"
        )
      })
    )
  })

  it.scopedLive("snapshots: made, read, listed by sandbox and state", () =>
    withServer(
      (request) => {
        const snapshot = {
          id: "sn",
          sandboxId: "s1",
          name: null,
          status: { state: "Committing" },
          createdAt: "x",
          size: 3
        }
        return request.method === "GET" && request.path === "/v1/snapshots"
          ? ScriptedServer.json(200, { items: [snapshot], pagination: { hasNextPage: false } })
          : ScriptedServer.json(request.method === "POST" ? 202 : 200, snapshot)
      },
      (api, server) =>
        Effect.gen(function* () {
          const made = yield* api.createSnapshot("s1", { name: "n" })
          assert.deepStrictEqual(made, {
            id: "sn",
            sandboxId: "s1",
            name: undefined,
            status: { state: "Committing", reason: undefined, message: undefined },
            createdAt: undefined
          })
          yield* api.createSnapshot("s1")
          assert.deepStrictEqual(yield* api.getSnapshot("sn"), made)
          const all = yield* Stream.runCollect(api.listSnapshots({ sandboxId: "s1", states: ["Ready", "Failed"] }))
          assert.deepStrictEqual(Chunk.toReadonlyArray(all), [made])
          assert.deepStrictEqual(
            server.requests.map(({ method, path, text }) => [method, path, text]),
            [
              ["POST", "/v1/sandboxes/s1/snapshots", `{"name":"n"}`],
              ["POST", "/v1/sandboxes/s1/snapshots", "{}"],
              ["GET", "/v1/snapshots/sn", ""],
              ["GET", "/v1/snapshots", ""]
            ]
          )
          assert.strictEqual(server.requests[3]?.query.get("sandboxId"), "s1")
          assert.deepStrictEqual(server.requests[3]?.query.getAll("state"), ["Ready", "Failed"])
          assert.strictEqual((yield* Effect.flip(api.createSnapshot("s1", { name: "" }))).reason, "InvalidRequest")
        })
    )
  )
})

describe("deleting", () => {
  for (const status of [200, 202, 204, 404, 409, 410]) {
    it.scopedLive(`a sandbox, answered ${status}, counts as deleted`, () =>
      withServer(
        () => (status < 300 ? ScriptedServer.empty(status) : ScriptedServer.json(status, { code: "X", message: "y" })),
        (api, server) =>
          Effect.gen(function* () {
            yield* api.delete("s1")
            assert.deepStrictEqual(
              server.requests.map(({ method, path }) => [method, path]),
              [["DELETE", "/v1/sandboxes/s1"]]
            )
          })
      )
    )
  }

  it.scopedLive("a missing one may answer 500 with a code that says so", () =>
    withServer(
      () => ScriptedServer.json(500, { code: "DOCKER::SANDBOX_NOT_FOUND", message: "gone" }),
      (api, server) => Effect.map(api.delete("s1"), () => assert.lengthOf(server.requests, 1))
    )
  )

  it.scopedLive("a snapshot that is gone counts, one that is still being made does not", () =>
    withServer(
      ScriptedServer.sequence(
        ScriptedServer.empty(404),
        ScriptedServer.json(409, { code: "DOCKER::SNAPSHOT_CREATING", message: "wait" })
      ),
      (api) =>
        Effect.gen(function* () {
          yield* api.deleteSnapshot("sn")
          assert.strictEqual((yield* Effect.flip(api.deleteSnapshot("sn"))).reason, "Conflict")
        })
    )
  )
})

describe("repeating", () => {
  it.scopedLive("GET and DELETE are repeated after a reset, 429 and 5xx", () =>
    withServer(
      ScriptedServer.sequence(
        ScriptedServer.resetConnection,
        ScriptedServer.text(503, "later"),
        ScriptedServer.empty(429),
        ScriptedServer.json(200, sandbox("s1")),
        ScriptedServer.text(502, "later"),
        ScriptedServer.empty(204)
      ),
      (api, server) =>
        Effect.gen(function* () {
          yield* api.get("s1")
          assert.lengthOf(server.requests, 4)
          yield* api.delete("s1")
          assert.lengthOf(server.requests, 6)
        })
    )
  )

  it.effect("but not for ever, not after 501, and not when turned off", () => {
    const mock = MockHttp.make(({ url }) => new Response("x", { status: url.pathname.endsWith("nope") ? 501 : 503 }))
    return Effect.gen(function* () {
      yield* withMock(mock, (api) => Effect.flip(api.get("s1")), { retry: { baseDelay: 0 } })
      assert.lengthOf(mock.sent, 4)
      yield* withMock(mock, (api) => Effect.flip(api.get("nope")), { retry: { baseDelay: 0 } })
      assert.lengthOf(mock.sent, 5)
      yield* withMock(mock, (api) => Effect.flip(api.get("s1")), { retry: { times: 0 } })
      assert.lengthOf(mock.sent, 6)
    })
  })

  it.effect("POST and PATCH are sent exactly once", () => {
    const mock = MockHttp.make(({ method }) =>
      method === "GET"
        ? MockHttp.json(200, sandbox("s1", { expiresAt: "2026-01-01T00:00:00Z" }), {
            date: "Thu, 01 Jan 2026 00:00:00 GMT"
          })
        : new Response("Bad Gateway", { status: 502 })
    )
    return withMock(mock, (api) =>
      Effect.gen(function* () {
        const errors = yield* Effect.all([
          Effect.flip(api.pause("s1")),
          Effect.flip(api.resume("s1")),
          Effect.flip(api.createSnapshot("s1")),
          Effect.flip(api.patchMetadata("s1", { a: "b" })),
          Effect.flip(api.renew("s1", "1 minute"))
        ])
        for (const error of errors) assert.strictEqual(error.status, 502)
        assert.deepStrictEqual(
          mock.sent.filter(({ method }) => method !== "GET").map(({ method }) => method),
          ["POST", "POST", "POST", "PATCH", "POST"]
        )
      })
    )
  })

  const later = (headers: { readonly [name: string]: string }) => new Response("slow down", { status: 429, headers })

  for (const [name, headers, wait] of [
    ["seconds", { "retry-after": "2" }, 2000],
    [
      "a date, by the server's clock",
      { "retry-after": "Thu, 01 Jan 2026 00:00:05 GMT", date: "Thu, 01 Jan 2026 00:00:01 GMT" },
      4000
    ],
    ["a date, by ours", { "retry-after": "Thu, 01 Jan 1970 00:00:03 GMT" }, 3000],
    ["more than the cap", { "retry-after": "3600" }, 10_000]
  ] as const) {
    it.effect(`Retry-After: ${name}`, () => {
      const mock = MockHttp.make((_, index) => (index === 0 ? later(headers) : MockHttp.json(200, sandbox("s1"))))
      return withMock(mock, (api) =>
        Effect.gen(function* () {
          const fiber = yield* Effect.fork(api.get("s1"))
          yield* TestClock.adjust(wait - 1)
          assert.lengthOf(mock.sent, 1)
          yield* TestClock.adjust(1)
          assert.strictEqual((yield* Fiber.join(fiber)).id, "s1")
          assert.lengthOf(mock.sent, 2)
        })
      )
    })
  }

  for (const [name, headers] of [
    ["rubbish", { "retry-after": "in a while" }],
    ["none", {}]
  ] as const) {
    it.effect(`Retry-After: ${name}: our own delay`, () => {
      const mock = MockHttp.make((_, index) => (index === 0 ? later(headers) : MockHttp.json(200, sandbox("s1"))))
      return withMock(mock, (api) =>
        Effect.gen(function* () {
          const fiber = yield* Effect.fork(api.get("s1"))
          yield* TestClock.adjust(99)
          assert.lengthOf(mock.sent, 1)
          yield* TestClock.adjust(201)
          assert.strictEqual((yield* Fiber.join(fiber)).id, "s1")
        })
      )
    })
  }

  it.effect("keeps the header in the error of what is not repeated", () => {
    const mock = MockHttp.make(() => later({ "retry-after": "2" }))
    return withMock(mock, (api) =>
      Effect.gen(function* () {
        const error = yield* Effect.flip(api.pause("s1"))
        assert.strictEqual(error.reason, "RateLimited")
        assert.strictEqual(error.retryAfter, 2000)
        assert.isTrue(error.isRetryable)
      })
    )
  })

  it.effect("an answer that does not come is a Timeout", () => {
    const mock = MockHttp.make(() => Effect.never)
    return withMock(
      mock,
      (api) =>
        Effect.gen(function* () {
          const fiber = yield* Effect.fork(Effect.flip(api.get("s1")))
          yield* TestClock.adjust("5 seconds")
          const error = yield* Fiber.join(fiber)
          assert.strictEqual(error.reason, "Timeout")
          assert.lengthOf(mock.sent, 1)
        }),
      { requestTimeout: "5 seconds" }
    )
  })

  it.effect("and so it is where nothing can be interrupted", () => {
    const mock = MockHttp.make(() => Effect.never)
    return withMock(mock, (api) =>
      Effect.gen(function* () {
        const fiber = yield* Effect.fork(Effect.uninterruptible(Effect.flip(api.delete("s1"))))
        yield* TestClock.adjust("30 seconds")
        assert.strictEqual((yield* Fiber.join(fiber)).reason, "Timeout")
      })
    )
  })
})

describe("error bodies", () => {
  const page = `<html>\n<head><title>502 Bad Gateway</title></head>${"<p>filler</p>".repeat(100)}</html>`
  const cases: ReadonlyArray<
    readonly [string, number, string | null, { reason: string; code?: string; description?: string | RegExp }]
  > = [
    [
      "code and message",
      400,
      `{"code":"SANDBOX::INVALID_PARAMETER","message":"bad"}`,
      {
        reason: "InvalidRequest",
        code: "SANDBOX::INVALID_PARAMETER",
        description: "bad"
      }
    ],
    ["detail as text", 404, `{"detail":"Not Found"}`, { reason: "NotFound", description: "Not Found" }],
    [
      "detail as document",
      409,
      `{"detail":{"code":"DOCKER::BUSY","message":"busy"}}`,
      {
        reason: "Conflict",
        code: "DOCKER::BUSY",
        description: "busy"
      }
    ],
    [
      "detail as list",
      422,
      `{"detail":[{"loc":["body","timeout"],"msg":"too small","type":"x"},{"msg":"other"}]}`,
      {
        reason: "InvalidRequest",
        description: "body.timeout: too small; other"
      }
    ],
    [
      "error as text",
      401,
      `{"error":"Unauthorized: invalid token"}`,
      {
        reason: "Unauthorized",
        description: "Unauthorized: invalid token"
      }
    ],
    ["plain text", 403, "policy says no", { reason: "Unauthorized", description: "policy says no" }],
    ["a JSON string", 412, `"no proxy"`, { reason: "Conflict", description: "no proxy" }],
    ["a page", 400, page, { reason: "InvalidRequest", description: /^<html> <head><title>502 Bad Gateway.*…$/ }],
    ["nothing", 405, null, { reason: "ServerError" }],
    [
      "a code that says not found",
      500,
      `{"code":"KUBERNETES::SANDBOX_NOT_FOUND","message":"x"}`,
      {
        reason: "NotFound",
        code: "KUBERNETES::SANDBOX_NOT_FOUND",
        description: "x"
      }
    ],
    ["a numeric code", 413, `{"code":17,"message":"x"}`, { reason: "InvalidRequest", code: "17", description: "x" }],
    [
      "a message without end",
      400,
      JSON.stringify({ code: "A", message: "m".repeat(50_000) }),
      {
        reason: "InvalidRequest",
        code: "A",
        description: "m".repeat(2000)
      }
    ],
    ["cut JSON", 410, `{"code":"A","mess`, { reason: "NotFound", description: `{"code":"A","mess` }]
  ]
  for (const [name, status, body, expected] of cases) {
    it.effect(name, () => {
      const mock = MockHttp.make(() => new Response(body, { status, headers: { "x-request-id": "req-1" } }))
      return withMock(mock, (api) =>
        Effect.gen(function* () {
          const error = yield* Effect.flip(api.pause("s1"))
          assert.strictEqual(error.reason, expected.reason)
          assert.strictEqual(error.status, status)
          assert.strictEqual(error.code, expected.code)
          if (expected.description instanceof RegExp) assert.match(error.description ?? "", expected.description)
          else assert.strictEqual(error.description, expected.description)
          assert.isAtMost((error.description ?? "").length, 2000)
          assert.strictEqual(error.requestId, "req-1")
          assert.include(error.message, "OpenSandbox.pause")
          assert.isTrue(OpenSandboxError.isOpenSandboxError(error))
        })
      )
    })
  }

  it.scopedLive("an endless body is read up to a cap", () =>
    withServer(
      () =>
        ScriptedServer.stream(
          (function* () {
            for (;;) yield "x".repeat(4096)
          })(),
          { status: 500 }
        ),
      (api, server) =>
        Effect.gen(function* () {
          const error = yield* Effect.flip(api.pause("s1"))
          assert.strictEqual(error.status, 500)
          assert.match(error.description ?? "", /^x+…$/)
          const request = server.requests[0]
          if (request !== undefined) yield* request.disconnected
        })
    )
  )

  it.scopedLive("a redirect is reported, not followed with the key", () =>
    withServer(
      () => ScriptedServer.empty(307, { location: "http://127.0.0.1:9/elsewhere" }),
      (api, server) =>
        Effect.gen(function* () {
          const error = yield* Effect.flip(api.get("s1"))
          assert.strictEqual(error.status, 307)
          assert.include(error.description, "http://127.0.0.1:9/elsewhere")
          assert.lengthOf(server.requests, 1)
        }),
      { apiKey: Redacted.make("k3y") }
    )
  )

  it.scopedLive("a success that is no document is a Decode error with the start of the body", () =>
    withServer(
      ScriptedServer.sequence(
        ScriptedServer.text(200, "<html>hello</html>"),
        ScriptedServer.json(200, { id: 5 }),
        ScriptedServer.empty(200)
      ),
      (api) =>
        Effect.gen(function* () {
          const page = yield* Effect.flip(api.get("s1"))
          assert.strictEqual(page.reason, "Decode")
          assert.include(page.description, "<html>hello</html>")
          assert.strictEqual((yield* Effect.flip(api.get("s1"))).reason, "Decode")
          assert.include((yield* Effect.flip(api.get("s1"))).description, "empty")
        })
    )
  )
})

describe("renew", () => {
  const date = "Thu, 01 Jan 2026 12:00:00 GMT"
  const now = Date.UTC(2026, 0, 1, 12)

  it.effect("counts from the server's clock", () => {
    const mock = MockHttp.make(({ method }) =>
      method === "GET"
        ? MockHttp.json(200, sandbox("s1", { expiresAt: "2026-01-01T12:01:00Z" }), { date })
        : MockHttp.json(200, { expiresAt: "2026-01-01T12:10:00.000Z" })
    )
    return withMock(mock, (api) =>
      Effect.gen(function* () {
        assert.strictEqual(yield* api.renew("s1", "10 minutes"), now + 600_000)
        assert.deepStrictEqual(mock.sent[1]?.body, { expiresAt: "2026-01-01T12:10:00.000Z" })
        assert.strictEqual(mock.sent[1]?.url.pathname, "/v1/sandboxes/s1/renew-expiration")
      })
    )
  })

  it.effect("never shortens", () => {
    const mock = MockHttp.make(() => MockHttp.json(200, sandbox("s1", { expiresAt: "2026-01-01T13:00:00Z" }), { date }))
    return withMock(mock, (api) =>
      Effect.gen(function* () {
        assert.strictEqual(yield* api.renew("s1", "10 minutes"), now + 3_600_000)
        assert.lengthOf(mock.sent, 1)
        for (const duration of [0, -5, Infinity]) {
          assert.strictEqual((yield* Effect.flip(api.renew("s1", duration))).reason, "InvalidRequest")
        }
        assert.lengthOf(mock.sent, 1)
      })
    )
  })
})

describe("endpoint", () => {
  const token = { "X-EXECD-ACCESS-TOKEN": "t0ken" }

  for (const [given, expected] of [
    ["10.0.0.1:4000/proxy/1/", "http://10.0.0.1:4000/proxy/1"],
    ["localhost:4000", "http://localhost:4000"],
    ["https://gw.example/x", "https://gw.example/x"],
    ["http://h:1/", "http://h:1"],
    ["//gw.example/x", "http://gw.example/x"],
    ["/v1/proxy/x", "https://ctl.example:8443/v1/proxy/x"]
  ] as const) {
    it.effect(`${given} is ${expected}`, () => {
      const mock = MockHttp.make(() => MockHttp.json(200, { endpoint: given, headers: token }))
      return withMock(
        mock,
        (api) =>
          Effect.gen(function* () {
            const endpoint = yield* api.endpoint("s1", 44772)
            assert.strictEqual(endpoint.url, expected)
            assert.deepStrictEqual(Object.keys(endpoint.headers), ["X-EXECD-ACCESS-TOKEN"])
            assert.notInclude(JSON.stringify(endpoint), "t0ken")
            assert.strictEqual(mock.sent[0]?.url.href, "https://ctl.example:8443/v1/sandboxes/s1/endpoints/44772")
          }),
        { url: "https://ctl.example:8443/v1/", apiKey: Redacted.make("k3y") }
      )
    })
  }

  it.effect("through the control plane: its own origin gets the key, no other does", () => {
    const answers = ["ctl.example:8080/v1/sandboxes/s1/proxy/44772", "10.0.0.1:4000"]
    const mock = MockHttp.make((_, index) => MockHttp.json(200, { endpoint: answers[index], headers: null }))
    return withMock(
      mock,
      (api) =>
        Effect.gen(function* () {
          const own = yield* api.endpoint("s1", 44772)
          const key = own.headers["open-sandbox-api-key"]
          assert.strictEqual(key === undefined ? undefined : Redacted.value(key), "k3y")
          assert.deepStrictEqual((yield* api.endpoint("s1", 44772)).headers, {})
          assert.strictEqual(mock.sent[0]?.url.search, "?use_server_proxy=true")
        }),
      { url: "ctl.example:8080", apiKey: Redacted.make("k3y"), useServerProxy: true }
    )
  })

  it.effect("without the proxy not even the same origin does", () => {
    const mock = MockHttp.make(() => MockHttp.json(200, { endpoint: "ctl.example:8080/x" }))
    return withMock(
      mock,
      (api) =>
        Effect.gen(function* () {
          assert.deepStrictEqual((yield* api.endpoint("s1", 80)).headers, {})
          assert.strictEqual(mock.sent[0]?.url.search, "")
          for (const port of [0, -1, 65536, 1.5, Number.NaN]) {
            assert.strictEqual((yield* Effect.flip(api.endpoint("s1", port))).reason, "InvalidRequest")
          }
          assert.lengthOf(mock.sent, 1)
        }),
      { url: "ctl.example:8080", apiKey: Redacted.make("k3y") }
    )
  })
})

describe("patchMetadata", () => {
  it.effect("sends a merge patch, removals included", () => {
    const mock = MockHttp.make(() => MockHttp.json(200, sandbox("s1", { metadata: { a: "1" } })))
    return withMock(mock, (api) =>
      Effect.gen(function* () {
        assert.deepStrictEqual((yield* api.patchMetadata("s1", { a: "1", b: null })).metadata, { a: "1" })
        assert.strictEqual(mock.sent[0]?.method, "PATCH")
        assert.deepStrictEqual(mock.sent[0]?.body, { a: "1", b: null })
        assert.strictEqual(
          (yield* Effect.flip(api.patchMetadata("s1", { "opensandbox.io/a": null }))).reason,
          "InvalidRequest"
        )
      })
    )
  })
})

describe("secrets", () => {
  it.scopedLive("are absent from spans and errors, and go nowhere but to the control plane", () => {
    const spans: Array<Tracer.Span> = []
    const recording = (base: Tracer.Tracer) =>
      Tracer.make({
        span: (name, parent, context, links, startTime, kind, options) => {
          const span = base.span(name, parent, context, links, startTime, kind, options)
          spans.push(span)
          return span
        },
        context: (f, fiber) => base.context(f, fiber)
      })
    return withServer(
      (request) =>
        request.path.includes("/endpoints/")
          ? ScriptedServer.json(200, {
              endpoint: `${request.headers.host}/ep`,
              headers: { "X-EXECD-ACCESS-TOKEN": "t0p-token", "X-Odd-Name": "odd-value" }
            })
          : ScriptedServer.text(418, "teapot"),
      (api, server) =>
        Effect.gen(function* () {
          const error = yield* Effect.flip(api.pause("s1"))
          const endpoint = yield* api.endpoint("s1", 3000)
          const client = OpenSandbox.endpointClient(api.httpClient, endpoint)
          yield* Effect.scoped(client.get("/hello"))
          yield* api.httpClient.get(`${server.url}/bare`, { headers: { "OPENSANDBOX-EGRESS-AUTH": "egress-secret" } })
          const shown = JSON.stringify(
            spans.map((span) => [span.name, [...span.attributes]]),
            (_, value: unknown) => (typeof value === "bigint" ? String(value) : value)
          )
          assert.include(shown, "OpenSandbox.pause")
          assert.include(shown, "OpenSandbox.endpoint")
          assert.include(shown, "http.request.header.open-sandbox-api-key")
          for (const secret of ["k3y-secret", "t0p-token", "odd-value", "egress-secret"]) {
            assert.notInclude(shown, secret)
            assert.notInclude(JSON.stringify(error) + String(error.stack), secret)
          }
          assert.strictEqual(server.requests[2]?.path, "/ep/hello")
          assert.strictEqual(server.requests[2]?.headers["x-execd-access-token"], "t0p-token")
          assert.strictEqual(server.requests[2]?.headers["x-odd-name"], "odd-value")
          assert.isUndefined(server.requests[2]?.headers["open-sandbox-api-key"])
          assert.isUndefined(server.requests[3]?.headers["open-sandbox-api-key"])
        }).pipe((self) => Effect.flatMap(Effect.tracer, (base) => Effect.withTracer(self, recording(base)))),
      { apiKey: Redacted.make("k3y-secret") }
    )
  })
})

describe("layers", () => {
  for (const suffix of ["", "/", "/v1", "/v1/", "//"]) {
    it.scopedLive(`accept an address that ends in "${suffix}"`, () =>
      Effect.gen(function* () {
        const server = yield* ScriptedServer.make(() => ScriptedServer.json(200, sandbox("s1")))
        yield* Effect.flatMap(OpenSandbox.OpenSandbox, (api) => api.get("s1")).pipe(
          Effect.provide(OpenSandbox.layer({ url: `${server.url}${suffix}` }))
        )
        assert.strictEqual(server.requests[0]?.target, "/v1/sandboxes/s1")
      })
    )
  }

  it.scopedLive("read the environment", () =>
    Effect.gen(function* () {
      const server = yield* ScriptedServer.make((request) =>
        request.path.includes("/endpoints/")
          ? ScriptedServer.json(200, { endpoint: "h:1" })
          : ScriptedServer.json(200, sandbox("s1"))
      )
      const provider = (entries: ReadonlyArray<readonly [string, string]>) =>
        Layer.setConfigProvider(ConfigProvider.fromMap(new Map(entries)))
      const use = Effect.flatMap(OpenSandbox.OpenSandbox, (api) => api.endpoint("s1", 80))

      yield* use.pipe(
        Effect.provide(
          Layer.provide(
            OpenSandbox.layerConfig(),
            provider([
              ["OPEN_SANDBOX_URL", server.url],
              ["OPEN_SANDBOX_API_KEY", "k"],
              ["OPEN_SANDBOX_USE_SERVER_PROXY", "true"]
            ])
          )
        )
      )
      yield* use.pipe(
        Effect.provide(
          Layer.provide(
            OpenSandbox.layerConfig({ url: Config.string("OTHER"), useServerProxy: Config.succeed(false) }),
            provider([
              ["OTHER", server.url],
              ["OPEN_SANDBOX_URL", "http://unused"],
              ["OPEN_SANDBOX_API_KEY", " "]
            ])
          )
        )
      )
      assert.deepStrictEqual(
        server.requests.map(({ headers, query }) => [headers["open-sandbox-api-key"], query.get("use_server_proxy")]),
        [
          ["k", "true"],
          [undefined, null]
        ]
      )
      const error = yield* Effect.flip(
        use.pipe(
          Effect.provide(
            Layer.provide(OpenSandbox.layerConfig(), provider([["OPEN_SANDBOX_USE_SERVER_PROXY", "perhaps"]]))
          )
        )
      )
      assert.isTrue(ConfigError.isConfigError(error))
    })
  )

  it.effect("defaults to 127.0.0.1:8080 without a key", () => {
    const mock = MockHttp.make(() => MockHttp.json(200, sandbox("s1")))
    return withMock(mock, (api) =>
      Effect.gen(function* () {
        yield* api.get("s1")
        assert.strictEqual(mock.sent[0]?.url.href, "http://127.0.0.1:8080/v1/sandboxes/s1")
        assert.notProperty(mock.sent[0]?.headers ?? {}, "open-sandbox-api-key")
      })
    )
  })

  it.effect("an address that is none is an InvalidRequest", () => {
    const mock = MockHttp.make(() => MockHttp.json(200, sandbox("s1")))
    return withMock(
      mock,
      (api) =>
        Effect.gen(function* () {
          assert.strictEqual((yield* Effect.flip(api.get("s1"))).reason, "InvalidRequest")
          assert.lengthOf(mock.sent, 0)
        }),
      { url: "http://[oops" }
    )
  })

  it.effect("transformClient sees every request", () => {
    const mock = MockHttp.make(() => MockHttp.json(200, sandbox("s1")))
    return Effect.gen(function* () {
      const seen = yield* Deferred.make<string>()
      yield* withMock(mock, (api) => api.get("s1"), {
        transformClient: (client) => HttpClient.tapRequest(client, (request) => Deferred.succeed(seen, request.url))
      })
      assert.include(yield* Deferred.await(seen), "/v1/sandboxes/s1")
    })
  })
})
