/**
 * Text and bytes in pieces, cut anywhere, as lines.
 */

/** A line that is longer is none. */
const longestLine = 256 * 1024 * 1024

const newline = 10

const concat = (parts: ReadonlyArray<Uint8Array>): Uint8Array => {
  const [only] = parts
  if (only !== undefined && parts.length === 1) {
    return only
  }
  const whole = new Uint8Array(parts.reduce((length, part) => length + part.length, 0))
  let at = 0
  for (const part of parts) {
    whole.set(part, at)
    at += part.length
  }
  return whole
}

/** The lines that are complete; and what is wrong with the one that would follow them. */
export interface Lines {
  readonly lines: ReadonlyArray<string>
  readonly fault: string | undefined
}

const notUtf8 = "is not UTF-8"

/** Has the state of one text. */
export const make = () => {
  const decoder = new TextDecoder("utf-8", { fatal: true })
  /** What has come of the line that is not complete: bytes behind text. */
  let text: Array<string> = []
  let bytes: Array<Uint8Array> = []
  let length = 0

  const result = (lines: ReadonlyArray<string>, fault?: string): Lines => ({
    lines: lines.map((line) => (line.endsWith("\r") ? line.slice(0, -1) : line)),
    fault: fault ?? (length > longestLine ? `is longer than ${longestLine} characters` : undefined)
  })

  const decode = (part: Uint8Array): string | undefined => {
    try {
      return decoder.decode(part)
    } catch {
      return undefined
    }
  }

  /** Line by line, because some are good. `end` is the place behind the last line's end. */
  const decodeEach = (block: Uint8Array): Lines => {
    const lines: Array<string> = []
    for (let from = 0, end = block.indexOf(newline); end >= 0; from = end + 1, end = block.indexOf(newline, from)) {
      const line = decode(block.subarray(from, end))
      if (line === undefined) {
        return result(lines, notUtf8)
      }
      lines.push(line)
    }
    return result(lines)
  }

  const takeText = (piece: string): Lines => {
    const lines = piece.split("\n")
    const rest = lines.pop() ?? ""
    const [first] = lines
    if (first === undefined) {
      text.push(rest)
      length += rest.length
    } else {
      lines[0] = text.join("") + first
      text = [rest]
      length = rest.length
    }
    return result(lines)
  }

  const pushText = (piece: string): Lines => {
    if (bytes.length === 0) {
      return takeText(piece)
    }
    const before = decode(concat(bytes))
    bytes = []
    return before === undefined ? result([], notUtf8) : takeText(before + piece)
  }

  const pushBytes = (piece: Uint8Array): Lines => {
    const end = piece.lastIndexOf(newline) + 1
    if (end === 0) {
      // Whoever gave it may use the memory again.
      bytes.push(piece.slice())
      length += piece.length
      return result([])
    }
    const block = concat([...bytes, piece.subarray(0, end)])
    bytes = end === piece.length ? [] : [piece.slice(end)]
    const decoded = decode(block)
    if (decoded === undefined) {
      return decodeEach(block)
    }
    const taken = takeText(decoded)
    length = piece.length - end
    return result(taken.lines)
  }

  return {
    push: (piece: string | Uint8Array): Lines => (typeof piece === "string" ? pushText(piece) : pushBytes(piece)),
    /** What stands behind the end of the last line is a line, too. */
    end: (): Lines => {
      const last = pushText("\n")
      return last.lines.length === 1 && last.lines[0] === "" ? result([]) : last
    }
  }
}
