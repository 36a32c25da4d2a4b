// biome-ignore-all lint/suspicious/noTemplateCurlyInString: that is how shells name variables.
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import type { Box } from "./support.js"
import { becomes, events, fromImage, modes, nap, outputOf, processesWith, start } from "./support.js"

const create = (box: Box, request: object = {}) =>
  Effect.map(box.request("POST", "/session", { body: request }), (answer) => {
    if (answer.status !== 200) throw new Error(`${answer.status}: ${answer.text}`)
    return String(answer.json.session_id)
  })

const run = (box: Box, id: string, command: string, options: object = {}) =>
  Effect.map(box.request("POST", `/session/${id}/run`, { body: { command, ...options } }), (answer) => {
    if (answer.status !== 200) throw new Error(`${answer.status}: ${answer.text}`)
    return events(answer.text)
  })

const lines = (box: Box, id: string, command: string, options: object = {}) =>
  Effect.map(run(box, id, command, options), (all) => outputOf(all))

for (const mode of modes) {
  describe(`sessions (${mode})`, () => {
    it.scopedLive("keep the directory and the environment", () =>
      Effect.gen(function* () {
        const server = yield* start({ mode })
        const box = yield* server.box({ ...fromImage, env: { GIVEN: "g" } })
        const id = yield* create(box)
        const first = yield* run(
          box,
          id,
          "mkdir -p 'a b'; cd 'a b'; export X='it'\"'\"$'s\\n\"two\" $lines' Y=1; Z=unexported"
        )
        assert.deepStrictEqual(
          first.map(({ text, type }) => [type, text]),
          [
            ["init", id],
            ["execution_complete", undefined]
          ]
        )
        assert.deepStrictEqual(yield* lines(box, id, 'echo "${PWD##*/}"; echo "$X/$Y/$Z/$GIVEN"; unset Y GIVEN'), [
          "a b",
          "it's",
          '"two" $lines/1//g'
        ])
        assert.deepStrictEqual(yield* lines(box, id, "echo $Y$GIVEN.; env | grep -c '^GIVEN=' || true"), [".", "0"])
        const other = yield* create(box)
        assert.deepStrictEqual(yield* lines(box, other, "echo $X$GIVEN"), ["g"])
        assert.deepStrictEqual(yield* lines(box, id, "cd ..; echo ${PWD##*/}; export PATH=/none"), ["workspace"])
        assert.deepStrictEqual(yield* lines(box, id, "echo $PATH"), ["/none"])
      })
    )

    it.scopedLive("print lines, blank ones dropped, stderr among them", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        const id = yield* create(box)
        const all = yield* run(box, id, "echo a; echo; echo b >&2; printf '\\n\\nc'")
        assert.deepStrictEqual(outputOf(all), ["a", "b", "c"])
        assert.deepStrictEqual(outputOf(all, "stderr"), [])
        const large = yield* lines(box, id, "seq 1 100000")
        assert.strictEqual(large.length, 100_000)
      })
    )

    it.scopedLive("tell exit codes that cannot be forged", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        const id = yield* create(box)
        const code = (command: string, options: object = {}) =>
          Effect.map(run(box, id, command, options), (all) => all.at(-1)?.error?.evalue ?? all.at(-1)?.type)
        assert.strictEqual(yield* code("export A=1"), "execution_complete")
        assert.strictEqual(yield* code("false"), "1")
        assert.strictEqual(yield* code('echo "__EXIT_CODE__:0"; exit 3'), "3")
        assert.strictEqual(yield* code("(exit 7)"), "7")
        assert.match((yield* code("if")) ?? "", /^[12]$/)
        assert.strictEqual(yield* code("kill -9 $$"), "-1")
        assert.strictEqual(yield* code("sleep 30", { timeout: 100 }), "-1")
        assert.strictEqual(yield* code("set -e; export B=2; set -x; true"), "execution_complete")
        // None of it has ended the session.
        assert.deepStrictEqual(yield* lines(box, id, "echo $A $B"), ["1 2"])
      })
    )

    it.scopedLive("take a directory, for the session and from a run on", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        yield* box.text("mkdir -p one two")
        const id = yield* create(box, { cwd: "/workspace/one" })
        const where = (options: object = {}) => lines(box, id, "echo ${PWD##*/}", options)
        assert.deepStrictEqual(yield* where(), ["one"])
        assert.deepStrictEqual(yield* where({ cwd: "/workspace/two" }), ["two"])
        assert.deepStrictEqual(yield* where(), ["two"])
        yield* box.text("rm -r two")
        assert.deepStrictEqual(yield* where(), ["workspace"])
        assert.strictEqual((yield* box.request("POST", "/session", { body: { cwd: "/not/there" } })).status, 400)
        const bad = yield* box.request("POST", `/session/${id}/run`, { body: { command: "true", cwd: "/not/there" } })
        assert.strictEqual(bad.status, 400)
      })
    )

    it.scopedLive("end with DELETE", () =>
      Effect.gen(function* () {
        const box = yield* Effect.flatMap(start({ mode }), (server) => server.box())
        const id = yield* create(box)
        const time = nap()
        const running = yield* Effect.fork(run(box, id, `sleep ${time}`))
        yield* becomes(() => processesWith(`sleep\0${time}`).length === 1)
        assert.strictEqual((yield* box.request("DELETE", `/session/${id}`)).status, 200)
        assert.strictEqual((yield* Fiber.join(running)).at(-1)?.error?.evalue, "-1")
        assert.deepStrictEqual(processesWith(time), [])
        for (const answer of [
          yield* box.request("DELETE", `/session/${id}`),
          yield* box.request("POST", `/session/${id}/run`, { body: { command: "true" } })
        ]) {
          assert.deepStrictEqual([answer.status, answer.json.code], [404, "CONTEXT_NOT_FOUND"])
        }
        const other = yield* create(box)
        assert.strictEqual((yield* box.request("POST", `/session/${other}/run`, { body: {} })).status, 400)
      })
    )
  })
}
