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
 * What a foreground command prints, as execd events. Read only as fast as the client takes it; once there is no client any more, read and dropped,
 * so that the command goes on.
 */
export class CommandOutput {
  private queue: Array<Uint8Array> = []
  private queued = 0
  private finished = false
  private discarding = false
  private exited = false
  private terminal: (() => string) | undefined
  private waiting: (() => void) | undefined
  private readonly sources: ReadonlyArray<ProcessPipe>

  constructor(
    pipes: ReadonlyArray<{ readonly pipe: Pipe; readonly decoder: Decoder }>,
    private readonly now: () => number,
    private readonly onEnd: () => void
  ) {
    this.sources = pipes.map(({ decoder, pipe }) => this.source(pipe, decoder))
  }

  start(): void {
    for (const source of this.sources) source.resume()
  }

  /** Puts an event between the others. */
  event(text: string): void {
    if (!this.finished) this.push(text)
  }

  /** The command has exited: what is still in the pipes comes first, then `terminal`. */
  exit(terminal: () => string): void {
    this.terminal = terminal
    this.exited = true
    for (const source of this.sources) source.exited()
    this.settle()
  }

  /** Nobody listens any more. */
  discard(): void {
    this.discarding = true
    this.queue = []
    this.queued = 0
    this.resume()
  }

  /** The sandbox is gone. */
  close(): void {
    for (const source of this.sources) source.close()
    this.exited = true
    this.settle()
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
        this.resume()
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

  private source(pipe: Pipe, decoder: Decoder): ProcessPipe {
    return new ProcessPipe(pipe, {
      data: (bytes) => {
        if (!this.discarding) this.push(decoder.write(bytes, this.now()))
      },
      end: () => {
        if (!this.discarding) this.push(decoder.end(this.now()))
        this.settle()
      }
    })
  }

  private settle(): void {
    if (this.finished || !this.exited || this.sources.some((source) => !source.ended)) return
    if (this.terminal !== undefined && !this.discarding) this.push(this.terminal())
    this.finished = true
    this.resume()
    this.waiting?.()
    this.onEnd()
  }

  private push(text: string): void {
    if (text === "" || this.discarding) return
    const bytes = Buffer.from(text)
    this.queue.push(bytes)
    this.queued += bytes.length
    if (this.queued > HIGH_WATER && !this.finished) {
      for (const source of this.sources) source.pause()
    }
    this.waiting?.()
  }

  private resume(): void {
    for (const source of this.sources) source.resume()
  }
}
