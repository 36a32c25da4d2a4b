/**
 * Real pipes for the output of commands. What `node:child_process` calls a pipe is a socket, and a socket cannot be opened again through
 * `/dev/stdout`, which scripts do. So the output goes through named pipes, made in batches and unlinked as soon as both ends are open.
 *
 * @internal
 */

import { randomBytes } from "node:crypto"
import * as Fs from "node:fs"
import * as Net from "node:net"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import type { ToolError } from "./process.js"
import { runToolOk } from "./process.js"
import { closeQuietly } from "./rooted.js"

const { O_NONBLOCK, O_RDONLY, O_WRONLY } = Fs.constants
const BATCH = 32

export interface Pipe {
  readonly reader: number
  /** For the child; to be closed here once it has been spawned. */
  readonly writer: number
  /** The server's own writing end, never blocking. */
  readonly marker: number
}

export const closePipe = (pipe: Pipe): void => {
  closeQuietly(pipe.reader)
  closeQuietly(pipe.writer)
  closeQuietly(pipe.marker)
}

export interface PipePool {
  readonly take: Effect.Effect<Pipe, ToolError>
}

export const makePipePool = (directory: string): Effect.Effect<PipePool, ToolError, Scope.Scope> =>
  Effect.gen(function* () {
    const ready: Array<string> = []
    let made = 0
    const refill = Effect.suspend(() => {
      if (ready.length >= BATCH) return Effect.void
      const paths = Array.from({ length: BATCH }, () => `${directory}/${made++}`)
      return Effect.map(runToolOk("mkfifo", ["-m", "600", ...paths]), () => {
        ready.push(...paths)
      })
    })
    const refilling = yield* Effect.makeSemaphore(1)
    yield* refill
    const scope = yield* Effect.scope
    const open = (path: string): Pipe => {
      // The reader comes first: opening a writer waits for one.
      const reader = Fs.openSync(path, O_RDONLY | O_NONBLOCK)
      try {
        return { reader, writer: Fs.openSync(path, O_WRONLY), marker: Fs.openSync(path, O_WRONLY | O_NONBLOCK) }
      } finally {
        Fs.unlinkSync(path)
      }
    }
    const take: Effect.Effect<Pipe, ToolError> = Effect.suspend(() => {
      const path = ready.pop()
      if (path === undefined) return Effect.zipRight(refilling.withPermits(1)(Effect.uninterruptible(refill)), take)
      const pipe = Effect.sync(() => open(path))
      return ready.length < BATCH / 2
        ? Effect.zipLeft(pipe, Effect.forkIn(Effect.ignore(refilling.withPermitsIfAvailable(1)(refill)), scope))
        : pipe
    })
    return { take }
  })

export interface PipeReader {
  readonly pause: () => void
  readonly resume: () => void
  /** Stops reading and frees the descriptor. */
  readonly close: () => void
}

/** As much of Bun as is used here; this module is compiled without its types, and mostly run without it. */
interface BunLike {
  readonly file: (fd: number) => { readonly stream: () => ReadableStream<Uint8Array> }
}

// The cast names a global that is there under Bun only; without it, indexing `globalThis` has no type.
const bunHere = (globalThis as { readonly Bun?: BunLike }).Bun

/** Bun has no `net.Socket` over a pipe's descriptor, and Node no `Bun.file`. */
const readWithBun =
  (bun: BunLike) =>
  (fd: number, onData: (bytes: Uint8Array) => void, onEnd: () => void): PipeReader => {
    const reader = bun.file(fd).stream().getReader()
    let paused = true
    let reading = false
    let closed = false
    const finish = () => {
      if (closed) return
      closed = true
      closeQuietly(fd)
      onEnd()
    }
    const next = () => {
      if (paused || reading || closed) return
      reading = true
      reader.read().then(({ done, value }) => {
        reading = false
        if (closed) return
        if (done) return finish()
        onData(value)
        next()
      }, finish)
    }
    return {
      pause: () => {
        paused = true
      },
      resume: () => {
        paused = false
        next()
      },
      close: () => {
        if (closed) return
        closed = true
        reader.cancel().then(
          () => closeQuietly(fd),
          () => closeQuietly(fd)
        )
      }
    }
  }

const readWithNode = (fd: number, onData: (bytes: Uint8Array) => void, onEnd: () => void): PipeReader => {
  const socket = new Net.Socket({ fd, readable: true, writable: false })
  socket.on("data", onData)
  socket.on("error", () => {})
  socket.on("close", onEnd)
  socket.pause()
  return {
    pause: () => socket.pause(),
    resume: () => socket.resume(),
    close: () => socket.destroy()
  }
}

/** Starts paused. `onEnd` is called once, unless `close` was called. */
export const readPipe: (fd: number, onData: (bytes: Uint8Array) => void, onEnd: () => void) => PipeReader =
  bunHere === undefined ? readWithNode : readWithBun(bunHere)

/**
 * Tells where, in a pipe that others may keep open and write to, the output of a process ended: after its exit a random mark is written into the
 * same pipe, and everything that the process wrote comes before it.
 */
export class EndMark {
  private readonly mark = randomBytes(24)
  private state: "waiting" | "writing" | "written" | "seen" = "waiting"
  private carry = Buffer.alloc(0)

  constructor(
    private readonly writer: number,
    /** Whether the writing end is of no other use. */
    private readonly last = true
  ) {}

  /** The process has exited. Tried again after each read, while the pipe is full. */
  write(): void {
    if (this.state === "seen" || this.state === "written") return
    this.state = "writing"
    try {
      Fs.writeSync(this.writer, this.mark)
      this.state = "written"
      if (this.last) closeQuietly(this.writer)
    } catch {
      // Full: there is something to read, and this is called again when it has been.
    }
  }

  /** The part of `bytes` that belongs to the process, and whether the mark has been met. */
  filter(bytes: Uint8Array): { readonly bytes: Uint8Array; readonly ended: boolean } {
    if (this.state === "waiting") return { bytes, ended: false }
    if (this.state === "writing") this.write()
    const all =
      this.carry.length === 0
        ? Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)
        : Buffer.concat([this.carry, bytes])
    const found = all.indexOf(this.mark)
    if (found >= 0) {
      this.state = "seen"
      return { bytes: all.subarray(0, found), ended: true }
    }
    // The mark may have been read in two parts: whatever could be its beginning is kept back.
    let keep = Math.min(all.length, this.mark.length - 1)
    while (keep > 0 && !all.subarray(all.length - keep).equals(this.mark.subarray(0, keep))) keep--
    this.carry = Buffer.from(all.subarray(all.length - keep))
    return { bytes: all.subarray(0, all.length - keep), ended: false }
  }

  dispose(): void {
    if (this.last && (this.state === "waiting" || this.state === "writing")) closeQuietly(this.writer)
    this.state = "seen"
  }
}
