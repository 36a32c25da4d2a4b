import * as Effect from "effect/Effect"
import WebSocket from "ws"
import type { Box } from "./support.js"

type Json = { readonly type: string; readonly [key: string]: unknown }

const isJson = (value: unknown): value is Json => typeof value === "object" && value !== null && "type" in value

/** A connection to a terminal, and everything that came over it. */
export class TerminalClient {
  readonly frames: Array<Json> = []
  readonly stdout: Array<Buffer> = []
  readonly stderr: Array<Buffer> = []
  readonly replays: Array<{ readonly offset: number; readonly bytes: Buffer }> = []
  closed: { readonly code: number; readonly reason: string } | undefined
  private waiting: Array<() => void> = []

  constructor(readonly socket: WebSocket) {
    socket.on("message", (data: Buffer, isBinary: boolean) => {
      if (!isBinary) {
        const value: unknown = JSON.parse(data.toString())
        if (isJson(value)) this.frames.push(value)
      } else if (data[0] === 1) this.stdout.push(Buffer.from(data.subarray(1)))
      else if (data[0] === 2) this.stderr.push(Buffer.from(data.subarray(1)))
      else if (data[0] === 3)
        this.replays.push({ offset: Number(data.readBigUInt64BE(1)), bytes: Buffer.from(data.subarray(9)) })
      this.wake()
    })
    socket.on("error", () => {})
    socket.on("close", (code, reason) => {
      this.closed = { code, reason: reason.toString() }
      this.wake()
    })
  }

  /** What was printed on this connection, the replay apart. */
  get out(): string {
    return Buffer.concat(this.stdout).toString("latin1")
  }

  get exitCode(): unknown {
    return this.frames.find((frame) => frame.type === "exit")?.["exit_code"]
  }

  json(value: object): void {
    this.socket.send(JSON.stringify(value))
  }

  write(data: string | Uint8Array): void {
    this.socket.send(Buffer.concat([Buffer.of(0), Buffer.from(data)]))
  }

  /** Waits until something holds, which is looked at whenever something comes. */
  until(what: () => boolean): Effect.Effect<void> {
    return Effect.promise(async () => {
      while (!what()) {
        if (this.closed !== undefined)
          throw new Error(
            `closed (${this.closed.code}) after ${JSON.stringify(this.out)} ${JSON.stringify(this.frames)}`
          )
        await new Promise<void>((resume) => this.waiting.push(resume))
      }
    })
  }

  prints(text: string): Effect.Effect<void> {
    return this.until(() => this.out.includes(text))
  }

  readonly ended: Effect.Effect<void> = Effect.promise(async () => {
    while (this.closed === undefined) await new Promise<void>((resume) => this.waiting.push(resume))
  })

  private wake(): void {
    const waiting = this.waiting
    this.waiting = []
    for (const resume of waiting) resume()
  }
}

export interface Refused {
  readonly status: number
  readonly text: string
}

const open = (box: Box, id: string, query: string, headers: { readonly [name: string]: string } = box.headers) =>
  Effect.promise(
    () =>
      new Promise<TerminalClient | Refused>((resume, fail) => {
        const socket = new WebSocket(`${box.url.replace("http", "ws")}/pty/${id}/ws${query}`, { headers })
        const client = new TerminalClient(socket)
        socket.on("open", () => resume(client))
        socket.on("error", fail)
        socket.on("unexpected-response", (_request, response) => {
          let text = ""
          response.on("data", (chunk) => {
            text += String(chunk)
          })
          response.on("end", () => resume({ status: response.statusCode ?? 0, text }))
        })
      })
  )

/** Must be let in. */
export const attach = (box: Box, id: string, query = "") =>
  Effect.acquireRelease(
    Effect.map(open(box, id, query), (result) => {
      if (result instanceof TerminalClient) return result
      throw new Error(`${result.status}: ${result.text}`)
    }),
    (client) => Effect.sync(() => client.socket.terminate())
  )

/** Must not be let in. */
export const refused = (box: Box, id: string, query = "", headers = box.headers) =>
  Effect.map(open(box, id, query, headers), (result) => {
    if (!(result instanceof TerminalClient)) return result
    result.socket.terminate()
    throw new Error("it was let in")
  })

export const createTerminal = (box: Box, request: object = {}): Effect.Effect<string> =>
  Effect.map(box.request("POST", "/pty", { body: request }), (answer) => {
    if (answer.status !== 201) throw new Error(`${answer.status}: ${answer.text}`)
    return String(answer.json.session_id)
  })
