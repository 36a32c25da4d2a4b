import * as Fs from "node:fs"
import * as Os from "node:os"
import * as Path from "node:path"
import { assert, describe, it } from "@effect/vitest"
import type { Sandbox } from "@sandglass/core"
import { Ledger, Sandboxes } from "@sandglass/core"
import { LocalOpenSandbox } from "@sandglass/local"
import { SqliteLedger } from "@sandglass/sql-sqlite"
import * as Chunk from "effect/Chunk"
import * as Data from "effect/Data"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"

/** Sandboxes on a real server, with a ledger in a real file. */
const withSandboxes = <A, E>(
  body: (
    filename: string
  ) => Effect.Effect<A, E, Sandboxes.Sandboxes | Ledger.Ledger | LocalOpenSandbox.LocalServer | Scope.Scope>
) =>
  Effect.gen(function* () {
    const folder = yield* Effect.acquireRelease(
      Effect.sync(() => Fs.mkdtempSync(Path.join(Os.tmpdir(), "sandglass-test-"))),
      (folder) => Effect.sync(() => Fs.rmSync(folder, { recursive: true, force: true }))
    )
    const filename = Path.join(folder, "deep", "ledger.db")
    return yield* body(filename).pipe(
      Effect.scoped,
      Effect.provide(
        Sandboxes.layer.pipe(Layer.provideMerge(Layer.merge(LocalOpenSandbox.layer, SqliteLedger.layer({ filename }))))
      )
    )
  }).pipe(Effect.scoped)

const create = (options: Partial<Sandboxes.CreateOptions> = {}) =>
  Effect.flatMap(Sandboxes.Sandboxes, (sandboxes) => sandboxes.create({ image: "node:22", name: "it", ...options }))

/** The command lines of every process of this machine. */
const processes = () =>
  Fs.readdirSync("/proc")
    .filter((pid) => /^\d+$/.test(pid))
    .flatMap((pid) => {
      try {
        return [Fs.readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ")]
      } catch {
        return []
      }
    })

class Never extends Data.TaggedError("Never")<{ readonly what: string }> {}

const eventually = (what: string, condition: () => boolean) =>
  Effect.sync(condition).pipe(
    Effect.repeat({ until: (held) => held, schedule: Schedule.spaced("20 millis") }),
    Effect.timeoutFail({ duration: "10 seconds", onTimeout: () => new Never({ what }) })
  )

describe("on a real server with a real file", () => {
  it.live(
    "commands: both streams, exit codes, environment, directories, input of any kind",
    () =>
      withSandboxes(() =>
        Effect.gen(function* () {
          const sandbox = yield* create({ env: { FROM_SANDBOX: "1" } })
          const result = yield* sandbox.exec("echo out; echo err >&2; printf 'no newline'; exit 4", { strict: false })
          assert.deepInclude(result, { stdout: "out\nno newline\n", stderr: "err\n", exitCode: 4 })
          assert.strictEqual((yield* sandbox.exec("echo $A-$FROM_SANDBOX", { env: { A: "x" } })).stdout, "x-1\n")
          assert.strictEqual((yield* sandbox.exec("pwd", { cwd: "/tmp" })).stdout, "/tmp\n")
          const words = ["a b", "$HOME", "it's", '"q"', "*", "-n"]
          assert.strictEqual((yield* sandbox.exec(["printf", "%s\\n", ...words])).stdout, `${words.join("\n")}\n`)
          assert.strictEqual((yield* sandbox.exec("echo é漢👩‍👩‍👧; echo; echo end")).stdout, "é漢👩‍👩‍👧\n\nend\n")
          const timeout = yield* Effect.flip(sandbox.exec("sleep 300", { timeout: "300 millis" }))
          assert.deepInclude(timeout, { _tag: "ExecError", reason: "Timeout" })
          const killed = yield* Effect.flip(sandbox.exec("kill -9 $$"))
          assert.deepInclude(killed, { _tag: "ExecError", reason: "Killed" })
        })
      ),
    60_000
  )

  it.live(
    "files: every byte, every name, streamed, and from one sandbox to another",
    () =>
      withSandboxes(() =>
        Effect.gen(function* () {
          const a = yield* create()
          const b = yield* create()
          const bytes = Uint8Array.from({ length: 256 }, (_, n) => n)
          for (const name of ["报告 100%.csv", "a+b&c=#?.txt", "-leading", "new\nline", "plain"]) {
            const path = `/workspace/in here/${name}`
            yield* a.files.write(path, bytes, { mode: 0o751 })
            assert.deepStrictEqual(yield* a.files.readBytes(path), bytes, name)
            assert.deepInclude(yield* a.files.info(path), { size: 256, mode: "751" })
            yield* a.files.transfer(path, b)
            assert.deepStrictEqual(yield* b.files.readBytes(path), bytes)
            assert.strictEqual((yield* b.files.info(path)).mode, "751")
          }
          yield* a.files.write("/workspace/empty", "")
          assert.strictEqual(yield* a.files.read("/workspace/empty"), "")
          const block = new Uint8Array(1 << 20).map((_, n) => n % 251)
          yield* a.files.write(
            "/workspace/big",
            Stream.repeatEffectChunk(Effect.succeed(Chunk.of(block))).pipe(Stream.take(50))
          )
          const size = yield* Stream.runFold(a.files.stream("/workspace/big"), 0, (sum, piece) => sum + piece.length)
          assert.strictEqual(size, 50 << 20)
          assert.strictEqual(
            (yield* a.exec("sha256sum < /workspace/big")).stdout,
            `${new Bun.CryptoHasher("sha256").update(new Uint8Array(50 << 20).map((_, n) => (n % (1 << 20)) % 251)).digest("hex")}  -\n`
          )
          assert.deepStrictEqual(
            yield* a.files.readBytes("/workspace/plain-not-there").pipe(
              Effect.flip,
              Effect.map((_) => _.reason)
            ),
            "NotFound"
          )
          assert.isFalse(yield* a.files.exists("/workspace/plain-not-there"))
          assert.strictEqual(yield* a.files.replace("/workspace/empty", { old: "x", new: "y" }), 0)
          yield* a.files.move("/workspace/empty", "/workspace/moved")
          yield* a.files.setPermissions("/workspace/moved", { mode: "600" })
          assert.deepStrictEqual(
            (yield* a.files.list("/workspace"))
              .map((_) => [_.path, _.mode])
              .filter(([path]) => path === "/workspace/moved"),
            [["/workspace/moved", "600"]]
          )
          assert.deepStrictEqual(
            (yield* a.files.search("/workspace", "mov*")).map((_) => _.path),
            ["/workspace/moved"]
          )
          yield* a.files.remove("/workspace/moved")
          yield* a.files.removeDirectory("/workspace/in here")
          assert.isFalse(yield* a.files.exists("/workspace/in here/plain"))
        })
      ),
    60_000
  )

  it.live(
    "interrupting a command leaves none of its children",
    () =>
      withSandboxes(() =>
        Effect.gen(function* () {
          const sandbox = yield* create()
          const fiber = yield* Effect.fork(sandbox.exec("echo up; sleep 31.4151 & sleep 31.4152"))
          yield* eventually("it runs", () => processes().some((line) => line.includes("sleep 31.4152")))
          yield* Fiber.interrupt(fiber)
          yield* eventually("it is gone", () => !processes().some((line) => line.includes("sleep 31.415")))
          const failed = yield* sandbox.history.pipe(
            Stream.filter((entry) => entry.event === "exec.failed"),
            Stream.runHead
          )
          assert.strictEqual((Option.getOrThrow(failed).payload as { reason: string }).reason, "interrupted")
        })
      ),
    60_000
  )

  it.live(
    "resume, fork, environment and pause keep the state that they should",
    () =>
      withSandboxes(() =>
        Effect.gen(function* () {
          const sandboxes = yield* Sandboxes.Sandboxes
          const a = yield* create()
          const install = "date +%s%N > /workspace/built; cat /workspace/built"
          const built = yield* a.exec(install)
          yield* a.checkpoint("built")
          yield* a.exec("echo later > /workspace/later")

          const b = yield* sandboxes.resume(a.id)
          const again = yield* b.exec(install)
          assert.deepStrictEqual(again, { ...built, replayed: true })
          assert.strictEqual(yield* b.files.read("/workspace/built"), built.stdout)
          assert.isFalse(yield* b.files.exists("/workspace/later"))

          const fork = yield* a.fork()
          yield* fork.exec("rm /workspace/later")
          assert.isTrue(yield* a.files.exists("/workspace/later"))

          const ticking = yield* b.start("while :; do date +%s%N > /workspace/tick; sleep 0.01; done")
          yield* eventuallyEffect(b.files.exists("/workspace/tick"))
          yield* b.pause
          yield* b.resume
          assert.strictEqual((yield* b.exec("echo back")).stdout, "back\n")
          yield* ticking.interrupt

          const definition = {
            name: "tools",
            image: "node:22",
            build: (sandbox: Sandbox.Sandbox) => sandbox.exec("mkdir -p /opt/tools && echo v1 > /opt/tools/version")
          }
          const made = yield* Effect.forEach([1, 2], () => sandboxes.environment(definition), { concurrency: 2 })
          for (const sandbox of made) {
            assert.strictEqual(yield* sandbox.files.read("/opt/tools/version"), "v1\n")
          }
          assert.strictEqual(
            yield* Effect.map(Stream.runCount(sandboxes.list({ name: "environment-tools" })), Number),
            1
          )
        })
      ),
    90_000
  )

  it.live(
    "200,000 lines arrive whole and in order, and cost few rows",
    () =>
      withSandboxes(() =>
        Effect.gen(function* () {
          const ledger = yield* Ledger.Ledger
          const sandbox = yield* create()
          let next = 1
          let partial = ""
          yield* sandbox.exec("seq 200000").stdout.pipe(
            Stream.runForEachChunk((texts) =>
              Effect.sync(() => {
                const lines = (partial + Chunk.join(texts, "")).split("\n")
                partial = lines.pop() ?? ""
                for (const line of lines) if (line === String(next)) next++
              })
            )
          )
          assert.strictEqual(next, 200_001)
          const rows = yield* Stream.runCount(ledger.read({ sandboxId: sandbox.id, events: ["exec.output"] }))
          assert.isBelow(rows, 2_000)
        })
      ),
    60_000
  )

  it.live(
    "when everything is released nothing is left: no process, mount, socket or file",
    () =>
      Effect.gen(function* () {
        const { directory, marker, port } = yield* withSandboxes(() =>
          Effect.gen(function* () {
            const server = yield* LocalOpenSandbox.LocalServer
            const sandbox = yield* create({ detached: true })
            yield* sandbox.exec("setsid sh -c 'sleep 27.1828 & disown' > /dev/null 2>&1 &")
            yield* sandbox.checkpoint()
            yield* Effect.forkScoped(sandbox.exec("sleep 27.1829"))
            yield* eventually("it runs", () => processes().some((line) => line.includes("sleep 27.1829")))
            assert.isTrue(Fs.existsSync(server.directory))
            return { directory: server.directory, marker: "sleep 27.182", port: Number(new URL(server.url).port) }
          })
        )
        yield* eventually("the processes are gone", () => !processes().some((line) => line.includes(marker)))
        assert.isFalse(Fs.existsSync(directory))
        assert.notInclude(Fs.readFileSync("/proc/self/mounts", "utf8"), directory)
        assert.notMatch(
          Fs.readFileSync("/proc/net/tcp", "utf8"),
          new RegExp(`0100007F:${port.toString(16).padStart(4, "0").toUpperCase()} 00000000:0000 0A`)
        )
      }),
    60_000
  )
})

const eventuallyEffect = <E>(condition: Effect.Effect<boolean, E>) =>
  condition.pipe(
    Effect.repeat({ until: (held) => held, schedule: Schedule.spaced("20 millis") }),
    Effect.timeoutFail({ duration: "10 seconds", onTimeout: () => new Never({ what: "the condition" }) })
  )
