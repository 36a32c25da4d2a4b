import * as BunContext from "@effect/platform-bun/BunContext"
import * as FileSystem from "@effect/platform/FileSystem"
import { assert, describe, it } from "@effect/vitest"
import { SandboxFileSystem } from "@sandglass/core"
import * as Effect from "effect/Effect"
import * as Mailbox from "effect/Mailbox"
import * as Stream from "effect/Stream"
import type { FileProgram } from "../support/filePrograms.js"
import { filePrograms, openFiles, outcome, systemPrograms } from "../support/filePrograms.js"
import { create, withLocal } from "../support/localSandboxes.js"

const onFiles = (program: FileProgram) =>
  Effect.gen(function* () {
    const fs = yield* FileSystem.FileSystem
    return yield* outcome(program(fs, yield* fs.makeTempDirectoryScoped()))
  }).pipe(Effect.scoped)

describe.each(["auto", "plain"] as const)("files (%s)", (mode) => {
  it.live.each(Object.entries(mode === "auto" ? { ...filePrograms, ...systemPrograms } : filePrograms))(
    "%s: as on the local machine",
    ([, program]) =>
      Effect.gen(function* () {
        const sandbox = yield* create()
        const inside = yield* Effect.provide(onFiles(program), SandboxFileSystem.layer(sandbox))
        assert.deepStrictEqual(inside, yield* Effect.provide(onFiles(program), BunContext.layer))
      }).pipe(withLocal({ mode })),
    60_000
  )

  it.live(
    "open files read and write where they stand",
    () =>
      Effect.gen(function* () {
        const fs = SandboxFileSystem.make(yield* create())
        assert.deepStrictEqual(yield* openFiles.program(fs, yield* fs.makeTempDirectory()), openFiles.gives)
      }).pipe(withLocal({ mode })),
    60_000
  )

  it.live(
    "changes are seen",
    () =>
      Effect.gen(function* () {
        const fs = SandboxFileSystem.make(yield* create(), { watchInterval: "30 millis" })
        const directory = yield* fs.makeTempDirectory()
        yield* fs.writeFileString(`${directory}/old`, "")
        const events = yield* Mailbox.make<FileSystem.WatchEvent>({ capacity: 100 })
        const next = Effect.map(events.take, ({ _tag, path }) => `${_tag} ${path}`)
        yield* fs.watch(directory).pipe(
          Stream.runForEach((event) => events.offer(event)),
          Effect.forkScoped
        )
        yield* Effect.sleep("300 millis")
        yield* fs.writeFileString(`${directory}/a\nb`, "")
        assert.strictEqual(yield* next, "Create a\nb")
        yield* fs.writeFileString(`${directory}/old`, "more")
        assert.strictEqual(yield* next, "Update old")
        yield* fs.remove(`${directory}/old`)
        assert.strictEqual(yield* next, "Remove old")
        const error = yield* Effect.flip(Stream.runDrain(fs.watch(`${directory}/none`)))
        assert.deepInclude(error, { _tag: "SystemError", reason: "NotFound", method: "watch" })
      }).pipe(withLocal({ mode })),
    60_000
  )
})
