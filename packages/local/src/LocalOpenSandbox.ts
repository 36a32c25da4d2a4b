/**
 * An OpenSandbox-compatible server for one machine, without Docker: for development, examples and tests.
 *
 * **Not a security boundary.** Where the system allows namespaces, each sandbox is a copy-on-write view of this machine with its own files and
 * processes, but it shares the kernel, the network, the devices and the readable files of the machine that it runs on. Elsewhere it is a private
 * directory, and its commands can do all that the server's user can. Do not run code in it that you would not run on the machine itself.
 *
 * An image is accepted and recorded, never pulled: the sandbox's programs are those of the machine. Resource limits are recorded, not enforced.
 *
 * @since 0.1.0
 */

import * as Fs from "node:fs"
import * as Http from "node:http"
import * as HttpMiddleware from "@effect/platform/HttpMiddleware"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import * as OpenSandbox from "@sandglass/core/OpenSandbox"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import { detect } from "./internal/detect.js"
import { answering } from "./internal/http.js"
import { secret } from "./internal/ids.js"
import { makeRouter } from "./internal/lifecycle.js"
import { makePipePool } from "./internal/pipes.js"
import { makeSandboxes } from "./internal/sandboxes.js"
import { makeSnapshots } from "./internal/snapshots.js"
import { defaultParents, liveRuns, sweep } from "./internal/state.js"
import { findRelay } from "./internal/terminal/relays.js"
import { serveUpgrades } from "./internal/upgrades.js"

/**
 * How sandboxes are kept apart: `namespaces` is an overlay of the machine's files in mount, pid, uts and ipc namespaces; `plain` is a private
 * directory and nothing more.
 *
 * @since 0.1.0
 * @category models
 */
export type Mode = "namespaces" | "plain"

/**
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** Default 0: any free one. */
  readonly port?: number | undefined
  /** Only loopback addresses are accepted. Default `127.0.0.1`. */
  readonly host?: string | undefined
  /** What clients must send as `OPEN-SANDBOX-API-KEY`. Default: a random one. */
  readonly apiKey?: Redacted.Redacted | string | undefined
  /** Default `auto`: namespaces where they work, which is tried once at the start, and plain directories elsewhere. */
  readonly mode?: Mode | "auto" | undefined
  /** Keeps snapshots across restarts, in this directory. Default: everything is temporary, and gone when the server ends. */
  readonly stateDir?: string | undefined
}

/**
 * A server that could not be started.
 *
 * @since 0.1.0
 * @category errors
 */
export class LocalServerError extends Schema.TaggedError<LocalServerError>("@sandglass/local/LocalServerError")(
  "LocalServerError",
  {
    reason: Schema.Literal("Host", "StateDirectory", "Isolation", "Listen"),
    message: Schema.String
  }
) {}

/**
 * A running server.
 *
 * @since 0.1.0
 * @category services
 */
export class LocalServer extends Context.Tag("@sandglass/local/LocalServer")<
  LocalServer,
  {
    /** What a client is to be given, without `/v1`: `http://127.0.0.1:40123`. */
    readonly url: string
    readonly apiKey: Redacted.Redacted
    readonly mode: Mode
    /** How sandboxes are isolated, and why not better, in words. */
    readonly description: string
    /** Where the sandboxes' files are while the server runs. */
    readonly directory: string
  }
>() {}

const loopback = (host: string): boolean => host === "localhost" || host === "::1" || /^127\.\d+\.\d+\.\d+$/.test(host)

/**
 * Starts a server. It ends with the scope, and with it every sandbox, process, mount and file of it (`stateDir` keeps its snapshots).
 *
 * @since 0.1.0
 * @category constructors
 * @example
 * ```ts
 * import * as LocalOpenSandbox from "@sandglass/local/LocalOpenSandbox"
 * import * as Effect from "effect/Effect"
 *
 * const program = Effect.gen(function*() {
 *   const server = yield* LocalOpenSandbox.make({ mode: "auto" })
 *   yield* Effect.log(`${server.url} (${server.mode})`)
 * }).pipe(Effect.scoped)
 * ```
 */
export const make = (
  options: Options = {}
): Effect.Effect<Context.Tag.Service<LocalServer>, LocalServerError, Scope.Scope> =>
  Effect.gen(function* () {
    const host = options.host ?? "127.0.0.1"
    if (!loopback(host)) {
      return yield* new LocalServerError({
        reason: "Host",
        message: `${host} is not a loopback address: this server is for one machine only`
      })
    }
    const apiKey =
      options.apiKey === undefined
        ? Redacted.make(secret())
        : typeof options.apiKey === "string"
          ? Redacted.make(options.apiKey)
          : options.apiKey
    const parent = options.stateDir
    const stateError = (cause: unknown) => new LocalServerError({ reason: "StateDirectory", message: String(cause) })
    if (parent !== undefined) {
      yield* Effect.try({
        try: () => Fs.mkdirSync(`${parent}/snapshots`, { recursive: true, mode: 0o700 }),
        catch: stateError
      })
    }
    const swept = yield* Effect.forEach(parent === undefined ? defaultParents() : [parent], sweep)
    for (const name of swept.flat()) yield* Effect.logInfo(`sandglass-local: removed what ${name} left`)
    if (parent !== undefined) {
      const [other] = liveRuns(parent)
      if (other !== undefined) {
        return yield* new LocalServerError({
          reason: "StateDirectory",
          message: `${parent} is in use by process ${other}`
        })
      }
    }
    const isolationError = (error: { readonly tool: string; readonly message: string }) =>
      new LocalServerError({ reason: "Isolation", message: `${error.tool}: ${error.message}` })
    const { isolation, run } = yield* Effect.mapError(detect({ mode: options.mode ?? "auto", parent }), isolationError)
    const pipes = yield* Effect.mapError(makePipePool(`${run.path}/pipes`), isolationError)
    const snapshots = yield* makeSnapshots(
      parent === undefined ? `${run.path}/snapshots` : `${parent}/snapshots`,
      isolation
    )
    const sandboxes = yield* makeSandboxes({
      isolation,
      pipes,
      snapshots,
      directory: `${run.path}/sandboxes`,
      relay: yield* looked(findRelay)
    })
    const httpServer = Http.createServer({ requestTimeout: 0 })
    const server = yield* Effect.mapError(
      NodeHttpServer.make(() => httpServer, { port: options.port ?? 0, host }),
      (error) => new LocalServerError({ reason: "Listen", message: String(error.cause) })
    )
    // Closing a server waits for its connections: a client that follows something would keep it open.
    yield* Effect.addFinalizer(() => Effect.sync(() => httpServer.closeAllConnections()))
    const port = server.address._tag === "TcpAddress" ? server.address.port : 0
    const authority = `${host === "::1" ? "[::1]" : host === "localhost" ? "127.0.0.1" : host}:${port}`
    const { description, mode } = isolation
    const router = makeRouter({
      sandboxes,
      snapshots,
      authority,
      apiKey: Redacted.value(apiKey),
      info: { mode, description, securityBoundary: false, port, pid: process.pid }
    })
    const handler = yield* NodeHttpServer.makeHandler(answering(router)).pipe(
      // Spans would carry the keys among the headers.
      HttpMiddleware.withTracerDisabledWhenEffect(() => true)
    )
    yield* serveUpgrades(httpServer, sandboxes, handler)
    yield* Effect.acquireRelease(
      Effect.sync(() => httpServer.on("request", handler)),
      () => Effect.sync(() => httpServer.off("request", handler))
    )
    const told = `sandglass-local: http://${authority}, ${mode}: ${description}`
    // Nobody asked for less: it is said aloud.
    yield* mode === "plain" && (options.mode ?? "auto") === "auto" ? Effect.logWarning(told) : Effect.logDebug(told)
    return { url: `http://${authority}`, apiKey, mode, description, directory: run.path }
  })

/** Looks when it is first asked, in a fiber of its own: a client that goes away meanwhile takes nothing from those that come later. */
const looked = <A>(look: Effect.Effect<A>): Effect.Effect<Effect.Effect<A>, never, Scope.Scope> =>
  Effect.flatMap(Effect.scope, (scope) =>
    Effect.map(Effect.cached(Effect.uninterruptible(Effect.forkIn(Effect.interruptible(look), scope))), (fiber) =>
      Effect.flatMap(fiber, Fiber.join)
    )
  )

/**
 * A server of its own on a free port with a random key, and core's `OpenSandbox` connected to it.
 *
 * @since 0.1.0
 * @category layers
 * @example
 * ```ts
 * import * as OpenSandbox from "@sandglass/core/OpenSandbox"
 * import * as LocalOpenSandbox from "@sandglass/local/LocalOpenSandbox"
 * import * as Effect from "effect/Effect"
 *
 * const program = Effect.gen(function*() {
 *   const api = yield* OpenSandbox.OpenSandbox
 *   const sandbox = yield* api.create({ image: "node:22" })
 *   yield* api.delete(sandbox.id)
 * }).pipe(Effect.provide(LocalOpenSandbox.layer))
 * ```
 */
export const layer: Layer.Layer<OpenSandbox.OpenSandbox | LocalServer, LocalServerError> = Layer.suspend(() =>
  layerWith({})
)

/**
 * As `layer`, with options.
 *
 * @since 0.1.0
 * @category layers
 * @example
 * ```ts
 * import * as LocalOpenSandbox from "@sandglass/local/LocalOpenSandbox"
 *
 * const Sandboxes = LocalOpenSandbox.layerWith({ mode: "plain", stateDir: "./.sandglass" })
 * ```
 */
export const layerWith = (options: Options): Layer.Layer<OpenSandbox.OpenSandbox | LocalServer, LocalServerError> =>
  Layer.unwrapEffect(Effect.map(LocalServer, ({ apiKey, url }) => OpenSandbox.layer({ url, apiKey }))).pipe(
    Layer.provideMerge(layerServer(options))
  )

/**
 * The server alone, for clients of another kind.
 *
 * @since 0.1.0
 * @category layers
 */
export const layerServer = (options: Options = {}): Layer.Layer<LocalServer, LocalServerError> =>
  Layer.scoped(LocalServer, make(options))
