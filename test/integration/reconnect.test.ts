import * as Net from "node:net"
import { assert, describe, it } from "@effect/vitest"
import { Ledger, OpenSandbox, Sandboxes } from "@sandglass/core"
import { LocalOpenSandbox } from "@sandglass/local"
import * as Chunk from "effect/Chunk"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"

/** A way to a server on which WebSockets break after so many bytes. */
const brittle = (port: number, bytes: () => number) =>
  Effect.acquireRelease(
    Effect.async<{ readonly port: number; readonly broken: () => number; readonly server: Net.Server }>((resume) => {
      let broken = 0
      const server = Net.createServer((client) => {
        const upstream = Net.connect(port, "127.0.0.1")
        const end = () => {
          client.destroy()
          upstream.destroy()
        }
        for (const socket of [client, upstream]) {
          socket.on("error", end)
          socket.on("close", end)
        }
        let isWebSocket = false
        client.on("data", (data: Buffer) => {
          isWebSocket ||= /upgrade: websocket/i.test(data.toString("latin1"))
          upstream.write(data)
        })
        let left = bytes()
        upstream.on("data", (data: Buffer) => {
          // What has arrived so far may be half a frame.
          client.write(isWebSocket ? data.subarray(0, left) : data)
          left -= data.length
          if (isWebSocket && left <= 0) {
            broken++
            client.end()
            setTimeout(end, 5)
          }
        })
      })
      server.listen(0, "127.0.0.1", () => {
        const address = server.address()
        resume(
          Effect.succeed({
            port: typeof address === "object" && address !== null ? address.port : 0,
            broken: () => broken,
            server
          })
        )
      })
    }),
    ({ server }) => Effect.sync(() => server.close())
  )

describe("a terminal over connections that break", () => {
  it.live(
    "prints every byte once, and takes what is typed",
    () =>
      Effect.gen(function* () {
        const server = yield* LocalOpenSandbox.make()
        const port = Number(new URL(server.url).port)
        let turn = 0
        const way = yield* brittle(port, () => 6_000 + ((turn++ * 7919) % 9_000))
        const api = Layer.map(OpenSandbox.layer({ url: server.url, apiKey: server.apiKey }), (context) => {
          const own = Context.get(context, OpenSandbox.OpenSandbox)
          return Context.make(OpenSandbox.OpenSandbox, {
            ...own,
            endpoint: (...asked) =>
              Effect.map(own.endpoint(...asked), (endpoint) => ({
                ...endpoint,
                url: endpoint.url.replace(`:${port}`, `:${way.port}`)
              }))
          })
        })
        yield* Effect.gen(function* () {
          const sandbox = yield* Effect.flatMap(Sandboxes.Sandboxes, (_) => _.create({ image: "i" }))
          // By and by, so that what is missed fits into a connection.
          const terminal = yield* sandbox.openTerminal({
            command:
              "stty -echo; for n in 1 2 3; do for m in $(seq 10 49); do seq $((n * 10000 + m * 100)) $((n * 10000 + m * 100 + 99)); sleep 0.02; done; read x; echo got $x; done; exit 9"
          })
          const heard = yield* Stream.toPull(terminal.output)
          let seen = ""
          let expected = ""
          for (const n of [1, 2, 3]) {
            for (let line = n * 10_000 + 1000; line < n * 10_000 + 5000; line++) expected += `${line}\r\n`
            while (seen.length < expected.length) {
              const chunks = yield* Effect.mapError(heard, Option.getOrNull)
              seen += Buffer.concat(Chunk.toReadonlyArray(chunks)).toString("latin1")
            }
            yield* terminal.write(`answer ${n}\n`)
            expected += `got answer ${n}\r\n`
          }
          const rest = yield* Stream.runCollect(Stream.repeatEffectChunkOption(heard))
          seen += Buffer.concat(Chunk.toReadonlyArray(rest)).toString("latin1")
          assert.strictEqual(seen, expected)
          assert.strictEqual(yield* terminal.exitCode, 9)
          assert.isAtLeast(way.broken(), 5)
          const recorded = yield* Stream.runFold(
            terminal.output,
            "",
            (all, bytes) => all + Buffer.from(bytes).toString()
          )
          assert.strictEqual(recorded, expected)
        }).pipe(
          Effect.scoped,
          Effect.provide(Sandboxes.layer.pipe(Layer.provide(api), Layer.provide(Ledger.layerMemory)))
        )
      }).pipe(Effect.scoped),
    90_000
  )
})
