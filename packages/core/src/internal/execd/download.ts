/** @internal */
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import type { ExecdClient } from "../../Execd.js"
import { OpenSandboxError } from "../../OpenSandboxError.js"
import { concat, decodeUtf8, snippet } from "../http/body.js"
import { repeatable } from "../http/connections.js"
import { errorDocument, invalidRequest, reasonOf } from "../http/error.js"
import { open, reads } from "../http/opened.js"
import { check } from "../http/portCaller.js"
import type { Caller } from "./caller.js"
import { isCode } from "./caller.js"
import { pathsProblem } from "./fileWire.js"

/** What an error document that stands for a file may measure at most. */
const documentCap = 64 * 1024

/** The start of a stream, up to `cap` bytes, and what comes after it. */
const heldBack = <E>(bytes: Stream.Stream<Uint8Array, E>, cap: number) =>
  Effect.map(Stream.toPull(bytes), (pull) => ({ pull })).pipe(
    Effect.flatMap(({ pull }) => {
      const held: Array<Uint8Array> = []
      let size = 0
      let ended = false
      const fill: Effect.Effect<void, E> = Effect.suspend(() =>
        size > cap
          ? Effect.void
          : Effect.matchEffect(pull, {
              onSuccess: (chunk) => {
                for (const piece of chunk) {
                  held.push(piece)
                  size += piece.length
                }
                return fill
              },
              onFailure: Option.match({
                onNone: () => {
                  ended = true
                  return Effect.void
                },
                onSome: Effect.fail
              })
            })
      )
      return Effect.map(fill, () => ({ held, rest: ended ? Stream.empty : Stream.repeatEffectChunkOption(pull) }))
    })
  )

/** The error document that a downloaded text is, if it is one and nothing else. */
const errorIn = (text: string) => {
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined
    const keys = Object.keys(value)
    const isError =
      (keys.includes("code") && keys.includes("message")) ||
      (keys.length === 1 && (keys[0] === "detail" || keys[0] === "error"))
    return isError ? errorDocument(value) : undefined
  } catch {
    return undefined
  }
}

/** `length` bytes from `offset` on. */
const sliced = <E>(bytes: Stream.Stream<Uint8Array, E>, offset: number, length: number | undefined) =>
  Stream.suspend(() => {
    const end = length === undefined ? Number.POSITIVE_INFINITY : offset + length
    let position = 0
    return bytes.pipe(
      Stream.map((chunk) => {
        const start = position
        position += chunk.length
        return chunk.subarray(Math.max(0, offset - start), Math.max(0, end - start))
      }),
      Stream.takeUntil(() => position >= end),
      Stream.filter((chunk) => chunk.length > 0)
    )
  })

/** @internal */
export const makeDownload =
  ({ connections, policy, requestTimeout, sandboxId, where }: Caller): ExecdClient["download"] =>
  (path, range = {}) => {
    const at = where("download")
    const offset = range.offset ?? 0
    const length = range.length
    const isWhole = offset === 0 && length === undefined
    const header = `bytes=${offset}-${length === undefined ? "" : offset + length - 1}`
    return Stream.unwrapScoped(
      Effect.gen(function* () {
        yield* check(at, pathsProblem([path]))
        for (const number of [offset, length]) {
          if (number !== undefined && !isCode(number)) {
            return yield* Effect.fail(
              invalidRequest(at, `offset and length are whole numbers from 0 on, not ${number}`)
            )
          }
        }
        if (length === 0) return Stream.empty
        const opened = yield* repeatable(connections, policy, (connection) =>
          open(
            connection,
            at,
            requestTimeout,
            HttpClientRequest.get("/files/download", {
              urlParams: { path },
              headers: { "accept-encoding": "identity", ...(isWhole ? {} : { range: header }) }
            })
          )
        )
        const { headers, status } = opened.response
        const pull = yield* reads(at, opened, requestTimeout)
        const expected =
          headers["content-encoding"] === undefined && /^\d+$/.test(headers["content-length"] ?? "")
            ? Number(headers["content-length"])
            : undefined
        let received = 0
        const bytes = Stream.repeatEffectOption(pull).pipe(
          Stream.tap((chunk) =>
            Effect.sync(() => {
              received += chunk.length
            })
          ),
          Stream.concat(
            Stream.unwrap(
              Effect.suspend(() =>
                expected === undefined || received === expected
                  ? Effect.succeed(Stream.empty)
                  : Effect.fail(
                      new OpenSandboxError({
                        ...at,
                        reason: "Transport",
                        description: `the file ended after ${received} of ${expected} bytes`
                      })
                    )
              )
            )
          )
        )
        if (
          status !== 206 &&
          headers["content-disposition"] === undefined &&
          /^application\/(problem\+)?json\b/i.test(headers["content-type"] ?? "") &&
          (expected === undefined || expected <= documentCap)
        ) {
          const { held, rest } = yield* heldBack(bytes, documentCap)
          const size = held.reduce((sum, chunk) => sum + chunk.length, 0)
          const document = size > documentCap ? undefined : errorIn(decodeUtf8(concat(held, size)))
          if (document !== undefined) {
            return yield* Effect.fail(
              new OpenSandboxError({
                ...at,
                reason: reasonOf(at, 500, document),
                code: document.code,
                description: document.description ?? snippet(document.code ?? ""),
                requestId: headers["x-request-id"]
              })
            )
          }
          const all = Stream.concat(Stream.fromIterable(held), rest)
          return isWhole ? all : sliced(all, offset, length)
        }
        // a server that ignores the range sends the file from its start
        return isWhole || status === 206 ? bytes : sliced(bytes, offset, length)
      })
    ).pipe(Stream.withSpan("Execd.download", { captureStackTrace: false, attributes: { "sandbox.id": sandboxId } }))
  }
