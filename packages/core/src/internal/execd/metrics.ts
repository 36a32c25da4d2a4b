/** @internal */
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import type { ExecdClient, Metrics } from "../../Execd.js"
import { OpenSandboxError } from "../../OpenSandboxError.js"
import { snippet } from "../http/body.js"
import * as Http from "../http/client.js"
import { repeatable } from "../http/connections.js"
import { errorDocument, reasonOf } from "../http/error.js"
import { open, reads } from "../http/opened.js"
import type { Caller } from "./caller.js"

const Wire = Schema.Struct({
  cpu_count: Schema.Number,
  cpu_used_pct: Schema.Number,
  mem_total_mib: Schema.Number,
  mem_used_mib: Schema.Number,
  timestamp: Schema.Number
})

const metricsOf = (wire: typeof Wire.Type): Metrics => ({
  cpuCount: wire.cpu_count,
  cpuUsedPercent: wire.cpu_used_pct,
  memoryTotalMiB: wire.mem_total_mib,
  memoryUsedMiB: wire.mem_used_mib,
  timestamp: wire.timestamp
})

const isWire = Schema.is(Wire)

/** A line longer than this is no measurement. */
const maxLine = 64 * 1024

/** The complete lines of what was read so far, but for those that an event stream uses for itself. */
const makeLines = () => {
  const decoder = new TextDecoder()
  let carry = ""
  return {
    push: (bytes: Uint8Array): ReadonlyArray<string> => {
      const lines = (carry + decoder.decode(bytes, { stream: true })).split("\n")
      carry = lines.pop() ?? ""
      // what goes on for ever without a line end is reported as one
      if (carry.length > maxLine) {
        lines.push(carry)
        carry = ""
      }
      return lines
        .map((line) => line.replace(/^data: ?/, "").trim())
        .filter((line) => line !== "" && !/^(:|(event|id|retry):)/.test(line))
    }
  }
}

/** @internal */
export const makeMetrics = ({
  connections,
  get,
  idleTimeout,
  policy,
  requestTimeout,
  sandboxId,
  span,
  where
}: Caller): Pick<ExecdClient, "metrics" | "watchMetrics"> => {
  const watch = where("watchMetrics")

  const measurement = (line: string): Option.Option<Metrics> | OpenSandboxError => {
    let value: unknown
    try {
      value = JSON.parse(line)
    } catch {
      return new OpenSandboxError({ ...watch, reason: "Decode", description: `no measurement: ${snippet(line)}` })
    }
    if (isWire(value)) return Option.some(metricsOf(value))
    const reported = errorDocument(value)
    return reported === undefined
      ? Option.none()
      : new OpenSandboxError({ ...watch, reason: reasonOf(watch, 500, reported), ...reported })
  }

  const watchMetrics: ExecdClient["watchMetrics"] = Stream.unwrapScoped(
    Effect.gen(function* () {
      const opened = yield* repeatable(connections, policy, (connection) =>
        open(
          connection,
          watch,
          requestTimeout,
          HttpClientRequest.get("/metrics/watch", {
            headers: { accept: "text/event-stream", "accept-encoding": "identity" }
          })
        )
      )
      const pull = yield* reads(watch, opened, idleTimeout)
      const lines = makeLines()
      let failed: OpenSandboxError | undefined
      const step: Effect.Effect<Chunk.Chunk<Metrics>, Option.Option<OpenSandboxError>> = Effect.suspend(() =>
        failed !== undefined
          ? Effect.fail(Option.some(failed))
          : Effect.matchEffect(pull, {
              onSuccess: (bytes) => {
                const found: Array<Metrics> = []
                for (const line of lines.push(bytes)) {
                  const result = measurement(line)
                  if (!Option.isOption(result)) {
                    failed = result
                    break
                  }
                  if (Option.isSome(result)) found.push(result.value)
                }
                return found.length === 0 ? step : Effect.succeed(Chunk.unsafeFromArray(found))
              },
              onFailure: (end) =>
                Effect.fail(
                  Option.orElseSome(
                    end,
                    () => new OpenSandboxError({ ...watch, reason: "Transport", description: "the measurements ended" })
                  )
                )
            })
      )
      return Stream.repeatEffectChunkOption(step)
    })
  ).pipe(Stream.withSpan("Execd.watchMetrics", { captureStackTrace: false, attributes: { "sandbox.id": sandboxId } }))

  return {
    metrics: get(where("metrics"), "/metrics", [], Http.jsonBody(where("metrics"), Wire)).pipe(
      Effect.map(metricsOf),
      span("metrics")
    ),
    watchMetrics
  }
}
