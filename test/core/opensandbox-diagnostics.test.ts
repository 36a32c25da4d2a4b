import { assert, describe, it } from "@effect/vitest"
import { OpenSandbox } from "@sandglass/core"
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as TestClock from "effect/TestClock"
import * as MockHttp from "../support/MockHttp.js"
import * as ScriptedServer from "../support/ScriptedServer.js"
import * as Spans from "../support/Spans.js"

type Api = Context.Tag.Service<OpenSandbox.OpenSandbox>

const withServer = <A, E, R>(
  handler: ScriptedServer.Handler,
  use: (api: Api, server: ScriptedServer.ScriptedServer) => Effect.Effect<A, E, R>,
  options: OpenSandbox.Options = {}
) =>
  Effect.flatMap(ScriptedServer.make(handler), (server) =>
    Effect.flatMap(OpenSandbox.OpenSandbox, (api) => use(api, server)).pipe(
      Effect.provide(
        OpenSandbox.layer({ url: server.url, apiKey: Redacted.make("k3y"), retry: { baseDelay: 1 }, ...options })
      )
    )
  )

const descriptor = {
  sandboxId: "s1",
  kind: "logs",
  scope: "container",
  delivery: "inline",
  contentType: "text/plain; charset=utf-8",
  truncated: false
}

describe("diagnostics", () => {
  it.scopedLive("inline", () =>
    withServer(
      () => ScriptedServer.json(200, { ...descriptor, content: "a\nb\n", truncated: true, warnings: ["expired"] }),
      (api, server) =>
        Effect.gen(function* () {
          const logs = yield* api.diagnosticLogs("s1", "container")
          assert.deepInclude(logs, {
            sandboxId: "s1",
            kind: "logs",
            scope: "container",
            delivery: "inline",
            truncated: true,
            warnings: ["expired"]
          })
          assert.strictEqual(yield* logs.text, "a\nb\n")
          assert.strictEqual((yield* api.diagnosticEvents("s1", "a b")).kind, "events")
          assert.deepStrictEqual(
            server.requests.map(({ method, target }) => `${method} ${target}`),
            [
              "GET /v1/sandboxes/s1/diagnostics/logs?scope=container",
              "GET /v1/sandboxes/s1/diagnostics/events?scope=a+b"
            ]
          )
        })
    )
  )

  it.scopedLive("from another address: fetched when asked for, without our key, and the address is kept secret", () =>
    Effect.gen(function* () {
      const storage = yield* ScriptedServer.make(
        ScriptedServer.sequence(ScriptedServer.text(503, "busy"), ScriptedServer.text(200, "long é text"))
      )
      const { text: shown } = yield* Spans.record(
        withServer(
          () =>
            ScriptedServer.json(200, {
              ...descriptor,
              delivery: "url",
              contentUrl: `${storage.url}/logs.txt?sig=s3cret`,
              contentLength: 11,
              expiresAt: "2026-04-14T10:30:00Z"
            }),
          (api) =>
            Effect.gen(function* () {
              const logs = yield* api.diagnosticLogs("s1", "container")
              assert.lengthOf(storage.requests, 0)
              assert.strictEqual(logs.delivery, "url")
              assert.strictEqual(logs.contentLength, 11)
              assert.strictEqual(logs.expiresAt, Date.UTC(2026, 3, 14, 10, 30))
              assert.notInclude(JSON.stringify(logs), "s3cret")
              assert.strictEqual(yield* logs.text, "long é text")
              assert.lengthOf(storage.requests, 2)
              for (const request of storage.requests) {
                assert.strictEqual(request.target, "/logs.txt?sig=s3cret")
                assert.notInclude(JSON.stringify(request.headers), "k3y")
              }
            })
        )
      )
      assert.include(shown, "OpenSandbox.diagnosticText")
      for (const secret of ["s3cret", "k3y"]) assert.notInclude(shown, secret)
    })
  )

  it.scopedLive("from the control plane itself: with the key", () =>
    withServer(
      (request) =>
        request.path === "/files/x"
          ? ScriptedServer.text(200, "own")
          : ScriptedServer.json(200, { ...descriptor, delivery: "url", contentUrl: "/files/x" }),
      (api, server) =>
        Effect.gen(function* () {
          assert.strictEqual(yield* (yield* api.diagnosticLogs("s1", "all")).text, "own")
          assert.strictEqual(server.requests[1]?.headers["open-sandbox-api-key"], "k3y")
        })
    )
  )

  it.scopedLive("plain text, as servers used to answer", () =>
    withServer(
      () => ScriptedServer.text(200, "old\n"),
      (api) =>
        Effect.gen(function* () {
          const events = yield* api.diagnosticEvents("s1", "runtime")
          assert.deepInclude(events, { kind: "events", scope: "runtime", delivery: "inline", truncated: false })
          assert.strictEqual(yield* events.text, "old\n")
        })
    )
  )

  it.scopedLive("errors: not there, no address, no scope", () =>
    withServer(
      ScriptedServer.sequence(
        ScriptedServer.json(501, { code: "NOT_IMPLEMENTED", message: "no diagnostics" }),
        ScriptedServer.json(200, { ...descriptor, delivery: "url", contentUrl: "file:///etc/passwd" })
      ),
      (api, server) =>
        Effect.gen(function* () {
          assert.deepInclude(yield* Effect.flip(api.diagnosticLogs("s1", "all")), {
            reason: "ServerError",
            status: 501,
            code: "NOT_IMPLEMENTED"
          })
          const { text } = yield* api.diagnosticLogs("s1", "all")
          assert.strictEqual((yield* Effect.flip(text)).reason, "InvalidRequest")
          assert.strictEqual((yield* Effect.flip(api.diagnosticLogs("s1", ""))).reason, "InvalidRequest")
          assert.strictEqual((yield* Effect.flip(api.diagnosticLogs("", "all"))).reason, "InvalidRequest")
          assert.lengthOf(server.requests, 2)
        })
    )
  )
})

describe("endpoints", () => {
  const withMock = <A, E, R>(
    mock: MockHttp.MockHttp,
    use: (api: Api) => Effect.Effect<A, E, R>,
    options: OpenSandbox.Options = {}
  ) =>
    Effect.flatMap(OpenSandbox.OpenSandbox, use).pipe(
      Effect.provide(Layer.provide(OpenSandbox.layerWithoutHttpClient(options), mock.layer))
    )

  it.effect("a signed route expires in whole seconds from now", () => {
    const mock = MockHttp.make(() => MockHttp.json(200, { endpoint: "e.example/x" }))
    return withMock(
      mock,
      (api) =>
        Effect.gen(function* () {
          yield* TestClock.setTime(1_000_500)
          yield* api.endpoint("s1", 80, { expires: "1 minute" })
          yield* api.endpoint("s1", 80, { useServerProxy: false })
          yield* api.endpoint("s1", 80)
          assert.deepStrictEqual(
            mock.sent.map(({ url }) => url.search),
            ["?expires=1061", "", "?use_server_proxy=true"]
          )
          for (const bad of [
            { expires: 0 },
            { expires: Infinity },
            { expires: "1 minute", useServerProxy: true }
          ] as const) {
            assert.strictEqual((yield* Effect.flip(api.endpoint("s1", 80, bad))).reason, "InvalidRequest")
          }
          assert.lengthOf(mock.sent, 3)
        }),
      { useServerProxy: true }
    )
  })

  it.scopedLive("portClient: relative requests, with the endpoint's headers and without our key", () =>
    Effect.gen(function* () {
      const { text: shown } = yield* Spans.record(
        withServer(
          (request) =>
            request.path.startsWith("/v1/")
              ? ScriptedServer.json(200, {
                  endpoint: `${request.headers.host}/p/3000/`,
                  headers: { "X-Gate": "t0ken" }
                })
              : ScriptedServer.json(200, { up: true }),
          (api, server) =>
            Effect.gen(function* () {
              const client = yield* OpenSandbox.portClient("s1", 3000)
              const response = yield* client.get("/health", { urlParams: { q: "1" } })
              assert.deepStrictEqual(yield* response.json, { up: true })
              const [, request] = server.requests
              assert.strictEqual(request?.target, "/p/3000/health?q=1")
              assert.strictEqual(request?.headers["x-gate"], "t0ken")
              assert.isUndefined(request?.headers["open-sandbox-api-key"])
            }).pipe(Effect.provideService(OpenSandbox.OpenSandbox, api))
        )
      )
      for (const secret of ["t0ken", "k3y"]) assert.notInclude(shown, secret)
    })
  )
})

describe("create", () => {
  it.effect("refuses what the server would", () => {
    const mock = MockHttp.make(() => MockHttp.json(202, {}))
    return Effect.flatMap(OpenSandbox.OpenSandbox, (api) =>
      Effect.gen(function* () {
        for (const [request, message] of [
          [{ image: "x", credentialProxy: true }, /needs networkPolicy/],
          [{ image: "x", volumes: [{ name: "v", mountPath: "/v" }] }, /exactly one of host, pvc and ossfs/],
          [
            { image: "x", volumes: [{ name: "v", mountPath: "/v", host: { path: "/" }, pvc: { claimName: "c" } }] },
            /"v" needs exactly one/
          ]
        ] as const) {
          const error = yield* Effect.flip(api.create(request))
          assert.strictEqual(error.reason, "InvalidRequest")
          assert.match(error.message, message)
        }
        assert.lengthOf(mock.sent, 0)
      })
    ).pipe(Effect.provide(Layer.provide(OpenSandbox.layerWithoutHttpClient(), mock.layer)))
  })
})
