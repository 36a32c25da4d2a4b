import * as BunContext from "@effect/platform-bun/BunContext"
import type { PlatformError } from "@effect/platform/Error"
import * as FileSystem from "@effect/platform/FileSystem"
import { assert, describe, it } from "@effect/vitest"
import { SandboxFileSystem } from "@sandglass/core"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import { create, withLocal } from "../support/localSandboxes.js"

/** What a program gave, in a form that two machines can be compared by. */
const outcome = <A, R>(self: Effect.Effect<A, PlatformError, R>) =>
  Effect.map(Effect.either(self), (either) =>
    Either.isRight(either)
      ? { ok: either.right }
      : either.left._tag === "SystemError"
        ? { failed: [either.left.reason, either.left.module, either.left.method] }
        : { failed: [either.left._tag, either.left.module, either.left.method] }
  )

type FileProgram = (
  fs: FileSystem.FileSystem,
  directory: string
) => Effect.Effect<unknown, PlatformError, Scope.Scope>

const bytes = Uint8Array.from({ length: 256 }, (_, n) => n)
const names = ["plain", "it's a \"name\"", "new\nline", "-n", "$HOME `x` \\", "报告 é👩‍👩‍👧", " ", "%s*?[a]", "a\ttab"]

const filePrograms: { readonly [name: string]: FileProgram } = {
  "write and read bytes": (fs, d) =>
    Effect.zipRight(fs.writeFile(`${d}/a`, bytes), Effect.map(fs.readFile(`${d}/a`), (_) => [..._])),
  "write and read nothing": (fs, d) =>
    Effect.zipRight(fs.writeFile(`${d}/a`, new Uint8Array()), fs.readFileString(`${d}/a`)),
  "any name": (fs, d) =>
    Effect.gen(function* () {
      for (const name of names) yield* fs.writeFileString(`${d}/${name}`, name)
      const found = yield* fs.readDirectory(d)
      return [found.sort(), yield* Effect.forEach(names, (name) => fs.readFileString(`${d}/${name}`))]
    }),
  "much": (fs, d) =>
    Effect.gen(function* () {
      const much = new Uint8Array(3_000_000).map((_, n) => n % 251)
      yield* fs.writeFile(`${d}/much`, much)
      yield* fs.writeFile(`${d}/much`, much.subarray(0, 300_000), { flag: "a" })
      const read = yield* fs.readFile(`${d}/much`)
      return [read.length, Bun.hash(read)]
    })
}

const local = (program: FileProgram) =>
  Effect.gen(function* () {
    const fs = yield* FileSystem.FileSystem
    return yield* outcome(program(fs, yield* fs.makeTempDirectoryScoped()))
  }).pipe(Effect.scoped, Effect.provide(BunContext.layer))

describe.each(["auto", "plain"] as const)("files (%s)", (mode) => {
  it.live(
    "the same programs give the same on the local machine and in a sandbox",
    () =>
      Effect.gen(function* () {
        const sandbox = yield* create()
        const inside = (program: FileProgram) =>
          Effect.gen(function* () {
            const fs = yield* FileSystem.FileSystem
            return yield* outcome(program(fs, yield* fs.makeTempDirectoryScoped()))
          }).pipe(Effect.scoped, Effect.provide(SandboxFileSystem.layer(sandbox)))
        for (const [name, program] of Object.entries(filePrograms)) {
          assert.deepStrictEqual(yield* inside(program), yield* local(program), name)
        }
      }).pipe(withLocal({ mode })),
    120_000
  )
})
