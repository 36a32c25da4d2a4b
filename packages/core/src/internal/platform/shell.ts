import type { PlatformError } from "@effect/platform/Error"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Encoding from "effect/Encoding"
import * as Stream from "effect/Stream"
import type { ExecdClient } from "../../Execd.js"
import { IdGenerator } from "../../IdGenerator.js"
import { commandLine } from "../exec/shell.js"
import type { Where } from "./errors.js"
import * as Errors from "./errors.js"

/** Runs scripts in a sandbox that are none of the user's commands: neither recorded nor replayed. */
export interface Shell {
  readonly execd: ExecdClient
  /**
   * Runs a POSIX shell script with arguments, and returns what it printed. One that fails has told why in the words of the system on
   * its stderr, in English.
   */
  readonly run: (where: Where, script: string, ...args: ReadonlyArray<string>) => Effect.Effect<string, PlatformError>
  /** As `run`, for a script that prints base64: bytes and names come through exactly. */
  readonly bytes: (
    where: Where,
    script: string,
    ...args: ReadonlyArray<string>
  ) => Effect.Effect<Uint8Array, PlatformError>
  readonly text: (where: Where, script: string, ...args: ReadonlyArray<string>) => Effect.Effect<string, PlatformError>
  /** A path as both commands and the files API of the sandbox understand it. */
  readonly locate: (where: Where, path?: string) => Effect.Effect<string, PlatformError>
  /** An absolute path of which nothing is there yet, for something to be uploaded. */
  readonly temporary: (where: Where) => Effect.Effect<string, PlatformError>
}

/** Where relative paths start, and what commands call the directory that the files API calls `/`: empty, but for plain directories. */
interface View {
  readonly root: string
  readonly cwd: string
}

const join = (directory: string, path: string) => (directory.endsWith("/") ? directory + path : `${directory}/${path}`)

const located = ({ cwd, root }: View, path: string): string =>
  !path.startsWith("/")
    ? join(cwd, path)
    : root === "" || path === root || path.startsWith(`${root}/`)
      ? path
      : root + path

export const makeShell = (execd: ExecdClient, options: { readonly cwd?: string | undefined }): Shell => {
  const run = (where: Where, script: string, args: ReadonlyArray<string>, cwd?: string) =>
    Effect.suspend(() => {
      let stdout = ""
      let stderr = ""
      let exitCode: number | undefined
      const command = ["LC_ALL=C; export LC_ALL", commandLine(["set", "--", ...args]), script].join("\n")
      return execd.command({ command, cwd }).pipe(
        Stream.runForEach((event) =>
          Effect.sync(() => {
            if (event._tag === "Output") {
              if (event.stream === "stdout") stdout += event.text
              else stderr += event.text
            } else if (event._tag === "Exit") {
              exitCode = event.exitCode
              if (exitCode === undefined) stderr += event.message ?? ""
            }
          })
        ),
        Effect.mapError((cause) => Errors.fromServer(where, cause)),
        Effect.flatMap(() => (exitCode === 0 ? Effect.succeed(stdout) : Effect.fail(Errors.fromStderr(where, stderr))))
      )
    })

  const bytes = (where: Where, script: string, args: ReadonlyArray<string>, cwd?: string) =>
    Effect.flatMap(run(where, script, args, cwd), (printed) =>
      Either.match(Encoding.decodeBase64(printed.replaceAll("\n", "")), {
        onLeft: (cause) => Effect.fail(Errors.unknown(where, "the sandbox printed something unexpected", cause)),
        onRight: Effect.succeed
      })
    )

  const text = (where: Where, script: string, args: ReadonlyArray<string>, cwd?: string) =>
    Effect.map(bytes(where, script, args, cwd), (decoded) => new TextDecoder().decode(decoded))

  let known: View | undefined
  const view = (where: Where) =>
    Effect.suspend(() => {
      if (known !== undefined) return Effect.succeed(known)
      const pwd = (cwd?: string) => text(where, `printf %s "$(pwd -P)" | base64`, [], cwd)
      return Effect.map(Effect.all([pwd("/"), pwd()], { concurrency: 2 }), ([top, start]) => {
        const root = top === "/" ? "" : top
        known = { root, cwd: options.cwd === undefined ? start : located({ root, cwd: start }, options.cwd) }
        return known
      })
    })

  const locate = (where: Where, path = "."): Effect.Effect<string, PlatformError> =>
    path === ""
      ? Effect.fail(Errors.fromCode(where, "ENOENT", "an empty path"))
      : path.includes("\0")
        ? Effect.fail(Errors.badArgument(where, "a path must not contain NUL"))
        : Effect.map(view(where), (view) => (path === "." ? view.cwd : located(view, path)))

  return {
    execd,
    run: (where, script, ...args) => run(where, script, args),
    bytes: (where, script, ...args) => bytes(where, script, args),
    text: (where, script, ...args) => text(where, script, args),
    locate,
    temporary: (where) =>
      Effect.flatMap(IdGenerator, ({ next }) => Effect.flatMap(next, (id) => locate(where, `/tmp/.sandglass-${id}`)))
  }
}
