/**
 * Sandboxes as a copy-on-write view of this machine: an overlay whose lower layer is `/`, in mount, pid, uts and ipc namespaces of its own.
 *
 * @internal
 */

import * as ChildProcess from "node:child_process"
import * as Fs from "node:fs"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import type { CreateInstance, Instance, Isolation } from "./isolation.js"
import { MARKER } from "./plain.js"
import { childrenOf, runTool, runToolOk, signal, ToolError, toolEnv, waitUntil } from "./process.js"
import { closeQuietly, openRoot } from "./rooted.js"

export interface NamespacesOptions {
  readonly tools: { readonly unshare: string; readonly nsenter: string; readonly setsid: string; readonly env: string }
  /** Inside a user namespace where the sandbox's root is the caller. */
  readonly userNamespace: boolean
  /** Directories that sandboxes must not see. */
  readonly hidden: ReadonlyArray<string>
  /** The same path inside, since that is a view of this machine. */
  readonly shell: string
  /** Tells this server's processes from those of others. */
  readonly owner: string
  readonly env: { readonly [name: string]: string }
}

const quote = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`

/**
 * What acts on `nsenter` and `setsid` themselves, which hand their environment on to the command: the dynamic loader's and the allocator's variables, those
 * that name files of the C library, and util-linux's own. `env` sets these, inside and last. All others stay off the command line, which anybody can read.
 */
const forTools = (name: string): boolean =>
  /^(LD_|MALLOC_|GLIBC_TUNABLES$|GCONV_PATH$|LOCPATH$|NLSPATH$)|^(LIB[A-Z]+|ULPATH|NSENTER|UNSHARE)_DEBUG/.test(name)

interface HostMount {
  readonly path: string
  readonly type: string
}

const pseudo = new Set([
  "autofs",
  "binfmt_misc",
  "bpf",
  "cgroup",
  "cgroup2",
  "configfs",
  "debugfs",
  "devpts",
  "devtmpfs",
  "efivarfs",
  "fusectl",
  "hugetlbfs",
  "mqueue",
  "nsfs",
  "proc",
  "pstore",
  "rpc_pipefs",
  "securityfs",
  "sysfs",
  "tracefs"
])

/** Mounts of this machine that the view of `/` alone would show as empty directories. */
const hostMounts = (hidden: ReadonlyArray<string>): Array<HostMount> => {
  const lines = Fs.readFileSync("/proc/self/mountinfo", "utf8").split("\n")
  const mounts = new Map<string, HostMount>()
  for (const line of lines) {
    const [before, after] = line.split(" - ")
    const path = before
      ?.split(" ")[4]
      ?.replace(/\\(\d{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)))
    const type = after?.split(" ")[0]
    if (path === undefined || type === undefined || path === "/" || pseudo.has(type)) continue
    const within = (directory: string) => path === directory || path.startsWith(`${directory}/`)
    if (["/proc", "/sys", "/dev", "/tmp", ...hidden].some(within)) continue
    mounts.set(path, { path, type })
  }
  return [...mounts.values()].sort((a, b) => (a.path < b.path ? -1 : 1))
}

interface TopLevel {
  readonly path: string
  readonly link: string | undefined
  readonly mounted: boolean
}

/** Top-level directories of the host, and whether something is mounted in them. */
const topLevel = (mounts: ReadonlyArray<string>): Array<TopLevel> =>
  Fs.readdirSync("/", { withFileTypes: true })
    .filter((entry) => !["proc", "sys", "dev", "tmp", "root", "workspace"].includes(entry.name))
    .flatMap((entry): Array<TopLevel> => {
      const path = `/${entry.name}`
      if (entry.isSymbolicLink()) return [{ path, link: Fs.readlinkSync(path), mounted: false }]
      if (!entry.isDirectory()) return []
      return [
        { path, link: undefined, mounted: mounts.some((mount) => mount === path || mount.startsWith(`${path}/`)) }
      ]
    })

const layerName = (path: string): string => `layers/mounts/${encodeURIComponent(path)}`

/**
 * The first process of the sandbox: it ignores SIGCHLD, so that the kernel reaps orphans, and ends when the server's end of its stdin does.
 * (`dash` would not pass that on to `cat`; with it as the only shell, orphans stay zombies until the sandbox ends.)
 */
const hold = `trap '' CHLD
exec /bin/cat >/dev/null 2>&1`

const script = (
  options: NamespacesOptions,
  hostname: string
): { readonly text: string; readonly directories: ReadonlyArray<string> } => {
  const overlay = (lower: string, name: string, target: string) => {
    const common = `lowerdir=${quote(lower.replaceAll("\\", "\\\\").replaceAll(":", "\\:").replaceAll(",", "\\,"))},upperdir=${name}/upper,workdir=work/${name}`
    const flags = options.userNamespace ? ",userxattr" : ""
    return `mount -t overlay overlay -o ${common}${flags} ${quote(target)}`
  }
  const directories: Array<string> = []
  const body: Array<string> = ["set -e", "umask 022"]
  if (options.userNamespace) {
    // Mounts inherited by a user namespace are locked together, so `/` cannot be a lower layer there; directories without mounts in them can.
    const mounts = Fs.readFileSync("/proc/self/mountinfo", "utf8")
      .split("\n")
      .flatMap((line) => line.split(" ")[4] ?? [])
    body.push("mount --bind layers/root root")
    for (const entry of topLevel(mounts)) {
      if (entry.link !== undefined) {
        body.push(
          `[ -e root${quote(entry.path)} ] || [ -L root${quote(entry.path)} ] || ln -s ${quote(entry.link)} root${quote(entry.path)}`
        )
        continue
      }
      body.push(`mkdir -p root${quote(entry.path)}`)
      if (entry.mounted) {
        body.push(`mount --rbind ${quote(entry.path)} root${quote(entry.path)} || true`)
      } else {
        directories.push(`${layerName(entry.path)}/upper`, `work/${layerName(entry.path)}`)
        body.push(
          `${overlay(entry.path, layerName(entry.path), `root${entry.path}`)} || mount --rbind ${quote(entry.path)} root${quote(entry.path)}`
        )
      }
    }
    body.push("mkdir -p root/proc root/sys root/dev root/tmp root/root root/workspace")
  } else {
    directories.push("layers/upper", "work/layers")
    body.push(overlay("/", "layers", "root"))
    for (const mount of hostMounts(options.hidden)) {
      const target = quote(`root${mount.path}`)
      if (Fs.statSync(mount.path, { throwIfNoEntry: false })?.isDirectory() === true) {
        directories.push(`${layerName(mount.path)}/upper`, `work/${layerName(mount.path)}`)
        body.push(
          `${overlay(mount.path, layerName(mount.path), `root${mount.path}`)} 2>/dev/null || mount -o bind,ro ${quote(mount.path)} ${target} 2>/dev/null || true`
        )
      } else {
        body.push(`mount -o bind,ro ${quote(mount.path)} ${target} 2>/dev/null || true`)
      }
    }
  }
  body.push(
    // Every sandbox starts with an empty one, even where the machine has one of its own.
    ...(options.userNamespace
      ? []
      : [
          "[ -d layers/workspace ] || [ ! -d /workspace ] || [ -d layers/upper/workspace ] || mkdir layers/workspace",
          "[ ! -d layers/workspace ] || mount --bind layers/workspace root/workspace"
        ]),
    // Read here, from the proc of the host, since it tells the pid as the host sees it.
    "read -r pid rest </proc/self/stat",
    "mount --rbind /dev root/dev",
    "mount -t tmpfs -o mode=1777 tmpfs root/dev/shm || true",
    "mount --rbind /sys root/sys",
    "mount --bind layers/tmp root/tmp",
    "mount -t proc proc root/proc",
    // The sandbox's own directory is below one of these: from here on only relative names reach it.
    ...options.hidden.map(
      (path) => `[ ! -d ${quote(`root${path}`)} ] || mount -t tmpfs -o size=4k,mode=000 tmpfs ${quote(`root${path}`)}`
    ),
    "cd root",
    // Tested first, since each program that need not be started is one or two milliseconds.
    "[ -d workspace ] || mkdir workspace",
    "[ -d mnt ] || mkdir mnt",
    "pivot_root . mnt",
    "umount -l /mnt",
    "cd /",
    `{ echo ${quote(hostname)} >/proc/sys/kernel/hostname; } 2>/dev/null || hostname ${quote(hostname)} || true`,
    `echo "ready $pid"`,
    hold
  )
  return { text: body.join("\n"), directories }
}

export const makeNamespaces = (options: NamespacesOptions, description: string): Isolation => {
  const { env: envTool, nsenter, setsid, unshare } = options.tools
  const asOwner = (command: readonly [string, ...Array<string>]): readonly [string, ...Array<string>] =>
    // As root of a user namespace, files with mode 000 are readable too.
    options.userNamespace ? [unshare, "--user", "--map-root-user", ...command] : command

  const withTools = (env: { readonly [name: string]: string }): ReadonlyArray<string> => {
    const set = Object.entries(env).flatMap(([name, value]) => (forTools(name) ? [`${name}=${value}`] : []))
    return set.length === 0 ? [] : [envTool, ...set]
  }

  const enter = (pid: number) => [
    `--target=${pid}`,
    ...(options.userNamespace ? ["--user", "--preserve-credentials"] : []),
    "--mount",
    "--pid",
    "--uts",
    "--ipc"
  ]

  const create = ({ directory, id, layers }: CreateInstance): Effect.Effect<Instance, ToolError> =>
    Effect.gen(function* () {
      const plan = script(options, `sandbox-${id.slice(0, 8)}`)
      yield* Effect.try({
        try: () => {
          Fs.mkdirSync(`${directory}/root`, { recursive: true })
          Fs.mkdirSync(`${layers}/tmp`, { recursive: true })
          if (options.userNamespace) Fs.mkdirSync(`${layers}/root`, { recursive: true })
          else if (!Fs.existsSync("/workspace")) Fs.mkdirSync(`${layers}/upper/workspace`, { recursive: true })
          for (const path of plan.directories) Fs.mkdirSync(`${directory}/${path}`, { recursive: true })
          Fs.chmodSync(`${layers}/tmp`, 0o1777)
        },
        catch: (cause) => new ToolError({ tool: "mkdir", message: String(cause) })
      })
      const gone = yield* Deferred.make<void>()
      const { child, pid } = yield* start(directory, plan.text, gone)
      const rootFd = yield* Effect.try({
        try: () => openRoot(`/proc/${pid}/root`),
        catch: (cause) => new ToolError({ tool: "open", message: String(cause) })
      }).pipe(Effect.tapError(() => Effect.sync(() => signal(pid, "SIGKILL"))))
      const inside = (command: string) =>
        Effect.asVoid(runToolOk(nsenter, [...enter(pid), "--", options.shell, "-c", command]))
      let closed = false
      const destroy = Effect.suspend(() => {
        if (closed) return Effect.void
        closed = true
        closeQuietly(rootFd)
        // The end of the first process of a pid namespace ends all others, stopped ones included.
        signal(pid, "SIGKILL")
        child.stdin?.destroy()
        return Deferred.await(gone).pipe(
          Effect.interruptible,
          Effect.timeoutTo({ duration: "5 seconds", onSuccess: () => undefined, onTimeout: () => undefined })
        )
      })
      return {
        root: { fd: rootFd, cwd: "/workspace", alias: undefined },
        env: {
          ...options.env,
          HOME: "/root",
          HOSTNAME: `sandbox-${id.slice(0, 8)}`,
          TMPDIR: "/tmp",
          [MARKER]: `${options.owner}/${id}/`
        },
        shell: options.shell,
        refuseUser: (uid, gid) =>
          options.userNamespace && (uid !== 0 || (gid ?? 0) !== 0)
            ? "uid and gid other than 0 need a server that runs as root"
            : undefined,
        launch: (request) => ({
          file: nsenter,
          env: Object.fromEntries(Object.entries(request.env).filter(([name]) => !forTools(name))),
          // Having entered a user namespace it does not let its environment be read any more.
          argv0: `${MARKER}=${options.owner}/${id}/`,
          args: [
            ...enter(pid),
            // Opened by nsenter before it leaves the host's view, and entered after: a directory inside, whatever its name means meanwhile.
            `--wd=/proc/${process.pid}/fd/${request.cwd}`,
            ...(request.uid === undefined || options.userNamespace
              ? []
              : [`--setgid=${request.gid ?? request.uid}`, `--setuid=${request.uid}`]),
            "--",
            setsid,
            ...withTools(request.env),
            ...request.argv
          ],
          cwd: undefined,
          uid: undefined,
          gid: undefined
        }),
        groupOf: (outer) => childrenOf(outer)[0],
        // What outlives a command becomes a child of the first process.
        hasProcesses: () => childrenOf(pid).length > 0,
        freeze: inside("kill -STOP -1 2>/dev/null; true"),
        thaw: inside("kill -CONT -1 2>/dev/null; true"),
        destroy,
        died: Deferred.await(gone)
      }
    })

  const start = (directory: string, text: string, gone: Deferred.Deferred<void>) =>
    Effect.async<{ readonly child: ChildProcess.ChildProcess; readonly pid: number }, ToolError>((resume) => {
      const fail = (message: string) => resume(Effect.fail(new ToolError({ tool: "unshare", message })))
      let child: ChildProcess.ChildProcess
      try {
        child = ChildProcess.spawn(
          unshare,
          [
            ...(options.userNamespace ? ["--user", "--map-root-user"] : []),
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--uts",
            "--ipc",
            options.shell,
            "-c",
            text
          ],
          { cwd: directory, stdio: ["pipe", "pipe", "pipe"], detached: true, env: toolEnv() }
        )
      } catch (cause) {
        return fail(String(cause))
      }
      let out = ""
      let errors = ""
      child.on("error", (cause) => fail(cause.message))
      child.on("exit", () => {
        Deferred.unsafeDone(gone, Effect.void)
        fail(errors.trim() || "the sandbox ended while it was being set up")
      })
      child.stdin?.on("error", () => {})
      child.stderr?.setEncoding("utf8").on("data", (chunk: string) => {
        errors += chunk
      })
      child.stdout?.setEncoding("utf8").on("data", (chunk: string) => {
        out += chunk
        const ready = /ready (\d+)/.exec(out)
        if (ready !== null) resume(Effect.succeed({ child, pid: Number(ready[1]) }))
      })
      return Effect.suspend(() => {
        child.kill("SIGKILL")
        return Effect.asVoid(waitUntil(() => child.exitCode !== null || child.signalCode !== null, 2000))
      })
    })

  const run = (command: readonly [string, ...Array<string>]) => {
    const [file, ...args] = asOwner(command)
    return Effect.asVoid(runToolOk(file, args))
  }

  return {
    mode: "namespaces",
    description,
    create,
    copyTree: (from, to) => run(["cp", "-a", "--reflink=auto", "--", `${from}/.`, to]),
    removeTree: (path) => run(["rm", "-rf", "--", path])
  }
}

/** Writes a file of its own, and sees processes of its own. */
const probe = (hostPids: string): string =>
  `echo ok >/workspace/probe || { echo "no file can be written" >&2; exit 1; }
[ "$(readlink /proc/self/ns/pid)" != "${hostPids}" ] || { echo "no pid namespace of its own" >&2; exit 1; }
rm /workspace/probe`

/** Whether a sandbox can really be made, by making one. */
export const tryNamespaces = (isolation: Isolation, directory: string): Effect.Effect<void, ToolError> => {
  const layers = `${directory}/layers`
  return Effect.acquireUseRelease(
    Effect.suspend(() => {
      Fs.mkdirSync(layers, { recursive: true })
      return isolation.create({ id: "probe", directory, layers })
    }),
    (instance) =>
      Effect.gen(function* () {
        const launch = instance.launch({
          argv: [instance.shell, "-c", probe(Fs.readlinkSync("/proc/self/ns/pid"))],
          cwd: instance.root.fd,
          env: {},
          uid: undefined,
          gid: undefined
        })
        const result = yield* runTool(launch.file, launch.args)
        if (result.code !== 0) {
          return yield* Effect.fail(
            new ToolError({ tool: "nsenter", message: result.stderr.trim() || `exit status ${result.code}` })
          )
        }
      }),
    (instance) => instance.destroy
  ).pipe(Effect.ensuring(Effect.ignore(isolation.removeTree(directory))))
}
