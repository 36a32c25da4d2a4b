import * as ChildProcess from "node:child_process"
import { fileURLToPath } from "node:url"
import { assert, describe, it } from "@effect/vitest"
import type { LedgerEvent, Sandbox } from "@sandglass/core"
import { Ledger, OpenSandbox, Sandboxes } from "@sandglass/core"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Schedule from "effect/Schedule"
import * as Stream from "effect/Stream"
import { becomes, nap, processesWith } from "../local/support.js"

const bin = fileURLToPath(new URL("../../packages/local/src/bin.ts", import.meta.url))

/** A server in a process of its own, which can be killed. */
const server = Effect.acquireRelease(
  Effect.async<{ readonly child: ChildProcess.ChildProcess; readonly url: string }>((resume) => {
    const child = ChildProcess.spawn(process.execPath, [bin, "--port", "0"], {
      env: { ...process.env, OPEN_SANDBOX_API_KEY: "k" },
      stdio: ["ignore", "pipe", "pipe"]
    })
    let told = ""
    const look = (data: unknown) => {
      told += String(data)
      const url = /http:\/\/127\.0\.0\.1:\d+/.exec(told)?.[0]
      if (url !== undefined) resume(Effect.succeed({ child, url }))
    }
    child.stdout.on("data", look)
    child.stderr.on("data", look)
  }),
  ({ child }) => Effect.sync(() => child.kill("SIGKILL"))
)

const kinds: {
  readonly [name: string]: {
    readonly run: (sandbox: Sandbox.Sandbox, sleep: string) => Effect.Effect<unknown, { readonly _tag: string }>
    readonly error: { readonly [field: string]: string }
  }
} = {
  "a command": {
    run: (sandbox, sleep) => sandbox.exec(`echo up; ${sleep}`),
    error: { _tag: "ExecError", reason: "Lost", stdout: "up\n" }
  },
  "a command's stream": {
    run: (sandbox, sleep) => Stream.runDrain(sandbox.exec(`echo up; ${sleep}`).lines),
    error: { _tag: "ExecError", reason: "Lost", stdout: "up\n" }
  },
  "a session's command": {
    run: (sandbox, sleep) =>
      Effect.scoped(Effect.flatMap(sandbox.createSession(), (session) => session.exec(`echo up; ${sleep}`))),
    error: { _tag: "ExecError", reason: "Lost", stdout: "up\n" }
  },
  bytes: {
    run: (sandbox, sleep) => sandbox.exec(`echo up; ${sleep}`, { raw: true }),
    error: { _tag: "ExecError", reason: "Lost", stdout: "up\n" }
  },
  "a terminal": {
    run: (sandbox, sleep) =>
      Effect.scoped(Effect.flatMap(sandbox.openTerminal({ command: `echo up; ${sleep}` }), (_) => _.exitCode)),
    error: { _tag: "ExecError", reason: "Lost", stdout: "up\r\n" }
  },
  code: {
    run: (sandbox, sleep) => sandbox.execCode(`echo up; ${sleep}`, { language: "bash" }),
    error: { _tag: "ExecError", reason: "Lost", stdout: "up\n" }
  },
  "a detached command's follower": {
    run: (sandbox, sleep) =>
      Effect.scoped(
        Effect.flatMap(sandbox.startDetached(`echo up; ${sleep}`), (detached) =>
          Effect.flatMap(detached.attach, (_) => _.result)
        )
      ),
    error: { _tag: "OpenSandboxError", reason: "Transport" }
  }
}

describe("a server that is killed", () => {
  it.scopedLive(
    "ends whatever runs on it with a typed error, recorded, and leaves no process",
    () =>
      Effect.gen(function* () {
        const { child, url } = yield* server
        yield* Effect.gen(function* () {
          const sandbox = yield* Effect.flatMap(Sandboxes.Sandboxes, (_) => _.create({ image: "i" }))
          const time = nap()
          const failing = yield* Effect.forEach(Object.entries(kinds), ([name, { error, run }]) =>
            Effect.map(Effect.fork(Effect.flip(run(sandbox, `sleep ${time}`))), (fiber) => ({ name, error, fiber }))
          )
          yield* becomes(() => processesWith(`sleep\0${time}`).length === failing.length)
          // Everybody's output is recorded.
          yield* sandbox.history.pipe(
            Stream.filter(({ event }) => event === "exec.output"),
            Stream.runFold(new Set<number>(), (seen, { stepIdx }) => seen.add(stepIdx)),
            Effect.repeat({ until: (seen) => seen.size === failing.length, schedule: Schedule.spaced("10 millis") })
          )
          child.kill("SIGKILL")
          for (const { error, fiber, name } of failing) assert.deepInclude(yield* Fiber.join(fiber), error, name)
          yield* becomes(() => processesWith(`sleep\0${time}`).length === 0)
          const reasons = yield* sandbox.history.pipe(
            Stream.filter(({ event }) => event === "exec.failed"),
            Stream.runFold<ReadonlyArray<unknown>, LedgerEvent.LedgerEntry>([], (all, { payload }) => [...all, payload])
          )
          // The end of the detached one is for whoever follows it next.
          assert.lengthOf(reasons, failing.length - 1)
          for (const payload of reasons) assert.deepInclude(payload, { reason: "lost" })
        }).pipe(
          Effect.scoped,
          Effect.provide(
            Sandboxes.layer.pipe(
              Layer.provide(OpenSandbox.layer({ url, apiKey: Redacted.make("k") })),
              Layer.provide(Ledger.layerMemory)
            )
          )
        )
      }),
    60_000
  )
})
