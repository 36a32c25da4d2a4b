import * as Http from "node:http"
import type { AddressInfo } from "node:net"
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import WebSocket, { WebSocketServer } from "ws"
import { fromImage, send, start } from "./support.js"

const listening = (handler: Http.RequestListener) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const server = Http.createServer(handler)
      const sockets = new WebSocketServer({ server })
      sockets.on("connection", (socket, request) =>
        socket.on("message", (data, isBinary) => {
          socket.send(isBinary ? data : `${request.url} ${data.toString()}`, { binary: isBinary })
        })
      )
      await new Promise<void>((resume) => server.listen(0, "127.0.0.1", resume))
      return { server, sockets, port: (server.address() as AddressInfo).port }
    }),
    ({ server, sockets }) =>
      Effect.promise(async () => {
        for (const client of sockets.clients) client.terminate()
        server.closeAllConnections()
        await new Promise((resume) => server.close(resume))
      })
  )

const proxied = (port: number) =>
  Effect.gen(function* () {
    const server = yield* start({ mode: "plain" })
    const box = yield* server.box()
    const { json } = yield* server.request("GET", `/sandboxes/${box.id}/endpoints/${port}?use_server_proxy=true`)
    assert.strictEqual(json.endpoint, `${server.url.replace("http://", "")}/v1/sandboxes/${box.id}/proxy/${port}`)
    return { box, server, url: `http://${json.endpoint}` }
  })

describe("the proxy", () => {
  it.scopedLive("passes requests and answers on", () =>
    Effect.gen(function* () {
      const { port } = yield* listening((request, response) => {
        let body = ""
        request.on("data", (chunk) => {
          body += String(chunk)
        })
        request.on("end", () => {
          response.writeHead(request.url?.startsWith("/no") === true ? 404 : 200, {
            "content-type": "application/json",
            "set-cookie": ["a=1", "b=2"]
          })
          response.end(JSON.stringify({ method: request.method, url: request.url, headers: request.headers, body }))
        })
      })
      const { server, url } = yield* proxied(port)
      const answer = yield* send("POST", `${url}/a%20b?c=d&e`, {
        body: "x".repeat(3_000_000),
        headers: { "X-Own": "é", "OPEN-SANDBOX-API-KEY": server.apiKey }
      })
      assert.strictEqual(answer.status, 200)
      assert.deepStrictEqual(answer.headers.getSetCookie(), ["a=1", "b=2"])
      assert.strictEqual(answer.json.method, "POST")
      assert.strictEqual(answer.json.url, "/a%20b?c=d&e")
      assert.strictEqual(answer.json.body.length, 3_000_000)
      assert.strictEqual(answer.json.headers["x-own"], "é")
      assert.notProperty(answer.json.headers, "open-sandbox-api-key")
      assert.strictEqual((yield* send("GET", `${url}/no`)).status, 404)
      assert.strictEqual((yield* send("GET", url)).json.url, "/")
      assert.strictEqual((yield* send("HEAD", `${url}/x`)).status, 200)
    })
  )

  it.scopedLive("streams, and stops with its client", () =>
    Effect.gen(function* () {
      let closed = false
      const { port } = yield* listening((_request, response) => {
        response.write("first")
        response.on("close", () => {
          closed = true
        })
      })
      const { url } = yield* proxied(port)
      yield* Effect.promise(async () => {
        const controller = new AbortController()
        const response = await fetch(url, { signal: controller.signal })
        const first = await response.body?.getReader().read()
        assert.strictEqual(Buffer.from(first?.value ?? []).toString(), "first")
        controller.abort()
        while (!closed) await new Promise((resume) => setTimeout(resume, 5))
      })
    })
  )

  it.scopedLive("passes WebSockets on", () =>
    Effect.gen(function* () {
      const { port } = yield* listening((_request, response) => response.end())
      const { url } = yield* proxied(port)
      const got = yield* Effect.promise(
        () =>
          new Promise<Array<string>>((resume, fail) => {
            const socket = new WebSocket(`${url.replace("http", "ws")}/path?q=1`)
            const seen: Array<string> = []
            socket.on("open", () => {
              socket.send("hello")
              socket.send(Buffer.alloc(300_000, 7))
            })
            socket.on("message", (data: Buffer, isBinary: boolean) => {
              seen.push(isBinary ? String(data.length) : data.toString())
              if (seen.length === 2) socket.close(4000, "done")
            })
            socket.on("close", (code) => resume([...seen, String(code)]))
            socket.on("error", fail)
          })
      )
      assert.deepStrictEqual(got, ["/path?q=1 hello", "300000", "4000"])
    })
  )

  it.scopedLive("says where nothing answers", () =>
    Effect.gen(function* () {
      const { port } = yield* Effect.scoped(listening(() => {}))
      const { box, server, url } = yield* proxied(port)
      const answer = yield* send("GET", url)
      assert.deepStrictEqual([answer.status, answer.json.code], [502, "BAD_GATEWAY"])
      const status = yield* Effect.promise(
        () =>
          new Promise((resume) => {
            const socket = new WebSocket(url.replace("http", "ws"))
            socket.on("error", () => {})
            socket.on("unexpected-response", (_request, response) => resume(response.statusCode))
          })
      )
      assert.strictEqual(status, 502)
      yield* server.request("POST", `/sandboxes/${box.id}/pause`)
      assert.strictEqual((yield* send("GET", url)).status, 503)
      assert.strictEqual((yield* send("GET", url.replace(box.id, "none"))).status, 404)
    })
  )

  it.scopedLive("lets nobody without the header reach a sandbox with secure access", () =>
    Effect.gen(function* () {
      const { port } = yield* listening((request, response) => response.end(JSON.stringify(request.headers)))
      const server = yield* start({ mode: "plain" })
      const made = yield* server.request("POST", "/sandboxes", { body: { ...fromImage, secureAccess: true } })
      const { json } = yield* server.request("GET", `/sandboxes/${made.json.id}/endpoints/${port}`)
      const url = `http://${json.endpoint}`
      const headers: { readonly [name: string]: string } = json.headers
      assert.deepStrictEqual(Object.keys(headers), ["OPENSANDBOX-SECURE-ACCESS"])
      const answer = yield* send("GET", url, { headers })
      assert.strictEqual(answer.status, 200)
      assert.notProperty(answer.json, "opensandbox-secure-access", "the header is the server's own")
      const wrong = { "OPENSANDBOX-SECURE-ACCESS": "wrong" }
      for (const refused of [yield* send("GET", url), yield* send("GET", url, { headers: wrong })]) {
        assert.deepStrictEqual([refused.status, refused.json.code], [401, "UNAUTHORIZED"])
      }
      const upgraded = (headers: { readonly [name: string]: string }) =>
        Effect.promise(
          () =>
            new Promise((resume) => {
              const socket = new WebSocket(url.replace("http", "ws"), { headers })
              socket.on("error", () => {})
              socket.on("open", () => {
                socket.terminate()
                resume("open")
              })
              socket.on("unexpected-response", (_request, response) => resume(response.statusCode))
            })
        )
      assert.deepStrictEqual(
        [yield* upgraded({}), yield* upgraded(wrong), yield* upgraded(headers)],
        [401, 401, "open"]
      )
      const { id } = yield* server.box()
      const open = yield* server.request("GET", `/sandboxes/${id}/endpoints/${port}`)
      assert.deepStrictEqual(open.json, { endpoint: `127.0.0.1:${port}` })
    })
  )
})
