/**
 * Network rules, credentials, ports, life, metrics and diagnostics of a sandbox. (The local server keeps rules and credentials, and enforces nothing.)
 *
 *     npx bun examples/network.ts
 */
import { Sandboxes } from "@sandglass/core"
import { Effect, Redacted, Schedule, Stream } from "effect"
import { runExample } from "./support.js"

runExample(
  Effect.gen(function* () {
    const sandboxes = yield* Sandboxes.Sandboxes
    const sandbox = yield* sandboxes.create({
      image: "node:22",
      name: "network",
      networkPolicy: { defaultAction: "deny", egress: [{ action: "allow", target: "registry.example.com" }] },
      credentialProxy: true,
      secureAccess: true,
      timeout: "5 minutes",
      extensions: { "example.com/team": "a" }
    })
    yield* sandbox.egress.addRules([{ action: "allow", target: "api.example.com" }])
    yield* sandbox.egress.createVault({
      credentials: [{ name: "token", value: Redacted.make("never-shown") }],
      bindings: [{ name: "api", match: { hosts: ["api.example.com"] }, auth: { type: "bearer", credential: "token" } }]
    })
    yield* sandbox.egress.mutateVault({
      expectedRevision: 1,
      credentials: { replace: [{ name: "token", value: Redacted.make("never-shown-either") }] }
    })
    yield* sandbox.egress.removeRules(["registry.example.com"])
    yield* sandbox.history.pipe(
      Stream.filter(({ event }) => event.startsWith("egress.") || event.startsWith("credential.")),
      Stream.runForEach(({ event, payload }) => Effect.sync(() => console.log(event, JSON.stringify(payload))))
    )

    yield* sandbox.files.write("/workspace/server.mjs", serverSource)
    const server = yield* sandbox.start("node server.mjs", { cwd: "/workspace" })
    const [port] = yield* Stream.runCollect(Stream.take(server.lines, 1))
    const { client, headers } = yield* sandbox.proxy(Number(port))
    console.log(`headers: ${Object.keys(headers)}`)
    const response = yield* client.get("/").pipe(Effect.retry(Schedule.recurs(5)))
    console.log(yield* response.text)

    const before = (yield* sandbox.info).expiresAt ?? 0
    const expiresAt = yield* sandbox.renew("1 hour")
    console.log(`lives ${Math.round((expiresAt - before) / 60_000)} minutes longer`)

    const { cpuCount } = yield* sandbox.metrics
    console.log(`cpus: ${cpuCount >= 1 ? "some" : "none"}`)
    const watched = yield* sandbox.watchMetrics.pipe(Stream.take(2), Stream.runCount)
    console.log(`measurements: ${watched}`)
    const diagnostic = yield* sandbox.diagnosticEvents()
    console.log(`diagnostics: ${(yield* diagnostic.text).split("\n").length > 1 ? "there are some" : "none"}`)
  })
)

const serverSource = `
import { createServer } from "node:http"
const server = createServer((_, response) => response.end("hello from the sandbox"))
server.listen(0, "127.0.0.1", () => console.log(server.address().port))
`
