#!/usr/bin/env node
import { parseArgs } from "node:util"
/**
 * `npx sandglass-local`: the local server as a program.
 *
 * @since 0.1.0
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as Console from "effect/Console"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Logger from "effect/Logger"
import * as LogLevel from "effect/LogLevel"
import * as Redacted from "effect/Redacted"
import * as LocalOpenSandbox from "./LocalOpenSandbox.js"

const usage = `sandglass-local: an OpenSandbox-compatible server for this machine. It is not a security boundary.

  --port <number>     default 8080; 0 takes any free port
  --host <address>    a loopback address, default 127.0.0.1
  --api-key <key>     default: $OPEN_SANDBOX_API_KEY, or a random one, printed once
  --mode <mode>       auto (default), namespaces or plain
  --state-dir <path>  keeps snapshots across restarts
  --help`

class UsageError extends Data.TaggedError("UsageError")<{ readonly message: string }> {}

const refuse = (message: string): never => {
  throw new UsageError({ message })
}

const isMode = (text: string): text is LocalOpenSandbox.Mode | "auto" => ["auto", "namespaces", "plain"].includes(text)

const parse = Effect.try({
  try: () => {
    const { values } = parseArgs({
      options: {
        port: { type: "string", default: "8080" },
        host: { type: "string" },
        "api-key": { type: "string" },
        mode: { type: "string", default: "auto" },
        "state-dir": { type: "string" },
        help: { type: "boolean", short: "h" }
      }
    })
    const port = Number(values.port)
    if (!/^\d+$/.test(values.port) || port > 65535) refuse(`--port ${values.port} is no port`)
    const { mode } = values
    if (!isMode(mode)) return refuse(`--mode ${mode} is neither auto, namespaces nor plain`)
    const apiKey = values["api-key"] || process.env.OPEN_SANDBOX_API_KEY || undefined
    return { help: values.help === true, port, mode, host: values.host, apiKey, stateDir: values["state-dir"] }
  },
  catch: (cause) =>
    cause instanceof UsageError
      ? cause
      : new UsageError({ message: cause instanceof Error ? cause.message : String(cause) })
})

const serve = Effect.gen(function* () {
  const { help, ...options } = yield* parse
  if (help) return yield* Console.log(usage)
  const server = yield* LocalOpenSandbox.make(options)
  yield* Console.log(`sandglass-local listens on ${server.url}
  sandboxes: ${server.mode}, ${server.description}

  export OPEN_SANDBOX_URL=${server.url}
  export OPEN_SANDBOX_DOMAIN=${server.url.replace(/^http:\/\//, "")}
  export OPEN_SANDBOX_API_KEY=${options.apiKey === undefined ? Redacted.value(server.apiKey) : "<the key you gave>"}

This is not a security boundary: what runs in a sandbox shares this machine's kernel, network and readable files.`)
  return yield* Effect.never
}).pipe(
  Effect.scoped,
  Effect.tapError((error) =>
    Console.error(error._tag === "UsageError" ? `${error.message}\n\n${usage}` : `sandglass-local: ${error.message}`)
  ),
  Logger.withMinimumLogLevel(LogLevel.Warning)
)

NodeRuntime.runMain(serve, { disableErrorReporting: true })
