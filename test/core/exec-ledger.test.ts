import { assert, describe, it } from "@effect/vitest"
import type { Exec, LedgerEvent, Sandbox, SandboxError } from "@sandglass/core"
import { Ledger, LedgerError } from "@sandglass/core"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Stream from "effect/Stream"
import { oneScripted } from "../support/oneScripted.js"
import { complete, frame, init, stdout } from "../support/ScriptedSandboxes.js"
import * as ScriptedServer from "../support/ScriptedServer.js"

const { sleep, wsBinary, wsClose, wsText } = ScriptedServer

/** A ledger that refuses the events of execs from the `n`th write on, for one write. */
const failingAt = (n: number) => {
  let writes = 0
  let refused: ReadonlyArray<string> | undefined
  const layer = Layer.map(Ledger.layerMemory, (context) => {
    const ledger = Context.get(context, Ledger.Ledger)
    const guarded = <A, E>(
      method: string,
      events: ReadonlyArray<{ readonly event: string }>,
      write: Effect.Effect<A, E>
    ): Effect.Effect<A, E | LedgerError.LedgerError> =>
      Effect.suspend((): Effect.Effect<A, E | LedgerError.LedgerError> => {
        if (!events.some(({ event }) => event.startsWith("exec."))) return write
        if (++writes !== n) return write
        refused = events.map(({ event }) => event)
        return Effect.fail(new LedgerError.LedgerError({ method, reason: "Connection", description: "gone" }))
      })
    return Context.make(Ledger.Ledger, {
      ...ledger,
      append: (event) => guarded("append", [event], ledger.append(event)),
      appendAll: (events) => guarded("appendAll", events, ledger.appendAll(events))
    })
  })
  return { layer, refused: () => refused }
}

const pause = sleep(25)
const lines = (last: string) => [init("c1"), stdout("1"), pause, stdout("2"), pause, stdout("3"), pause, last]
const socket = (mode: "pty" | "pipe") => [
  wsText({ type: "connected", session_id: "t1", mode }),
  ...["1\n", "2\n", "3\n"].flatMap((text) => [wsBinary(1, text), pause]),
  wsText({ type: "exit", exit_code: 0 }),
  wsClose(1000, "process exited")
]

interface Kind {
  readonly path: string
  readonly events: ReadonlyArray<ScriptedServer.Step>
  readonly output: (sandbox: Sandbox.Sandbox) => Stream.Stream<string, SandboxError.CodeFailure>
  readonly stop: string
}

const texts = <E>(output: Stream.Stream<Exec.OutputChunk, E>) => Stream.map(output, ({ text }) => text)

const kinds: { readonly [name: string]: Kind } = {
  "a command": {
    path: "/command",
    events: lines(complete),
    output: (sandbox) => sandbox.exec("x").stdout,
    stop: "DELETE /command"
  },
  "a started command": {
    path: "/command",
    events: lines(complete),
    output: (sandbox) => Stream.unwrapScoped(Effect.map(sandbox.start("x"), (running) => running.stdout)),
    stop: "DELETE /command"
  },
  code: {
    path: "/code",
    events: [
      init("x1"),
      ...["1\n", "2\n", "3\n"].flatMap((text) => [frame({ type: "stdout", text }), pause]),
      frame({ type: "result", results: { text: "4" } }),
      complete
    ],
    output: (sandbox) => sandbox.execCode("1", { language: "python" }).stdout,
    stop: "DELETE /code"
  },
  "raw bytes": {
    path: "/pty/t1/ws",
    events: socket("pipe"),
    output: (sandbox) => texts(sandbox.exec("x", { raw: true }).output),
    stop: "DELETE /pty/t1"
  },
  "a terminal": {
    path: "/pty/t1/ws",
    events: socket("pty"),
    output: (sandbox) =>
      Stream.unwrapScoped(Effect.map(sandbox.openTerminal(), (terminal) => Stream.decodeText(terminal.output))),
    stop: "DELETE /pty/t1"
  }
}

for (const [name, { events, output, path, stop }] of Object.entries(kinds)) {
  describe.concurrent(`a ledger that fails in the middle of ${name}`, () => {
    for (let n = 1; n <= 6; n++) {
      it.scopedLive(`at write ${n}: its error, nothing delivered that is not recorded, nothing left running`, () =>
        Effect.gen(function* () {
          const asked: Array<string> = []
          const ledger = failingAt(n)
          const { entries, sandbox } = yield* oneScripted(
            {
              override: (request) => {
                const own = request.path.replace(/^\/execd\/[^/]+/, "")
                if (own === request.path || (own === "/command" && request.text.includes('"true"'))) return undefined
                asked.push(`${request.method} ${own}`)
                if (request.method === "DELETE") return ScriptedServer.empty(200)
                if (own === "/pty") return ScriptedServer.json(201, { session_id: "t1" })
                return path.endsWith("/ws") ? ScriptedServer.webSocket(request, events) : ScriptedServer.stream(events)
              }
            },
            { ledger: ledger.layer }
          )
          let delivered = ""
          const result = yield* output(sandbox).pipe(
            Stream.runForEach((text) =>
              Effect.sync(() => {
                delivered += text
              })
            ),
            Effect.either
          )
          const recorded = (yield* entries)
            .filter(({ event }) => event === "exec.output")
            .map(({ payload }) => (payload as { readonly text: LedgerEvent.Json }).text)
            .join("")
          assert.isTrue(recorded.startsWith(delivered), `${delivered} is more than ${recorded}`)
          const refused = ledger.refused()
          if (refused === undefined) {
            assert.isTrue(result._tag === "Right")
            assert.strictEqual(delivered, "1\n2\n3\n")
            return
          }
          assert.isTrue(result._tag === "Left")
          if (result._tag === "Left") assert.deepInclude(result.left, { _tag: "LedgerError", reason: "Connection" })
          if (n === 1) assert.deepStrictEqual(asked, [], "nothing is sent before it is recorded")
          // What had ended by itself need not be stopped.
          else if (!refused.includes("exec.completed")) assert.include(asked, stop)
          assert.notInclude(recorded, "3\n2")
        })
      )
    }
  })
}
