import { assert, describe, it } from "@effect/vitest"
import { Sandboxes } from "@sandglass/core"
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
          assert.strictEqual(yield* out("ls -A /tmp | grep sandglass-stdin || echo none", { stdin: "x" }), "none\n")
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
  })
}
