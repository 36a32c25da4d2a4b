/**
 * One Postgres server for a whole run of the tests, started when the first test asks for it. Test files run in processes
 * of their own and ask over a socket, because vitest prepares a run in another process than that.
 */
import { randomBytes } from "node:crypto"
import { once } from "node:events"
import { createServer } from "node:net"
import type { TestProject } from "vitest/node"
import type { Server } from "./postgresServer.js"
import { startServer } from "./postgresServer.js"

declare module "vitest" {
  interface ProvidedContext {
    /** Whoever says the word at this port of loopback is told the URL of the server, or why there is none. */
    readonly postgres: { readonly port: number; readonly word: string }
  }
}

export default async ({ provide }: TestProject) => {
  const word = randomBytes(16).toString("hex")
  let server: Promise<Server> | undefined
  const answer = async (): Promise<object> => {
    try {
      server ??= startServer()
      return { url: (await server).url("postgres") }
    } catch (error) {
      return { error: String(error) }
    }
  }
  const listener = createServer((client) => {
    client.on("error", () => client.destroy())
    client.once("data", (bytes) => {
      if (String(bytes) === word) {
        void answer().then((reply) => client.end(JSON.stringify(reply)))
      } else {
        client.destroy()
      }
    })
  }).listen(0, "127.0.0.1")
  await once(listener, "listening")
  const address = listener.address()
  provide("postgres", { port: typeof address === "object" && address !== null ? address.port : 0, word })
  return async () => {
    listener.close()
    const started = await server?.catch(() => undefined)
    await started?.close()
  }
}
