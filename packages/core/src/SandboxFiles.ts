/**
 * The files of a sandbox.
 *
 * @since 0.1.0
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import type { ExecdClient, FileInfo, Mode, Permission } from "./Execd.js"
import { OpenSandboxError } from "./OpenSandboxError.js"

/**
 * @since 0.1.0
 * @category models
 */
export interface ReadOptions {
  /** First byte. Default 0. */
  readonly offset?: number | undefined
  /** How many bytes. Default: to the end. */
  readonly length?: number | undefined
}

/**
 * A file to write: text is written as UTF-8; a Stream of bytes is sent as it comes, never held whole.
 *
 * @since 0.1.0
 * @category models
 */
export type FileContent = string | Uint8Array | Stream.Stream<Uint8Array, unknown>

/**
 * @since 0.1.0
 * @category models
 */
export interface SandboxFiles {
  /** Writes a file, in place of one that is there; missing parent directories are made. */
  readonly write: (path: string, content: FileContent, permission?: Permission) => Effect.Effect<void, OpenSandboxError>
  /** Writes several files with one request. */
  readonly writeAll: (
    files: ReadonlyArray<{ readonly path: string; readonly content: FileContent } & Permission>
  ) => Effect.Effect<void, OpenSandboxError>
  /** The whole file as text. Bytes that are no UTF-8 become U+FFFD: use `readBytes` for binary files. */
  readonly read: (path: string) => Effect.Effect<string, OpenSandboxError>
  readonly readBytes: (path: string, options?: ReadOptions) => Effect.Effect<Uint8Array, OpenSandboxError>
  /** The bytes as they arrive, in constant memory. */
  readonly stream: (path: string, options?: ReadOptions) => Stream.Stream<Uint8Array, OpenSandboxError>
  readonly exists: (path: string) => Effect.Effect<boolean, OpenSandboxError>
  readonly info: (path: string) => Effect.Effect<FileInfo, OpenSandboxError>
  /** By path; one that is missing fails the whole call with `NotFound`. */
  readonly infoAll: (paths: ReadonlyArray<string>) => Effect.Effect<ReadonlyMap<string, FileInfo>, OpenSandboxError>
  /** The files, not directories, below `root` whose path matches a glob such as `*.ts`. Default: all. */
  readonly search: (root: string, pattern?: string) => Effect.Effect<ReadonlyArray<FileInfo>, OpenSandboxError>
  /** Renames or moves; the target's directory must exist. */
  readonly move: (from: string, to: string) => Effect.Effect<void, OpenSandboxError>
  readonly moveAll: (
    moves: ReadonlyArray<{ readonly from: string; readonly to: string }>
  ) => Effect.Effect<void, OpenSandboxError>
  /** Replaces every occurrence of a non-empty text; returns how many there were. */
  readonly replace: (
    path: string,
    replacement: { readonly old: string; readonly new: string }
  ) => Effect.Effect<number, OpenSandboxError>
  readonly setPermissions: (path: string, permission: Permission) => Effect.Effect<void, OpenSandboxError>
  readonly remove: (...paths: ReadonlyArray<string>) => Effect.Effect<void, OpenSandboxError>
  /** The entries of a directory; `depth` (default 1) levels deep. */
  readonly list: (
    path: string,
    options?: { readonly depth?: number | undefined }
  ) => Effect.Effect<ReadonlyArray<FileInfo>, OpenSandboxError>
  /** With missing parents; one that is there already is fine. Default mode 755. */
  readonly makeDirectory: (path: string, permission?: Permission) => Effect.Effect<void, OpenSandboxError>
  /** With everything in it. */
  readonly removeDirectory: (...paths: ReadonlyArray<string>) => Effect.Effect<void, OpenSandboxError>
  /** Copies a file to another sandbox (or another path), streamed, with its mode. */
  readonly transfer: (
    path: string,
    to: { readonly files: SandboxFiles },
    toPath?: string
  ) => Effect.Effect<void, OpenSandboxError>
}

export type { FileInfo, Mode, Permission }

const missing = (path: string) =>
  new OpenSandboxError({
    module: "Execd",
    method: "info",
    reason: "NotFound",
    description: `no such file: ${path}`
  })

/**
 * @since 0.1.0
 * @category constructors
 */
export const make = (execd: ExecdClient): SandboxFiles => {
  const stream: SandboxFiles["stream"] = (path, options) => execd.download(path, options)

  const readBytes: SandboxFiles["readBytes"] = (path, options) =>
    Stream.runCollect(stream(path, options)).pipe(
      Effect.map((pieces) => {
        let length = 0
        for (const piece of pieces) length += piece.length
        const bytes = new Uint8Array(length)
        let at = 0
        for (const piece of pieces) {
          bytes.set(piece, at)
          at += piece.length
        }
        return bytes
      })
    )

  const info: SandboxFiles["info"] = (path) =>
    execd.info([path]).pipe(
      Effect.flatMap((found) => {
        // Servers normalise paths; one was asked for, so one is the answer.
        const entry = found.get(path) ?? found.values().next().value
        return entry === undefined ? Effect.fail(missing(path)) : Effect.succeed(entry)
      })
    )

  const writeAll: SandboxFiles["writeAll"] = (files) => (files.length === 0 ? Effect.void : execd.upload(files))

  return {
    stream,
    readBytes,
    info,
    writeAll,
    write: (path, content, permission) => writeAll([{ ...permission, path, content }]),
    read: (path) => Effect.map(readBytes(path), (bytes) => new TextDecoder().decode(bytes)),
    exists: (path) =>
      info(path).pipe(
        Effect.as(true),
        Effect.catchIf(
          (error) => error.reason === "NotFound",
          () => Effect.succeed(false)
        )
      ),
    infoAll: (paths) => (paths.length === 0 ? Effect.succeed(new Map()) : execd.info(paths)),
    search: (root, pattern) => execd.search(root, pattern),
    move: (from, to) => execd.move([{ from, to }]),
    moveAll: (moves) => (moves.length === 0 ? Effect.void : execd.move(moves)),
    replace: (path, replacement) =>
      execd
        .replace({ [path]: replacement })
        .pipe(
          Effect.map((counts) => counts.get(path) ?? Option.getOrElse(Option.fromIterable(counts.values()), () => 0))
        ),
    setPermissions: (path, permission) => execd.setPermissions({ [path]: permission }),
    remove: (...paths) => (paths.length === 0 ? Effect.void : execd.removeFiles(paths)),
    list: (path, options) => execd.listDirectory(path, options),
    makeDirectory: (path, permission) => execd.makeDirectories({ [path]: { mode: "755", ...permission } }),
    removeDirectory: (...paths) => (paths.length === 0 ? Effect.void : execd.removeDirectories(paths)),
    transfer: (path, to, toPath) =>
      Effect.flatMap(info(path), ({ mode }) => to.files.write(toPath ?? path, stream(path), { mode }))
  }
}
