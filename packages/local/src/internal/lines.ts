/** @internal */

/** A line longer than this is cut into several events, so that a program that never ends its line cannot fill the memory. */
const MAX_LINE = 16 * 1024 * 1024
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are exactly what JSON must escape, the line feed apart.
const NEEDS_CARE = /["\\\u0000-\u0009\u000b-\u001f\u007f]|\n\n/

/**
 * Turns the bytes of one stream into execd's events, one per line: the terminator removed, `\r` and `\r\n` ending a line too, an empty line as
 * `"\n"`, malformed UTF-8 as U+FFFD. A whole read becomes one string, since a command may print millions of lines.
 */
export class LineEvents {
  // A byte order mark is part of the text here.
  private readonly decoder = new TextDecoder("utf-8", { ignoreBOM: true })
  private held: Array<string> = []
  private heldLength = 0
  /** The text so far ended in `\r`; `"empty"` where nothing stood before it. */
  private afterReturn: false | true | "empty" = false

  constructor(
    readonly type: "stdout" | "stderr",
    private readonly blankLines: "kept" | "dropped" = "kept"
  ) {}

  write(bytes: Uint8Array, now: number): string {
    return this.lines(this.decoder.decode(bytes, { stream: true }), now)
  }

  /** The last line, where nothing ended it. */
  end(now: number): string {
    const events = this.lines(this.decoder.decode(), now)
    const rest = this.take("")
    return rest === "" ? events : events + this.event(rest, now)
  }

  private event(text: string, now: number): string {
    if (text === "\n" && this.blankLines === "dropped") return ""
    return `{"type":"${this.type}","text":${JSON.stringify(text)},"timestamp":${now}}\n\n`
  }

  private hold(text: string): void {
    if (text === "") return
    this.held.push(text)
    this.heldLength += text.length
  }

  private take(text: string): string {
    if (this.heldLength === 0) return text
    const line = this.held.join("") + text
    this.held = []
    this.heldLength = 0
    return line
  }

  private lines(input: string, now: number): string {
    let text = input
    let out = ""
    if (this.afterReturn !== false && text !== "") {
      if (text.startsWith("\n")) {
        if (this.afterReturn === "empty") out = this.event("\n", now)
        text = text.slice(1)
      }
      this.afterReturn = false
    }
    if (text === "") return out
    const last = text.lastIndexOf("\n")
    const careful = NEEDS_CARE.test(text)
    if (!careful && last >= 0 && (this.heldLength > 0 || text.charCodeAt(0) !== 10)) {
      const first = text.indexOf("\n")
      out += this.event(this.take(text.slice(0, first)), now)
      if (last > first) {
        const tail = `","timestamp":${now}}\n\n`
        const head = `{"type":"${this.type}","text":"`
        out += head + text.slice(first + 1, last).replaceAll("\n", tail + head) + tail
      }
      this.hold(text.slice(last + 1))
    } else if (!careful && last < 0) {
      this.hold(text)
    } else {
      out += this.carefully(text, now)
    }
    if (this.heldLength > MAX_LINE) out += this.event(this.take(""), now)
    return out
  }

  private carefully(text: string, now: number): string {
    const parts: Array<string> = []
    let start = 0
    for (let i = 0; i < text.length; i++) {
      const code = text.charCodeAt(i)
      if (code !== 10 && code !== 13) continue
      const line = this.take(text.slice(start, i))
      // A lone `\r` on an empty line is a progress bar going back to its start, not an empty line.
      if (line !== "" || code === 10) parts.push(this.event(line === "" ? "\n" : line, now))
      else if (text.charCodeAt(i + 1) === 10) parts.push(this.event("\n", now))
      if (code === 13) {
        if (i + 1 === text.length) this.afterReturn = line === "" ? "empty" : true
        else if (text.charCodeAt(i + 1) === 10) i++
      }
      start = i + 1
    }
    this.hold(text.slice(start))
    return parts.join("")
  }
}
