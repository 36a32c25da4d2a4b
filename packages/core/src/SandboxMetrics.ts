/**
 * What can be counted: read with `Metric.value`, or exported through a tracer such as `@effect/opentelemetry`.
 *
 * @since 0.1.0
 */
import * as Metric from "effect/Metric"
import * as MetricBoundaries from "effect/MetricBoundaries"

/**
 * How many sandboxes this process holds open.
 *
 * @since 0.1.0
 * @category metrics
 */
export const sandboxesLive = Metric.counter("sandglass_sandboxes_live", {
  description: "Sandboxes that are open in this process"
})

/**
 * Execs that ended, tagged with `outcome`: `completed` (whatever the exit code), or the reason of `exec.failed`, e.g. `interrupted`.
 * Replayed ones are not among them.
 *
 * @since 0.1.0
 * @category metrics
 */
export const execs = Metric.counter("sandglass_execs", {
  description: "Execs that ended",
  incremental: true
})

/**
 * From 5 milliseconds to about an hour.
 *
 * @since 0.1.0
 * @category metrics
 */
export const execDuration = Metric.histogram(
  "sandglass_exec_duration_seconds",
  MetricBoundaries.exponential({ start: 0.005, factor: 2, count: 20 }),
  "How long execs ran, from their record's start to its end"
)

/**
 * Output that was recorded and delivered, in bytes: those that came where they are known, otherwise those of the text as UTF-8.
 *
 * @since 0.1.0
 * @category metrics
 */
export const outputBytes = Metric.counter("sandglass_exec_output_bytes", {
  description: "Bytes of recorded output",
  incremental: true
})

/**
 * How long the ledger took to store what one network read brought.
 *
 * @since 0.1.0
 * @category metrics
 */
export const appendDuration = Metric.histogram(
  "sandglass_ledger_append_seconds",
  MetricBoundaries.exponential({ start: 0.0001, factor: 2, count: 18 }),
  "How long the ledger took to store a batch of output"
)
