/** @internal */
import type * as Effect from "effect/Effect"
import type { ToolError } from "./process.js"
import type { Root } from "./rooted.js"

/** How sandboxes are kept apart; `plain` is a private directory and nothing more. */
export type Mode = "namespaces" | "plain"

export interface Launch {
  readonly file: string
  readonly args: ReadonlyArray<string>
  /** Instead of the program's own name, as what it is found by later. */
  readonly argv0: string | undefined
  readonly env: { readonly [name: string]: string }
  /** A directory of the host to start in. */
  readonly cwd: string | undefined
  readonly uid: number | undefined
  readonly gid: number | undefined
}

export interface LaunchRequest {
  /** What to run, as a path and arguments inside the sandbox. */
  readonly argv: ReadonlyArray<string>
  /** An open descriptor, of this process, of the directory to start in. */
  readonly cwd: number
  /** For what is run, and for nothing that is needed to run it. */
  readonly env: { readonly [name: string]: string }
  readonly uid: number | undefined
  readonly gid: number | undefined
}

/** A sandbox that is up. */
export interface Instance {
  readonly root: Root
  /** Environment that every command starts from. */
  readonly env: { readonly [name: string]: string }
  /** A shell inside. */
  readonly shell: string
  /** Why commands cannot run under another user, where they cannot. */
  readonly refuseUser: (uid: number, gid: number | undefined) => string | undefined
  readonly launch: (request: LaunchRequest) => Launch
  /** The process group that a launched command runs in, seen from here, once it exists. */
  readonly groupOf: (pid: number) => number | undefined
  /** Whether anything runs inside that is no command of ours. */
  readonly hasProcesses: () => boolean
  readonly freeze: Effect.Effect<void, ToolError>
  readonly thaw: Effect.Effect<void, ToolError>
  /** Ends every process and every mount. Succeeds when they are gone; may be run twice. */
  readonly destroy: Effect.Effect<void>
  /** Completes when the sandbox has died by itself. */
  readonly died: Effect.Effect<void>
}

export interface CreateInstance {
  readonly id: string
  /** The sandbox's own directory, empty but for `layers`. */
  readonly directory: string
  /** Holds everything that a snapshot copies; empty, or the copy of a snapshot's. */
  readonly layers: string
}

export interface Isolation {
  readonly mode: Mode
  /** Words for people: how, and why not better. */
  readonly description: string
  readonly create: (options: CreateInstance) => Effect.Effect<Instance, ToolError>
  /** `cp -a`, able to read whatever a sandbox may have made. */
  readonly copyTree: (from: string, to: string) => Effect.Effect<void, ToolError>
  readonly removeTree: (path: string) => Effect.Effect<void, ToolError>
}
