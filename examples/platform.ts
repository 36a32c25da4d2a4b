/**
 * One program, on this machine or in a sandbox: only its Layer changes.
 *
 *     npx bun examples/platform.ts
 *     npx bun examples/platform.ts --sandbox
 */
import { Command, FileSystem, Path } from "@effect/platform"
import { BunContext, BunRuntime } from "@effect/platform-bun"
import { Ledger, SandboxContext, Sandboxes } from "@sandglass/core"
import { LocalOpenSandbox } from "@sandglass/local"
import { Console, Effect, Layer } from "effect"

const script = `
import { createInterface } from "node:readline"
let sum = 0
for await (const line of createInterface(process.stdin)) sum += Number(line)
console.log(sum)
`

/** Knows nothing of sandboxes. */
const program = Effect.gen(function* () {
  const fs = yield* FileSystem.FileSystem
  const path = yield* Path.Path
  const directory = yield* fs.makeTempDirectoryScoped({ prefix: "sum-" })
  yield* fs.writeFileString(path.join(directory, "sum.mjs"), script)
  const sum = Command.make("seq", "100").pipe(
    Command.pipeTo(Command.make("node", "sum.mjs")),
    Command.workingDirectory(directory)
  )
  yield* Console.log(`the sum is ${(yield* Command.string(sum)).trim()}`)
  const code = yield* Command.make("ls", "sum.mjs").pipe(
    Command.workingDirectory(directory),
    Command.stdout("inherit"),
    Command.exitCode
  )
  yield* Console.log(`exit code ${code}`)
}).pipe(Effect.scoped)

const Sandbox = SandboxContext.layerCreate({ image: "node:22", name: "platform" }).pipe(
  Layer.provide(Sandboxes.layer),
  Layer.provide(Layer.merge(LocalOpenSandbox.layer, Ledger.layerMemory))
)

const onThisMachine = Effect.provide(program, BunContext.layer)
const inSandbox = Effect.provide(program, Sandbox)

BunRuntime.runMain(process.argv.includes("--sandbox") ? inSandbox : onThisMachine)
