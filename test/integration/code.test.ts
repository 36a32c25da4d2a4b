import { assert, describe, it } from "@effect/vitest"
import type { SandboxError } from "@sandglass/core"
import { Sandboxes } from "@sandglass/core"
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import { create, withLocal } from "../support/localSandboxes.js"

const errors = {
  python: { code: "print('before')\nundefined_name", name: "NameError" },
  javascript: { code: "console.log('before'); undefinedName", name: "ReferenceError" }
} as const

const programs = {
  python: { set: "x = 40", show: "print('sum'); x + 2", value: "42" },
  javascript: { set: "var x = 40", show: "console.log('sum'); x + 2", value: "42" }
} as const

for (const language of ["python", "javascript"] as const) {
  const { set, show, value } = programs[language]
  describe(`code in ${language}`, () => {
    it.live(
      "keeps its context, shows values, and is recorded and replayed",
      () =>
        Effect.gen(function* () {
          const sandboxes = yield* Sandboxes.Sandboxes
          const sandbox = yield* create()
          const context = yield* sandbox.createCodeContext(language)
          yield* context.exec(set)
          const shown = yield* context.exec(show)
          assert.deepInclude(shown, { stdout: "sum\n", exitCode: 0, seq: 2, replayed: false })
          assert.deepStrictEqual(
            shown.results.map((result) => result["text/plain"]),
            [value]
          )
          yield* sandbox.checkpoint()
          const resumed = yield* sandboxes.resume(sandbox.id)
          const again = yield* resumed.createCodeContext(language)
          yield* again.exec(set)
          assert.deepStrictEqual(yield* again.exec(show), { ...shown, replayed: true })
          const other = yield* Effect.flip(
            Effect.flatMap(sandboxes.resume(sandbox.id), (diverging) => diverging.exec(set))
          )
          assert.deepInclude(other, { _tag: "ReplayDivergence", seq: 1 })
        }).pipe(withLocal()),
      60_000
    )

    it.live(
      "an error of the language is a CodeError, live and replayed",
      () =>
        Effect.gen(function* () {
          const sandboxes = yield* Sandboxes.Sandboxes
          const sandbox = yield* create()
          const { code, name } = errors[language]
          const check = (replayed: boolean) => (error: SandboxError.CodeFailure | SandboxError.SandboxFailure) => {
            assert.deepInclude(error, { _tag: "CodeError", language, name, stdout: "before\n", replayed })
          }
          check(false)(yield* Effect.flip(sandbox.execCode(code, { language })))
          check(false)(yield* Effect.flip(Stream.runDrain(sandbox.execCode(code, { language }).output)))
          yield* sandbox.checkpoint()
          const resumed = yield* sandboxes.resume(sandbox.id)
          const error = yield* Effect.flip(resumed.execCode(code, { language }))
          check(true)(error)
          assert.isTrue(error._tag === "CodeError" && error.traceback.length > 0)
        }).pipe(withLocal()),
      60_000
    )
  })
}

describe("values that code shows", () => {
  it.live(
    "come by MIME type, live and replayed",
    () =>
      Effect.gen(function* () {
        const sandboxes = yield* Sandboxes.Sandboxes
        const sandbox = yield* create()
        const code = [
          "class Shown:",
          "    def __repr__(self): return 'plain'",
          "    def _repr_html_(self): return '<b>é</b>'",
          "    def _repr_png_(self): return bytes([137, 80, 0, 255])",
          "Shown()"
        ].join("\n")
        const expected = [{ "text/plain": "plain", "text/html": "<b>é</b>", "image/png": "iVAA/w==" }]
        const shown = yield* sandbox.execCode(code, { language: "python" })
        assert.deepStrictEqual(shown.results, expected)
        yield* sandbox.checkpoint()
        const resumed = yield* sandboxes.resume(sandbox.id)
        const again = yield* resumed.execCode(code, { language: "python" })
        assert.deepInclude(again, { replayed: true, results: expected })
      }).pipe(withLocal()),
    60_000
  )
})
