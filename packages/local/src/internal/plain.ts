/**
 * Sandboxes as a private directory, for machines where namespaces are not allowed. Commands see the whole machine; only their home, their
 * temporary directory and the paths of the files API are their own.
 *
 * @internal
 */

import * as Fs from "node:fs"
import * as Effect from "effect/Effect"
import type { CreateInstance, Instance, Isolation } from "./isolation.js"
import { allPids, readFileOr, removeTree, runToolOk, signal, ToolError } from "./process.js"
import { closeQuietly, openRoot } from "./rooted.js"

/** In the environment of every process of a sandbox, which is how they are found again wherever they went. */
export const MARKER = "SANDGLASS_LOCAL_SANDBOX"

/** Processes whose marker begins with `marker`, be it in their environment or their name, or that work inside the directory having dropped it. */
const members = (marker: string, directory: string): Array<number> => {
  const wanted = `${MARKER}=${marker}/`
  return allPids().filter((pid) => {
    if (pid === process.pid) return false
    try {
      const environment = readFileOr(`/proc/${pid}/environ`, "")
      if (environment === "" && readFileOr(`/proc/${pid}/cmdline`, "").startsWith(wanted)) return true
      if (`\0${environment}`.includes(`\0${wanted}`)) return true
      const cwd = Fs.readlinkSync(`/proc/${pid}/cwd`)
      return cwd === directory || cwd.startsWith(`${directory}/`)
    } catch {
      // Gone, or another user's.
      return false
    }
  })
}

/** Again and again until none is left, since they may fork meanwhile. */
export const killMembers = (marker: string, directory: string): Effect.Effect<void> => {
  const round = (left: number): Effect.Effect<void> =>
    Effect.suspend(() => {
      const pids = members(marker, directory).filter((pid) => signal(pid, "SIGKILL"))
      return pids.length === 0 || left === 0 ? Effect.void : Effect.zipRight(Effect.sleep(10), round(left - 1))
    })
  return round(200)
}

export interface PlainOptions {
  readonly bash: string
  /** Tells this server's sandboxes from those of others. */
  readonly owner: string
  readonly env: { readonly [name: string]: string }
}

export const makePlain = (options: PlainOptions, description: string): Isolation => {
  const create = ({ id, layers }: CreateInstance): Effect.Effect<Instance, ToolError> =>
    Effect.try({
      try: () => {
        const root = `${layers}/root`
        for (const name of ["root", "tmp", "workspace"]) Fs.mkdirSync(`${root}/${name}`, { recursive: true })
        Fs.chmodSync(`${root}/tmp`, 0o1777)
        return Fs.realpathSync(root)
      },
      catch: (cause) => new ToolError({ tool: "mkdir", message: String(cause) })
    }).pipe(
      Effect.map((root): Instance => {
        const fd = openRoot(root)
        const marker = `${options.owner}/${id}`
        let closed = false
        const send = (name: NodeJS.Signals) =>
          Effect.sync(() => {
            for (const pid of members(marker, root)) signal(pid, name)
          })
        return {
          root: { fd, cwd: "/workspace", alias: root },
          env: { ...options.env, HOME: `${root}/root`, TMPDIR: `${root}/tmp`, [MARKER]: `${marker}/` },
          shell: options.bash,
          refuseUser: (uid) => {
            const own = process.getuid?.()
            return own === 0 || own === uid ? undefined : "another uid needs a server that runs as root"
          },
          launch: (request) => ({
            file: request.argv[0] ?? options.bash,
            args: request.argv.slice(1),
            argv0: undefined,
            env: request.env,
            cwd: `/proc/${process.pid}/fd/${request.cwd}`,
            uid: request.uid,
            gid: request.uid === undefined ? undefined : (request.gid ?? request.uid)
          }),
          groupOf: (pid) => pid,
          hasProcesses: () => members(marker, root).length > 0,
          freeze: send("SIGSTOP"),
          thaw: send("SIGCONT"),
          destroy: Effect.suspend(() => {
            if (closed) return Effect.void
            closed = true
            closeQuietly(fd)
            return killMembers(marker, root)
          }),
          died: Effect.never
        }
      })
    )
  return {
    mode: "plain",
    description,
    create,
    copyTree: (from, to) => Effect.asVoid(runToolOk("cp", ["-a", "--reflink=auto", "--", `${from}/.`, to])),
    removeTree
  }
}
