import { EmbeddingModel as Ai, AiError } from "@effect/ai"
import * as HttpClientError from "@effect/platform/HttpClientError"
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import * as HttpClientResponse from "@effect/platform/HttpClientResponse"
import { assert, describe, it } from "@effect/vitest"
import type { MemoryError } from "@sandglass/memory"
import { EmbeddingModel, SemanticMemory } from "@sandglass/memory"
import { AiEmbeddingModel } from "@sandglass/memory/ai"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"

const asked: Array<ReadonlyArray<string>> = []

const fake = (answer: (texts: ReadonlyArray<string>) => Effect.Effect<Array<Ai.Result>, AiError.AiError>) =>
  Layer.effect(
    Ai.EmbeddingModel,
    Ai.make({
      embedMany: (texts) =>
        Effect.suspend(() => {
          asked.push(texts)
          return answer(texts)
        }),
      maxBatchSize: 3
    })
  )

const proper = (texts: ReadonlyArray<string>) =>
  Effect.succeed(texts.map((text, index) => ({ index, embeddings: [text.length, 1] })))

const model = (ai: Layer.Layer<Ai.EmbeddingModel>) =>
  Layer.provide(AiEmbeddingModel.layer({ id: "m", dimensions: 2 }), ai)

const embed = (texts: ReadonlyArray<string>) => Effect.flatMap(EmbeddingModel.EmbeddingModel, (_) => _.embed(texts))

describe("AiEmbeddingModel", () => {
  it.effect("embeds in batches, in order", () =>
    Effect.gen(function* () {
      asked.length = 0
      const texts = ["a", "bb", "ccc", "dddd"]
      const { dimensions, id } = yield* EmbeddingModel.EmbeddingModel
      assert.deepStrictEqual([id, dimensions], ["m", 2])
      assert.deepStrictEqual(
        yield* embed(texts),
        texts.map((text) => [text.length, 1])
      )
      assert.deepStrictEqual(asked, [["a", "bb", "ccc"], ["dddd"]])
      assert.deepStrictEqual(yield* embed([]), [])
    }).pipe(Effect.provide(model(fake(proper))))
  )

  it.effect("its errors are told as what they are, without the request", () =>
    Effect.gen(function* () {
      const request = HttpClientRequest.post("http://x/embeddings").pipe(HttpClientRequest.bearerToken("s3cret"))
      const status = (code: number) =>
        Effect.flip(
          AiError.HttpResponseError.fromResponseError({
            module: "M",
            method: "embed",
            error: new HttpClientError.ResponseError({
              request,
              response: HttpClientResponse.fromWeb(request, new Response("", { status: code })),
              reason: "StatusCode"
            })
          })
        )
      const cases: ReadonlyArray<readonly [AiError.AiError, MemoryError.EmbeddingErrorReason]> = [
        [yield* status(429), "RateLimited"],
        [yield* status(401), "Unauthorized"],
        [yield* status(400), "InvalidRequest"],
        [yield* status(503), "Connection"],
        [new AiError.MalformedInput({ module: "M", method: "embed", description: "d" }), "InvalidRequest"],
        [new AiError.MalformedOutput({ module: "M", method: "embed", description: "d" }), "InvalidVector"],
        [new AiError.UnknownError({ module: "M", method: "embed", description: "d" }), "Unknown"]
      ]
      for (const [error, reason] of cases) {
        const failed = yield* Effect.flip(Effect.provide(embed(["a"]), model(fake(() => Effect.fail(error)))))
        assert.deepStrictEqual([failed.reason, failed.model], [reason, "m"])
        assert.notInclude(Bun.inspect(failed, { depth: 20 }), "s3cret")
      }
    })
  )

  it.effect("a text that it forgets is an error, and an interruption is none", () =>
    Effect.gen(function* () {
      const error = yield* Effect.flip(
        Effect.provide(embed(["a", "b", "c"]), model(fake((texts) => Effect.map(proper(texts), (all) => all.slice(1)))))
      )
      assert.strictEqual(error.reason, "InvalidVector")
      const fiber = yield* Effect.fork(Effect.provide(embed(["a"]), model(fake(() => Effect.never))))
      yield* Effect.yieldNow()
      const exit = yield* Fiber.interrupt(fiber)
      assert.isTrue(Exit.isInterrupted(exit))
    })
  )

  it.effect("vectors of another length are an error of the memory that asks", () =>
    Effect.gen(function* () {
      const semantic = yield* SemanticMemory.SemanticMemory
      const error = yield* Effect.flip(semantic.remember({ resourceId: "r" }, { content: "a" }))
      assert.strictEqual(error._tag, "EmbeddingError")
    }).pipe(
      Effect.provide(
        Layer.provide(
          SemanticMemory.layerMemory,
          model(fake((texts) => Effect.succeed(texts.map((_, index) => ({ index, embeddings: [1, 2, 3] })))))
        )
      )
    )
  )
})
