/**
 * Path resolution that cannot leave a directory, whatever happens to the tree meanwhile.
 *
 * Every component is opened on its own, relative to the descriptor of the directory before it (`/proc/self/fd/N/name` is Linux's `openat` for
 * programs without one) and without following links; links are read and resolved here, `/` and `..` never going above the root. A directory
 * swapped for a link in mid-walk is therefore either seen as the link it is, or still the directory that was opened. The root is the view of the
 * sandbox (`/proc/PID/root`), so mounts and absolute links inside it mean what they mean to the sandbox's own processes.
 *
 * @internal
 */
import * as Fs from "node:fs"

const { O_DIRECTORY, O_NOFOLLOW } = Fs.constants
/** `O_PATH`, which `node:fs` has no constant for: same value on every Linux architecture that Node and Bun run on. */
const O_PATH = 0o10000000
const MAX_LINKS = 40

export interface Root {
  /** An open descriptor of the directory. */
  readonly fd: number
  /** Where relative paths start, as a path inside. */
  readonly cwd: string
  /** Absolute paths below this directory of the host mean the path inside: in plain mode that is what `pwd` prints. */
  readonly alias: string | undefined
}

export interface Located {
  /** The directory that holds it. */
  readonly dir: number
  readonly name: string
  /** A path usable with any call of `node:fs` that does not follow a link in its last component. */
  readonly at: string
  /** An `O_PATH` descriptor, or undefined where nothing has that name. */
  readonly fd: number | undefined
  readonly stat: Fs.Stats | undefined
  /** The resolved path inside the root. */
  readonly path: string
}

export interface ResolveOptions {
  /** Follow a link in the last component. */
  readonly follow: boolean
  /** Make missing directories on the way, the last component excepted. */
  readonly makeParents?: boolean | undefined
}

const fail = (code: string): never => {
  throw Object.assign(new Error(code), { code })
}

export const at = (dir: number, name: string): string => `/proc/self/fd/${dir}/${name}`

/** A path whose last step is a magic link to exactly the open file. */
export const ofFd = (fd: number): string => `/proc/self/fd/${fd}`

export const openPath = (dir: number, name: string): number => Fs.openSync(at(dir, name), O_PATH | O_NOFOLLOW)

export const openRoot = (path: string): number => Fs.openSync(path, O_PATH | O_DIRECTORY)

export const closeQuietly = (fd: number): void => {
  try {
    Fs.closeSync(fd)
  } catch {
    // Closed already.
  }
}

const absolute = (root: Root, path: string): string => {
  if (!path.startsWith("/")) return path
  const alias = root.alias
  return alias !== undefined && (path === alias || path.startsWith(`${alias}/`))
    ? path.slice(alias.length) || "/"
    : path
}

const split = (path: string): Array<string> => path.split("/").filter((part) => part !== "" && part !== ".")

/** Resolves `path` and hands the result to `use`; every descriptor is closed again when that returns. */
export const locate = <A>(root: Root, path: string, options: ResolveOptions, use: (found: Located) => A): A => {
  if (path === "" || path.includes("\0")) fail("EINVAL")
  const stack: Array<{ readonly fd: number; readonly name: string }> = []
  const top = () => stack.at(-1)?.fd ?? root.fd
  const opened: Array<number> = []
  const inside = (name: string) => `/${[...stack.map((entry) => entry.name), name].join("/")}`
  try {
    const queue = split(path.startsWith("/") ? absolute(root, path) : `${root.cwd}/${path}`)
    let links = 0
    while (queue.length > 0) {
      const name = queue.shift() ?? ""
      const last = queue.length === 0
      if (name === "..") {
        const left = stack.pop()
        if (left !== undefined) Fs.closeSync(opened.splice(opened.indexOf(left.fd), 1)[0] ?? left.fd)
        continue
      }
      let fd: number
      try {
        fd = openPath(top(), name)
      } catch (cause) {
        const missing = cause instanceof Error && "code" in cause && cause.code === "ENOENT"
        if (!missing) throw cause
        if (last)
          return use({ dir: top(), name, at: at(top(), name), fd: undefined, stat: undefined, path: inside(name) })
        if (options.makeParents !== true) throw cause
        try {
          Fs.mkdirSync(at(top(), name), 0o755)
        } catch (again) {
          if (!(again instanceof Error && "code" in again && again.code === "EEXIST")) throw again
        }
        fd = openPath(top(), name)
      }
      opened.push(fd)
      const stat = Fs.fstatSync(fd)
      if (stat.isSymbolicLink() && (!last || options.follow)) {
        if (++links > MAX_LINKS) fail("ELOOP")
        const target = Fs.readlinkSync(at(top(), name))
        if (target.startsWith("/")) stack.length = 0
        queue.unshift(...split(absolute(root, target)))
        continue
      }
      if (last) return use({ dir: top(), name, at: at(top(), name), fd, stat, path: inside(name) })
      if (!stat.isDirectory()) fail("ENOTDIR")
      stack.push({ fd, name })
    }
    // The path ended in a directory already open: the root itself, or something that ends in `..`.
    const fd = openPath(top(), ".")
    opened.push(fd)
    return use({
      dir: top(),
      name: ".",
      at: at(top(), "."),
      fd,
      stat: Fs.fstatSync(fd),
      path: `/${stack.map((entry) => entry.name).join("/")}`
    })
  } finally {
    for (const fd of opened) closeQuietly(fd)
  }
}

/** As `locate`, for something that must exist. */
export const locateExisting = <A>(
  root: Root,
  path: string,
  options: ResolveOptions,
  use: (found: Located & { readonly fd: number; readonly stat: Fs.Stats }) => A
): A =>
  locate(root, path, options, (found) => {
    const { fd, stat } = found
    return fd === undefined || stat === undefined ? fail("ENOENT") : use({ ...found, fd, stat })
  })

/** Opens a directory for use as somebody's working directory. The caller closes it. */
export const openDirectory = (root: Root, path: string): number =>
  locateExisting(root, path, { follow: true }, ({ fd, stat }) =>
    stat.isDirectory() ? Fs.openSync(ofFd(fd), O_PATH | O_DIRECTORY) : fail("ENOTDIR")
  )

/** A regular file's contents, for small files of the sandbox that the server itself wants to read. */
export const readSmallFile = (root: Root, path: string): string | undefined => {
  try {
    return locateExisting(root, path, { follow: true }, ({ fd, stat }) =>
      stat.isFile() && stat.size < 1024 * 1024 ? Fs.readFileSync(ofFd(fd), "utf8") : undefined
    )
  } catch {
    return undefined
  }
}
