/**
 * A scripted server that plays a whole OpenSandbox: containers run at once, snapshots are ready at once, `true` succeeds (the readiness
 * probe); what every other command answers is the test's to say.
 *
 * ```ts
 * const server = yield* ScriptedSandboxes.make({ command: () => ScriptedServer.stream([init("c1"), stdout("hi"), complete]) })
 * // server.layer: OpenSandbox; server.commands, server.interrupted, server.deleted: what it was asked
 * ```
 */
import { OpenSandbox } from "@sandglass/core"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import type { RecordedRequest, Reply } from "./ScriptedServer.js"
import * as ScriptedServer from "./ScriptedServer.js"

export const frame = (event: { readonly [key: string]: unknown }) =>
  `${JSON.stringify({ timestamp: 1767225600000, ...event })}\n\n`
export const init = (commandId: string) => frame({ type: "init", text: commandId })
export const stdout = (text: string) => frame({ type: "stdout", text })
export const stderr = (text: string) => frame({ type: "stderr", text })
export const ping = frame({ type: "ping", text: "pong" })
export const complete = frame({ type: "execution_complete", execution_time: 1 })
export const exited = (code: number | string) =>
  frame({ type: "error", error: { ename: "CommandExecError", evalue: String(code), traceback: [] } })

export interface Command {
  readonly command: string
  readonly body: { readonly [key: string]: unknown }
  readonly request: RecordedRequest
}

type MaybeEffect = Reply | Effect.Effect<Reply>

export interface Script {
  readonly command?: (command: Command, index: number) => MaybeEffect
  readonly status?: (commandId: string) => MaybeEffect
  readonly interrupt?: (commandId: string) => MaybeEffect
  /** Anything not answered with undefined takes the place of the usual answer. */
  readonly override?: (request: RecordedRequest) => MaybeEffect | undefined
}

const isRecord = (u: unknown): u is { readonly [key: string]: unknown } => typeof u === "object" && u !== null

export const make = (script: Script = {}) =>
  Effect.gen(function* () {
    const commands: Array<Command> = []
    const interrupted: Array<string> = []
    const deleted: Array<string> = []
    const created: Array<{ readonly [key: string]: unknown }> = []
    const snapshots: Array<string> = []
    const deletedSnapshots: Array<string> = []
    let port = 0
    const info = (id: string) => ({
      id,
      status: { state: "Running" },
      createdAt: "2026-01-01T00:00:00Z",
      entrypoint: ["tail"],
      metadata: created[Number(id.slice(3)) - 1]?.["metadata"] ?? {}
    })
    const server = yield* ScriptedServer.make((request) => {
      const own = script.override?.(request)
      if (own !== undefined) return own
      const body = request.method === "POST" && request.body.length > 0 && isRecord(request.json) ? request.json : {}
      const path = request.path
      const route = `${request.method} ${path.replace(/^\/v1\/(sandboxes|snapshots)\/[^/]+/, "/v1/$1/*")}`
      const id = decodeURIComponent(path.split("/")[3] ?? "")
      switch (route) {
        case "POST /v1/sandboxes":
          created.push(body)
          return ScriptedServer.json(202, info(`sbx${created.length}`))
        case "GET /v1/sandboxes":
          return ScriptedServer.json(200, {
            items: created.map((_, index) => info(`sbx${index + 1}`)),
            pagination: { page: 1, pageSize: 100, totalItems: created.length, totalPages: 1, hasNextPage: false }
          })
        case "GET /v1/sandboxes/*":
          return deleted.includes(id)
            ? ScriptedServer.json(404, { code: "DOCKER::SANDBOX_NOT_FOUND", message: "gone" })
            : ScriptedServer.json(200, info(id))
        case "DELETE /v1/sandboxes/*":
          deleted.push(id)
          return ScriptedServer.empty(204)
        case "GET /v1/sandboxes/*/endpoints/44772":
          return ScriptedServer.json(200, {
            endpoint: `127.0.0.1:${port}/execd/${id}`,
            headers: { "X-EXECD-ACCESS-TOKEN": "execd-secret" }
          })
        case "POST /v1/sandboxes/*/snapshots":
          snapshots.push(`snap${snapshots.length + 1}`)
          return ScriptedServer.json(202, {
            id: `snap${snapshots.length}`,
            sandboxId: id,
            status: { state: "Ready" },
            createdAt: "2026-01-01T00:00:00Z"
          })
        case "GET /v1/snapshots/*":
          return deletedSnapshots.includes(id)
            ? ScriptedServer.json(404, { code: "DOCKER::SNAPSHOT_NOT_FOUND", message: "gone" })
            : ScriptedServer.json(200, {
                id,
                sandboxId: "sbx1",
                status: { state: "Ready" },
                createdAt: "2026-01-01T00:00:00Z"
              })
        case "DELETE /v1/snapshots/*":
          deletedSnapshots.push(id)
          return ScriptedServer.empty(204)
      }
      const execd = path.replace(/^\/execd\/[^/]+/, "")
      if (request.method === "POST" && execd === "/command") {
        const command = String(body["command"])
        if (command === "true") return ScriptedServer.stream([init("ready"), complete])
        commands.push({ command, body, request })
        return (
          script.command?.({ command, body, request }, commands.length - 1) ??
          ScriptedServer.stream([init(`c${commands.length}`), complete])
        )
      }
      if (request.method === "DELETE" && execd === "/command") {
        const commandId = request.query.get("id") ?? ""
        interrupted.push(commandId)
        return script.interrupt?.(commandId) ?? ScriptedServer.empty(200)
      }
      if (request.method === "GET" && execd.startsWith("/command/status/")) {
        return (
          script.status?.(execd.slice("/command/status/".length)) ??
          ScriptedServer.json(404, { code: "NOT_FOUND", message: "unknown command" })
        )
      }
      return ScriptedServer.json(404, { code: "NOT_FOUND", message: `${request.method} ${path}` })
    })
    port = server.port
    return {
      server,
      commands,
      interrupted,
      deleted,
      created,
      snapshots,
      deletedSnapshots,
      layer: OpenSandbox.layer({ url: server.url, apiKey: Redacted.make("lifecycle-secret") })
    } as const
  })
