/**
 * Spans and metrics of a sandbox, exported through OpenTelemetry to the console.
 *
 *     npx bun examples/observability.ts
 */
import { NodeSdk } from "@effect/opentelemetry"
import { BunRuntime } from "@effect/platform-bun"
import { ConsoleMetricExporter, PeriodicExportingMetricReader } from "@opentelemetry/sdk-metrics"
import { ConsoleSpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base"
import { Ledger, Sandboxes } from "@sandglass/core"
import { LocalOpenSandbox } from "@sandglass/local"
import { Effect, Layer, Redacted } from "effect"

const program = Effect.gen(function* () {
  const sandboxes = yield* Sandboxes.Sandboxes
  const sandbox = yield* sandboxes.create({ image: "node:22", name: "observed" })
  yield* sandbox.exec("echo hello", { env: { TOKEN: Redacted.make("never-shown") } })
}).pipe(Effect.scoped, Effect.withSpan("job"))

const Telemetry = NodeSdk.layer(() => ({
  resource: { serviceName: "sandglass-example" },
  spanProcessor: new SimpleSpanProcessor(new ConsoleSpanExporter()),
  metricReader: new PeriodicExportingMetricReader({ exporter: new ConsoleMetricExporter() })
}))

const Live = Sandboxes.layer.pipe(
  Layer.provide(Layer.merge(LocalOpenSandbox.layer, Ledger.layerMemory)),
  Layer.provideMerge(Telemetry)
)

BunRuntime.runMain(program.pipe(Effect.provide(Live)))
