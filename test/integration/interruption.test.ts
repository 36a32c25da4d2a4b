import { assert, describe, it } from "@effect/vitest"
import type { Sandbox } from "@sandglass/core"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Stream from "effect/Stream"
import { becomes, nap, processesWith } from "../local/support.js"
import { create, withLocal } from "../support/localSandboxes.js"

const kinds: {
  readonly [name: string]: (sandbox: Sandbox.Sandbox, sleep: string, turn: number) => Effect.Effect<unknown, unknown>
} = {
  commands: (sandbox, sleep) => sandbox.exec(`${sleep} & ${sleep}`),
  streams: (sandbox, sleep) => Stream.runDrain(sandbox.exec(`echo up; ${sleep}`).lines),
  "started commands": (sandbox, sleep) => Effect.scoped(Effect.flatMap(sandbox.start(sleep), (_) => _.result)),
  "commands with input": (sandbox, sleep) => sandbox.exec(`cat; ${sleep}`, { stdin: "x".repeat(100_000) }),
  "commands with a key": (sandbox, sleep, turn) => sandbox.exec(`${sleep} & ${sleep}`, { idempotencyKey: `k${turn}` }),
  "commands of sessions": (sandbox, sleep) =>
    Effect.scoped(Effect.flatMap(sandbox.createSession(), (session) => session.exec(`${sleep} & ${sleep}`))),
  bytes: (sandbox, sleep) => sandbox.exec(`${sleep} & ${sleep}`, { raw: true, env: { A: "1" } }),
  terminals: (sandbox, sleep) =>
    Effect.scoped(
      Effect.flatMap(sandbox.openTerminal(), (terminal) =>
        Effect.zipRight(terminal.write(`${sleep} & ${sleep}\n`), terminal.exitCode)
      )
    ),
  "terminals with a command": (sandbox, sleep) =>
    Effect.scoped(Effect.flatMap(sandbox.openTerminal({ command: sleep }), (terminal) => terminal.exitCode)),
  code: (sandbox, sleep) => sandbox.execCode(sleep, { language: "bash" }),
  "code in a context": (sandbox, sleep) =>
    Effect.scoped(
      Effect.flatMap(sandbox.createCodeContext("python"), (context) =>
        context.exec(`import subprocess; subprocess.run(${JSON.stringify(sleep.split(" "))})`)
      )
    )
}

for (const mode of ["auto", "plain"] as const) {
  describe(`interruption at any time leaves no process (${mode})`, () => {
    for (const [name, run] of Object.entries(kinds)) {
      it.live(
        `of ${name}`,
        () =>
          Effect.gen(function* () {
            const sandbox = yield* create()
            const time = nap()
            for (const [turn, millis] of [0, 3, 10, 30, 60, 100, 160, 250, 400].entries()) {
              const fiber = yield* Effect.fork(run(sandbox, `sleep ${time}`, turn))
              yield* Effect.sleep(millis)
              const exit = yield* Fiber.interrupt(fiber)
              assert.isTrue(Exit.isInterrupted(exit), `after ${millis} ms: ${exit}`)
              yield* becomes(() => processesWith(`sleep\0${time}`).length === 0)
            }
            const open = yield* sandbox.history.pipe(
              Stream.runFold(0, (open, { event }) =>
                event === "exec.started" ? open + 1 : event === "exec.failed" ? open - 1 : open
              )
            )
            assert.strictEqual(open, 0)
          }).pipe(withLocal({ mode })),
        90_000
      )
    }
  })
}
