import { assert, describe, it } from "@effect/vitest"
import { EmbeddingModel, MemoryError, OpenAiEmbeddingModel, SemanticMemory } from "@sandglass/memory"
import * as ConfigProvider from "effect/ConfigProvider"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as TestClock from "effect/TestClock"
import * as ScriptedServer from "../support/ScriptedServer.js"
import * as Spans from "../support/Spans.js"

const secret = "sk-very-secret"

interface Asked {
  readonly input: ReadonlyArray<string>
  readonly model: string
  readonly [key: string]: unknown
}

const askedOf = (request: ScriptedServer.RecordedRequest) => request.json as Asked

/** The length of a text, and a one. */
const vectorOf = (text: string) => [text.length, 1]

const answer = (input: ReadonlyArray<string>) => ({
  object: "list",
  data: input.map((text, index) => ({ object: "embedding", index, embedding: vectorOf(text) })),
  model: "m",
  usage: { prompt_tokens: 1, total_tokens: 1 }
})

const proper: ScriptedServer.Handler = (request) => ScriptedServer.json(200, answer(askedOf(request).input))

const withServer = <A, E, R>(
  handler: ScriptedServer.Handler,
  use: (
    embed: (texts: ReadonlyArray<string>) => ReturnType<EmbeddingModel.EmbeddingModel["Type"]["embed"]>,
    server: ScriptedServer.ScriptedServer
  ) => Effect.Effect<A, E, R>,
  options: Partial<OpenAiEmbeddingModel.Options> = {}
) =>
  Effect.flatMap(ScriptedServer.make(handler), (server) =>
    Effect.flatMap(EmbeddingModel.EmbeddingModel, ({ embed }) => use(embed, server)).pipe(
      Effect.provide(
        OpenAiEmbeddingModel.layer({
          model: "m",
          dimensions: 2,
          url: `${server.url}/v1/`,
          apiKey: Redacted.make(secret),
          ...options
        })
      )
    )
  )

const plain = (vectors: ReadonlyArray<EmbeddingModel.Vector>) => vectors.map((vector) => Array.from(vector))

describe("OpenAiEmbeddingModel", () => {
  it.scopedLive("asks as the API wants it, and answers in the order of the texts", () =>
    withServer(
      (request) => {
        const { data, ...rest } = answer(askedOf(request).input)
        return ScriptedServer.json(200, { ...rest, data: data.toReversed() })
      },
      (embed, server) =>
        Effect.gen(function* () {
          assert.deepStrictEqual(plain(yield* embed(["a", "bb", "ccc"])), [
            [1, 1],
            [2, 1],
            [3, 1]
          ])
          const [request] = server.requests
          assert.strictEqual(`${request?.method} ${request?.target}`, "POST /v1/embeddings")
          assert.strictEqual(request?.headers["authorization"], `Bearer ${secret}`)
          assert.deepStrictEqual(request?.json, {
            model: "m",
            input: ["a", "bb", "ccc"],
            encoding_format: "float",
            input_type: "passage"
          })
          assert.deepStrictEqual(yield* embed([]), [])
          assert.strictEqual(server.requests.length, 1)
        }),
      { body: { input_type: "passage" } }
    )
  )

  it.scopedLive("splits what is too much for one request", () =>
    withServer(
      proper,
      (embed, server) =>
        Effect.gen(function* () {
          const texts = Array.from({ length: 10 }, (_, index) => "x".repeat(index + 1))
          assert.deepStrictEqual(plain(yield* embed(texts)), texts.map(vectorOf))
          assert.deepStrictEqual(
            server.requests.map((request) => askedOf(request).input.length),
            [3, 3, 3, 1]
          )
          const long = ["y".repeat(60), "y".repeat(50), "y".repeat(500), "y"]
          assert.deepStrictEqual(plain(yield* embed(long)), long.map(vectorOf))
          assert.deepStrictEqual(
            server.requests.slice(4).map((request) => askedOf(request).input.map((text) => text.length)),
            [[60], [50], [500], [1]]
          )
        }),
      { batchSize: 3, batchCharacters: 100, concurrency: 1 }
    )
  )

  it.scopedLive("asks no more at once than it may", () => {
    let open = 0
    let most = 0
    return withServer(
      (request) =>
        Effect.gen(function* () {
          open++
          most = Math.max(most, open)
          yield* Effect.sleep(30)
          open--
          return ScriptedServer.json(200, answer(askedOf(request).input))
        }),
      (embed) =>
        Effect.gen(function* () {
          const texts = Array.from({ length: 12 }, (_, index) => "x".repeat(index + 1))
          assert.deepStrictEqual(plain(yield* embed(texts)), texts.map(vectorOf))
          assert.strictEqual(most, 3)
        }),
      { batchSize: 1, concurrency: 3 }
    )
  })

  it.scopedLive("vectors that some servers write in base64", () =>
    withServer(
      () =>
        ScriptedServer.json(200, {
          data: [{ index: 0, embedding: Buffer.from(new Float32Array([0.5, -2]).buffer).toString("base64") }]
        }),
      (embed) => Effect.map(embed(["a"]), (vectors) => assert.deepStrictEqual(plain(vectors), [[0.5, -2]]))
    )
  )

  it.scoped("waits as long as a server that is too busy asks for", () =>
    Effect.gen(function* () {
      const server = yield* ScriptedServer.make(
        ScriptedServer.sequence(
          ScriptedServer.json(429, { error: { message: "slow down" } }, { "Retry-After": "7" }),
          ScriptedServer.json(
            429,
            { error: { message: "slow down" } },
            { "Retry-After": "Thu, 01 Jan 1970 00:00:20 GMT" }
          ),
          ScriptedServer.json(503, {}, { "Retry-After": "rubbish" }),
          proper
        )
      )
      const fiber = yield* Effect.flatMap(EmbeddingModel.EmbeddingModel, ({ embed }) => embed(["a"])).pipe(
        Effect.provide(OpenAiEmbeddingModel.layer({ model: "m", dimensions: 2, url: server.url })),
        Effect.fork
      )
      const settle = Effect.promise(() => new Promise((resolve) => setTimeout(resolve, 50)))
      const sent = Effect.map(settle, () => server.requests.length)
      yield* server.waitForRequests(1)
      assert.strictEqual(yield* sent, 1)
      yield* TestClock.adjust("6900 millis")
      assert.strictEqual(yield* sent, 1)
      yield* TestClock.adjust("100 millis")
      yield* server.waitForRequests(2)
      assert.strictEqual(yield* sent, 2)
      // Until twenty seconds past midnight.
      yield* TestClock.adjust("12900 millis")
      assert.strictEqual(yield* sent, 2)
      yield* TestClock.adjust("100 millis")
      yield* server.waitForRequests(3)
      assert.strictEqual(yield* sent, 3)
      // Nothing that makes sense: the third pause of its own, up to two seconds.
      yield* TestClock.adjust("2 seconds")
      assert.deepStrictEqual(plain(yield* Fiber.join(fiber)), [[1, 1]])
      assert.strictEqual(server.requests.length, 4)
    })
  )

  it.scopedLive("does not wait longer than it may, and gives up in the end", () =>
    Effect.gen(function* () {
      yield* withServer(
        () => ScriptedServer.json(429, { error: { message: "quota" } }, { "Retry-After": "3600" }),
        (embed, server) =>
          Effect.gen(function* () {
            const error = yield* Effect.flip(embed(["a"]))
            assert.strictEqual(error.reason, "RateLimited")
            assert.strictEqual(error.status, 429)
            assert.strictEqual(error.description, "quota")
            assert.isTrue(error.isRetryable)
            assert.deepStrictEqual(error.retryAfter, Duration.hours(1))
            assert.strictEqual(server.requests.length, 1)
          })
      )
      yield* withServer(
        () => ScriptedServer.text(502, "<html>bad gateway</html>"),
        (embed, server) =>
          Effect.gen(function* () {
            const error = yield* Effect.flip(embed(["a"]))
            assert.strictEqual(error.reason, "Connection")
            assert.strictEqual(error.status, 502)
            assert.strictEqual(server.requests.length, 3)
          }),
        { retries: 2, maxRetryDelay: 5 }
      )
    })
  )

  it.scopedLive("what can only fail again is asked once", () =>
    Effect.gen(function* () {
      for (const [status, body, reason, description] of [
        [
          401,
          { error: { message: `bad key ${secret}`, code: "invalid_api_key" } },
          "Unauthorized",
          "bad key <redacted>"
        ],
        [403, { detail: "no" }, "Unauthorized", "no"],
        [400, { error: "input too long" }, "InvalidRequest", "input too long"],
        [404, { message: "no such model" }, "InvalidRequest", "no such model"],
        [422, { nothing: true }, "InvalidRequest", '{"nothing":true}']
      ] as const) {
        yield* withServer(
          () => ScriptedServer.json(status, body),
          (embed, server) =>
            Effect.gen(function* () {
              const error = yield* Effect.flip(embed(["a"]))
              assert.deepStrictEqual(
                [error.reason, error.status, error.description, error.model],
                [reason, status, description, "m"]
              )
              assert.isFalse(error.isRetryable)
              assert.strictEqual(server.requests.length, 1)
              assert.notInclude(Bun.inspect(error, { depth: 20 }), secret)
            })
        )
      }
    })
  )

  it.scopedLive("an answer that is not one vector for each text is an error", () =>
    Effect.gen(function* () {
      const item = (index: unknown, embedding: unknown) => ({ index, embedding })
      const answers: ReadonlyArray<unknown> = [
        {},
        [],
        { data: null },
        { data: [] },
        { data: [item(0, [1, 2])] },
        { data: [item(0, [1, 2]), item(0, [1, 2])] },
        { data: [item(0, [1, 2]), item(2, [1, 2])] },
        { data: [item(0, [1, 2]), item(-1, [1, 2])] },
        { data: [item(0, [1, 2]), item("1", [1, 2])] },
        { data: [item(0, [1, 2]), item(1, null)] },
        { data: [item(0, [1, 2]), item(1, "AAA")] },
        { data: [item(0, [1, 2]), null] },
        { data: [item(0, [1, 2]), item(1, [1, 2]), item(2, [1, 2])] }
      ]
      for (const body of answers) {
        yield* withServer(
          () => ScriptedServer.json(200, body),
          (embed) =>
            Effect.map(Effect.flip(embed(["a", "b"])), ({ reason }) => assert.strictEqual(reason, "InvalidVector"))
        )
      }
      yield* withServer(
        () => ScriptedServer.text(200, "<html>hello</html>"),
        (embed) =>
          Effect.map(Effect.flip(embed(["a"])), ({ description, reason }) => {
            assert.strictEqual(reason, "InvalidVector")
            assert.include(description, "<html>hello")
          })
      )
    })
  )

  it.scopedLive("a wrong dimension is an error of the memory that asks", () =>
    withServer(proper, (_, server) =>
      Effect.gen(function* () {
        const semantic = yield* SemanticMemory.SemanticMemory
        const error = yield* Effect.flip(semantic.remember({ resourceId: "r" }, { content: "a" }))
        assert.instanceOf(error, MemoryError.EmbeddingError)
        assert.strictEqual(error.reason, "InvalidVector")
        assert.include(error.description, "2 dimensions instead of 3")
        assert.strictEqual(server.requests.length, 1)
      }).pipe(
        Effect.provide(
          Layer.provide(
            SemanticMemory.layerMemory,
            OpenAiEmbeddingModel.layer({ model: "m", dimensions: 3, url: server.url })
          )
        )
      )
    )
  )

  it.scopedLive("one failed request fails all, and nothing is written of it", () =>
    Effect.gen(function* () {
      const server = yield* ScriptedServer.make((request, index) =>
        index === 1
          ? ScriptedServer.json(400, { error: { message: "no" } })
          : ScriptedServer.json(200, answer(askedOf(request).input))
      )
      const context = yield* Layer.build(
        Layer.provide(
          SemanticMemory.layerMemory,
          OpenAiEmbeddingModel.layer({ model: "m", dimensions: 2, url: server.url, batchSize: 2, concurrency: 1 })
        )
      )
      yield* Effect.gen(function* () {
        const semantic = yield* SemanticMemory.SemanticMemory
        const ref = { resourceId: "r" }
        const facts = ["a", "b", "c", "d", "e"].map((content) => ({ content }))
        const error = yield* Effect.flip(semantic.rememberAll(ref, facts))
        assert.strictEqual(error._tag, "EmbeddingError")
        const { count } = yield* semantic.prunable
        assert.strictEqual(yield* count(ref), 0)
        assert.strictEqual((yield* semantic.rememberAll(ref, facts)).length, 5)
      }).pipe(Effect.provide(context))
    })
  )

  it.scopedLive("cut and silent connections", () =>
    Effect.gen(function* () {
      yield* withServer(
        ScriptedServer.sequence(
          ScriptedServer.resetConnection,
          ScriptedServer.stream(['{"data":[', ScriptedServer.sleep(300), ScriptedServer.drop], {
            headers: { "Content-Type": "application/json" }
          }),
          ScriptedServer.silence,
          proper
        ),
        (embed, server) =>
          Effect.gen(function* () {
            assert.deepStrictEqual(plain(yield* embed(["a"])), [[1, 1]])
            assert.strictEqual(server.requests.length, 4)
          }),
        { maxRetryDelay: 5, timeout: 1_000 }
      )
      yield* withServer(
        () => ScriptedServer.silence,
        (embed, server) =>
          Effect.gen(function* () {
            const error = yield* Effect.flip(embed(["a"]))
            assert.strictEqual(error.reason, "Connection")
            assert.include(error.description, "no answer within")
            yield* server.requests[0]?.closed ?? Effect.void
          }),
        { retries: 0, timeout: 50 }
      )
      const nobody = yield* Effect.flip(
        Effect.flatMap(EmbeddingModel.EmbeddingModel, ({ embed }) => embed(["a"])).pipe(
          Effect.provide(
            OpenAiEmbeddingModel.layer({
              model: "m",
              dimensions: 2,
              url: "http://127.0.0.1:1",
              retries: 0,
              apiKey: Redacted.make(secret)
            })
          )
        )
      )
      assert.strictEqual(nobody.reason, "Connection")
      assert.notInclude(Bun.inspect(nobody, { depth: 20 }), secret)
    })
  )

  it.scopedLive("the key is in no span", () =>
    withServer(proper, (embed) =>
      Effect.gen(function* () {
        const { spans, text } = yield* Spans.record(embed(["a"]))
        assert.notInclude(text, secret)
        assert.include(
          spans.map(({ name }) => name),
          "EmbeddingModel.embed"
        )
      })
    )
  )

  it.scopedLive("from the configuration", () =>
    Effect.gen(function* () {
      const server = yield* ScriptedServer.make(proper)
      const provider = ConfigProvider.fromMap(
        new Map([
          ["EMBEDDING_MODEL", "m"],
          ["EMBEDDING_DIMENSIONS", "2"],
          ["EMBEDDING_URL", server.url],
          ["EMBEDDING_API_KEY", secret]
        ])
      )
      const { dimensions, id } = yield* Effect.flatMap(EmbeddingModel.EmbeddingModel, (model) =>
        Effect.as(model.embed(["a"]), model)
      ).pipe(Effect.provide(OpenAiEmbeddingModel.layerConfig()), Effect.withConfigProvider(provider))
      assert.deepStrictEqual([id, dimensions], ["m", 2])
      assert.strictEqual(server.requests[0]?.headers["authorization"], `Bearer ${secret}`)
    })
  )
})
