import type { OutputChunk } from "../Exec.js"

/** How much of the end of each stream an error carries. */
export const tailLength = 4096

const isLowSurrogate = (code: number) => code >= 0xdc00 && code <= 0xdfff

/** The last `length` characters, never starting inside a surrogate pair. */
const lastOf = (text: string, length: number): string => {
  if (text.length <= length) return text
  const at = text.length - length
  return text.slice(isLowSurrogate(text.charCodeAt(at)) ? at + 1 : at)
}

/** The first `length` characters, never ending inside a surrogate pair. */
const firstOf = (text: string, length: number): string => {
  if (text.length <= length) return text
  return text.slice(0, isLowSurrogate(text.charCodeAt(length)) ? length - 1 : length)
}

/** Keeps the end of a text that arrives in pieces: linear time, at most about twice `length` held. */
export class Tail {
  private pieces: Array<string> = []
  private held = 0
  total = 0
  constructor(private readonly length: number) {}

  add(text: string): void {
    this.total += text.length
    if (text.length >= this.length) {
      this.pieces = [lastOf(text, this.length)]
      this.held = this.length
      return
    }
    this.pieces.push(text)
    this.held += text.length
    if (this.held >= 2 * this.length) {
      const joined = lastOf(this.pieces.join(""), this.length)
      this.pieces = [joined]
      this.held = joined.length
    }
  }

  get text(): string {
    return lastOf(this.pieces.join(""), this.length)
  }
}

/** Keeps head and tail of a text within `limit` characters, and how much there was in all. */
class HeadAndTail {
  private head: Array<string> = []
  private headLength = 0
  private readonly headLimit: number
  private readonly tail: Tail
  total = 0

  constructor(private readonly limit: number) {
    this.headLimit = Math.ceil(limit / 2)
    this.tail = new Tail(limit - this.headLimit)
  }

  add(text: string): void {
    this.total += text.length
    let rest = text
    if (this.tail.total === 0 && this.headLength < this.headLimit) {
      const taken = firstOf(text, this.headLimit - this.headLength)
      this.head.push(taken)
      // A pair that would straddle the limit goes to the tail whole, and closes the head.
      this.headLength += taken.length
      rest = text.slice(taken.length)
    }
    if (rest !== "") this.tail.add(rest)
  }

  get truncated(): boolean {
    return this.total > this.limit
  }

  get text(): string {
    const tail = this.tail.text
    if (!this.truncated) return this.head.join("") + tail
    const head = this.head.join("")
    return `${head}\n[${this.total - head.length - tail.length} characters left out]\n${tail}`
  }
}

/** Collects an exec's output within a stated cap per stream. */
export class OutputCollector {
  readonly stdout: HeadAndTail
  readonly stderr: HeadAndTail

  constructor(limit: number) {
    this.stdout = new HeadAndTail(limit)
    this.stderr = new HeadAndTail(limit)
  }

  add(chunks: Iterable<OutputChunk>): void {
    for (const chunk of chunks) this[chunk.stream].add(chunk.text)
  }
}

/** Follows an exec for its error messages and totals. */
export class OutputTail {
  readonly stdout = new Tail(tailLength)
  readonly stderr = new Tail(tailLength)

  add(chunks: Iterable<OutputChunk>): void {
    for (const chunk of chunks) this[chunk.stream].add(chunk.text)
  }
}
