/**
 * The files of a sandbox as `@effect/platform`'s `FileSystem`: a program written for the local machine works on a sandbox by a change of Layer.
 *
 * @since 0.1.0
 */
import type { PlatformError } from "@effect/platform/Error"
import * as FileSystem from "@effect/platform/FileSystem"
import type * as Duration from "effect/Duration"
import * as Layer from "effect/Layer"
import type * as Stream from "effect/Stream"
import * as Contents from "./internal/platform/contents.js"
import { open } from "./internal/platform/file.js"
import { makeOperations } from "./internal/platform/operations.js"
import { makeShell } from "./internal/platform/shell.js"
import { watch } from "./internal/platform/watch.js"
import type { Sandbox } from "./Sandbox.js"

/**
 * @since 0.1.0
 * @category models
 */
export interface Options {
  /** Where relative paths start. Default: the container's own working directory. */
  readonly cwd?: string | undefined
  /** How often `watch` looks for changes. Default half a second. */
  readonly watchInterval?: Duration.DurationInput | undefined
}

/**
 * Reading is done by the files API of the sandbox, everything else by programs that every Linux image has (`cat`, `cp`, `dd`, `find`,
 * `mktemp`, `stat`, …). These are no execs: nothing of it is recorded, numbered or replayed.
 *
 * Failures are those that the platform's own services have, with the server's error as cause where there is one. What is different:
 *
 * - `open` holds nothing open: each read and write of the `File` goes to the path. `fd` is a number of no meaning
 * - `sink` sends everything in one upload, and puts it in its place when the stream ends
 * - `copy` copies links as they are
 * - `readDirectory` sorts, and goes into no directory behind a link
 * - `utimes` sets whole seconds where `touch` is that of BusyBox
 * - `watch` looks twice a second (`watchInterval`), and tells names relative to what is watched
 *
 * @example
 * ```ts
 * import * as FileSystem from "@effect/platform/FileSystem"
 * import type { Sandbox } from "@sandglass/core"
 * import { SandboxFileSystem } from "@sandglass/core"
 * import * as Effect from "effect/Effect"
 *
 * const program = Effect.gen(function*() {
 *   const fs = yield* FileSystem.FileSystem
 *   yield* fs.makeDirectory("src", { recursive: true })
 *   yield* fs.writeFileString("src/hello.js", "console.log('hello')")
 *   return yield* fs.readDirectory("src")
 * })
 *
 * export const inside = (sandbox: Sandbox.Sandbox) => Effect.provide(program, SandboxFileSystem.layer(sandbox))
 * ```
 *
 * @since 0.1.0
 * @category constructors
 */
export const make = (sandbox: Pick<Sandbox, "execd">, options: Options = {}): FileSystem.FileSystem => {
  const shell = makeShell(sandbox.execd, options)
  const at = (method: string, path: string) => ({ module: "FileSystem", method, path }) as const

  const stream: FileSystem.FileSystem["stream"] = (path, own = {}): Stream.Stream<Uint8Array, PlatformError> =>
    Contents.read(shell, at("stream", path), path, {
      offset: own.offset === undefined ? undefined : Number(own.offset),
      length: own.bytesToRead === undefined ? undefined : Number(own.bytesToRead)
    }).pipe(Contents.sized(Number(own.chunkSize ?? 64 * 1024)))

  return {
    ...FileSystem.make({
      ...makeOperations(shell),
      open: (path, own) => open(shell, at("open", path), own),
      readFile: (path) => Contents.readAll(shell, at("readFile", path), path),
      watch: (path, own) =>
        watch(shell, at("watch", path), own?.recursive === true, options.watchInterval ?? "500 millis"),
      writeFile: (path, data, own) => Contents.write(shell, at("writeFile", path), path, data, own)
    }),
    stream,
    sink: (path, own = {}) => Contents.sink(shell, at("sink", path), path, own)
  }
}

/**
 * @since 0.1.0
 * @category layers
 */
export const layer = (sandbox: Pick<Sandbox, "execd">, options?: Options): Layer.Layer<FileSystem.FileSystem> =>
  Layer.succeed(FileSystem.FileSystem, make(sandbox, options))
