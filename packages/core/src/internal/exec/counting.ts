import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"
import * as SandboxMetrics from "../../SandboxMetrics.js"

/** An exec that began at a time has ended. */
export const countExec = (began: number, outcome: string): Effect.Effect<void> =>
  Effect.gen(function* () {
    const now = yield* Clock.currentTimeMillis
    yield* Metric.update(SandboxMetrics.execDuration, (now - began) / 1000)
    yield* Metric.increment(Metric.tagged(SandboxMetrics.execs, "outcome", outcome))
  })
