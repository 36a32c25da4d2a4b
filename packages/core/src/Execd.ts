/**
 * A client of execd, the agent inside each sandbox: commands, files, directories.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import type * as Effect from "effect/Effect"
import type * as Option from "effect/Option"
import type * as Stream from "effect/Stream"
import type { OpenSandboxError } from "./OpenSandboxError.js"
import type * as Redacted from "effect/Redacted"

export interface CommandRequest {
  readonly command: string
  readonly cwd?: string | undefined
  readonly env?: { readonly [key: string]: string | Redacted.Redacted } | undefined
  /** The server kills the command after it. */
  readonly timeout?: Duration.DurationInput | undefined
  readonly uid?: number | undefined
  readonly gid?: number | undefined
  readonly background?: boolean | undefined
}

/** One event of a command's stream, with `text` already ending in its line end where the endpoint is line-based. */
export type ExecdEvent =
  | { readonly _tag: "Init"; readonly commandId: string }
  | { readonly _tag: "Output"; readonly stream: "stdout" | "stderr"; readonly text: string }
  /** The terminal event. `exitCode` is absent where the server's words are no clean integer, or -1; `message` holds them. */
  | { readonly _tag: "Exit"; readonly exitCode?: number | undefined; readonly message?: string | undefined; readonly traceback?: ReadonlyArray<string> | undefined }

export interface CommandStatus {
  readonly id: string
  readonly running: boolean
  readonly exitCode: Option.Option<number>
  readonly error?: string | undefined
}

export interface FileInfo {
  readonly path: string
  /** `file`, `directory`, `symlink`, `other`; absent from older servers. */
  readonly type?: string | undefined
  readonly size: number
  /** Octal digits as a string, e.g. `755`. */
  readonly mode: string
  readonly owner: string
  readonly group: string
  readonly modifiedAt?: number | undefined
  readonly createdAt?: number | undefined
}

/** `0o755` or `"755"`: both send `755`. */
export type Mode = number | string

export interface Permission {
  readonly mode?: Mode | undefined
  readonly owner?: string | undefined
  readonly group?: string | undefined
}

export interface UploadFile extends Permission {
  readonly path: string
  readonly content: string | Uint8Array | Stream.Stream<Uint8Array, unknown>
}

/** execd of one sandbox. Its endpoint is resolved on first use and kept. */
export interface ExecdClient {
  readonly sandboxId: string
  /** Forget the endpoint: pause and resume change its port and token. */
  readonly invalidate: Effect.Effect<void>
  readonly ping: Effect.Effect<void, OpenSandboxError>
  /** Waits until a command really runs. */
  readonly ready: (options?: { readonly timeout?: Duration.DurationInput | undefined }) => Effect.Effect<void, OpenSandboxError>
  /**
   * Runs a command; sent once. One chunk of the stream is what one network read brought. Ends after the terminal event, whatever the connection does
   * then. Ending the stream early frees the socket but does **not** stop the command: use `interrupt`.
   * Fails with `Transport` when the connection ends without a terminal event, `Timeout` after the idle limit, `Decode` for a body that is no event
   * stream, and with the server's own code for an error inside the stream.
   */
  readonly command: (request: CommandRequest) => Stream.Stream<ExecdEvent, OpenSandboxError>
  /** A command that is gone already counts as interrupted. */
  readonly interrupt: (commandId: string) => Effect.Effect<void, OpenSandboxError>
  readonly status: (commandId: string) => Effect.Effect<CommandStatus, OpenSandboxError>
  /** Output of a background command from an opaque cursor on. */
  readonly logs: (commandId: string, cursor?: string) => Effect.Effect<{ readonly text: string; readonly cursor: Option.Option<string> }, OpenSandboxError>
  readonly upload: (files: ReadonlyArray<UploadFile>) => Effect.Effect<void, OpenSandboxError>
  readonly download: (path: string, options?: { readonly offset?: number | undefined; readonly length?: number | undefined }) => Stream.Stream<Uint8Array, OpenSandboxError>
  readonly info: (paths: ReadonlyArray<string>) => Effect.Effect<ReadonlyMap<string, FileInfo>, OpenSandboxError>
  readonly search: (root: string, pattern?: string) => Effect.Effect<ReadonlyArray<FileInfo>, OpenSandboxError>
  readonly move: (moves: ReadonlyArray<{ readonly from: string; readonly to: string }>) => Effect.Effect<void, OpenSandboxError>
  /** Returns how many occurrences were replaced, by path. */
  readonly replace: (replacements: { readonly [path: string]: { readonly old: string; readonly new: string } }) => Effect.Effect<ReadonlyMap<string, number>, OpenSandboxError>
  readonly setPermissions: (permissions: { readonly [path: string]: Permission }) => Effect.Effect<void, OpenSandboxError>
  readonly removeFiles: (paths: ReadonlyArray<string>) => Effect.Effect<void, OpenSandboxError>
  readonly listDirectory: (path: string, options?: { readonly depth?: number | undefined }) => Effect.Effect<ReadonlyArray<FileInfo>, OpenSandboxError>
  readonly makeDirectories: (directories: { readonly [path: string]: Permission }) => Effect.Effect<void, OpenSandboxError>
  readonly removeDirectories: (paths: ReadonlyArray<string>) => Effect.Effect<void, OpenSandboxError>
}

export class Execd extends Context.Tag("@sandglass/core/Execd")<
  Execd,
  {
    /** A client for one sandbox; nothing is sent yet. */
    readonly connect: (sandboxId: string) => Effect.Effect<ExecdClient>
  }
>() {}
