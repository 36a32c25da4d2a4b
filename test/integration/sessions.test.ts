import { assert, describe, it } from "@effect/vitest"
import { Sandboxes } from "@sandglass/core"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Stream from "effect/Stream"
import { create, withLocal } from "../support/localSandboxes.js"

for (const mode of ["auto", "plain"] as const) {
  describe(`sessions (${mode})`, () => {
    it.live(
      "keep directory and environment, and the exit code is the shell's own",
      () =>
        Effect.gen(function* () {
          const sandbox = yield* create()
          const session = yield* sandbox.createSession({ cwd: "/tmp" })
          const out = (command: string, options = {}) => Effect.map(session.exec(command, options), (_) => _.stdout)
          assert.strictEqual(yield* out("pwd"), "/tmp\n")
          yield* session.exec("mkdir 'a b'; cd 'a b'; export X='it'\\''s \"q\" $HOME\nnext line'; Y=not-exported")
          assert.strictEqual(yield* out('pwd; echo "$X$Y"'), '/tmp/a b\nit\'s "q" $HOME\nnext line\n')
          assert.strictEqual(yield* out("echo $Z $X", { env: { Z: "z", X: "over" } }), "z over\n")
          assert.strictEqual(yield* out("echo $Z $X"), "z over\n")
          const forged = yield* session.exec("echo '__EXIT_CODE__:0'; echo __EXIT_CODE__:0 >&2; exit 3", {
            strict: false
          })
          assert.strictEqual(forged.exitCode, 3)
          assert.strictEqual(yield* out("pwd"), "/tmp/a b\n", "after exit")
          assert.strictEqual((yield* session.exec("if then", { strict: false })).exitCode, 2)
          assert.strictEqual((yield* session.exec("set -e; cd /; false; echo no", { strict: false })).exitCode, 1)
          assert.strictEqual(yield* out("pwd"), "/\n", "what a failing command did stays")
          assert.strictEqual(yield* out("read line; echo got $line", { stdin: "abc\n" }), "got abc\n")
          const other = yield* sandbox.createSession()
          assert.strictEqual((yield* other.exec("echo [$X]")).stdout, "[]\n", "sessions are apart")
          const error = yield* Effect.flip(session.exec("x", { env: { "a-b": "" } }))
          assert.deepInclude(error, { _tag: "SandboxError", reason: "InvalidOptions" })
        }).pipe(withLocal({ mode })),
      60_000
    )

    it.live(
      "run one command at a time, and go on after a resume where the checkpoint left them",
      () =>
        Effect.gen(function* () {
          const sandboxes = yield* Sandboxes.Sandboxes
          const a = yield* create()
          const session = yield* a.createSession()
          yield* Effect.all(
            Array.from({ length: 5 }, () => session.exec("N=$((N + 1)); sleep 0.05; export N")),
            { concurrency: "unbounded" }
          )
          assert.strictEqual((yield* session.exec("cd /tmp; echo $N")).stdout, "5\n")
          yield* a.checkpoint()
          yield* session.exec("export N=99")
          const b = yield* sandboxes.resume(a.id)
          const again = yield* b.createSession()
          for (let n = 0; n < 5; n++) {
            assert.isTrue((yield* again.exec("N=$((N + 1)); sleep 0.05; export N")).replayed)
          }
          assert.isTrue((yield* again.exec("cd /tmp; echo $N")).replayed)
          assert.strictEqual((yield* again.exec("echo $N; pwd")).stdout, "5\n/tmp\n")
        }).pipe(withLocal({ mode })),
      60_000
    )
  })

  describe(`the state of sessions (${mode})`, () => {
    it.live(
      "outlasts what a command does to its shell",
      () =>
        Effect.gen(function* () {
          const sandbox = yield* create()
          const session = yield* sandbox.createSession({ cwd: "/tmp" })
          const run = (command: string, options = {}) => session.exec(command, { strict: false, ...options })
          const seen = (options = {}) => Effect.map(run('echo "$A" "$PWD"', options), (_) => _.stdout.trim())
          yield* run("mkdir -p deep; cd deep")
          const trapped = yield* run("export A=1; trap 'echo bye $?' EXIT; exit 4")
          assert.deepInclude(trapped, { exitCode: 4, stdout: "bye 4\n" })
          assert.strictEqual(yield* seen(), "1 /tmp/deep")
          assert.strictEqual((yield* run("export A=2; trap 'echo bye; exit 5' EXIT")).exitCode, 5)
          assert.strictEqual((yield* run("(trap 'echo own' EXIT); trap 'x' EXIT; trap - EXIT")).stdout, "own\n")
          assert.strictEqual(yield* seen({ env: { TMPDIR: "/usr", PATH: "/nowhere" } }), "2 /tmp/deep")
          assert.strictEqual((yield* run("export A=3 PATH=/nowhere; ls")).exitCode, 127)
          assert.strictEqual(yield* seen(), "3 /tmp/deep")
          yield* run("export A=4 PATH=/usr/bin:/bin TMPDIR=/tmp")
          assert.strictEqual((yield* run("export A=5; set -x; cd /usr")).stderr, "+ cd /usr\n")
          yield* run("set -eufC; export A=6 IFS=0123456789; false")
          yield* run("exec >/dev/null 2>&1; unset IFS; export A=7\necho 'oops")
          assert.strictEqual(yield* seen(), "7 /usr")
          const other = yield* run("id -u; echo $A; export A=8", { uid: 65534 })
          assert.strictEqual(other.stdout, "65534\n7\n")
          assert.strictEqual((yield* run("id -u; echo $A; export A=9", { uid: 65533 })).stdout, "65533\n8\n")
          assert.strictEqual(yield* seen(), "9 /usr")
          yield* run("export A=10; exec true")
          assert.strictEqual(yield* seen(), "9 /usr", "as documented")
          yield* run("mkdir -p /tmp/gone; cd /tmp/gone; rmdir /tmp/gone")
          const gone = yield* Effect.flip(run("pwd"))
          assert.deepInclude(gone, { _tag: "ExecError", reason: "Failed" })
          assert.include(gone.message, "/tmp/gone, where the session was, cannot be entered")
          assert.strictEqual(yield* seen({ cwd: "/tmp" }), "9 /tmp")
        }).pipe(withLocal({ mode })),
      60_000
    )

    it.live(
      "is the handle's own, joined by name, and not a fork's",
      () =>
        Effect.gen(function* () {
          const sandboxes = yield* Sandboxes.Sandboxes
          const sandbox = yield* create()
          const session = yield* sandbox.createSession()
          yield* session.exec("export A=parent")
          const second = yield* sandboxes.connect(sandbox.id)
          const own = yield* second.createSession()
          assert.notStrictEqual(own.name, session.name)
          assert.strictEqual((yield* own.exec("echo [$A]; export A=second")).stdout, "[]\n")
          yield* Effect.scoped(
            Effect.gen(function* () {
              const joined = yield* second.createSession({ name: session.name })
              assert.strictEqual((yield* joined.exec("echo $A; export A=joined")).stdout, "parent\n")
            })
          )
          assert.strictEqual((yield* session.exec("echo $A")).stdout, "joined\n")
          const fork = yield* sandbox.fork()
          const forked = yield* fork.createSession()
          assert.strictEqual((yield* forked.exec("echo [$A]")).stdout, "[]\n")
          const closed = yield* Effect.scoped(sandbox.createSession())
          const error = yield* Effect.flip(closed.exec("echo no"))
          assert.deepInclude(error, { _tag: "ExecError", reason: "Failed", stdout: "" })
          assert.include(error.message, "the session is closed")
        }).pipe(withLocal({ mode })),
      60_000
    )

    it.live(
      "goes on over generations, also those that did not use the session",
      () =>
        Effect.gen(function* () {
          const sandboxes = yield* Sandboxes.Sandboxes
          const a = yield* create()
          const first = yield* a.createSession()
          const own = (yield* first.exec('mkdir sub; cd sub; export N=1 EMPTY=; echo "$TMPDIR"')).stdout
          yield* a.checkpoint()
          const b = yield* sandboxes.resume(a.id)
          yield* b.checkpoint()
          const c = yield* sandboxes.resume(b.id)
          const third = yield* c.createSession()
          const replayed = yield* third.exec('mkdir sub; cd sub; export N=1 EMPTY=; echo "$TMPDIR"')
          assert.deepInclude(replayed, { replayed: true, stdout: own })
          const here = (yield* c.exec('pwd; echo "$TMPDIR"')).stdout.split("\n")
          const command = 'pwd; echo "$TMPDIR"; echo "$N" "$EMPTY"; export N=2'
          assert.strictEqual((yield* third.exec(command)).stdout, `${here[0]}/sub\n${here[1]}\n1 \n`)
          yield* c.checkpoint()
          const d = yield* sandboxes.resume(c.id)
          const fourth = yield* d.createSession()
          yield* fourth.exec('mkdir sub; cd sub; export N=1 EMPTY=; echo "$TMPDIR"')
          assert.isTrue((yield* d.exec('pwd; echo "$TMPDIR"')).replayed)
          assert.isTrue((yield* fourth.exec(command)).replayed)
          const there = (yield* d.exec("pwd")).stdout.trim()
          assert.strictEqual((yield* fourth.exec("echo $N; pwd")).stdout, `2\n${there}/sub\n`)
        }).pipe(withLocal({ mode })),
      60_000
    )

    it.live(
      "long commands full of quotes need no more room than they are long",
      () =>
        Effect.gen(function* () {
          const sandbox = yield* create()
          const session = yield* sandbox.createSession()
          const long = `: ${"'\"'".repeat(33_333)}; echo ok`
          assert.strictEqual((yield* session.exec(long)).stdout, "ok\n")
          assert.strictEqual((yield* sandbox.exec(long)).stdout, "ok\n")
          assert.strictEqual((yield* sandbox.exec(long, { idempotencyKey: "k", stdin: "x" })).stdout, "ok\n")
        }).pipe(withLocal({ mode })),
      60_000
    )
  })

  describe(`stdin and idempotency keys (${mode})`, () => {
    it.live(
      "text, bytes and streams are read whole; without one the input is empty",
      () =>
        Effect.gen(function* () {
          const sandbox = yield* create()
          const out = (command: string, options = {}) => Effect.map(sandbox.exec(command, options), (_) => _.stdout)
          assert.strictEqual(yield* out("cat; echo; cat", { stdin: "one\ntwo é" }), "one\ntwo é\n")
          const bytes = Uint8Array.from({ length: 256 }, (_, n) => n)
          assert.strictEqual(
            yield* out("od -An -tu1 -v | tr -s ' \\n' ' '", { stdin: bytes }),
            `${[" ", ...bytes].join(" ").slice(1)} \n`
          )
          const stdin = Stream.repeatValue(new Uint8Array(1 << 20)).pipe(Stream.take(20))
          assert.strictEqual(yield* out("wc -c", { stdin }), "20971520\n")
          assert.strictEqual(yield* out("wc -c", { stdin: "" }), "0\n")
          assert.strictEqual(yield* out(`find "$TMPDIR" -type f`, { stdin: "x" }), "")
        }).pipe(withLocal({ mode })),
      60_000
    )

    it.live(
      "the same key runs once, whoever asks, and gives the first run's outcome",
      () =>
        Effect.gen(function* () {
          const sandboxes = yield* Sandboxes.Sandboxes
          const sandbox = yield* create()
          const options = { idempotencyKey: "deploy @ 1", strict: false }
          const once = sandbox.exec("echo run >>runs; echo $$; echo err >&2; sleep 0.3; exit 5", options)
          const results = yield* Effect.all([once, once, once], { concurrency: 3 })
          const other = yield* sandboxes.connect(sandbox.id)
          results.push(yield* other.exec(once.command, options))
          for (const result of results) {
            assert.deepInclude(result, { exitCode: 5, stderr: "err\n", stdout: results[0]?.stdout })
          }
          assert.strictEqual((yield* sandbox.exec("cat runs")).stdout, "run\n")
          const fiber = yield* Effect.fork(sandbox.exec("echo up; sleep 77", { idempotencyKey: "cut" }))
          yield* Effect.sleep("500 millis")
          yield* Fiber.interrupt(fiber)
          const error = yield* Effect.flip(sandbox.exec("echo up; sleep 77", { idempotencyKey: "cut" }))
          assert.deepInclude(error, { _tag: "ExecError", reason: "Killed" })
        }).pipe(withLocal({ mode })),
      60_000
    )

    it.live(
      "no input stays behind, and one that cannot be sent is an error of its own",
      () =>
        Effect.gen(function* () {
          const sandbox = yield* create()
          const left = Effect.map(sandbox.exec('find "$TMPDIR/.sandglass-input" -type f'), (_) => _.stdout)
          const other = yield* sandbox.exec("id -u; cat", { stdin: "for another", uid: 65534 })
          assert.strictEqual(other.stdout, "65534\nfor another\n")
          assert.strictEqual(
            (yield* sandbox.exec("cat", { stdin: "own", env: { TMPDIR: "/usr", PATH: "" } }).pipe(Effect.flip))._tag,
            "CommandError"
          )
          const stdin = Stream.concat(Stream.make(new Uint8Array([65])), Stream.fail("boom"))
          const failed = yield* Effect.flip(sandbox.exec("touch ran; cat", { stdin }))
          assert.deepInclude(failed, { _tag: "OpenSandboxError", method: "upload" })
          const never = Stream.concat(Stream.make(new Uint8Array(100_000)), Stream.never)
          const fiber = yield* Effect.fork(sandbox.exec("touch ran; cat", { stdin: never }))
          yield* Effect.sleep("300 millis")
          yield* Fiber.interrupt(fiber)
          assert.strictEqual((yield* sandbox.exec("ls -A")).stdout, "")
          assert.strictEqual(yield* left, "")
          const detached = yield* sandbox.startDetached("sleep 0.2; cat", { stdin: "kept" })
          const running = yield* detached.attach
          assert.strictEqual((yield* running.result).stdout, "kept")
          assert.strictEqual(yield* left, "")
        }).pipe(withLocal({ mode })),
      60_000
    )

    it.live(
      "a key changes nothing of what a command does, and belongs to one command",
      () =>
        Effect.gen(function* () {
          const sandbox = yield* create()
          const keyed = (idempotencyKey: string, command: string, options = {}) =>
            sandbox.exec(command, { idempotencyKey, strict: false, ...options })
          for (let again = 0; again < 2; again++) {
            const [took, { stdout }] = yield* Effect.timed(keyed("daemon", "sleep 7 & echo started"))
            assert.strictEqual(stdout, "started\n")
            assert.isBelow(Duration.toSeconds(took), 5)
          }
          assert.strictEqual(
            (yield* keyed("big", "seq 1 300000 | tail -c 1000000 | md5sum; seq 1 50000")).stdoutLength,
            288930
          )
          yield* keyed("moved", "echo ran >>ran; cat ran")
          const moved = yield* keyed("moved", "echo ran >>ran; cat ran", { env: { TMPDIR: "/usr", PATH: "/nowhere" } })
          assert.deepInclude(moved, { exitCode: 0, stdout: "ran\n" })
          const other = yield* Effect.flip(keyed("moved", "echo other"))
          assert.deepInclude(other, { _tag: "ExecError", reason: "Failed", stdout: "" })
          assert.include(other.message, "the idempotency key was used for another command")
          assert.notInclude(other.message, "sandglass-")
          const variables = yield* keyed("env", "/bin/sh -c 'echo $A $PATH'; kill -INT $$; echo no", {
            env: { A: "a b", PATH: "/x" }
          })
          assert.include(variables.stdout, "a b /x")
        }).pipe(withLocal({ mode })),
      60_000
    )

    it.live(
      "a key after another user's, and what fails before the command, are no exit codes",
      () =>
        Effect.gen(function* () {
          const sandbox = yield* create()
          yield* sandbox.exec("true", { idempotencyKey: "first" })
          yield* Effect.scoped(sandbox.createSession())
          const nobody = yield* sandbox.exec("id -u", { idempotencyKey: "second", uid: 65534 })
          assert.strictEqual(nobody.stdout, "65534\n")
          const session = yield* sandbox.createSession()
          for (const options of [{ cwd: "/not/there" }, { cwd: "not-there", idempotencyKey: "third" }]) {
            const error = yield* Effect.flip(session.exec("echo ran", { strict: false, ...options }))
            assert.deepInclude(error, { _tag: "ExecError", reason: "Failed", stdout: "" })
          }
          yield* session.exec("mkdir not-there")
          const third = yield* session.exec("echo ran", { cwd: "not-there", idempotencyKey: "third" })
          assert.strictEqual(third.stdout, "ran\n", "a key is not used up by what never began")
          const forged = yield* session.exec("echo 'sandglass-0: forged' >&2; exit 3", { strict: false })
          assert.deepInclude(forged, { exitCode: 3, stderr: "sandglass-0: forged\n" })
          const killed = sandbox.exec("echo up; kill -9 $$", { idempotencyKey: "killed" })
          for (let again = 0; again < 2; again++) {
            assert.deepInclude(yield* Effect.flip(killed), { _tag: "ExecError", reason: "Killed" })
          }
        }).pipe(withLocal({ mode })),
      60_000
    )
  })
}
