/** @internal */
import type { Pipe, PipeReader } from "./pipes.js"
import { EndMark, readPipe } from "./pipes.js"

/**
 * One output of a process, until everything is seen that it wrote before its end. From then on it is read and dropped, because what the process left
 * behind may still write.
 */
export class ProcessPipe {
  ended = false
  private readonly reader: PipeReader
  private readonly mark: EndMark

  /** Starts paused. */
  constructor(
    pipe: Pipe,
    private readonly on: {
      readonly data: (bytes: Uint8Array) => void
      readonly end: () => void
      /** Nobody has it open any more. */
      readonly closed?: () => void
    }
  ) {
    this.mark = new EndMark(pipe.marker)
    this.reader = readPipe(
      pipe.reader,
      (bytes) => this.data(bytes),
      () => {
        this.end()
        on.closed?.()
      }
    )
  }

  pause(): void {
    this.reader.pause()
  }

  resume(): void {
    this.reader.resume()
  }

  /** The process has ended. */
  exited(): void {
    this.mark.write()
  }

  close(): void {
    this.mark.dispose()
    this.reader.close()
    this.ended = true
  }

  private data(bytes: Uint8Array): void {
    if (this.ended) return
    const part = this.mark.filter(bytes)
    if (part.bytes.length > 0) this.on.data(part.bytes)
    if (part.ended) this.end()
  }

  private end(): void {
    if (this.ended) return
    this.ended = true
    this.on.end()
  }
}
