/** @internal */
import type * as WS from "ws"

/** As many bytes may wait for a slow client before the process has to wait, */
const HIGH_WATER = 1024 * 1024
/** and as many when it may go on. */
const LOW_WATER = 256 * 1024
/** A client that takes nothing for so long is let go. */
const STALLED_MILLIS = 10_000
const PING_MILLIS = 30_000
/** And so is one that has not been heard of for so long. */
const SILENT_MILLIS = 60_000

export const TAKEN_OVER = 4001

export interface ConnectionHandlers {
  readonly input: (bytes: Uint8Array) => void
  readonly resize: (cols: number, rows: number) => void
  readonly signal: (name: string) => void
  /** Whether the client takes what is sent to it. */
  readonly flow: (flowing: boolean) => void
  readonly close: () => void
}

interface ClientFrame {
  readonly [key: string]: unknown
}

const parse = (text: string): ClientFrame | undefined => {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === "object" && value !== null ? { ...value } : undefined
  } catch {
    return undefined
  }
}

const isSize = (value: unknown): value is number =>
  typeof value === "number" && Number.isInteger(value) && value > 0 && value < 65536

/** The one who holds a terminal. */
export class Connection {
  private pending = 0
  private blockedAt: number | undefined
  private seenAt: number
  private pingedAt: number
  private closed = false

  constructor(
    private readonly socket: WS.WebSocket,
    private readonly now: () => number,
    private readonly on: ConnectionHandlers
  ) {
    this.seenAt = now()
    this.pingedAt = this.seenAt
    socket.on("message", (data: Buffer, isBinary: boolean) => {
      this.seenAt = now()
      if (this.closed) return
      if (isBinary) this.binary(data)
      else this.text(data.toString())
    })
    socket.on("pong", () => {
      this.seenAt = now()
    })
    socket.on("error", () => {})
    socket.on("close", () => this.end())
  }

  json(value: { readonly type: string; readonly [key: string]: unknown }): void {
    this.send(JSON.stringify(value))
  }

  error(code: string, message: string): void {
    this.json({ type: "error", code, error: message })
  }

  output(channel: 1 | 2, bytes: Uint8Array): void {
    const frame = Buffer.allocUnsafe(bytes.length + 1)
    frame[0] = channel
    frame.set(bytes, 1)
    this.send(frame)
  }

  replay(offset: number, bytes: Uint8Array): void {
    const frame = Buffer.allocUnsafe(bytes.length + 9)
    frame[0] = 3
    frame.writeBigUInt64BE(BigInt(offset), 1)
    frame.set(bytes, 9)
    this.send(frame)
  }

  /** Whether more of what the client sends is wanted. */
  listen(wanted: boolean): void {
    if (this.closed) return
    if (wanted) this.socket.resume()
    else this.socket.pause()
  }

  finish(code: number, reason: string): void {
    if (this.closed) return
    this.end()
    // The client's word on it is waited for, by a socket that must be read for that.
    this.socket.resume()
    this.socket.close(code, reason)
  }

  terminate(): void {
    this.socket.terminate()
    this.end()
  }

  /** To be run every second or so. */
  tick(): void {
    const now = this.now()
    if (this.closed) return
    const stalled = this.blockedAt !== undefined && now - this.blockedAt > STALLED_MILLIS
    if (stalled || now - this.seenAt > SILENT_MILLIS) {
      this.terminate()
    } else if (now - this.pingedAt >= PING_MILLIS) {
      this.pingedAt = now
      this.socket.ping()
    }
  }

  private end(): void {
    if (this.closed) return
    this.closed = true
    this.on.close()
  }

  private send(data: string | Buffer): void {
    if (this.closed) return
    const { length } = data
    this.pending += length
    this.socket.send(data, () => {
      this.pending -= length
      if (this.blockedAt === undefined) return
      this.blockedAt = this.now()
      if (this.pending > LOW_WATER) return
      this.blockedAt = undefined
      if (!this.closed) this.on.flow(true)
    })
    if (this.pending <= HIGH_WATER || this.blockedAt !== undefined) return
    this.blockedAt = this.now()
    this.on.flow(false)
  }

  private binary(data: Buffer): void {
    // Other channels have no meaning in this direction.
    if (data[0] === 0 && data.length > 1) this.on.input(data.subarray(1))
  }

  private text(text: string): void {
    const frame = parse(text)
    if (frame === undefined) return
    switch (frame["type"]) {
      case "stdin":
        // For people with a general WebSocket client.
        if (typeof frame["data"] === "string" && frame["data"] !== "") this.on.input(Buffer.from(frame["data"]))
        return
      case "resize":
        if (isSize(frame["cols"]) && isSize(frame["rows"])) this.on.resize(frame["cols"], frame["rows"])
        return
      case "signal":
        if (typeof frame["signal"] === "string") this.on.signal(frame["signal"])
        return
      case "ping":
        this.json({ type: "pong" })
        return
      default:
        this.error("INVALID_FRAME", `unknown frame type ${JSON.stringify(frame["type"])}`)
    }
  }
}
