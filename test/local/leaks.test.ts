import * as Fs from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { becomes, modes, nap, processesWith, start } from "./support.js"
import { attach, createTerminal } from "./terminalClient.js"

const descriptors = () =>
  Fs.readdirSync("/proc/self/fd").filter((fd) => {
    try {
      return /^pipe:|sandglass-local|\/fifo|socket:/.test(Fs.readlinkSync(`/proc/self/fd/${fd}`))
    } catch {
      return false
    }
  }).length

for (const mode of modes) {
  describe(`what is left (${mode})`, () => {
    it.scopedLive("is nothing, of terminals, sessions and code that have ended or been deleted", () =>
      Effect.gen(function* () {
        const server = yield* start({ mode })
        const box = yield* server.box()
        const time = nap()
        const round = (last: boolean) =>
          Effect.scoped(
            Effect.gen(function* () {
              for (const query of ["", "?pty=0"]) {
                const done = yield* attach(box, yield* createTerminal(box, { command: "echo up" }), query)
                yield* done.ended
                const id = yield* createTerminal(box, { command: `echo up; sleep ${time}` })
                const client = yield* attach(box, id, query)
                yield* client.prints("up")
                if (!last) yield* box.request("DELETE", `/pty/${id}`)
              }
              const session = (yield* box.request("POST", "/session", { body: {} })).json.session_id
              const run = (command: string) =>
                box.request("POST", `/session/${session}/run`, { body: { command, timeout: 100 } })
              yield* run("echo hi; export A=1")
              yield* run(`sleep ${time}`)
              yield* run("cd /not/there")
              const context = (yield* box.request("POST", "/code/context", { body: { language: "bash" } })).json.id
              for (const code of ["echo hi", "exit 3", "echo new"])
                yield* box.request("POST", "/code", { body: { code, context: { id: context } } })
              if (!last) yield* box.request("DELETE", `/code/contexts/${context}`)
              yield* box.run("echo hi")
            })
          )
        yield* round(false)
        yield* becomes(() => processesWith(time).length === 0)
        const before = descriptors()
        for (let i = 0; i < 3; i++) yield* round(false)
        yield* becomes(() => processesWith(time).length === 0)
        // Connections of the client come and go.
        yield* becomes(() => descriptors() <= before + 3)
        yield* round(true)
        assert.strictEqual((yield* server.request("DELETE", `/sandboxes/${box.id}`)).status, 204)
        assert.deepStrictEqual(processesWith(time), [])
        yield* becomes(() => descriptors() <= before + 3)
      })
    )
  })
}
