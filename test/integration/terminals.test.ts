import { createHash } from "node:crypto"
import { assert, describe, it } from "@effect/vitest"
import { Sandboxes } from "@sandglass/core"
import * as Chunk from "effect/Chunk"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import { create, withLocal } from "../support/localSandboxes.js"

const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes)

/** Reads a terminal until its text contains something. */
const until = (terminal: { readonly output: Stream.Stream<Uint8Array, unknown> }, wanted: string) =>
  terminal.output.pipe(
    Stream.decodeText(),
    Stream.scan("", (all, piece) => all + piece),
    Stream.takeUntil((all) => all.includes(wanted)),
    Stream.runLast,
    Effect.timeout("20 seconds")
  )

describe("terminals", () => {
  it.live(
    "are real: input, output, size, signals, exit code; both directions are recorded",
    () =>
      Effect.gen(function* () {
        const sandbox = yield* create()
        const terminal = yield* sandbox.openTerminal({ size: { cols: 100, rows: 30 } })
        yield* terminal.write("stty size; test -t 0 && echo is-a-tty\n")
        yield* until(terminal, "is-a-tty\r\n")
        yield* until(terminal, "30 100")
        yield* terminal.resize(120, 40)
        yield* terminal.write("stty size\n")
        yield* until(terminal, "40 120")
        yield* terminal.write("sleep 300\n")
        yield* Effect.sleep("300 millis")
        yield* terminal.write("\u0003")
        yield* terminal.write("exit 7\n")
        assert.strictEqual(yield* terminal.exitCode.pipe(Effect.timeout("20 seconds")), 7)
        const entries = Chunk.toReadonlyArray(yield* Stream.runCollect(sandbox.history))
        const typed = entries
          .map((entry) => entry.payload as { readonly type?: string; readonly text?: string } | undefined)
          .filter((payload) => payload?.type === "stdin")
          .map((payload) => payload?.text)
        assert.deepStrictEqual(typed, [
          "stty size; test -t 0 && echo is-a-tty\n",
          "stty size\n",
          "sleep 300\n",
          "\u0003",
          "exit 7\n"
        ])
        assert.strictEqual(entries.at(-1)?.event, "exec.completed")
      }).pipe(withLocal()),
    90_000
  )

  it.live(
    "one that had ended is replayed; one that was open is told again what had been typed",
    () =>
      Effect.gen(function* () {
        const sandboxes = yield* Sandboxes.Sandboxes
        const a = yield* create()
        const ended = yield* a.openTerminal({ command: "echo over; exit 3" })
        assert.strictEqual(yield* ended.exitCode, 3)
        const open = yield* a.openTerminal()
        yield* open.write("export STATE=kept; cd /tmp\n")
        yield* open.write("echo marker-$((40 + 2))\n")
        yield* until(open, "marker-42")
        yield* a.checkpoint()
        const b = yield* sandboxes.resume(a.id)
        const replayed = yield* b.openTerminal({ command: "echo over; exit 3" })
        assert.strictEqual(yield* replayed.exitCode, 3)
        assert.include(text(Buffer.concat(Chunk.toReadonlyArray(yield* Stream.runCollect(replayed.output)))), "over")
        const again = yield* b.openTerminal()
        yield* again.write("echo $STATE in $PWD\n")
        yield* until(again, "kept in /tmp")
      }).pipe(withLocal()),
    90_000
  )

  it.live(
    "take much input, in pieces that are recorded one after another",
    () =>
      Effect.gen(function* () {
        const sandbox = yield* create()
        const terminal = yield* sandbox.openTerminal({ command: "stty raw -echo; echo up; head -c 500000 | sha256sum" })
        yield* until(terminal, "up")
        const bytes = Uint8Array.from({ length: 250_000 }, (_, n) => (n * 7 + (n >> 8)) & 0xff)
        yield* Effect.all([terminal.write(bytes), terminal.write(bytes)], { concurrency: 2 })
        const digest = createHash("sha256").update(bytes).update(bytes).digest("hex")
        yield* until(terminal, digest)
        const sizes = yield* sandbox.history.pipe(
          Stream.filterMap(({ payload }) => {
            const { base64 = "", type } = (payload ?? {}) as { readonly base64?: string; readonly type?: string }
            return type === "stdin" ? Option.some(Buffer.from(base64, "base64").length) : Option.none()
          }),
          Stream.runCollect
        )
        assert.deepStrictEqual(Chunk.toReadonlyArray(sizes), [65536, 65536, 65536, 53392, 65536, 65536, 65536, 53392])
      }).pipe(withLocal()),
    60_000
  )

  it.live(
    "have their window from the start",
    () =>
      Effect.gen(function* () {
        const sandbox = yield* create()
        const terminal = yield* sandbox.openTerminal({ command: "stty size", size: { cols: 101, rows: 33 } })
        yield* until(terminal, "33 101\r\n")
        assert.strictEqual(yield* terminal.exitCode, 0)
      }).pipe(withLocal()),
    60_000
  )

  it.live(
    "what had been typed is told again in its order, not all at once: an interrupt throws away what waits before it",
    () =>
      Effect.gen(function* () {
        const sandboxes = yield* Sandboxes.Sandboxes
        const a = yield* create()
        const open = yield* a.openTerminal()
        yield* open.write("export STATE=kept; echo o''ne\n")
        yield* until(open, "one\r\n")
        yield* open.write("sleep 300\n")
        yield* Effect.sleep("300 millis")
        yield* open.write("\u0003")
        yield* until(open, "^C")
        yield* open.write("export MORE=too; echo t''wo\n")
        yield* until(open, "two\r\n")
        yield* a.checkpoint()
        const b = yield* sandboxes.resume(a.id)
        const again = yield* b.openTerminal()
        yield* again.write("echo $STATE $MORE.\n")
        yield* until(again, "kept too.\r\n")
      }).pipe(withLocal()),
    60_000
  )

  it.live(
    "are joined to a person's terminal",
    () =>
      Effect.gen(function* () {
        const sandbox = yield* create()
        const terminal = yield* sandbox.openTerminal()
        const listeners = new Set<(data: string) => void>()
        const raw: Array<boolean> = []
        const input = {
          once: (_: "data", listener: (data: string) => void) => listeners.add(listener),
          off: (_: "data", listener: (data: string) => void) => listeners.delete(listener),
          pause: () => {},
          resume: () => {},
          setRawMode: (on: boolean) => raw.push(on)
        }
        const typeIn = (data: string) =>
          Effect.sync(() => {
            const [listener] = listeners
            if (listener !== undefined) listeners.delete(listener)
            listener?.(data)
          })
        let seen = ""
        const shown = yield* Deferred.make<void>()
        const output = {
          columns: 90,
          rows: 20,
          write: (chunk: Uint8Array, callback: () => void) => {
            seen += text(chunk)
            if (seen.includes("20 90")) Effect.runSync(Deferred.succeed(shown, void 0))
            callback()
          },
          on: () => {},
          off: () => {}
        }
        const attached = yield* Effect.fork(terminal.attach(input, output))
        yield* Effect.sleep("500 millis")
        yield* typeIn("stty size\n")
        yield* Deferred.await(shown).pipe(Effect.timeout("20 seconds"))
        yield* typeIn("exit 5\n")
        assert.strictEqual(yield* Fiber.join(attached).pipe(Effect.timeout("20 seconds")), 5)
        assert.deepStrictEqual(raw, [true, false])
      }).pipe(withLocal()),
    90_000
  )
})

describe("raw commands", () => {
  it.live(
    "are byte-exact, with both streams apart, exit codes, variables, input and timeouts",
    () =>
      Effect.gen(function* () {
        const sandboxes = yield* Sandboxes.Sandboxes
        const sandbox = yield* create()
        const bytes = (command: string, options = {}) =>
          sandbox.exec(command, { raw: true, ...options }).output.pipe(
            Stream.filter((chunk) => chunk.stream === "stdout"),
            Stream.map((chunk) => chunk.bytes ?? new Uint8Array()),
            Stream.runCollect,
            Effect.map((chunks) => [...Buffer.concat(Chunk.toReadonlyArray(chunks))])
          )
        const every = Array.from({ length: 256 }, (_, n) => n)
        const stdin = Uint8Array.from(every)
        assert.deepStrictEqual(yield* bytes("cat", { stdin }), every)
        assert.deepStrictEqual(yield* bytes("printf 'a\\r\\nb'"), [97, 13, 10, 98])
        assert.deepStrictEqual(yield* bytes('printf %s "$A"', { env: { A: "it's" } }), [...Buffer.from("it's")])
        const result = yield* sandbox.exec("printf out; printf err >&2; exit 4", { raw: true, strict: false })
        assert.deepInclude(result, { stdout: "out", stderr: "err", exitCode: 4 })
        const timeout = yield* Effect.flip(sandbox.exec("sleep 300", { raw: true, timeout: "500 millis" }))
        assert.deepInclude(timeout, { _tag: "ExecError", reason: "Timeout" })
        yield* sandbox.checkpoint()
        const resumed = yield* sandboxes.resume(sandbox.id)
        const replayed = yield* resumed.exec("cat", { raw: true, stdin }).output.pipe(Stream.runCollect)
        assert.deepStrictEqual(
          [...Buffer.concat(Chunk.toReadonlyArray(replayed).map((chunk) => chunk.bytes ?? Buffer.from(chunk.text)))],
          every
        )
      }).pipe(withLocal()),
    90_000
  )

  it.live(
    "without an input have an empty one, and variables are names of the shell",
    () =>
      Effect.gen(function* () {
        const sandbox = yield* create()
        const raw = (command: string, options = {}) =>
          sandbox.exec(command, { raw: true, timeout: "20 seconds", ...options })
        assert.strictEqual((yield* raw("cat; echo end")).stdout, "end\n")
        assert.strictEqual((yield* raw("read x; echo [$x]", { env: { A: "1" } })).stdout, "[]\n")
        assert.strictEqual((yield* raw("cat", { shell: "sh" })).stdout, "")
        const refused = yield* Effect.flip(raw("true", { env: { "a-b": "1" } }))
        assert.deepInclude(refused, { _tag: "SandboxError", reason: "InvalidOptions" })
      }).pipe(withLocal()),
    60_000
  )

  it.live(
    "tell what can be read of their bytes, to the last half character",
    () =>
      Effect.gen(function* () {
        const sandbox = yield* create()
        const command = "printf '\\357\\273\\277a\\000\\346'; sleep 0.2; printf '\\274\\242\\303\\251\\360\\237'"
        const result = yield* sandbox.exec(command, { raw: true })
        assert.strictEqual(result.stdout, "\uFEFFa\0漢é\uFFFD")
        const chunks = Chunk.toReadonlyArray(yield* sandbox.exec(command, { raw: true }).output.pipe(Stream.runCollect))
        assert.deepStrictEqual(
          Buffer.concat(chunks.map(({ bytes }) => bytes ?? Buffer.from("missing"))),
          Buffer.from("efbbbf6100e6bca2c3a9f09f", "hex")
        )
      }).pipe(withLocal()),
    60_000
  )
})
