import * as ChildProcess from "node:child_process"
import * as Fs from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Scope from "effect/Scope"
import {
  findRelay,
  frame,
  perlRelay,
  pythonRelay,
  windowFrame,
  works
} from "../../packages/local/src/internal/terminal/relays.js"
import { Replay } from "../../packages/local/src/internal/terminal/replay.js"
import { Box, becomes, eventually, modes, nap, processesWith, start } from "./support.js"
import { attach, createTerminal, refused } from "./terminalClient.js"

const relay = await Effect.runPromise(findRelay)
if (relay === undefined) console.warn("terminals are not tested: neither perl nor python3 makes one here")

describe("relays", () => {
  const programs = [perlRelay("/usr/bin/perl"), pythonRelay("/usr/bin/python3")]
  for (const each of programs) {
    const path = each.command(["true"])[0]
    it.live.skipIf(!Fs.existsSync(path))(`${each.name} holds a terminal`, () =>
      Effect.gen(function* () {
        assert.isTrue(yield* works(each))
        const talk = (command: string, body: (child: ChildProcess.ChildProcess, out: () => string) => Promise<void>) =>
          Effect.promise(async () => {
            const [file, ...args] = each.command(["/bin/sh", "-c", command])
            const child = ChildProcess.spawn(file, args, { stdio: ["pipe", "pipe", "inherit"] })
            let out = ""
            child.stdout?.on("data", (chunk) => {
              out += String(chunk)
            })
            const ended = new Promise<unknown>((resume) => child.on("close", (code, signal) => resume([code, signal])))
            while (!out.includes("up")) await new Promise((resume) => setTimeout(resume, 5))
            await body(child, () => out)
            return [await ended, out]
          })
        const [end, out] = yield* talk("stty size; echo up; read x; stty size; echo got $x; exit 5", async (child) => {
          child.stdin?.write(Buffer.concat([windowFrame(100, 30), frame("d", Buffer.from("hello\n"))]))
        })
        assert.deepStrictEqual(end, [5, null])
        assert.include(out, "24 80\r\n")
        assert.include(out, "30 100\r\ngot hello\r\n")
        const interrupted = yield* talk(
          "trap 'echo int; exit 6' INT; echo up; while :; do sleep 0.05; done",
          async (child) => {
            child.stdin?.write(frame("s", Uint8Array.of(2)))
          }
        )
        assert.deepStrictEqual(interrupted, [[6, null], "up\r\nint\r\n"])
        const time = nap()
        // A job of a group of its own, and one that is stopped.
        const jobs = `set -m; sleep ${time} & sleep ${time} & kill -STOP $!; echo up; sleep ${time}`
        const hungUp = yield* talk(jobs, async (child) => {
          child.stdin?.end()
        })
        assert.deepStrictEqual(hungUp[0], [null, "SIGKILL"])
        yield* becomes(() => processesWith(`sleep\0${time}`).length === 0)
        // Told to end before there is anything to end.
        yield* Effect.promise(() =>
          Promise.all(
            Array.from({ length: 20 }, () => {
              const [file, ...args] = each.command(["/bin/sh", "-c", `sleep ${time}`])
              const child = ChildProcess.spawn(file, args, { stdio: ["pipe", "ignore", "ignore"] })
              child.stdin?.end()
              return new Promise((resume) => child.on("close", resume))
            })
          )
        )
        yield* becomes(() => processesWith(`sleep\0${time}`).length === 0)
        // Echoed as fast as it comes: neither side may wait for the other for ever.
        const echoed = yield* talk("stty raw -echo; echo up; head -c 2000000", async (child) => {
          for (let i = 0; i < 200; i++) child.stdin?.write(frame("d", Buffer.alloc(10_000, 65)))
        })
        assert.deepStrictEqual(echoed[0], [0, null])
        assert.strictEqual(String(echoed[1]).length, 2_000_003)
      })
    )
  }
})

it("the replay is the end of what was written, however it was", () => {
  for (const sizes of [
    [1],
    [3, 700, 1, 4096, 0, 5],
    [2047, 1, 1, 1024],
    [5000],
    [1024, 1025, 1023],
    [100, 10_000, 3]
  ]) {
    const replay = new Replay(2048)
    let all = Buffer.alloc(0)
    for (let round = 0; round < 8; round++) {
      for (const size of sizes) {
        const piece = Buffer.from(Array.from({ length: size }, (_, i) => (all.length + i) % 251))
        all = Buffer.concat([all, piece])
        replay.write(piece)
        assert.strictEqual(replay.total, all.length)
        for (const from of [0, all.length - 2049, all.length - 1000, all.length, all.length + 7]) {
          const { bytes, offset } = replay.from(from)
          assert.strictEqual(offset, Math.min(Math.max(from, all.length - 2048, 0), all.length))
          assert.isTrue(bytes.equals(all.subarray(offset)))
        }
      }
    }
  }
})

for (const mode of modes) {
  describe.skipIf(relay === undefined)(`terminals (${mode})`, () => {
    it.scopedLive("are real: size, control characters, exit code", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        const id = yield* createTerminal(box)
        assert.deepStrictEqual((yield* box.request("GET", `/pty/${id}`)).json, {
          session_id: id,
          running: false,
          output_offset: 0
        })
        const client = yield* attach(box, id)
        yield* client.until(() => client.frames.length > 0)
        assert.deepStrictEqual(client.frames, [{ type: "connected", session_id: id, mode: "pty" }])
        client.write("stty size; test -t 0 && test -t 1 && test -t 2 && echo is''atty; echo $TERM; pwd\n")
        yield* client.prints("isatty\r\nxterm-256color\r\n")
        assert.include(client.out, "24 80\r\n")
        yield* client.prints("/workspace\r\n")
        client.write("trap 'stty size; echo win''dow' WINCH; echo tra''pped\n")
        yield* client.prints("trapped\r\n")
        client.json({ type: "resize", cols: 133, rows: 44 })
        client.write("\n")
        yield* client.prints("window\r\n")
        assert.isTrue(client.out.includes("44 133\r\n"), JSON.stringify(client.out))
        client.json({ type: "ping" })
        yield* client.until(() => client.frames.some((frame) => frame.type === "pong"))
        const time = nap()
        client.write(`sleep ${time}\n`)
        yield* becomes(() => processesWith(`sleep\0${time}`).length === 1)
        client.write("\x03")
        yield* client.prints("^C")
        yield* becomes(() => processesWith(time).length === 0)
        client.write("echo code=$?\n")
        yield* client.prints("code=130\r\n")
        client.write("echo af''ter; exit 7\n")
        yield* client.ended
        assert.include(client.out, "after\r\n")
        assert.strictEqual(client.exitCode, 7)
        assert.deepStrictEqual(client.closed, { code: 1000, reason: "process exited" })
        const { json } = yield* box.request("GET", `/pty/${id}`)
        assert.strictEqual(json.running, false)
        assert.strictEqual(json.output_offset, Buffer.concat(client.stdout).length)
      })
    )

    it.scopedLive("can be made also where the first client to ask went away", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        const ask = box.request("POST", "/pty", { body: {} })
        for (const millis of [1, 3, 5]) yield* Effect.timeoutOption(ask, millis)
        assert.strictEqual((yield* ask).status, 201)
      })
    )

    it.scopedLive("run a command, and tell everything before its end", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        yield* box.text("mkdir -p deep")
        const id = yield* createTerminal(box, { command: "pwd; seq 1 200000; exit 3", cwd: "/workspace/deep" })
        const client = yield* attach(box, id)
        yield* client.ended
        const lines = client.out.split("\r\n")
        assert.match(lines[0] ?? "", /\/workspace\/deep$/)
        assert.deepStrictEqual(
          lines.slice(1, -1),
          Array.from({ length: 200_000 }, (_, i) => String(i + 1))
        )
        assert.strictEqual(client.exitCode, 3)
        const killed = yield* attach(box, yield* createTerminal(box, { command: "kill -9 $$" }))
        yield* killed.ended
        assert.strictEqual(killed.exitCode, -1)
        assert.strictEqual((yield* box.request("POST", "/pty", { body: { cwd: "/not/there" } })).status, 400)
      })
    )

    it.scopedLive("take much input, in a hurry, without losing or blocking", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        const bytes = 3_000_000
        const id = yield* createTerminal(box, { command: `stty raw -echo; echo ready; head -c ${bytes} | sha256sum` })
        const client = yield* attach(box, id)
        yield* client.prints("ready")
        const data = Buffer.from(Array.from({ length: bytes }, (_, i) => (i * 7 + (i >> 8)) & 0xff))
        for (let at = 0; at < bytes; at += 50_000) client.write(data.subarray(at, at + 50_000))
        yield* client.ended
        const hash = Buffer.from(
          yield* Effect.promise(() => crypto.subtle.digest("SHA-256", new Uint8Array(data)))
        ).toString("hex")
        assert.include(client.out, hash)
      })
    )

    it.scopedLive("survive a disconnect, and replay from an offset", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        const id = yield* createTerminal(box, {
          command: "stty -echo; echo first; read line; echo got $line; read line"
        })
        const offset = yield* Effect.scoped(
          Effect.gen(function* () {
            const client = yield* attach(box, id)
            yield* client.prints("first\r\n")
            client.write("hello\n")
            yield* client.prints("got hello\r\n")
            return Buffer.concat(client.stdout).length
          })
        )
        yield* eventually(
          Effect.map(box.request("GET", `/pty/${id}`), ({ json }) =>
            json.running && json.output_offset === offset ? true : undefined
          )
        )
        const again = yield* eventually(
          Effect.catchAllDefect(
            Effect.map(attach(box, id, "?since=7"), (client) => client),
            () => Effect.succeed(undefined)
          )
        )
        yield* again.until(() => again.frames.length > 0)
        assert.deepStrictEqual(
          again.replays.map((replay) => [replay.offset, replay.bytes.toString()]),
          [[7, "got hello\r\n"]]
        )
        again.write("bye\n")
        yield* again.ended
        assert.strictEqual(again.exitCode, 0)
        assert.strictEqual(again.out, "")
      })
    )

    it.scopedLive("keep the last MiB", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        const id = yield* createTerminal(box, { command: "seq 1 400000; echo the end; sleep 300" })
        const first = yield* attach(box, id)
        yield* first.prints("the end\r\n")
        const all = Buffer.concat(first.stdout)
        const second = yield* attach(box, id, "?takeover=1")
        yield* second.until(() => second.frames.length > 0)
        assert.deepStrictEqual(
          second.replays.map(({ bytes, offset }) => [offset, bytes.length]),
          [[all.length - 1024 * 1024, 1024 * 1024]]
        )
        assert.isTrue(second.replays[0]?.bytes.equals(all.subarray(-1024 * 1024)))
        yield* first.ended
        assert.deepStrictEqual(first.closed, { code: 4001, reason: "TAKEN_OVER" })
      })
    )

    it.scopedLive("have one holder, with the right token", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        const id = yield* createTerminal(box)
        const token = box.headers["X-EXECD-ACCESS-TOKEN"]
        assert.strictEqual((yield* refused(box, id, `?token=${token}`, {})).status, 401)
        assert.strictEqual((yield* refused(box, "none")).status, 404)
        const first = yield* attach(box, id)
        const second = yield* refused(box, id)
        assert.strictEqual(second.status, 409)
        assert.strictEqual(JSON.parse(second.text).code, "ALREADY_CONNECTED")
        yield* first.until(() => first.frames.length > 0)
        first.write("x=kept\n")
        const third = yield* attach(box, id, "?takeover=1")
        yield* first.ended
        third.write("echo is $x\n")
        yield* third.prints("is kept")
        assert.strictEqual((yield* box.request("GET", `/pty/${id}/ws`)).status, 400)
        const { json } = yield* box.server.request("GET", `/sandboxes/${box.id}/endpoints/44772?use_server_proxy=true`)
        const through = new Box(box.server, box.id, `http://${json.endpoint}`, json.headers)
        const fourth = yield* attach(through, id, "?takeover=1")
        yield* third.ended
        fourth.write("echo still $x\n")
        yield* fourth.prints("still kept")
      })
    )

    it.scopedLive("work without a terminal, byte for byte", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        const id = yield* createTerminal(box, {
          command: "test -t 0 || echo no tty >&2; head -c 256; printf '\\377\\000' >&2; sleep 300"
        })
        const client = yield* attach(box, id, "?pty=0")
        yield* client.until(() => client.frames.length > 0)
        assert.strictEqual(client.frames[0]?.["mode"], "pipe")
        const bytes = Uint8Array.from({ length: 256 }, (_, i) => i)
        client.write(bytes)
        const errors = () => Buffer.concat(client.stderr)
        yield* client.until(() => errors().length === 9)
        assert.deepStrictEqual(new Uint8Array(Buffer.concat(client.stdout)), bytes)
        assert.deepStrictEqual(errors(), Buffer.from("no tty\n\xff\0", "latin1"))
        client.json({ type: "resize", cols: 10, rows: 10 })
        client.json({ type: "nonsense" })
        yield* client.until(() => client.frames.some((frame) => frame["code"] === "INVALID_FRAME"))
        client.json({ type: "signal", signal: "SIGTERM" })
        yield* client.ended
        assert.strictEqual(client.exitCode, -1)
      })
    )

    it.scopedLive("take signals by name", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        for (const query of ["", "?pty=0"]) {
          const id = yield* createTerminal(box, {
            command: "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.05; done"
          })
          const client = yield* attach(box, id, query)
          yield* client.prints("ready")
          client.json({ type: "signal", signal: "SIGNOTHING" })
          client.json({ type: "signal", signal: "SIGINT" })
          yield* client.ended
          assert.include(client.out, "caught")
          assert.strictEqual(client.exitCode, 5)
        }
      })
    )

    it.scopedLive("start anew once their process has ended", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        const id = yield* createTerminal(box, { command: "echo once" })
        for (const replayed of [0, 1]) {
          const client = yield* attach(box, id)
          yield* client.ended
          assert.strictEqual(client.out, "once\r\n")
          assert.strictEqual(client.replays.length, replayed)
        }
      })
    )

    it.scopedLive("make a process wait for a slow client, and end with a disconnect", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        const id = yield* createTerminal(box, { command: "head -c 100000000 /dev/zero; echo done; sleep 300" })
        const offset = Effect.map(box.request("GET", `/pty/${id}`), ({ json }) => Number(json.output_offset))
        yield* Effect.scoped(
          Effect.gen(function* () {
            const client = yield* attach(box, id, "?pty=0")
            yield* client.until(() => client.stdout.length > 0)
            client.socket.pause()
            let last = -1
            yield* eventually(
              Effect.flatMap(Effect.delay(offset, "300 millis"), (now) => {
                const still = now === last
                last = now
                return Effect.succeed(still ? true : undefined)
              })
            )
            assert.isBelow(last, 50_000_000)
          })
        )
        yield* eventually(Effect.map(offset, (now) => (now === 100_000_005 ? true : undefined)))
      })
    )

    it.scopedLive("end with DELETE, and with the sandbox", () =>
      Effect.gen(function* () {
        const server = yield* start({ mode })
        const box = yield* server.box()
        const time = nap()
        for (const query of ["", "?pty=0"]) {
          const id = yield* createTerminal(box, { command: `echo up; sleep ${time}; sleep ${time}` })
          const client = yield* attach(box, id, query)
          yield* client.prints("up")
          yield* becomes(() => processesWith(`sleep\0${time}`).length === 1)
          assert.strictEqual((yield* box.request("DELETE", `/pty/${id}`)).status, 200)
          yield* client.ended
          assert.strictEqual(client.exitCode, -1)
          yield* becomes(() => processesWith(time).length === 0)
          assert.strictEqual((yield* box.request("GET", `/pty/${id}`)).status, 404)
          assert.strictEqual((yield* box.request("DELETE", `/pty/${id}`)).status, 404)
        }
        const jobs = yield* createTerminal(box)
        const shell = yield* attach(box, jobs)
        shell.write(`sleep ${time} & echo u''p\n`)
        yield* shell.prints("up")
        yield* becomes(() => processesWith(`sleep\0${time}`).length === 1)
        assert.strictEqual((yield* box.request("DELETE", `/pty/${jobs}`)).status, 200)
        yield* shell.ended
        yield* becomes(() => processesWith(time).length === 0)
        const clients = []
        for (const query of ["", "?pty=0"]) {
          const id = yield* createTerminal(box, { command: `echo up; setsid sleep ${time} & sleep ${time}` })
          const client = yield* attach(box, id, query)
          yield* client.prints("up")
          clients.push(client)
        }
        yield* becomes(() => processesWith(`sleep\0${time}`).length === 4)
        yield* server.request("POST", `/sandboxes/${box.id}/pause`)
        assert.strictEqual((yield* refused(box, "any")).status, 503)
        yield* server.request("DELETE", `/sandboxes/${box.id}`)
        assert.deepStrictEqual(processesWith(time), [])
        for (const client of clients) yield* client.ended
      })
    )

    it.scopedLive("go on after a pause and a snapshot", () =>
      Effect.gen(function* () {
        const server = yield* start({ mode })
        const box = yield* server.box()
        const client = yield* attach(box, yield* createTerminal(box))
        client.write("echo o''ne\n")
        yield* client.prints("one\r\n")
        yield* server.snapshot(box.id)
        client.write("echo t''wo\n")
        yield* client.prints("two\r\n")
        yield* server.request("POST", `/sandboxes/${box.id}/pause`)
        yield* server.request("POST", `/sandboxes/${box.id}/resume`)
        client.write("echo th''ree; exit 4\n")
        yield* client.ended
        assert.include(client.out, "three\r\n")
        assert.strictEqual(client.exitCode, 4)
      })
    )

    it.live("leave nothing when the server ends", () =>
      Effect.gen(function* () {
        const scope = yield* Scope.make()
        const box = yield* Scope.extend(
          Effect.flatMap(start({ mode }), (server) => server.box()),
          scope
        )
        const time = nap()
        const outer = yield* Scope.make()
        const client = yield* Scope.extend(
          attach(box, yield* createTerminal(box, { command: `echo up; sleep ${time}` })),
          outer
        )
        yield* client.prints("up")
        yield* Scope.close(scope, Exit.void)
        assert.deepStrictEqual(processesWith(time), [])
        yield* client.ended
      })
    )
  })
}
