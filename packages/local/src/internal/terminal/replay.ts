/** @internal */

export const REPLAY_BYTES = 1024 * 1024

/** The last bytes of a terminal, and how many there have been in all. */
export class Replay {
  total = 0
  /** As large as what is in it, up to the size: most terminals print little, and many are remembered. */
  private bytes = Buffer.alloc(0)

  constructor(private readonly size = REPLAY_BYTES) {}

  write(bytes: Uint8Array): void {
    this.grow(this.total + bytes.length)
    const kept = bytes.subarray(Math.max(0, bytes.length - this.size))
    let at = (this.total + bytes.length - kept.length) % this.size
    this.total += bytes.length
    for (let done = 0; done < kept.length; at = 0) {
      const part = kept.subarray(done, done + this.size - at)
      this.bytes.set(part, at)
      done += part.length
    }
  }

  private grow(total: number): void {
    if (total <= this.bytes.length || this.bytes.length === this.size) return
    const grown = Buffer.alloc(Math.min(this.size, Math.max(total, this.bytes.length * 2, 1024)))
    grown.set(this.bytes)
    this.bytes = grown
  }

  /** From `offset` on, or from the oldest byte that is still there; `offset` of the result is that of its first byte. */
  from(offset: number): { readonly offset: number; readonly bytes: Buffer } {
    const start = Math.min(Math.max(offset, this.total - this.size, 0), this.total)
    const length = this.total - start
    const result = Buffer.alloc(length)
    for (let done = 0; done < length; ) {
      const at = (start + done) % this.size
      const part = this.bytes.subarray(at, Math.min(this.size, at + length - done))
      result.set(part, done)
      done += part.length
    }
    return { offset: start, bytes: result }
  }
}
