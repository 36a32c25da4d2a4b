/** Without a pid namespace nothing dies with the server by itself, and with one, not what stands outside it, waiting for a command. @internal */

import * as ChildProcess from "node:child_process"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import { MARKER } from "./plain.js"
import { ToolError, toolEnv } from "./process.js"

/**
 * A shell that waits for the end of its input, which the server holds: it comes however the server dies, and then every process with the owner's
 * marker is killed.
 */
export const makeGuardian = (options: { readonly owner: string }): Effect.Effect<void, ToolError, Scope.Scope> =>
  Effect.asVoid(
    Effect.acquireRelease(
      Effect.try({
        try: () => {
          const child = ChildProcess.spawn("/bin/sh", ["-c", script, "sandglass-local-guardian", options.owner], {
            stdio: ["pipe", "ignore", "ignore"],
            detached: true,
            cwd: "/",
            env: toolEnv()
          })
          child.on("error", () => {})
          child.stdin?.on("error", () => {})
          // It must not keep a program alive that has ended otherwise.
          child.unref()
          return child
        },
        catch: (cause) => new ToolError({ tool: "sh", message: String(cause) })
      }),
      (child) => Effect.sync(() => child.kill("SIGKILL"))
    )
  )

const script = `trap '' INT TERM HUP
read -r _
for round in 1 2 3 4 5 6 7 8 9 10; do
  found=
  for file in $(grep -lzs "^${MARKER}=$1/" /proc/[0-9]*/environ /proc/[0-9]*/cmdline); do
    process=\${file#/proc/}
    kill -9 "\${process%/*}" 2>/dev/null && found=1
  done
  [ -n "$found" ] || break
done`
