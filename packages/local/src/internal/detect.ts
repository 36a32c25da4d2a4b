/** Finds a way to isolate sandboxes that works here, by trying. @internal */

import * as Fs from "node:fs"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import { makeGuardian } from "./guardian.js"
import type { Isolation, Mode } from "./isolation.js"
import { makeNamespaces, tryNamespaces } from "./namespaces.js"
import { makePlain } from "./plain.js"
import { ToolError } from "./process.js"
import type { RunDirectory } from "./state.js"
import { defaultParents, makeRunDirectory, removeRun } from "./state.js"
import { searchPath, which } from "./which.js"

export interface Detected {
  readonly isolation: Isolation
  readonly run: RunDirectory
}

/** Of the server's own environment, only what says where programs and texts are: the rest may hold secrets. */
const baseEnv = (): { readonly [name: string]: string } => ({
  PATH: searchPath().join(":"),
  LANG: process.env.LANG ?? "C.UTF-8",
  ...(process.env.TZ === undefined ? {} : { TZ: process.env.TZ })
})

export const detect = (options: {
  readonly mode: "auto" | Mode
  readonly parent: string | undefined
}): Effect.Effect<Detected, ToolError, Scope.Scope> =>
  Effect.gen(function* () {
    const env = baseEnv()
    const bash = which("bash") ?? "/bin/sh"
    const parents = options.parent === undefined ? defaultParents() : [options.parent]
    const runDirectory = (parent: string, searchable: boolean) =>
      Effect.acquireRelease(
        Effect.try({
          try: () => makeRunDirectory(parent, { searchable }),
          catch: (cause) => new ToolError({ tool: "mkdir", message: String(cause) })
        }),
        removeRun
      )
    const reasons: Array<string> = []
    if (options.mode !== "plain") {
      const [unshare, nsenter, setsid] = [which("unshare"), which("nsenter"), which("setsid")]
      const envTool = which("env") ?? "/usr/bin/env"
      if (unshare === undefined || nsenter === undefined || setsid === undefined) {
        reasons.push("unshare, nsenter and setsid (util-linux) are needed")
      } else if (process.platform !== "linux") {
        reasons.push("namespaces need Linux")
      } else {
        const userNamespace = process.getuid?.() !== 0
        for (const parent of parents) {
          const found = yield* Effect.gen(function* () {
            const run = yield* runDirectory(parent, false)
            const isolation = makeNamespaces(
              {
                tools: { unshare, nsenter, setsid, env: envTool },
                userNamespace,
                hidden: [run.path, ...(options.parent === undefined ? [] : [Fs.realpathSync(parent)])],
                owner: run.name,
                shell: bash,
                env
              },
              userNamespace ? "overlayfs in unprivileged user namespaces" : "overlayfs in mount and pid namespaces"
            )
            yield* makeGuardian({ owner: run.name })
            yield* tryNamespaces(isolation, `${run.path}/probe`)
            return { isolation, run }
          }).pipe(Effect.either)
          if (found._tag === "Right") return found.right
          reasons.push(`${parent}: ${found.left.tool}: ${found.left.message}`)
        }
      }
      if (options.mode === "namespaces") {
        return yield* new ToolError({ tool: "namespaces", message: `cannot be used here: ${reasons.join("; ")}` })
      }
    }
    const run = yield* Effect.firstSuccessOf(parents.map((parent) => runDirectory(parent, true)))
    yield* makeGuardian({ owner: run.name })
    const why = options.mode === "plain" ? "asked for" : `namespaces cannot be used here: ${reasons.join("; ")}`
    return { run, isolation: makePlain({ bash, owner: run.name, env }, `private directories only (${why})`) }
  })
