import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"
import type { OutputChunk } from "../../Exec.js"
import type { EventInput } from "../../Ledger.js"
import type { LedgerError } from "../../LedgerError.js"
import * as SandboxMetrics from "../../SandboxMetrics.js"
import type { ExecContext } from "./context.js"

const bytesOf = ({ bytes, text }: OutputChunk): number => bytes?.length ?? Buffer.byteLength(text)

/** Stores as one batch what one read brought: the events, and the chunks of output that are among them. */
export const storeOutput = (
  ledger: ExecContext["ledger"],
  events: ReadonlyArray<EventInput>,
  chunks: ReadonlyArray<OutputChunk>
): Effect.Effect<void, LedgerError> =>
  Effect.gen(function* () {
    const before = yield* Clock.currentTimeNanos
    yield* ledger.appendAll(events)
    const nanos = Number((yield* Clock.currentTimeNanos) - before)
    yield* Metric.update(SandboxMetrics.appendDuration, nanos / 1e9)
    yield* Metric.incrementBy(
      SandboxMetrics.outputBytes,
      chunks.reduce((sum, chunk) => sum + bytesOf(chunk), 0)
    )
  })
