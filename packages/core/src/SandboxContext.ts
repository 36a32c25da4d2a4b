/**
 * All that a platform-independent program needs, in a sandbox: `CommandExecutor`, `FileSystem` and `Path`, the place that `NodeContext` and
 * `BunContext` have on the local machine.
 *
 * @since 0.1.0
 */
import type * as CommandExecutor from "@effect/platform/CommandExecutor"
import type { PlatformError } from "@effect/platform/Error"
import type * as FileSystem from "@effect/platform/FileSystem"
import * as Path from "@effect/platform/Path"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Scope from "effect/Scope"
import { makeShell } from "./internal/platform/shell.js"
import type { Sandbox } from "./Sandbox.js"
import * as SandboxCommandExecutor from "./SandboxCommandExecutor.js"
import type { SandboxFailure } from "./SandboxError.js"
import type { CreateOptions, ResumeOptions } from "./Sandboxes.js"
import { Sandboxes } from "./Sandboxes.js"
import * as SandboxFileSystem from "./SandboxFileSystem.js"

/**
 * The sandbox that the program runs in, for what the platform's services have no word for: `checkpoint`, `fork`, `history`, …
 *
 * @since 0.1.0
 * @category tags
 */
export class CurrentSandbox extends Context.Tag("@sandglass/core/SandboxContext/CurrentSandbox")<
  CurrentSandbox,
  Sandbox
>() {}

/**
 * @since 0.1.0
 * @category models
 */
export type SandboxContext = CommandExecutor.CommandExecutor | FileSystem.FileSystem | Path.Path | CurrentSandbox

/**
 * `cwd` stands for the working directory of the program: files, commands and `Path.resolve` start from it.
 *
 * @since 0.1.0
 * @category models
 */
export interface Options extends SandboxFileSystem.Options, SandboxCommandExecutor.Options {}

/** As the platform's own for POSIX, but from the sandbox's working directory. */
const path = (sandbox: Sandbox, options: Options | undefined): Layer.Layer<Path.Path, PlatformError> =>
  Layer.effect(
    Path.Path,
    Effect.gen(function* () {
      const posix = yield* Path.Path
      const shell = makeShell(sandbox.execd, { cwd: options?.cwd })
      const cwd = yield* shell.locate({ module: "FileSystem", method: "realPath", path: "." })
      const resolve: Path.Path["resolve"] = (...segments) => posix.resolve(cwd, ...segments)
      return {
        ...posix,
        resolve,
        relative: (from, to) => posix.relative(resolve(from), resolve(to)),
        toFileUrl: (path) => posix.toFileUrl(posix.isAbsolute(path) ? path : posix.join(cwd, path))
      }
    })
  ).pipe(Layer.provide(Path.layer))

/**
 * @since 0.1.0
 * @category layers
 */
export const layer = (sandbox: Sandbox, options?: Options): Layer.Layer<SandboxContext, PlatformError> =>
  Layer.mergeAll(
    SandboxCommandExecutor.layer(sandbox, options),
    SandboxFileSystem.layer(sandbox, options),
    path(sandbox, options),
    Layer.succeed(CurrentSandbox, sandbox)
  )

/**
 * In a sandbox that is made, in whatever way, when the Layer is built, and closed when it is released.
 *
 * @example
 * ```ts
 * import { SandboxContext, Sandboxes } from "@sandglass/core"
 * import * as Effect from "effect/Effect"
 *
 * export const Tools = SandboxContext.layerScoped(
 *   Effect.flatMap(Sandboxes.Sandboxes, (sandboxes) =>
 *     sandboxes.environment({ name: "tools", image: "node:22", build: (sandbox) => sandbox.exec("npm install -g pnpm") })
 *   )
 * )
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layerScoped = <E, R>(
  acquire: Effect.Effect<Sandbox, E, R>,
  options?: Options
): Layer.Layer<SandboxContext, E | PlatformError, Exclude<R, Scope.Scope>> =>
  Layer.unwrapScoped(Effect.map(acquire, (sandbox) => layer(sandbox, options)))

/**
 * In a new sandbox.
 *
 * @example
 * ```ts
 * import * as Command from "@effect/platform/Command"
 * import { Ledger, OpenSandbox, SandboxContext, Sandboxes } from "@sandglass/core"
 * import * as Effect from "effect/Effect"
 * import * as Layer from "effect/Layer"
 *
 * const program = Command.string(Command.make("node", "--version"))
 *
 * const Live = SandboxContext.layerCreate({ image: "node:22", name: "ci" }).pipe(
 *   Layer.provide(Sandboxes.layer),
 *   Layer.provide(OpenSandbox.layerConfig()),
 *   Layer.provide(Ledger.layerMemory)
 * )
 *
 * Effect.runPromise(Effect.provide(program, Live)).then(console.log)
 * ```
 *
 * @since 0.1.0
 * @category layers
 */
export const layerCreate = (
  create: CreateOptions,
  options?: Options
): Layer.Layer<SandboxContext, SandboxFailure | PlatformError, Sandboxes> =>
  layerScoped(
    Effect.flatMap(Sandboxes, (sandboxes) => sandboxes.create(create)),
    options
  )

/**
 * In a sandbox that continues another one from a checkpoint: the commands that had completed before it are answered from the ledger.
 *
 * @since 0.1.0
 * @category layers
 */
export const layerResume = (
  sandboxId: string,
  resume?: ResumeOptions,
  options?: Options
): Layer.Layer<SandboxContext, SandboxFailure | PlatformError, Sandboxes> =>
  layerScoped(
    Effect.flatMap(Sandboxes, (sandboxes) => sandboxes.resume(sandboxId, resume)),
    options
  )
