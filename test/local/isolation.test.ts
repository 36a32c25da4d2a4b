import * as ChildProcess from "node:child_process"
import * as Fs from "node:fs"
import * as Os from "node:os"
import { assert, describe, it } from "@effect/vitest"
import * as LocalOpenSandbox from "@sandglass/local/LocalOpenSandbox"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Scope from "effect/Scope"
import {
  becomes,
  events,
  eventually,
  fromImage,
  modes,
  mountsWith,
  namespacesMissing,
  nap,
  outputOf,
  processesWith,
  start
} from "./support.js"

const program = new URL("../../packages/local/src/bin.ts", import.meta.url).pathname
const bun = new URL("../../node_modules/.bin/bun", import.meta.url).pathname

const root = process.getuid?.() === 0

const temporary = Effect.acquireRelease(
  Effect.sync(() => Fs.mkdtempSync(`${Os.tmpdir()}/sandglass-test-`)),
  (directory) => Effect.sync(() => Fs.rmSync(directory, { recursive: true, force: true }))
)

/** A server in a process of its own. */
const spawned = (args: ReadonlyArray<string>, env: { readonly [name: string]: string } = {}) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const child = ChildProcess.spawn(bun, [program, "--port", "0", ...args], {
        stdio: ["ignore", "pipe", "pipe"],
        env: { ...process.env, ...env }
      })
      let out = ""
      let errors = ""
      child.stderr.setEncoding("utf8").on("data", (text) => {
        errors += text
      })
      await new Promise<void>((resume) => {
        child.stdout.setEncoding("utf8").on("data", (text) => {
          out += text
          if (out.includes("security boundary")) resume()
        })
        child.on("exit", () => resume())
      })
      return {
        child,
        out: () => out,
        errors: () => errors,
        url: /listens on (\S+)/.exec(out)?.[1] ?? "",
        key: /OPEN_SANDBOX_API_KEY=(\S+)/.exec(out)?.[1] ?? "",
        exited: () => child.exitCode !== null || child.signalCode !== null
      }
    }),
    ({ child }) => Effect.sync(() => child.kill("SIGKILL"))
  )

/** As the tests' own client, for a server elsewhere. */
const through = async (server: { readonly url: string; readonly key: string }) => {
  const headers = { "OPEN-SANDBOX-API-KEY": server.key, "content-type": "application/json" }
  const made = await (
    await fetch(`${server.url}/v1/sandboxes`, { method: "POST", headers, body: JSON.stringify(fromImage) })
  ).json()
  const endpoint = await (await fetch(`${server.url}/v1/sandboxes/${made.id}/endpoints/44772`, { headers })).json()
  const run = async (command: string, options: object = {}) => {
    const response = await fetch(`http://${endpoint.endpoint}/command`, {
      method: "POST",
      headers: { ...endpoint.headers, "content-type": "application/json" },
      body: JSON.stringify({ command, ...options })
    })
    return events(await response.text())
  }
  return { id: String(made.id), run, headers }
}

for (const mode of modes) {
  describe(`lifetimes (${mode})`, () => {
    it.scopedLive("ends every process of a sandbox with it", () =>
      Effect.gen(function* () {
        const server = yield* start({ mode })
        const box = yield* server.box()
        const time = nap()
        yield* box.run(
          `sleep ${time} & setsid sleep ${time} & (setsid nohup sleep ${time} >/dev/null 2>&1 &) ; cd $HOME; env -i setsid sleep ${time} & sleep 0.1`
        )
        yield* box.run(`sleep ${time}`, { background: true })
        yield* box.start(`trap '' TERM INT HUP; sleep ${time}`)
        yield* becomes(() => processesWith(`sleep\0${time}`).length === 6)
        const other = yield* server.box()
        const otherTime = nap()
        yield* other.run(`sleep ${otherTime}`, { background: true })
        assert.strictEqual((yield* server.request("DELETE", `/sandboxes/${box.id}`)).status, 204)
        assert.deepStrictEqual(processesWith(time), [])
        assert.strictEqual(processesWith(`sleep\0${otherTime}`).length, 1)
        assert.isFalse(Fs.existsSync(`${server.directory}/sandboxes/${box.id}`))
      })
    )

    it.scopedLive("ends even what is paused", () =>
      Effect.gen(function* () {
        const server = yield* start({ mode })
        const box = yield* server.box()
        const time = nap()
        yield* box.run(`sleep ${time}`, { background: true })
        yield* server.request("POST", `/sandboxes/${box.id}/pause`)
        yield* server.request("DELETE", `/sandboxes/${box.id}`)
        assert.deepStrictEqual(processesWith(time), [])
      })
    )

    it.live("leaves nothing when the scope ends", () =>
      Effect.gen(function* () {
        const scope = yield* Scope.make()
        const fds = Fs.readdirSync("/proc/self/fd").length
        const server = yield* Scope.extend(start({ mode }), scope)
        const time = nap()
        // A plain directory's owner cannot copy what it may not read.
        const readable = mode === "plain" && !root ? "700" : "000"
        for (let i = 0; i < 3; i++) {
          const box = yield* server.box()
          yield* box.run(`mkdir -p closed/door; touch closed/door/x; chmod ${readable} closed; setsid sleep ${time} &`)
          // A client that is still there must not hold the end up.
          yield* Scope.extend(box.start(`yes ${time}`), yield* Scope.make())
          yield* server.snapshot(box.id)
        }
        assert.isAbove(processesWith(time).length, 3)
        assert.isTrue(Fs.existsSync(server.directory))
        yield* Scope.close(scope, Exit.void)
        assert.deepStrictEqual(processesWith(time), [])
        assert.isFalse(Fs.existsSync(server.directory))
        assert.strictEqual(mountsWith(server.directory), 0)
        assert.deepStrictEqual(processesWith(server.directory), [])
        const refused = yield* Effect.promise(() =>
          fetch(server.url).then(
            () => false,
            () => true
          )
        )
        assert.isTrue(refused)
        yield* becomes(() => Fs.readdirSync("/proc/self/fd").length <= fds + 12)
      })
    )

    it.scopedLive(
      "ends everything when the server is killed, and the next start sweeps",
      () =>
        Effect.gen(function* () {
          const parent = yield* temporary
          const server = yield* spawned(["--mode", mode], { TMPDIR: parent })
          const time = nap()
          const paused = yield* Effect.promise(() => through(server))
          yield* Effect.promise(() => paused.run(`sleep ${time}`, { background: true }))
          // Stopped before it is there, it never would be.
          yield* becomes(() => processesWith(`sleep\0${time}`).length === 1)
          yield* Effect.promise(async () => {
            await fetch(`${server.url}/v1/sandboxes/${paused.id}/pause`, { method: "POST", headers: paused.headers })
            const box = await through(server)
            await box.run(`setsid sleep ${time} & sleep ${time}`, { background: true })
            await box.run("mkdir closed; touch closed/x; chmod 000 closed")
          })
          yield* becomes(() => processesWith(`sleep\0${time}`).length >= 3)
          const runs = () => Fs.readdirSync(parent).filter((name) => name.startsWith("sandglass-local-"))
          assert.strictEqual(runs().length, 1)
          server.child.kill("SIGKILL")
          yield* becomes(() => processesWith(time).length === 0)
          const survivor = yield* spawned(["--mode", mode], { TMPDIR: parent })
          assert.strictEqual(runs().length, 1, "the dead server's directory is gone, the living one's is there")
          // Another start leaves the living one alone.
          const other = yield* spawned(["--mode", mode], { TMPDIR: parent })
          assert.strictEqual(runs().length, 2)
          const box = yield* Effect.promise(() => through(survivor))
          assert.deepStrictEqual(outputOf(yield* Effect.promise(() => box.run("echo alive"))), ["alive"])
          for (const each of [survivor, other]) each.child.kill("SIGTERM")
          yield* becomes(() => runs().length === 0)
          yield* becomes(() => survivor.exited() && other.exited())
        }),
      60_000
    )

    it.scopedLive("keeps snapshots in a state directory", () =>
      Effect.gen(function* () {
        const parent = yield* temporary
        const first = yield* Effect.scoped(
          Effect.gen(function* () {
            const server = yield* start({ mode, stateDir: parent })
            const inUse = yield* Effect.flip(Effect.scoped(LocalOpenSandbox.make({ mode, stateDir: parent })))
            assert.strictEqual(inUse.reason, "StateDirectory")
            const box = yield* server.box()
            yield* box.text("echo kept >f")
            return yield* server.snapshot(box.id)
          })
        )
        assert.deepStrictEqual(Fs.readdirSync(parent), ["snapshots"])
        const server = yield* start({ mode, stateDir: parent })
        assert.strictEqual((yield* server.request("GET", `/snapshots/${first}`)).json.status.state, "Ready")
        const box = yield* server.box({ snapshotId: first, resourceLimits: {} })
        assert.strictEqual(yield* box.text("cat f"), "kept\n")
        assert.strictEqual((yield* server.request("DELETE", `/snapshots/${first}`)).status, 204)
        assert.deepStrictEqual(Fs.readdirSync(`${parent}/snapshots`), [])
      })
    )
  })

  describe(`snapshots (${mode})`, () => {
    it.scopedLive("hold what was there, and restore it any number of times", () =>
      Effect.gen(function* () {
        const server = yield* start({ mode })
        const box = yield* server.box({ ...fromImage, entrypoint: ["sleep", "infinity"] })
        yield* box.text(
          "mkdir -p d/e; echo 1 >d/e/f; ln -s e d/link; chmod 750 d/e; echo t >$TMPDIR/t; touch -d 2001-02-03 d/old; head -c 100000 /dev/urandom >big"
        )
        const sum = yield* box.text("sha256sum <big")
        const id = yield* server.snapshot(box.id)
        yield* box.text("echo 2 >d/e/f; rm big; echo later >later")
        const listed = (yield* server.request("GET", `/snapshots?sandboxId=${box.id}`)).json
        assert.deepStrictEqual(
          listed.items.map((item: { id: string }) => item.id),
          [id]
        )
        assert.strictEqual((yield* server.request("GET", "/snapshots?sandboxId=none")).json.pagination.totalItems, 0)
        assert.strictEqual((yield* server.request("DELETE", `/sandboxes/${box.id}`)).status, 204)
        for (let i = 0; i < 2; i++) {
          const restored = yield* server.box({ snapshotId: id, resourceLimits: {} })
          assert.strictEqual(
            yield* restored.text("cat d/link/f $TMPDIR/t; ls; stat -c %a d/e; date -r d/old +%Y"),
            "1\nt\nbig\nd\n750\n2001\n"
          )
          assert.strictEqual(yield* restored.text("sha256sum <big"), sum)
          yield* restored.text("echo mine >d/e/f; rm -r d; echo x >new")
          const shown = (yield* server.request("GET", `/sandboxes/${restored.id}`)).json
          assert.strictEqual(shown.snapshotId, id)
          assert.notProperty(shown, "image")
          assert.deepStrictEqual(shown.entrypoint, ["sleep", "infinity"])
        }
        assert.strictEqual((yield* server.request("DELETE", `/snapshots/${id}`)).status, 204)
        const gone = yield* server.request("GET", `/snapshots/${id}`)
        assert.deepStrictEqual([gone.status, gone.json.code], [404, "LOCAL::SNAPSHOT_NOT_FOUND"])
        assert.strictEqual(
          (yield* server.request("POST", "/sandboxes", { body: { snapshotId: id, resourceLimits: {} } })).status,
          404
        )
      })
    )

    it.scopedLive("are taken while commands run, and let them go on", () =>
      Effect.gen(function* () {
        const server = yield* start({ mode })
        const box = yield* server.box()
        // Both files change together: a snapshot in between would hold a difference.
        const running = yield* box.start(
          "i=0; while [ ! -e stop ]; do i=$((i+1)); echo $i >a; echo $i >b; done; echo finished"
        )
        for (let i = 0; i < 3; i++) {
          const id = yield* server.snapshot(box.id)
          const restored = yield* server.box({ snapshotId: id, resourceLimits: {} })
          const [a = "", b = ""] = (yield* restored.text("cat a b 2>/dev/null || true")).split("\n")
          assert.isAtMost(Math.abs(Number(a || b) - Number(b || a)), 1)
        }
        yield* box.text("touch stop")
        assert.include(outputOf(yield* Effect.promise(running.rest)), "finished")
      })
    )

    it.scopedLive("are taken while an upload waits for its client", () =>
      Effect.gen(function* () {
        const server = yield* start({ mode })
        const box = yield* server.box()
        const upload = yield* box.stalledUpload("/workspace/f", "x".repeat(100))
        yield* eventually(
          Effect.map(box.request("GET", "/files/info?path=/workspace/f"), ({ status }) => status === 200 || undefined)
        )
        const id = yield* server.snapshot(box.id)
        assert.strictEqual(yield* box.text("echo on"), "on\n")
        yield* upload.finish
        assert.strictEqual(yield* upload.ended, 200)
        assert.strictEqual((yield* box.download("/workspace/f")).text, "x".repeat(100))
        assert.strictEqual((yield* server.request("DELETE", `/snapshots/${id}`)).status, 204)
        const again = yield* box.stalledUpload("/workspace/g", "x".repeat(100))
        yield* eventually(
          Effect.map(box.request("GET", "/files/info?path=/workspace/g"), ({ status }) => status === 200 || undefined)
        )
        assert.strictEqual((yield* server.request("DELETE", `/sandboxes/${box.id}`)).status, 204)
        assert.strictEqual(yield* again.ended, 404)
      })
    )

    it.scopedLive.skipIf(mode !== "plain")(
      "that wait for something to come to rest do not hold up the deletion of their sandbox",
      () =>
        Effect.gen(function* () {
          const server = yield* start({ mode })
          const box = yield* server.box({
            ...fromImage,
            env: { PATH: "bin:/usr/local/bin:/usr/bin:/bin" }
          })
          const nick = nap()
          yield* box.text(`mkdir bin; printf '#!/bin/sh\nexec sleep ${nick}\n' >bin/python3; chmod +x bin/python3`)
          const starting = yield* Effect.fork(box.request("POST", "/code/context", { body: { language: "python" } }))
          yield* becomes(() => processesWith(nick).length > 0)
          const taken = yield* server.request("POST", `/sandboxes/${box.id}/snapshots`, { body: {} })
          const waiting = yield* Effect.fork(box.request("POST", "/command", { body: { command: "echo late" } }))
          const began = Date.now()
          assert.strictEqual((yield* server.request("DELETE", `/sandboxes/${box.id}`)).status, 204)
          assert.isBelow(Date.now() - began, 5000)
          assert.include([404, 503], (yield* Fiber.join(waiting)).status)
          assert.isAtLeast((yield* Fiber.join(starting)).status, 400)
          const { message, state } = (yield* server.request("GET", `/snapshots/${taken.json.id}`)).json.status
          assert.strictEqual(state, "Failed")
          assert.include(message, "deleted")
          assert.strictEqual((yield* server.request("DELETE", `/snapshots/${taken.json.id}`)).status, 204)
          assert.deepStrictEqual(processesWith(nick), [])
        })
    )

    it.scopedLive("do not hold up the deletion of their sandbox", () =>
      Effect.gen(function* () {
        const server = yield* start({ mode })
        const box = yield* server.box()
        const sleeping = yield* box.start("sleep 300")
        yield* box.text("head -c 300M /dev/zero >big; for i in $(seq 3000); do echo $i >f$i; done")
        const taken = yield* server.request("POST", `/sandboxes/${box.id}/snapshots`, { body: {} })
        assert.strictEqual(taken.status, 202)
        const path = `/snapshots/${taken.json.id}`
        const waiting = yield* Effect.fork(box.request("POST", "/command", { body: { command: "echo late" } }))
        const pausing = yield* Effect.fork(server.request("POST", `/sandboxes/${box.id}/pause`))
        const began = Date.now()
        const removals = yield* Effect.all(
          [server.request("DELETE", `/sandboxes/${box.id}`), server.request("DELETE", `/sandboxes/${box.id}`)],
          { concurrency: 2 }
        )
        assert.sameMembers(
          removals.map(({ status }) => status),
          [204, 404]
        )
        assert.isBelow(Date.now() - began, 5000)
        assert.include([200, 404, 503], (yield* Fiber.join(waiting)).status)
        assert.include([202, 404], (yield* Fiber.join(pausing)).status)
        yield* Effect.promise(() => sleeping.rest().catch(() => []))
        const { message, state } = (yield* server.request("GET", path)).json.status
        if (state === "Failed") assert.include(message, "deleted")
        else assert.strictEqual(state, "Ready")
        assert.strictEqual((yield* server.request("DELETE", path)).status, 204)
        assert.strictEqual((yield* server.request("GET", `/sandboxes/${box.id}`)).status, 404)
      })
    )
  })
}

describe.skipIf(namespacesMissing !== undefined)("namespaces", () => {
  const mode = "namespaces"

  it.scopedLive("give each sandbox its own files and processes over those of the machine", () =>
    Effect.gen(function* () {
      const server = yield* start({ mode })
      const a = yield* server.box()
      const b = yield* server.box()
      const marker = `sandglass-${process.pid}`
      yield* a.text(
        `echo a >/etc/${marker}; ${root ? "rm -f /etc/hostname; rm -rf /etc/apt;" : ""} mkdir -p /opt/${marker}; echo t >/tmp/${marker}; echo s >/dev/shm/${marker}`
      )
      assert.strictEqual(
        yield* a.text(
          `cat /etc/${marker} /tmp/${marker}; ${root ? "ls /etc/hostname /etc/apt 2>/dev/null || true" : ""}`
        ),
        "a\nt\n"
      )
      assert.strictEqual(
        yield* b.text(`ls -d /etc/${marker} /opt/${marker} /tmp/${marker} /dev/shm/${marker} 2>/dev/null || echo none`),
        "none\n"
      )
      for (const path of [`/etc/${marker}`, `/opt/${marker}`, `/tmp/${marker}`, `/dev/shm/${marker}`])
        assert.isFalse(Fs.existsSync(path), path)
      assert.isTrue(Fs.existsSync("/etc/hostname"))
      const time = nap()
      yield* a.run(`sleep ${time}`, { background: true })
      assert.strictEqual(yield* b.text(`ls -d /proc/[0-9]* | wc -l | { read n; [ $n -lt 10 ] && echo few; }`), "few\n")
      assert.strictEqual(yield* b.text("kill -9 -1; echo still"), "still\n")
      assert.strictEqual(processesWith(`sleep\0${time}`).length, 1)
      assert.notStrictEqual(yield* a.text("hostname"), yield* b.text("hostname"))
    })
  )

  it.scopedLive("hide the server's own files", () =>
    Effect.gen(function* () {
      const parent = yield* Effect.acquireRelease(
        Effect.sync(() => Fs.mkdtempSync("/var/tmp/sandglass-hidden-")),
        (directory) => Effect.sync(() => Fs.rmSync(directory, { recursive: true, force: true }))
      )
      for (const stateDir of [undefined, parent]) {
        const server = yield* start({ mode, stateDir })
        const box = yield* server.box()
        for (const hidden of [server.directory, ...(stateDir === undefined ? [] : [stateDir])]) {
          assert.strictEqual(yield* box.text(`ls -A ${hidden} 2>/dev/null || true`), "")
        }
        const mounts = yield* box.text("cut -d' ' -f5 /proc/self/mountinfo")
        assert.deepStrictEqual(
          mounts.split("\n").filter((mount) => mount.startsWith(`${server.directory}/`)),
          []
        )
      }
    })
  )

  // The files of root are nobody's in a user namespace, and cannot be removed there.
  it.scopedLive.skipIf(!root)("keep deletions and replaced directories in snapshots", () =>
    Effect.gen(function* () {
      const server = yield* start({ mode })
      const box = yield* server.box()
      yield* box.text(
        "rm /etc/hostname; rm -rf /usr/share/doc; mkdir /usr/share/doc; echo only >/usr/share/doc/mine; mv /etc/passwd /etc/passwd.moved"
      )
      const restored = yield* server.box({ snapshotId: yield* server.snapshot(box.id), resourceLimits: {} })
      assert.strictEqual(
        yield* restored.text("ls /usr/share/doc; ls /etc/hostname /etc/passwd 2>/dev/null; ls /etc/passwd.moved"),
        "mine\n/etc/passwd.moved\n"
      )
    })
  )

  it.scopedLive("reap orphans", () =>
    Effect.gen(function* () {
      const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
      assert.strictEqual(
        yield* box.text(
          "for i in 1 2 3; do (sleep 0.05 &); done; sleep 0.3; cat /proc/[0-9]*/stat | grep -c ') Z ' || true"
        ),
        "0\n"
      )
    })
  )

  it.scopedLive("mark a sandbox failed when its first process dies", () =>
    Effect.gen(function* () {
      const server = yield* start({ mode })
      const box = yield* server.box()
      const children = (pid: number) =>
        Fs.readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8")
          .split(" ")
          .filter((child) => child !== "")
          .map(Number)
      const [init] = children(process.pid)
        .filter((pid) => Fs.readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("unshare"))
        .flatMap(children)
      process.kill(init ?? 0, "SIGKILL")
      const status = yield* eventually(
        Effect.map(server.request("GET", `/sandboxes/${box.id}`), (answer) =>
          answer.json.status.state === "Running" ? undefined : answer.json.status
        )
      )
      assert.strictEqual(status.state, "Failed")
      assert.strictEqual((yield* box.request("GET", "/ping")).status, 503)
      assert.strictEqual((yield* server.request("DELETE", `/sandboxes/${box.id}`)).status, 204)
    })
  )
})

describe("the program", () => {
  it.scopedLive("tells how to connect, takes its key from the environment, and ends on a signal", () =>
    Effect.gen(function* () {
      const parent = yield* temporary
      const server = yield* spawned(["--mode", "plain"], {
        TMPDIR: parent,
        OPEN_SANDBOX_API_KEY: "from-the-environment"
      })
      assert.include(server.out(), `OPEN_SANDBOX_URL=${server.url}`)
      assert.notInclude(server.out(), "from-the-environment")
      const answer = yield* Effect.promise(() =>
        fetch(`${server.url}/v1/sandboxes`, { headers: { "OPEN-SANDBOX-API-KEY": "from-the-environment" } })
      )
      assert.strictEqual(answer.status, 200)
      server.child.kill("SIGINT")
      yield* becomes(server.exited)
      assert.deepStrictEqual(Fs.readdirSync(parent), [])
    })
  )

  it.scopedLive("refuses what it cannot do", () =>
    Effect.gen(function* () {
      for (const [args, words] of [
        [["--host", "0.0.0.0"], "loopback"],
        [["--mode", "docker"], "--mode"],
        [["--port", "x"], "--port"],
        [["--nonsense"], "nonsense"]
      ] as const) {
        const server = yield* spawned(args)
        yield* becomes(server.exited)
        assert.notStrictEqual(server.child.exitCode, 0)
        assert.include(server.errors(), words)
      }
    })
  )
})
