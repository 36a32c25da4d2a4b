import * as Command from "@effect/platform/Command"
import type * as CommandExecutor from "@effect/platform/CommandExecutor"
import type { PlatformError } from "@effect/platform/Error"
import * as FileSystem from "@effect/platform/FileSystem"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import { outcome } from "./filePrograms.js"

type Needs = CommandExecutor.CommandExecutor | FileSystem.FileSystem | Scope.Scope

/** A program for any machine; its result is compared from machine to machine. */
export type CommandProgram = Effect.Effect<unknown, PlatformError, Needs>

const each = (...programs: ReadonlyArray<CommandProgram>) => Effect.forEach(programs, outcome)

const sh = (script: string, ...args: ReadonlyArray<string>) => Command.make("sh", "-c", script, "sh", ...args)

const all = (stream: Stream.Stream<Uint8Array, PlatformError>) =>
  Effect.map(Stream.runCollect(stream), (pieces) => Buffer.concat(Chunk.toReadonlyArray(pieces)).toString("latin1"))

const bytes = Uint8Array.from({ length: 256 }, (_, n) => n)

/** Everything that a process gives. */
const whole = (command: Command.Command) =>
  Effect.gen(function* () {
    const process = yield* Command.start(command)
    const [stdout, stderr, exitCode] = yield* Effect.all(
      [all(process.stdout), all(process.stderr), outcome(process.exitCode)],
      { concurrency: "unbounded" }
    )
    return { stdout, stderr, exitCode, isRunning: yield* process.isRunning }
  }).pipe(Effect.scoped)

export const commandPrograms: { readonly [name: string]: CommandProgram } = {
  "exit codes": each(
    Command.exitCode(Command.make("true")),
    Command.exitCode(Command.make("false")),
    Command.exitCode(sh("exit 42")),
    Command.string(sh("echo said; exit 3"))
  ),
  "both outputs, byte by byte": Effect.gen(function* () {
    return [
      yield* whole(sh("printf 'no end'; printf 'bad\\0\\377\\r\\n\\n' >&2; exit 7")),
      yield* whole(sh("printf '\\303'; sleep 0.05; printf '\\251\\360\\237'")),
      yield* whole(sh(":"))
    ]
  }),
  "strings, lines, streams": each(
    Command.string(Command.make("printf", "%s", "a b\n\nc é漢👩‍👩‍👧")),
    Command.lines(Command.make("printf", "a\\n\\nb\\r\\nc")),
    Command.string(Command.make("printf", "\\351"), "latin1"),
    Effect.map(Stream.runCollect(Command.streamLines(Command.make("seq", "3"))), Chunk.toReadonlyArray),
    Stream.runHead(Command.streamLines(sh("echo first; exec sleep 300"))),
    Effect.map(Command.string(Command.make("seq", "30000")), (_) => [_.length, Bun.hash(_)])
  ),
  "words stay words": Command.string(
    Command.make("printf", "[%s]", "a b", "$HOME", "it's", '"q"', "*", "-n", "", "a\nb", "`x`", "\\", "é")
  ),
  "standard input": Effect.gen(function* () {
    const slow = Stream.fromIterable(["one ", "two ", "three"]).pipe(
      Stream.tap(() => Effect.sleep(20)),
      Stream.map((text) => new TextEncoder().encode(text))
    )
    return [
      yield* Command.string(Command.make("cat").pipe(Command.feed("fed\nwithout end"))),
      yield* Command.string(Command.make("cat").pipe(Command.feed(""))),
      yield* Command.string(Command.make("wc", "-c").pipe(Command.feed("x".repeat(1_000_000)))),
      yield* Command.string(Command.make("cat").pipe(Command.stdin(slow))),
      yield* whole(Command.make("cat").pipe(Command.stdin(Stream.make(bytes, new Uint8Array(), bytes)))),
      yield* Command.string(sh("read a; echo $a; read b; echo $b").pipe(Command.feed("1\n2\n3\n"))),
      yield* Command.string(Command.make("true").pipe(Command.stdin(Stream.never))),
      yield* Command.exitCode(Command.make("head", "-c", "1").pipe(Command.feed("x".repeat(500_000))))
    ]
  }),
  "a conversation": Effect.gen(function* () {
    const process = yield* Command.start(sh('while read line; do echo "got $line"; done; echo end'))
    const heard = yield* Stream.toPull(Stream.splitLines(Stream.decodeText(process.stdout)))
    const next = Effect.map(Effect.mapError(heard, Option.getOrNull), Chunk.toReadonlyArray)
    const running = yield* process.isRunning
    const input = Stream.concat(
      Stream.make("hello\n"),
      Stream.unwrap(Effect.map(Effect.orDie(next), ([line]) => Stream.make(`${line} again\n`)))
    )
    yield* Stream.run(Stream.encodeText(input), process.stdin)
    return [running, yield* process.exitCode, yield* Effect.either(next), yield* process.isRunning]
  }).pipe(Effect.catchAll((error) => (error === null ? Effect.succeed("ended") : Effect.fail(error)))),
  environment: Effect.gen(function* () {
    const env = { A: 'it\'s "x" $HOME\n2', B: undefined, C: "" }
    return [
      yield* Command.string(sh('printf "%s|%s" "$A" "$C"; env | grep -c "^[BC]="').pipe(Command.env(env))),
      yield* Command.string(Command.make("/usr/bin/env").pipe(Command.env({ ONLY: "1" }, { extendEnv: false }))),
      yield* Command.string(sh('test -n "$PATH" && echo yes').pipe(Command.env({ X: "1" }))),
      yield* Command.string(Command.make("/usr/bin/printenv", "a-b.c").pipe(Command.env({ "a-b.c": "odd" })))
    ]
  }),
  "variables that mean something to shells": Effect.gen(function* () {
    const harmless = { IFS: "x", PS4: "p", ENV: "/none", CDPATH: "/", TMPDIR: "/none", HOME: "/h" }
    const special = {
      RANDOM: "1",
      SECONDS: "2",
      UID: "3",
      SHLVL: "7",
      LC_ALL: "no_NO",
      BASH_ENV: "/none",
      PWD: "/none"
    }
    const fs = yield* FileSystem.FileSystem
    const directory = yield* fs.makeTempDirectoryScoped()
    yield* fs.writeFileString(`${directory}/mine`, "#!/bin/sh\necho mine", { mode: 0o755 })
    const print = (env: { readonly [name: string]: string }) =>
      whole(Command.make("/usr/bin/printenv", ...Object.keys(env)).pipe(Command.env(env)))
    const mine = (env: { readonly [name: string]: string }) =>
      outcome(Command.string(Command.make("mine").pipe(Command.env({ ...env, PATH: directory }))))
    return [yield* print(harmless), yield* print({ ...harmless, ...special }), yield* mine({}), yield* mine(special)]
  }),
  "more words than a command line of a shell holds": Effect.gen(function* () {
    const words = Array.from({ length: 20_000 }, (_, n) => `it's \\ ${n}\n\r`)
    const printed = yield* Command.string(Command.make("printf", "%s", ...words))
    return printed === words.join("")
  }),
  "what a command leaves behind": Effect.gen(function* () {
    const fs = yield* FileSystem.FileSystem
    const left = (exitCode: number) =>
      Effect.gen(function* () {
        const directory = yield* fs.makeTempDirectoryScoped()
        const command = sh(`(sleep 5; echo here >file) >/dev/null 2>&1 & exit ${exitCode}`)
        yield* Command.exitCode(Command.workingDirectory(command, directory))
        yield* Effect.sleep("7 seconds")
        return yield* fs.exists(`${directory}/file`)
      })
    return yield* Effect.all([left(0), left(1)], { concurrency: 2 })
  }),
  "directories and shells": Effect.gen(function* () {
    const fs = yield* FileSystem.FileSystem
    const directory = yield* fs.realPath(yield* fs.makeTempDirectoryScoped())
    yield* fs.writeFileString(`${directory}/run me`, '#!/bin/sh\npwd; echo "$#"', { mode: 0o755 })
    yield* fs.writeFileString(`${directory}/plain`, "")
    yield* fs.writeFileString(`${directory}/strange`, "#! /no/such/interpreter -x\n", { mode: 0o755 })
    const short = (text: string) => text.replaceAll(directory, "DIRECTORY")
    return yield* each(
      Effect.map(Command.string(Command.make("pwd").pipe(Command.workingDirectory(directory))), short),
      Effect.map(Command.string(Command.make("./run me", "x").pipe(Command.workingDirectory(directory))), short),
      Effect.map(
        Command.string(Command.make(`${directory}/run me`, "x y", "z").pipe(Command.workingDirectory(directory))),
        short
      ),
      Command.string(Command.make("echo $((1 + 1)) |", "cat; exit 0").pipe(Command.runInShell(true))),
      Command.string(Command.make("echo $BASH | sed s:.*/::").pipe(Command.runInShell("/bin/bash"))),
      Command.exitCode(Command.make("no-such-program-here").pipe(Command.runInShell(true))),
      Command.exitCode(Command.make("pwd").pipe(Command.workingDirectory(`${directory}/none`))),
      Command.exitCode(Command.make("pwd").pipe(Command.workingDirectory(""))),
      Command.exitCode(Command.make(`${directory}/plain`)),
      Command.exitCode(Command.make(`${directory}/strange`)),
      Command.exitCode(Command.make(directory))
    )
  }),
  "missing programs": each(
    Command.exitCode(Command.make("no-such-program-here", "x")),
    Command.string(Command.make("no-such-program-here", "x")),
    Command.lines(Command.make("/no/such/program")),
    Effect.asVoid(Command.start(Command.make("no-such-program-here"))),
    Stream.runDrain(Command.stream(Command.make("./no-such-program-here")))
  ),
  pipes: Effect.gen(function* () {
    const fs = yield* FileSystem.FileSystem
    const directory = yield* fs.makeTempDirectoryScoped()
    yield* fs.makeDirectory(`${directory}/it's a`)
    yield* fs.makeDirectory(`${directory}/b`)
    const inDirectories = (second: string) =>
      Command.string(
        sh('basename "$PWD"').pipe(
          Command.workingDirectory(`${directory}/it's a`),
          Command.pipeTo(sh('cat; basename "$PWD"').pipe(Command.workingDirectory(second)))
        )
      )
    const pipe = Command.make("printf", "b\\na\\nb\\n").pipe(
      Command.pipeTo(Command.make("sort")),
      Command.pipeTo(Command.make("uniq", "-c"))
    )
    return [
      yield* Command.lines(pipe),
      yield* Command.string(
        Command.make("cat").pipe(Command.feed("fed"), Command.pipeTo(Command.make("tr", "a-z", "A-Z")))
      ),
      yield* Command.exitCode(Command.make("true").pipe(Command.pipeTo(sh("cat; exit 5")))),
      yield* Command.string(sh("echo $A").pipe(Command.env({ A: "left" }), Command.pipeTo(sh('cat; echo "[$A]"')))),
      yield* outcome(inDirectories(`${directory}/b`)),
      yield* outcome(inDirectories(`${directory}/none`))
    ]
  }),
  kill: Effect.gen(function* () {
    const stopped = (command: Command.Command, signal?: CommandExecutor.Signal) =>
      Effect.gen(function* () {
        const process = yield* Command.start(command)
        yield* Stream.runHead(Stream.splitLines(Stream.decodeText(process.stdout)))
        const before = yield* process.isRunning
        yield* process.kill(signal)
        return [before, yield* process.isRunning, yield* outcome(process.exitCode)]
      }).pipe(Effect.scoped)
    return [
      yield* stopped(sh("echo up; exec sleep 300")),
      yield* stopped(sh("echo up; sleep 300; echo never")),
      yield* stopped(sh("trap 'exit 9' INT; echo up; while :; do sleep 0.05; done"), "SIGINT"),
      yield* stopped(sh("trap 'exit 8' USR1; echo up; while :; do sleep 0.05; done"), "SIGUSR1"),
      yield* stopped(sh("trap '' TERM; echo up; exec sleep 300"), "SIGKILL")
    ]
  })
}
