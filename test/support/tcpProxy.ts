/** A proxy on loopback whose connections can fall silent: open, as far as either end can tell, but nothing arrives. */
import { once } from "node:events"
import type { Socket } from "node:net"
import { connect, createServer } from "node:net"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"

export interface TcpProxy {
  readonly port: number
  /** Silences the connections of now on which the client has said this. */
  readonly freeze: (said?: string) => number
}

export const tcpProxy = (target: number): Effect.Effect<TcpProxy, never, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(
      Effect.promise(async () => {
        const pairs = new Set<{ readonly client: Socket; readonly server: Socket; said: string; frozen: boolean }>()
        const listener = createServer((client) => {
          const server = connect(target, "127.0.0.1")
          const pair = { client, server, said: "", frozen: false }
          pairs.add(pair)
          for (const [from, to] of [
            [client, server],
            [server, client]
          ] as const) {
            from.on("data", (bytes) => {
              if (from === client) {
                pair.said += bytes.toString("latin1")
              }
              if (!pair.frozen) {
                to.write(bytes)
              }
            })
            from.on("error", () => undefined)
            from.on("close", () => {
              if (!pair.frozen) {
                pairs.delete(pair)
                to.destroy()
              }
            })
          }
        }).listen(0, "127.0.0.1")
        await once(listener, "listening")
        return { listener, pairs }
      }),
      ({ listener, pairs }) =>
        Effect.sync(() => {
          listener.close()
          for (const { client, server } of pairs) {
            client.destroy()
            server.destroy()
          }
        })
    ),
    ({ listener, pairs }) => {
      const address = listener.address()
      return {
        port: typeof address === "object" && address !== null ? address.port : 0,
        freeze: (said = "") => {
          const chosen = Array.from(pairs).filter((pair) => !pair.frozen && pair.said.includes(said))
          for (const pair of chosen) {
            pair.frozen = true
          }
          return chosen.length
        }
      }
    }
  )
