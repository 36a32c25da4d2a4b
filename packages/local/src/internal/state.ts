/**
 * Where a server keeps its files, and the sweeping of what dead servers left.
 *
 * A run's directory is named after the process that owns it (boot, pid namespace, pid, start time), so ownership is recorded by the very act of
 * making it, and a pid that was given to another process since is not mistaken for the owner.
 *
 * @internal
 */

import { randomBytes } from "node:crypto"
import * as Fs from "node:fs"
import * as Os from "node:os"
import * as Effect from "effect/Effect"
import { killMembers } from "./plain.js"
import { procStat, readFileOr, removeTree } from "./process.js"

const PREFIX = "sandglass-local-"

interface Owner {
  readonly boot: string
  readonly pidNamespace: string
  readonly pid: number
  readonly startTime: string
}

const link = (path: string): string => {
  try {
    return Fs.readlinkSync(path)
  } catch {
    return ""
  }
}

const self = (): Owner => ({
  boot: readFileOr("/proc/sys/kernel/random/boot_id", "unknown").trim().slice(0, 8),
  pidNamespace: /\d+/.exec(link("/proc/self/ns/pid"))?.[0] ?? "0",
  pid: process.pid,
  startTime: procStat(process.pid)?.startTime ?? "0"
})

const parse = (name: string): Owner | undefined => {
  const match = /^sandglass-local-([0-9a-z]+)-(\d+)-(\d+)-(\d+)-[0-9a-f]+$/.exec(name)
  if (match === null) return undefined
  const [, boot = "", pidNamespace = "", pid = "", startTime = ""] = match
  return { boot, pidNamespace, pid: Number(pid), startTime }
}

/** Whether the owner is certainly no longer there: of another pid namespace nothing is known. */
const dead = (owner: Owner, me: Owner): boolean => {
  if (owner.boot !== me.boot) return true
  if (owner.pidNamespace !== me.pidNamespace) return false
  return procStat(owner.pid)?.startTime !== owner.startTime
}

const runsIn = (parent: string): Array<{ readonly name: string; readonly path: string; readonly owner: Owner }> => {
  try {
    return Fs.readdirSync(parent).flatMap((name) => {
      const owner = name.startsWith(PREFIX) ? parse(name) : undefined
      return owner === undefined ? [] : [{ name, path: `${parent}/${name}`, owner }]
    })
  } catch {
    return []
  }
}

/** Ends the processes and removes the files of servers that are gone. Returns the names of their runs. */
export const sweep = (parent: string): Effect.Effect<ReadonlyArray<string>> =>
  Effect.suspend(() => {
    const me = self()
    const own = process.getuid?.()
    return Effect.filter(runsIn(parent), ({ name, owner, path }) => {
      // A link, or another user's directory, is not ours to remove.
      const stat = Fs.lstatSync(path, { throwIfNoEntry: false })
      if (stat === undefined || !stat.isDirectory() || (own !== 0 && stat.uid !== own) || !dead(owner, me))
        return Effect.succeed(false)
      return killMembers(name, path).pipe(
        Effect.zipRight(removeTree(path)),
        Effect.match({ onSuccess: () => true, onFailure: () => false })
      )
    }).pipe(Effect.map((runs) => runs.map((run) => run.name)))
  })

/** For the end of a server's own run. */
export const removeRun = (run: RunDirectory): Effect.Effect<void> =>
  removeTree(run.path).pipe(
    Effect.interruptible,
    Effect.timeout("20 seconds"),
    Effect.catchAll((error) => Effect.logWarning(`sandglass-local: cannot remove ${run.path}: ${error.message}`))
  )

/** Live servers that use `parent`. */
export const liveRuns = (parent: string): ReadonlyArray<number> => {
  const me = self()
  return runsIn(parent).flatMap(({ owner }) => (dead(owner, me) ? [] : [owner.pid]))
}

export interface RunDirectory {
  readonly name: string
  readonly path: string
}

/** Throws where the parent is not writable. */
export const makeRunDirectory = (parent: string, options: { readonly searchable: boolean }): RunDirectory => {
  const me = self()
  const name = `${PREFIX}${me.boot}-${me.pidNamespace}-${me.pid}-${me.startTime}-${randomBytes(4).toString("hex")}`
  const path = `${Fs.realpathSync(parent)}/${name}`
  // In plain mode commands under another uid have to get through it.
  Fs.mkdirSync(path, { mode: options.searchable ? 0o711 : 0o700 })
  for (const part of ["sandboxes", "snapshots", "pipes"]) Fs.mkdirSync(`${path}/${part}`)
  return { name, path }
}

/** Where state may live when nobody says: the first that works. */
export const defaultParents = (): ReadonlyArray<string> => {
  const candidates = [Os.tmpdir(), "/var/tmp", process.env.XDG_RUNTIME_DIR ?? "", "/dev/shm"]
  return [...new Set(candidates)].filter((path) => path !== "" && Fs.existsSync(path))
}
