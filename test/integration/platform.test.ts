import { spawnSync } from "node:child_process"
import * as Fs from "node:fs"
import { fileURLToPath } from "node:url"
import * as Command from "@effect/platform/Command"
import * as CommandExecutor from "@effect/platform/CommandExecutor"
import * as FileSystem from "@effect/platform/FileSystem"
import * as Path from "@effect/platform/Path"
import * as BunContext from "@effect/platform-bun/BunContext"
import { assert, describe, it, layer } from "@effect/vitest"
import type { Execd } from "@sandglass/core"
import { Ledger, SandboxCommandExecutor, SandboxContext, Sandboxes, SandboxFileSystem } from "@sandglass/core"
import { LocalOpenSandbox } from "@sandglass/local"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Mailbox from "effect/Mailbox"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import { commandPrograms } from "../support/commandPrograms.js"
import type { FileProgram } from "../support/filePrograms.js"
import { filePrograms, openFiles, outcome, systemPrograms } from "../support/filePrograms.js"
import { create, withLocal } from "../support/localSandboxes.js"

const onFiles = (program: FileProgram) =>
  Effect.gen(function* () {
    const fs = yield* FileSystem.FileSystem
    return yield* outcome(program(fs, yield* fs.makeTempDirectoryScoped()))
  }).pipe(Effect.scoped)

const inSandbox = (mode: "auto" | "plain") =>
  SandboxContext.layerCreate({ image: "node:22" }).pipe(
    Layer.provide(Sandboxes.layer),
    Layer.provide(Layer.merge(LocalOpenSandbox.layerWith({ mode }), Ledger.layerMemory))
  )

describe.each(["auto", "plain"] as const)("as on the local machine (%s)", (mode) => {
  layer(inSandbox(mode), { excludeTestServices: true })((it) => {
    it.effect.each(Object.entries(mode === "auto" ? { ...filePrograms, ...systemPrograms } : filePrograms))(
      "files: %s",
      ([, program]) =>
        Effect.gen(function* () {
          assert.deepStrictEqual(yield* onFiles(program), yield* Effect.provide(onFiles(program), BunContext.layer))
        }),
      60_000
    )

    it.effect.each(Object.entries(commandPrograms))(
      "commands: %s",
      ([, program]) =>
        Effect.gen(function* () {
          const run = Effect.scoped(outcome(program))
          assert.deepStrictEqual(yield* run, yield* Effect.provide(run, BunContext.layer))
        }),
      60_000
    )

    it.effect(
      "open files read and write where they stand",
      () =>
        Effect.gen(function* () {
          const fs = yield* FileSystem.FileSystem
          assert.deepStrictEqual(yield* openFiles.program(fs, yield* fs.makeTempDirectoryScoped()), openFiles.gives)
        }).pipe(Effect.scoped),
      60_000
    )

    it.effect(
      "changes are seen",
      () =>
        Effect.gen(function* () {
          const sandbox = yield* SandboxContext.CurrentSandbox
          const fs = SandboxFileSystem.make(sandbox, { watchInterval: "30 millis" })
          const directory = yield* fs.makeTempDirectoryScoped()
          yield* fs.writeFileString(`${directory}/old`, "")
          const events = yield* Mailbox.make<FileSystem.WatchEvent>({ capacity: 100 })
          const next = Effect.map(events.take, ({ _tag, path }) => `${_tag} ${path}`)
          yield* fs.watch(directory).pipe(
            Stream.runForEach((event) => events.offer(event)),
            Effect.forkScoped
          )
          yield* Effect.sleep("500 millis")
          yield* fs.writeFileString(`${directory}/a\nb`, "")
          assert.strictEqual(yield* next, "Create a\nb")
          yield* fs.writeFileString(`${directory}/old`, "more")
          assert.strictEqual(yield* next, "Update old")
          yield* fs.remove(`${directory}/old`)
          assert.strictEqual(yield* next, "Remove old")
          const error = yield* Effect.flip(Stream.runDrain(fs.watch(`${directory}/none`)))
          assert.deepInclude(error, { _tag: "SystemError", reason: "NotFound", method: "watch" })
        }).pipe(Effect.scoped),
      60_000
    )

    it.effect.skipIf(mode === "plain" || !Fs.existsSync("/bin/dash"))(
      "files: with no more than a POSIX shell",
      () =>
        Effect.gen(function* () {
          const { execd } = yield* SandboxContext.CurrentSandbox
          const inDash: Execd.ExecdClient["command"] = (request) =>
            execd.command({ ...request, command: `exec dash -c '${request.command.replaceAll("'", "'\\''")}'` })
          const inside = SandboxFileSystem.layer({ execd: { ...execd, command: inDash } })
          for (const [name, program] of Object.entries(filePrograms)) {
            const there = yield* Effect.provide(onFiles(program), inside)
            assert.deepStrictEqual(there, yield* Effect.provide(onFiles(program), BunContext.layer), name)
          }
        }),
      180_000
    )

    it.effect(
      "what is behind a link is neither removed nor copied into itself, nor is anything removed without a name",
      () =>
        Effect.gen(function* () {
          const fs = yield* FileSystem.FileSystem
          const d = yield* fs.makeTempDirectoryScoped()
          yield* fs.makeDirectory(`${d}/tree/sub`, { recursive: true })
          yield* fs.symlink("tree", `${d}/link`)
          const refused = (path: string) => Effect.flip(fs.remove(path, { recursive: true, force: true }))
          assert.deepInclude(yield* refused(`${d}/link/`), { reason: "BadResource", method: "remove" })
          assert.deepInclude(yield* refused(`${d}/link//`), { reason: "BadResource" })
          for (const path of [`${d}/tree/.`, `${d}/tree/sub/..`, ".", "..", `${d}/tree/./`]) {
            assert.deepInclude(yield* refused(path), { reason: "Unknown", method: "remove" })
          }
          assert.include(String(yield* Effect.flip(fs.copy(`${d}/tree`, `${d}/link/sub/copy`))), "into itself")
          assert.deepStrictEqual(yield* fs.readDirectory(d, { recursive: true }), ["link", "tree", "tree/sub"])
          yield* fs.remove(`${d}/tree/`, { recursive: true })
          assert.deepStrictEqual(yield* fs.readDirectory(d), ["link"])
        }).pipe(Effect.scoped),
      60_000
    )

    it.effect(
      "all that is in a directory is listed once, links to directories and loops too",
      () =>
        Effect.gen(function* () {
          const fs = yield* FileSystem.FileSystem
          const d = yield* fs.makeTempDirectoryScoped()
          yield* fs.makeDirectory(`${d}/a/b`, { recursive: true })
          yield* fs.symlink("..", `${d}/a/up`)
          yield* fs.symlink("loop", `${d}/loop`)
          yield* fs.symlink("a", `${d}/link`)
          assert.deepStrictEqual(yield* fs.readDirectory(d, { recursive: true }), ["a", "a/b", "a/up", "link", "loop"])
          assert.deepStrictEqual(yield* fs.readDirectory(`${d}/link`, { recursive: true }), ["b", "up"])
        }).pipe(Effect.scoped),
      60_000
    )

    it.effect("paths start from the sandbox's directory", () =>
      Effect.gen(function* () {
        const path = yield* Path.Path
        const fs = yield* FileSystem.FileSystem
        const cwd = yield* fs.realPath(".")
        assert.deepStrictEqual(
          [path.resolve("a"), path.resolve("/b", "c"), path.relative("x/y", `${cwd}/z`)],
          [`${cwd}/a`, "/b/c", "../../z"]
        )
        assert.strictEqual((yield* path.toFileUrl("a b")).href, `file://${cwd}/a%20b`)
      })
    )
  })
})

describe("commands of a sandbox", () => {
  const program = Effect.gen(function* () {
    const fs = yield* FileSystem.FileSystem
    const path = yield* Path.Path
    yield* fs.writeFileString("input", "b\na\n")
    const now = yield* Command.string(Command.make("date", "+%s%N"))
    const raw = yield* Stream.runCollect(Command.stream(Command.make("printf", "\\377\\0\\303")))
    const sorted = yield* Command.lines(
      Command.make("cat", path.resolve("input")).pipe(Command.pipeTo(Command.make("sort")))
    )
    const fed = yield* Command.string(Command.make("cat").pipe(Command.feed("fed"), Command.env({ SECRET: "s3cret" })))
    const code = yield* Command.exitCode(Command.make("sh", "-c", "exit 3"))
    return { now, raw: Chunk.toReadonlyArray(raw).map((_) => [..._]), sorted, fed, code }
  })

  it.live.each(["auto", "plain"] as const)(
    "are recorded, and answered from the ledger on a resumed sandbox (%s)",
    (mode) =>
      Effect.gen(function* () {
        const ledger = yield* Ledger.Ledger
        const { first, id } = yield* Effect.gen(function* () {
          const sandbox = yield* SandboxContext.CurrentSandbox
          const first = yield* program
          yield* sandbox.checkpoint()
          return { first, id: sandbox.id }
        }).pipe(Effect.provide(SandboxContext.layerCreate({ image: "node:22" })))
        const { now: _, ...known } = first
        assert.deepEqual(known, {
          raw: [[255, 0, 195]],
          sorted: ["a", "b"],
          fed: "fed",
          code: CommandExecutor.ExitCode(3)
        })
        const started = yield* ledger.read({ sandboxId: id, events: ["exec.started"] }).pipe(Stream.runCollect)
        assert.deepStrictEqual(
          Chunk.toReadonlyArray(started).map(({ payload }) => {
            const { cmd, cwd, envNames, seq } = payload as { [key: string]: unknown }
            return [seq, String(cmd).replace(/\S+\/input/, "INPUT"), cwd, envNames]
          }),
          [
            [1, "date +%s%N", undefined, undefined],
            [2, "printf '\\377\\0\\303'", undefined, undefined],
            [3, "cat INPUT | sort", undefined, undefined],
            [4, "cat", undefined, ["SECRET"]],
            [5, "sh -c 'exit 3'", undefined, undefined]
          ]
        )
        const everything = yield* ledger.read({ sandboxId: id }).pipe(Stream.runCollect)
        assert.notInclude(JSON.stringify(Chunk.toReadonlyArray(everything)), "s3cret")

        yield* Effect.gen(function* () {
          const sandbox = yield* SandboxContext.CurrentSandbox
          if (mode === "auto") assert.deepStrictEqual(yield* program, first)
          else {
            // The directory of the sandbox is part of a command.
            const error = yield* Effect.flip(program)
            assert.include(String(error), "recorded")
          }
          const count = yield* Stream.runCount(Stream.filter(sandbox.history, (_) => _.event.startsWith("exec.")))
          assert.strictEqual(count, 0)
          if (mode === "plain") return
          const process = yield* Command.start(Command.make("echo", "live"))
          assert.isAbove(process.pid, 0)
          assert.strictEqual(yield* process.exitCode, 0)
        }).pipe(Effect.scoped, Effect.provide(SandboxContext.layerResume(id)))
      }).pipe(withLocal({ mode })),
    60_000
  )

  it.live(
    "write to where inherit leads, and wait for it",
    () =>
      Effect.gen(function* () {
        const written = { out: "", err: "" }
        const target = (name: keyof typeof written) => ({
          write: (bytes: Uint8Array, done: () => void) => {
            written[name] += new TextDecoder().decode(bytes)
            queueMicrotask(done)
          }
        })
        const executor = SandboxCommandExecutor.make(yield* create(), {
          cwd: "/tmp",
          stdin: Stream.encodeText(Stream.make("typed")),
          stdout: target("out"),
          stderr: target("err")
        })
        const command = Command.make("sh", "-c", "cat; pwd; sleep 0.1; echo error >&2").pipe(
          Command.stdin("inherit"),
          Command.stdout("inherit"),
          Command.stderr("inherit")
        )
        assert.strictEqual(yield* executor.exitCode(command), 0)
        assert.deepStrictEqual(written, { out: "typed/tmp\n", err: "error\n" })
      }).pipe(withLocal()),
    60_000
  )

  it.live(
    "tell the values of their variables to nobody else",
    () =>
      Effect.gen(function* () {
        const sandbox = yield* create()
        const all = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; echo; printf %s. \"$TOKEN\" | wc -c"
        const env = { TOKEN: "s3cr\"e't\\\n2" }
        const command = Command.make("sh", "-c", all).pipe(Command.env(env))
        const executor = SandboxCommandExecutor.make(sandbox)
        const piped = Command.pipeTo(command, Command.make("cat"))
        const seen = [
          yield* executor.string(command),
          yield* executor.string(piped),
          (yield* sandbox.exec(all, { env })).stdout,
          (yield* sandbox.exec(all, { env, raw: true })).stdout
        ]
        for (const printed of seen) assert.match(printed, /^12$/m)
        const diagnostics = yield* Effect.flatMap(sandbox.diagnosticEvents(), (_) => _.text)
        assert.include(diagnostics, "ended: exit status 0")
        const ledger = yield* Stream.runCollect(sandbox.history)
        assert.notInclude(JSON.stringify([seen, diagnostics, ledger]), "s3cr")
      }).pipe(withLocal()),
    60_000
  )

  it.live(
    "are refused where no system could start them",
    () =>
      Effect.gen(function* () {
        const executor = SandboxCommandExecutor.make(yield* create())
        const refused = (command: Command.Command) => Effect.flip(executor.string(command))
        assert.deepInclude(yield* refused(Command.make("echo", "a\0b")), { _tag: "BadArgument", method: "spawn" })
        const variable = Command.make("echo").pipe(Command.env({ A: "a\0b" }))
        assert.deepInclude(yield* refused(variable), { _tag: "BadArgument", method: "spawn" })
        assert.include(String(yield* refused(Command.make("echo", "é".repeat(70_000)))), "E2BIG")
      }).pipe(withLocal()),
    60_000
  )

  it.live(
    "take no more of their input once they have ended",
    () =>
      Effect.gen(function* () {
        let taken = 0
        const input = Stream.repeatEffect(
          Effect.sync(() => {
            taken++
            return new Uint8Array(1)
          }).pipe(Effect.delay("1 millis"))
        )
        const executor = SandboxCommandExecutor.make(yield* create())
        const process = yield* executor.start(Command.make("true").pipe(Command.stdin(input)))
        yield* process.exitCode
        yield* Effect.sleep("100 millis")
        const before = taken
        yield* Effect.sleep("100 millis")
        assert.strictEqual(taken, before)
      }).pipe(withLocal()),
    60_000
  )

  it.live(
    "run as other users, and have keys",
    () =>
      Effect.gen(function* () {
        const sandboxes = yield* Sandboxes.Sandboxes
        const sandbox = yield* create()
        const executor = SandboxCommandExecutor.make(sandbox)
        const asUser = (command: Command.Command) =>
          executor.string(
            Object.assign(Object.create(Object.getPrototypeOf(command)), command, { uid: Option.some(1234) })
          )
        if (process.getuid?.() === 0) {
          assert.strictEqual(yield* asUser(Command.make("id", "-u")), "1234\n")
          assert.strictEqual(yield* asUser(Command.make("cat").pipe(Command.feed("fed"))), "fed\n")
        }
        const keyed = (name: string) =>
          executor
            .string(Command.make("sh", "-c", `sleep 0.$(($$ % 10)); echo ${name} $$`))
            .pipe(SandboxCommandExecutor.withKey(name))
        const names = ["a", "b", "c"]
        const first = yield* Effect.forEach(names, keyed, { concurrency: 3 })
        yield* sandbox.checkpoint()
        const again = SandboxCommandExecutor.make(yield* sandboxes.resume(sandbox.id))
        for (const [index, name] of [...names.entries()].reverse()) {
          const command = Command.make("sh", "-c", `sleep 0.$(($$ % 10)); echo ${name} $$`)
          assert.strictEqual(yield* again.string(command).pipe(SandboxCommandExecutor.withKey(name)), first[index])
        }
      }).pipe(withLocal()),
    60_000
  )
})

it.effect(
  "the example says the same on this machine and in a sandbox",
  () =>
    Effect.sync(() => {
      const example = fileURLToPath(new URL("../../examples/platform.ts", import.meta.url))
      for (const options of [[], ["--sandbox"]]) {
        const run = spawnSync(process.execPath, [example, ...options], { encoding: "utf8", timeout: 50_000 })
        const said = run.stdout.split("\n").filter((line) => !line.startsWith("timestamp="))
        assert.deepStrictEqual(said, ["the sum is 5050", "sum.mjs", "exit code 0", ""], run.stderr)
      }
    }),
  60_000
)
