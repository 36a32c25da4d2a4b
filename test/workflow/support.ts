import { Ledger, OpenSandbox, Sandboxes } from "@sandglass/core"
import { LocalOpenSandbox } from "@sandglass/local"
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Stream from "effect/Stream"
import * as ScriptedSandboxes from "../support/ScriptedSandboxes.js"
import { complete, exited, init, stdout } from "../support/ScriptedSandboxes.js"
import * as ScriptedServer from "../support/ScriptedServer.js"

export const all = <A, E, R>(stream: Stream.Stream<A, E, R>) =>
  Effect.map(Stream.runCollect(stream), Chunk.toReadonlyArray)

/** Commands reach the scripted server as they are written. */
export const sandbox = { image: "node:22", once: false } as const

/**
 * Answers by words: `say X` prints X, `exit N` ends with it, `flaky K N` fails N times for each K and then prints K, `slow MS X` takes its
 * time, `hang` says nothing any more, `lost` loses the connection, `killed` ends by a signal, `page` answers with a web page.
 */
export const shell = () => {
  const failures = new Map<string, number>()
  const answer: ScriptedSandboxes.Script["command"] = ({ command }, index) => {
    const id = init(`c${index}`)
    const [word = "", first = "", ...rest] = command.split(" ")
    switch (word) {
      case "say":
        return ScriptedServer.stream([id, stdout(command.slice(4)), complete])
      case "exit":
        return ScriptedServer.stream([id, stdout(`exit ${first}`), exited(first)])
      case "flaky": {
        const left = failures.get(first) ?? Number(rest[0])
        failures.set(first, left - 1)
        return ScriptedServer.stream([id, stdout(first), left > 0 ? exited(1) : complete])
      }
      case "slow":
        return ScriptedServer.stream([id, ScriptedServer.sleep(Number(first)), stdout(rest.join(" ")), complete])
      case "hang":
        return ScriptedServer.stream([id, ScriptedServer.hold])
      case "lost":
        return ScriptedServer.stream([id, stdout("begun"), ScriptedServer.drop])
      case "killed":
        return ScriptedServer.stream([id, exited("signal: killed")])
      case "page":
        return ScriptedServer.text(200, "<html>hello</html>", { "content-type": "text/html" })
      default:
        return ScriptedServer.stream([id, complete])
    }
  }
  return answer
}

/** A server by script, and a ledger in memory. */
export const scripted = (script: ScriptedSandboxes.Script = {}, options: Sandboxes.Options = {}) =>
  Effect.gen(function* () {
    const server = yield* ScriptedSandboxes.make({ command: shell(), ...script })
    const context = yield* Layer.build(
      Sandboxes.layerWith(options).pipe(Layer.provideMerge(Layer.merge(server.layer, Ledger.layerMemory)))
    )
    const ledger = yield* Effect.provide(Ledger.Ledger, context)
    const provide = Effect.provide(context)
    return {
      server,
      ledger,
      context,
      provide,
      /** The commands that the server got. */
      commands: () => server.commands.map(({ command }) => command),
      /** The sandboxes that were not deleted. */
      left: () => server.created.length - new Set(server.deleted).size
    }
  })

/** The ids of the sandboxes that the local server has. */
export const onServer = Effect.gen(function* () {
  const { apiKey, url } = yield* LocalOpenSandbox.LocalServer
  const api = yield* Effect.provide(OpenSandbox.OpenSandbox, OpenSandbox.layer({ url, apiKey }))
  return (yield* all(api.list())).map(({ id }) => id)
})
