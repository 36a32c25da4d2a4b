/** @internal */
import * as Chunk from "effect/Chunk"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { Pipe } from "./pipes.js"
import { ProcessPipe } from "./processPipe.js"

/** As many bytes of events may wait for a slow client before the pipes are left alone, and the command has to wait. */
const HIGH_WATER = 512 * 1024

/** Makes events of bytes. */
export interface Decoder {
  readonly write: (bytes: Uint8Array, now: number) => string
  /** What is left when no more comes. */
  readonly end: (now: number) => string
}

/**
 * Events on their way to a client. They come no faster than it takes them, if what makes them heeds `flow`; once there is no client any more they are
 * dropped.
 */
export class EventQueue {
  private queue: Array<Uint8Array> = []
  private queued = 0
  private finished = false
  private discarding = false
  private waiting: (() => void) | undefined

  /** Whether more is wanted now. */
  constructor(private readonly flow: (wanted: boolean) => void) {}

  /** Whether anybody listens still. */
  get wanted(): boolean {
    return !this.discarding
  }

  push(text: string): void {
    if (text === "" || this.discarding || this.finished) return
    const bytes = Buffer.from(text)
    this.queue.push(bytes)
    this.queued += bytes.length
    if (this.queued > HIGH_WATER) this.flow(false)
    this.waiting?.()
  }

  /** The last, perhaps empty. */
  finish(text: string): void {
    this.push(text)
    this.finished = true
    this.flow(true)
    this.waiting?.()
  }

  /** Nobody listens any more. */
  discard(): void {
    this.discarding = true
    this.queue = []
    this.queued = 0
    this.flow(true)
  }

  /** Everything that is ready now, waiting for something when nothing is. */
  readonly take: Effect.Effect<Chunk.Chunk<Uint8Array>, Option.Option<never>> = Effect.async((resume) => {
    const give = () => {
      this.waiting = undefined
      if (this.queue.length > 0) {
        const ready = this.queue
        this.queue = []
        this.queued = 0
        resume(Effect.succeed(Chunk.unsafeFromArray(ready)))
        this.flow(true)
      } else {
        resume(Effect.fail(Option.none()))
      }
    }
    if (this.queue.length > 0 || this.finished) return give()
    this.waiting = give
    return Effect.sync(() => {
      this.waiting = undefined
    })
  })
}

/** What a foreground command prints, as execd events. Where nobody takes it any more, it is read and dropped, so that the command goes on. */
export class CommandOutput {
  readonly queue: EventQueue
  private exited = false
  private settled = false
  private terminal: (() => string) | undefined
  private readonly sources: ReadonlyArray<ProcessPipe>

  constructor(
    pipes: ReadonlyArray<{ readonly pipe: Pipe; readonly decoder: Decoder }>,
    private readonly now: () => number,
    private readonly onEnd: () => void
  ) {
    this.queue = new EventQueue((wanted) => {
      for (const source of this.sources) {
        if (wanted) source.resume()
        else if (!this.settled) source.pause()
      }
    })
    this.sources = pipes.map(({ decoder, pipe }) => this.source(pipe, decoder))
  }

  start(): void {
    for (const source of this.sources) source.resume()
  }

  /** The command has exited: what is still in the pipes comes first, then `terminal`. */
  exit(terminal: () => string): void {
    this.terminal = terminal
    this.exited = true
    for (const source of this.sources) source.exited()
    this.settle()
  }

  /** The sandbox is gone. */
  close(): void {
    for (const source of this.sources) source.close()
    this.exited = true
    this.settle()
  }

  private source(pipe: Pipe, decoder: Decoder): ProcessPipe {
    return new ProcessPipe(pipe, {
      data: (bytes) => {
        if (this.queue.wanted) this.queue.push(decoder.write(bytes, this.now()))
      },
      end: () => {
        if (this.queue.wanted) this.queue.push(decoder.end(this.now()))
        this.settle()
      }
    })
  }

  private settle(): void {
    if (this.settled || !this.exited || this.sources.some((source) => !source.ended)) return
    this.settled = true
    this.queue.finish(this.terminal?.() ?? "")
    this.onEnd()
  }
}

/** Events with the text as it came, where a character that is cut in two is kept together. */
export const rawDecoder = (type: "stdout" | "stderr"): Decoder => {
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true })
  const event = (text: string, timestamp: number) =>
    text === "" ? "" : `${JSON.stringify({ type, text, timestamp })}\n\n`
  return {
    write: (bytes, now) => event(decoder.decode(bytes, { stream: true }), now),
    end: (now) => event(decoder.decode(), now)
  }
}
