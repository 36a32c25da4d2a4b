/** What the files API does, on a sandbox's root. Small steps run at once; see `rooted.ts` for why they stay inside. @internal */

import * as Fs from "node:fs"
import * as DateTime from "effect/DateTime"
import { badRequest, errno, fromErrno } from "./apiError.js"
import type { Names } from "./names.js"
import { namesOf } from "./names.js"
import type { Root } from "./rooted.js"
import { at, closeQuietly, locate, locateExisting, ofFd, openPath } from "./rooted.js"

const { O_CREAT, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_TRUNC, O_WRONLY } = Fs.constants

export interface Permission {
  readonly mode?: number | string | undefined
  readonly owner?: string | undefined
  readonly group?: string | undefined
}

export interface FileInfo {
  readonly path: string
  readonly type: string
  readonly size: number
  readonly modified_at: string
  readonly created_at: string
  readonly owner: string
  readonly group: string
  readonly mode: number
}

/** Octal digits as a decimal number, which is how modes travel: 755. */
const modeOf = (stat: Fs.Stats): number => Number((stat.mode & 0o7777).toString(8))

const parseMode = (mode: number | string): number => {
  const digits = String(mode)
  if (!/^[0-7]{1,4}$/.test(digits)) throw badRequest(`mode must be octal digits such as 755, not ${digits}`)
  return Number.parseInt(digits, 8)
}

const time = (millis: number): string => DateTime.formatIso(DateTime.unsafeMake(Math.round(millis)))

const typeOf = (stat: Fs.Stats): string =>
  stat.isFile() ? "file" : stat.isDirectory() ? "directory" : stat.isSymbolicLink() ? "symlink" : "other"

const infoOf = (path: string, stat: Fs.Stats, names: Names): FileInfo => ({
  path,
  type: typeOf(stat),
  size: stat.size,
  modified_at: time(stat.mtimeMs),
  created_at: time(stat.birthtimeMs > 0 ? stat.birthtimeMs : stat.ctimeMs),
  owner: names.user(stat.uid),
  group: names.group(stat.gid),
  mode: modeOf(stat)
})

const guarded = <A>(path: string, body: () => A): A => {
  try {
    return body()
  } catch (cause) {
    throw fromErrno(path)(cause)
  }
}

const applyPermission = (fd: number, permission: Permission, names: Names): void => {
  const { group, mode, owner } = permission
  if ((owner !== undefined && owner !== "") || (group !== undefined && group !== "")) {
    const uid = owner === undefined || owner === "" ? -1 : names.uid(owner)
    const gid = group === undefined || group === "" ? -1 : names.gid(group)
    if (uid === undefined) throw badRequest(`unknown user ${owner}`)
    if (gid === undefined) throw badRequest(`unknown group ${group}`)
    // Node knows no -1 for "as it is".
    const stat = Fs.fstatSync(fd)
    Fs.chownSync(ofFd(fd), uid === -1 ? stat.uid : uid, gid === -1 ? stat.gid : gid)
  }
  // After the owner: a change of owner clears the setuid bit.
  if (mode !== undefined && mode !== null && mode !== 0) Fs.chmodSync(ofFd(fd), parseMode(mode))
}

export const info = (root: Root, path: string): FileInfo =>
  guarded(path, () => {
    const names = namesOf(root)
    try {
      return locateExisting(root, path, { follow: true }, ({ stat }) => infoOf(path, stat, names))
    } catch (cause) {
      if (errno(cause) !== "ENOENT") throw cause
      // A link to nothing is still there itself.
      return locateExisting(root, path, { follow: false }, ({ stat }) => infoOf(path, stat, names))
    }
  })

export const removeFile = (root: Root, path: string): void =>
  guarded(path, () =>
    locateExisting(root, path, { follow: false }, (found) => {
      if (found.stat.isDirectory()) throw badRequest(`${path} is a directory`, "IS_A_DIRECTORY")
      Fs.unlinkSync(found.at)
    })
  )

export const setPermission = (root: Root, path: string, permission: Permission): void =>
  guarded(path, () =>
    locateExisting(root, path, { follow: true }, ({ fd }) => applyPermission(fd, permission, namesOf(root)))
  )

export const makeDirectory = (root: Root, path: string, permission: Permission): void =>
  guarded(path, () => {
    const names = namesOf(root)
    const made = (fd: number) => applyPermission(fd, permission, names)
    locate(root, path, { follow: true, makeParents: true }, (found) => {
      if (found.fd !== undefined) {
        if (found.stat?.isDirectory() !== true)
          throw badRequest(`${path} exists and is no directory`, "NOT_A_DIRECTORY")
        return made(found.fd)
      }
      Fs.mkdirSync(found.at, 0o755)
      const fd = openPath(found.dir, found.name)
      try {
        made(fd)
      } finally {
        closeQuietly(fd)
      }
    })
  })

/** Removes what `name` in `dir` is, links as links; a whole tree where it is a directory. */
const removeTree = (dir: number, name: string): void => {
  let fd: number
  try {
    fd = Fs.openSync(at(dir, name), O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
  } catch (cause) {
    const code = errno(cause)
    if (code === "ENOENT") return
    if (code !== "ENOTDIR" && code !== "ELOOP") throw cause
    Fs.unlinkSync(at(dir, name))
    return
  }
  try {
    for (const child of Fs.readdirSync(ofFd(fd))) removeTree(fd, child)
  } finally {
    closeQuietly(fd)
  }
  Fs.rmdirSync(at(dir, name))
}

export const removeDirectory = (root: Root, path: string): void =>
  guarded(path, () =>
    locate(root, path, { follow: false }, (found) => {
      if (found.fd === undefined) return
      if (found.name === ".") throw badRequest(`${path} cannot be removed`)
      if (found.stat?.isDirectory() !== true) throw badRequest(`${path} is no directory`, "NOT_A_DIRECTORY")
      removeTree(found.dir, found.name)
    })
  )

export const move = (root: Root, from: string, to: string): void =>
  guarded(from, () =>
    locateExisting(root, from, { follow: false }, (source) =>
      guarded(to, () =>
        locate(root, to, { follow: false }, (target) => {
          if (source.name === "." || target.name === ".") throw badRequest("cannot move the root")
          try {
            Fs.renameSync(source.at, target.at)
          } catch (cause) {
            // Between `/tmp` and the rest, which are different file systems.
            if (errno(cause) !== "EXDEV") throw cause
            copyTree(source.dir, source.name, target.dir, target.name)
            removeTree(source.dir, source.name)
          }
        })
      )
    )
  )

const copyTree = (fromDir: number, fromName: string, toDir: number, toName: string): void => {
  const from = openPath(fromDir, fromName)
  try {
    const stat = Fs.fstatSync(from)
    if (stat.isSymbolicLink()) {
      Fs.symlinkSync(Fs.readlinkSync(at(fromDir, fromName)), at(toDir, toName))
      return
    }
    if (stat.isDirectory()) {
      Fs.mkdirSync(at(toDir, toName), 0o700)
    } else if (stat.isFile()) {
      const target = Fs.openSync(at(toDir, toName), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0o600)
      Fs.closeSync(target)
    } else {
      throw badRequest(`${fromName} is neither a file nor a directory`)
    }
    const to = openPath(toDir, toName)
    try {
      if (stat.isDirectory()) {
        for (const child of Fs.readdirSync(ofFd(from))) copyTree(from, child, to, child)
      } else Fs.copyFileSync(ofFd(from), ofFd(to))
      Fs.chownSync(ofFd(to), stat.uid, stat.gid)
      Fs.chmodSync(ofFd(to), stat.mode & 0o7777)
      Fs.utimesSync(ofFd(to), stat.atimeMs / 1000, stat.mtimeMs / 1000)
    } finally {
      closeQuietly(to)
    }
  } finally {
    closeQuietly(from)
  }
}

/** Returns how often `old` was found. */
export const replace = (root: Root, path: string, old: string, replacement: string): number =>
  guarded(path, () => {
    if (old === "") throw badRequest("old must not be empty")
    return locateExisting(root, path, { follow: true }, ({ fd, stat }) => {
      if (!stat.isFile()) throw badRequest(`${path} is no file`)
      // As bytes, one character each: what is not text, or not UTF-8, around the matches stays as it is.
      const parts = Fs.readFileSync(ofFd(fd), "latin1").split(Buffer.from(old).toString("latin1"))
      if (parts.length > 1) {
        Fs.writeFileSync(ofFd(fd), Buffer.from(parts.join(Buffer.from(replacement).toString("latin1")), "latin1"))
      }
      return parts.length - 1
    })
  })

/** A descriptor to write a new content through. The caller closes it. */
export const openForUpload = (root: Root, path: string, permission: Permission): number =>
  guarded(path, () =>
    locate(root, path, { follow: true, makeParents: true }, (found) => {
      if (found.stat !== undefined && !found.stat.isFile())
        throw badRequest(`${path} is a ${typeOf(found.stat)}`, "INVALID_REQUEST")
      // Never waits for the other end of a pipe, and never follows what took the name meanwhile.
      const fd = Fs.openSync(found.at, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK, 0o644)
      try {
        applyPermission(fd, permission, namesOf(root))
      } catch (cause) {
        closeQuietly(fd)
        throw cause
      }
      return fd
    })
  )

/** A descriptor to read from, and how much there is. The caller closes it. */
export const openForDownload = (
  root: Root,
  path: string
): { readonly fd: number; readonly size: number; readonly name: string } =>
  guarded(path, () =>
    locateExisting(root, path, { follow: true }, (found) => {
      if (!found.stat.isFile()) throw badRequest(`${path} is a ${typeOf(found.stat)}`)
      return {
        fd: Fs.openSync(ofFd(found.fd), O_RDONLY),
        size: found.stat.size,
        name:
          path
            .split("/")
            .filter((part) => part !== "")
            .at(-1) ?? "file"
      }
    })
  )

const byName = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0)

/**
 * Everything below a directory, parents before children, links not followed. One directory per step, so that the caller can let others go first.
 */
export function* walk(
  root: Root,
  path: string,
  depth: number,
  followStart: boolean
): Generator<ReadonlyArray<FileInfo & { readonly relative: string }>> {
  const names = namesOf(root)
  const start = guarded(path, () =>
    locateExisting(root, path, { follow: followStart }, ({ fd, stat }) => {
      if (stat.isSymbolicLink()) throw badRequest(`${path} is a symbolic link`)
      if (!stat.isDirectory()) throw badRequest(`${path} is no directory`, "NOT_A_DIRECTORY")
      return Fs.openSync(ofFd(fd), O_RDONLY | O_DIRECTORY)
    })
  )
  const base = path === "/" ? "" : path.replace(/\/+$/, "")
  const below = function* (
    fd: number,
    prefix: string,
    left: number
  ): Generator<ReadonlyArray<FileInfo & { readonly relative: string }>> {
    try {
      const children = Fs.readdirSync(ofFd(fd)).sort(byName)
      let found: Array<FileInfo & { readonly relative: string }> = []
      for (const child of children) {
        const stat = Fs.lstatSync(at(fd, child), { throwIfNoEntry: false })
        if (stat === undefined) continue
        const relative = `${prefix}${child}`
        found.push({ ...infoOf(`${base}/${relative}`, stat, names), relative })
        if (stat.isDirectory() && left > 1) {
          yield found
          found = []
          let next: number
          try {
            next = Fs.openSync(at(fd, child), O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
          } catch {
            // Not readable, or gone: it was listed, that is all there is to say.
            continue
          }
          yield* below(next, `${relative}/`, left - 1)
        }
      }
      if (found.length > 0) yield found
    } finally {
      closeQuietly(fd)
    }
  }
  if (depth < 1) return closeQuietly(start)
  yield* below(start, "", depth)
}

/** `*`, `?`, `[…]`, `{a,b}` within a name, `**` across names. A pattern without a slash is matched against the last name alone. */
export const globMatcher = (pattern: string): ((relative: string) => boolean) => {
  let source = ""
  let braces = 0
  for (let i = 0; i < pattern.length; i++) {
    const char = pattern[i] ?? ""
    if (char === "*" && pattern[i + 1] === "*") {
      const slash = pattern[i + 2] === "/"
      source += slash ? "(?:[^]*/)?" : "[^]*"
      i += slash ? 2 : 1
    } else if (char === "*") source += "[^/]*"
    else if (char === "?") source += "[^/]"
    else if (char === "[" && pattern.indexOf("]", i + 2) > 0) {
      const end = pattern.indexOf("]", i + 2)
      const body = pattern
        .slice(i + 1, end)
        .replace(/^!/, "^")
        .replaceAll("\\", "\\\\")
      source += `[${body}]`
      i = end
    } else if (char === "{" && pattern.includes("}", i)) {
      braces++
      source += "(?:"
    } else if (char === "}" && braces > 0) {
      braces--
      source += ")"
    } else if (char === "," && braces > 0) source += "|"
    else if (char === "\\" && i + 1 < pattern.length) source += escapeRegExp(pattern[++i] ?? "")
    else source += escapeRegExp(char)
  }
  let expression: RegExp
  try {
    expression = new RegExp(`^${source}$`, "u")
  } catch {
    throw badRequest(`bad pattern ${pattern}`)
  }
  return pattern.includes("/")
    ? (relative) => expression.test(relative)
    : (relative) => expression.test(relative.slice(relative.lastIndexOf("/") + 1))
}

const escapeRegExp = (text: string): string => text.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&")
