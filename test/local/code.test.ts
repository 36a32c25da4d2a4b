// biome-ignore-all lint/suspicious/noTemplateCurlyInString: that is how shells name variables.
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import type { Box, Event } from "./support.js"
import { becomes, events, eventually, modes, nap, outputOf, processesWith, start } from "./support.js"

type CodeEvent = Event & {
  readonly results?: { readonly [mime: string]: unknown }
  readonly execution_count?: number
}

const create = (box: Box, language: string, options: object = {}) =>
  Effect.map(box.request("POST", "/code/context", { body: { language, ...options } }), (answer) => {
    if (answer.status !== 200) throw new Error(`${answer.status}: ${answer.text}`)
    assert.strictEqual(answer.json.language, language)
    return String(answer.json.id)
  })

const run = (box: Box, context: object | undefined, code: string): Effect.Effect<Array<CodeEvent>> =>
  Effect.map(
    box.request("POST", "/code", { body: { code, ...(context === undefined ? {} : { context }) } }),
    (answer) => {
      if (answer.status !== 200) throw new Error(`${answer.status}: ${answer.text}`)
      return events(answer.text)
    }
  )

const text = (all: ReadonlyArray<Event>, type = "stdout") => outputOf(all, type).join("")
const result = (all: ReadonlyArray<CodeEvent>) => all.find((event) => event.type === "result")?.results?.["text/plain"]
const failure = (all: ReadonlyArray<Event>) => all.at(-1)?.error

for (const mode of modes) {
  const probe = await Effect.runPromise(
    Effect.scoped(
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        return yield* box.text("for each in python3 node; do command -v $each >/dev/null && echo $each; done")
      })
    )
  )
  const has = (program: string) => {
    const found = probe.split("\n").includes(program)
    if (!found) console.warn(`${program} is not here: code that needs it is not tested (${mode})`)
    return found
  }

  describe(`code (${mode})`, () => {
    it.scopedLive.skipIf(!has("python3"))("runs Python, keeping its state", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        const id = yield* create(box, "python")
        const context = { id, language: "python" }
        const first = yield* run(
          box,
          context,
          "import sys, os\nx = 20\nprint('a', end='')\nsys.stderr.write('é\\n')\nos.system('echo sub')\nx + 1"
        )
        assert.deepStrictEqual(
          first.map(({ type }) => type).filter((type) => !type.startsWith("std")),
          ["init", "execution_count", "result", "execution_complete"]
        )
        assert.strictEqual(first[0]?.text, id)
        assert.strictEqual(text(first), "asub\n")
        assert.strictEqual(text(first, "stderr"), "é\n")
        assert.deepStrictEqual(first.find((event) => event.type === "result")?.results, { "text/plain": "21" })
        assert.strictEqual(first.find((event) => event.type === "execution_count")?.execution_count, 1)
        const second = yield* run(box, context, "def f():\n  return x * 2\nf(), _")
        assert.strictEqual(result(second), "(40, 21)")
        assert.strictEqual(second.find((event) => event.type === "execution_count")?.execution_count, 2)
        assert.isUndefined(result(yield* run(box, context, "x = 1")))
        assert.isUndefined(result(yield* run(box, context, "None")))
        const rich = yield* run(
          box,
          context,
          "class Rich:\n  def __repr__(self): return 'rich'\n  def _repr_html_(self): return '<b>'\n  def _repr_png_(self): return b'\\x00\\xff'\nRich()"
        )
        assert.deepStrictEqual(rich.find((event) => event.type === "result")?.results, {
          "text/plain": "rich",
          "text/html": "<b>",
          "image/png": "AP8="
        })
        assert.strictEqual(
          result(yield* run(box, context, "import asyncio\nawait asyncio.sleep(0, 'waited')")),
          "'waited'"
        )
        assert.strictEqual(text(yield* run(box, context, "print(input() if False else __name__)")), "__main__\n")
        const error = yield* run(box, context, "def g():\n  return unknown\ng()")
        assert.deepInclude(failure(error), { ename: "NameError", evalue: "name 'unknown' is not defined" })
        assert.match(
          (failure(error)?.traceback ?? []).join("\n"),
          /line 3, in <module>\n {4}g\(\)[\s\S]*line 2, in g\n {4}return unknown/
        )
        assert.strictEqual(failure(yield* run(box, context, "x ="))?.ename, "SyntaxError")
        assert.strictEqual(failure(yield* run(box, context, "raise SystemExit(3)"))?.ename, "SystemExit")
        assert.strictEqual(failure(yield* run(box, context, "input()"))?.ename, "EOFError")
        assert.strictEqual(result(yield* run(box, context, "x")), "1")
        const large = yield* run(box, context, "for i in range(300000): print(i)\n'end'")
        assert.strictEqual(text(large).length, 1_988_890)
        assert.strictEqual(result(large), "'end'")
        // What has not been in order is not among these.
        assert.strictEqual(large.at(-2)?.type, "result")
      })
    )

    it.scopedLive.skipIf(!has("node"))("runs JavaScript, keeping its state", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        const id = yield* create(box, "javascript")
        const context = { id, language: "javascript" }
        const first = yield* run(box, context, "const x = 20; let y = 1; console.log('a'); console.error('b'); x + y")
        assert.strictEqual(text(first), "a\n")
        assert.strictEqual(text(first, "stderr"), "b\n")
        assert.strictEqual(result(first), "21")
        assert.strictEqual(first.find((event) => event.type === "execution_count")?.execution_count, 1)
        assert.strictEqual(result(yield* run(box, context, "y++; function f() { return [x, y] }; f()")), "[ 20, 2 ]")
        assert.strictEqual(result(yield* run(box, context, "{ a: 'text' }")), "{ a: 'text' }")
        assert.strictEqual(
          result(yield* run(box, context, "await new Promise((r) => setTimeout(() => r(7), 10))")),
          "7"
        )
        assert.strictEqual(result(yield* run(box, context, "require('node:path').basename('/a/b')")), "'b'")
        assert.isUndefined(result(yield* run(box, context, "undefined")))
        const error = yield* run(box, context, "function g() {\n  return unknown\n}\ng()")
        assert.deepInclude(failure(error), { ename: "ReferenceError", evalue: "unknown is not defined" })
        assert.match((failure(error)?.traceback ?? []).join("\n"), /at g \(cell\d+\.js:2:3\)/)
        assert.strictEqual(failure(yield* run(box, context, "x ="))?.ename, "SyntaxError")
        assert.strictEqual(failure(yield* run(box, context, "throw 5"))?.evalue, "5")
        yield* run(box, context, "setTimeout(() => { throw new Error('later') }, 1); Promise.reject(1); 0")
        assert.strictEqual(result(yield* run(box, context, "x")), "20")
        const large = yield* run(box, context, "for (let i = 0; i < 300000; i++) console.log(i); 'end'")
        assert.strictEqual(text(large).length, 1_988_890)
      })
    )

    it.scopedLive("runs Bash, keeping its state", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        yield* box.text("mkdir -p deep")
        const id = yield* create(box, "bash", { cwd: "/workspace/deep" })
        const context = { id, language: "bash" }
        const first = yield* run(
          box,
          context,
          "echo ${PWD##*/}; X='a!b\n\"c'\nf() { echo f$1; }; echo err >&2; printf '\\n\\nend'"
        )
        assert.strictEqual(text(first), "deep\n\n\nend")
        assert.strictEqual(text(first, "stderr"), "err\n")
        assert.deepStrictEqual(
          first.map(({ type }) => type).filter((type) => !type.startsWith("std")),
          ["init", "execution_count", "execution_complete"]
        )
        assert.strictEqual(
          text(yield* run(box, context, 'f 1; echo "$X"; cd ..; read y; echo "[$y]"')),
          'f1\na!b\n"c\n[]\n'
        )
        assert.deepInclude(failure(yield* run(box, context, "echo it''s; (exit 4)")), {
          ename: "CommandExecError",
          evalue: "4"
        })
        const wrong = yield* run(box, context, "if")
        assert.include(text(wrong, "stderr"), "syntax error")
        assert.isDefined(failure(wrong))
        assert.strictEqual(
          text(yield* run(box, context, "echo ${PWD##*/}; ls -l /proc/self/fd | grep -c deleted")),
          "workspace\n1\n"
        )
        // Its end is the end of its state, and of nothing else.
        assert.strictEqual(failure(yield* run(box, context, "exit 9"))?.evalue, "9")
        assert.strictEqual(
          text(yield* run(box, context, "echo ${PWD##*/}; f 2 2>/dev/null || echo new")),
          "deep\nnew\n"
        )
      })
    )

    it.scopedLive(
      "runs a shell command where there is no context, and a language's own context where there is no id",
      () =>
        Effect.gen(function* () {
          const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
          const all = yield* run(box, undefined, "printf 'a\\n\\nb'; exit 3")
          assert.strictEqual(text(all), "a\n\nb")
          assert.strictEqual(failure(all)?.evalue, "3")
          yield* run(box, { language: "bash" }, "x=kept")
          assert.strictEqual(text(yield* run(box, { language: "bash" }, "echo $x")), "kept\n")
          assert.strictEqual(
            text(yield* run(box, { language: "bash", id: yield* create(box, "bash") }, "echo $x.")),
            ".\n"
          )
        })
    )

    it.scopedLive("lists, finds and deletes contexts", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        const [a, b, c] = [yield* create(box, "bash"), yield* create(box, "bash"), yield* create(box, "bash")]
        const listed = Effect.map(box.request("GET", "/code/contexts?language=bash"), ({ json }) =>
          json.map((context: { id: string }) => context.id)
        )
        assert.deepStrictEqual(yield* listed, [a, b, c])
        assert.deepStrictEqual((yield* box.request("GET", `/code/contexts/${a}`)).json, { id: a, language: "bash" })
        const time = nap()
        const running = yield* Effect.fork(run(box, { id: a }, `sleep ${time}`))
        yield* becomes(() => processesWith(`sleep\0${time}`).length === 1)
        const busy = yield* box.request("POST", "/code", { body: { code: "true", context: { id: a } } })
        assert.deepStrictEqual([busy.status, busy.json.code], [409, "CONTEXT_BUSY"])
        assert.strictEqual((yield* box.request("DELETE", `/code/contexts/${a}`)).status, 200)
        assert.strictEqual(failure(yield* Fiber.join(running))?.evalue, "-1")
        yield* becomes(() => processesWith(time).length === 0)
        assert.strictEqual((yield* box.request("GET", `/code/contexts/${a}`)).status, 404)
        assert.strictEqual((yield* box.request("DELETE", `/code/contexts/${a}`)).status, 404)
        assert.strictEqual((yield* box.request("DELETE", "/code/contexts?language=bash")).status, 200)
        assert.deepStrictEqual(yield* listed, [])
        const status = (method: string, path: string, body?: object) =>
          Effect.map(box.request(method, path, body === undefined ? {} : { body }), (answer) => answer.status)
        assert.strictEqual(yield* status("GET", "/code/contexts"), 400)
        assert.strictEqual(yield* status("POST", "/code/context", { language: "cobol" }), 501)
        assert.strictEqual(yield* status("POST", "/code/context", {}), 400)
        assert.strictEqual(yield* status("POST", "/code", { code: "1", context: { language: "cobol" } }), 501)
        assert.strictEqual(yield* status("POST", "/code", { code: "1", context: { id: a } }), 404)
        assert.strictEqual(yield* status("POST", "/code", {}), 400)
        assert.strictEqual(yield* status("DELETE", `/code?id=${a}`), 404)
        assert.strictEqual(yield* status("DELETE", "/code"), 400)
      })
    )

    for (const [language, program, loop, sleeping, name] of [
      [
        "python",
        "python3",
        "print('up')\nwhile True: pass",
        "import subprocess\nprint('up')\nsubprocess.run(['sleep', 'TIME'])",
        "KeyboardInterrupt"
      ],
      [
        "javascript",
        "node",
        "console.log('up'); for (;;);",
        "console.log('up'); await new Promise(() => {})",
        "Interrupted"
      ],
      ["bash", "bash", "echo up; while :; do :; done", "echo up; sleep TIME; echo not", "CommandExecError"]
    ] as const) {
      it.scopedLive.skipIf(program !== "bash" && !has(program))(`interrupts ${language}, whose state survives`, () =>
        Effect.gen(function* () {
          const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
          const id = yield* create(box, language)
          yield* run(box, { id }, "x=5")
          const time = nap()
          for (const code of [loop, sleeping.replace("TIME", time)]) {
            const running = yield* Effect.fork(run(box, { id }, code))
            // An interrupt that comes before the code does is lost, as on any terminal.
            const ended = yield* eventually(
              Effect.gen(function* () {
                assert.strictEqual((yield* box.request("DELETE", `/code?id=${id}`)).status, 200)
                yield* Effect.sleep("50 millis")
                const exit = yield* Fiber.poll(running)
                return exit._tag === "Some" ? exit.value : undefined
              })
            )
            const all = yield* ended
            assert.strictEqual(failure(all)?.ename, name)
            assert.notInclude(text(all), "not")
            yield* becomes(() => processesWith(`sleep\0${time}`).length === 0)
          }
          const after = yield* run(box, { id }, language === "bash" ? "echo $x" : "x")
          assert.strictEqual(language === "bash" ? text(after).trim() : result(after), "5")
        })
      )
    }

    it.scopedLive("ends with the sandbox, whether or not somebody listens", () =>
      Effect.gen(function* () {
        const server = yield* start({ mode })
        const box = yield* server.box()
        const time = nap()
        const id = yield* create(box, "bash")
        const running = yield* Effect.fork(
          Effect.either(Effect.sandbox(run(box, { id }, `sleep ${time} & sleep ${time}`)))
        )
        yield* becomes(() => processesWith(`sleep\0${time}`).length === 2)
        yield* server.snapshot(box.id)
        yield* server.request("POST", `/sandboxes/${box.id}/pause`)
        yield* server.request("DELETE", `/sandboxes/${box.id}`)
        assert.deepStrictEqual(processesWith(time), [])
        yield* Fiber.join(running)
      })
    )
  })
}
