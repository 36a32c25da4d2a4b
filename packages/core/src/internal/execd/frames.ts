/** @internal */
import * as Predicate from "effect/Predicate"
import type { ExecdEvent } from "../../Execd.js"
import { concat, decodeUtf8, snippet } from "../http/body.js"
import type { ErrorDocument } from "../http/error.js"
import { errorDocument } from "../http/error.js"

/**
 * Why a stream cannot be read on: the server reports an error in it, or it is no event stream.
 *
 * @internal
 */
export type FrameFailure =
  | { readonly _tag: "Reported"; readonly document: ErrorDocument }
  | { readonly _tag: "Garbage"; readonly description: string }

/** @internal */
export interface FrameDecoder<Other = never> {
  /** The events that one network read completes. */
  readonly push: (bytes: Uint8Array) => Array<ExecdEvent | Other>
  /** The events of a last frame that nothing terminates. */
  readonly end: () => Array<ExecdEvent | Other>
  /** Whether the terminal event was seen; nothing after it counts. */
  readonly isDone: () => boolean
  readonly failure: () => FrameFailure | undefined
  readonly isEmpty: () => boolean
}

/** The longest text of one `Output` event, in UTF-16 code units. */
const maxText = 64 * 1024
/** A frame longer than this is not held in memory. */
const maxFrame = 128 * 1024 * 1024
const maxDocument = 64 * 1024

const newline = 0x0a
const stdoutPrefix = `{"type":"stdout","text":"`
const stderrPrefix = `{"type":"stderr","text":"`
const afterText = `,"timestamp":`

const exitCodeOf = (evalue: unknown): number | undefined => {
  const text = typeof evalue === "number" ? String(evalue) : typeof evalue === "string" ? evalue.trim() : ""
  return /^\d{1,10}$/.test(text) ? Number(text) : undefined
}

const stringOf = (value: unknown): string | undefined => (typeof value === "string" && value !== "" ? value : undefined)

const failedExit = (event: { readonly [key: string]: unknown }): ExecdEvent => {
  const error = Predicate.isRecord(event.error) ? event.error : {}
  const name = stringOf(error.ename)
  const evalue = typeof error.evalue === "number" ? String(error.evalue) : stringOf(error.evalue)
  const exitCode = name === "CommandExecError" ? exitCodeOf(evalue) : undefined
  return {
    _tag: "Exit",
    exitCode,
    name,
    message: evalue ?? stringOf(event.error) ?? stringOf(event.text) ?? name ?? "failed without a reason",
    traceback: Array.isArray(error.traceback) ? error.traceback.filter(Predicate.isString) : undefined,
    durationMillis: typeof event.execution_time === "number" ? event.execution_time : undefined
  }
}

/** @internal */
export interface FrameOptions<Other = never> {
  /** Whether the text of an event is a line without its end. */
  readonly lines: boolean
  /** Whether `execution_complete` means started rather than succeeded. */
  readonly background: boolean
  /** What events of further types say; `undefined` for those that say nothing. */
  readonly other?: ((event: { readonly [key: string]: unknown }) => Other | undefined) | undefined
}

/**
 * Reads execd's event stream: one JSON object a line, bare or behind `data:`, lines ended by LF or CRLF, cut anywhere.
 *
 * Works on bytes up to the line, so that a character cut in two needs no care and a line that comes in many pieces is looked at once; and on all complete
 * lines of a read at a time, because a command may print hundreds of thousands of lines a second.
 *
 * @internal
 */
export const makeFrameDecoder = <Other = never>(options: FrameOptions<Other>): FrameDecoder<Other> => {
  const decoder = new TextDecoder()
  let carry = new Uint8Array(0)
  let carried = 0
  let received = false
  let frames = 0
  let done = false
  let failure: FrameFailure | undefined
  // a body that does not begin like an event stream is kept whole, to be reported
  let document: Array<Uint8Array> | undefined
  let documentSize = 0

  let events: Array<ExecdEvent | Other> = []
  let stream: "stdout" | "stderr" = "stdout"
  let text = ""

  const flush = () => {
    if (text === "") return
    let rest = text
    text = ""
    while (rest.length > maxText) {
      const last = rest.charCodeAt(maxText - 1)
      const cut = last >= 0xd800 && last <= 0xdbff ? maxText - 1 : maxText
      events.push({ _tag: "Output", stream, text: rest.slice(0, cut) })
      rest = rest.slice(cut)
    }
    events.push({ _tag: "Output", stream, text: rest })
  }

  const output = (from: "stdout" | "stderr", piece: string) => {
    if (from !== stream || text.length + piece.length >= maxText) {
      flush()
      stream = from
    }
    if (!options.lines || piece.charCodeAt(piece.length - 1) === newline) text += piece
    else text += `${piece}\n`
  }

  const handle = (event: unknown) => {
    frames++
    if (!Predicate.isRecord(event)) return
    switch (event.type) {
      case "stdout":
      case "stderr":
        output(event.type, typeof event.text === "string" ? event.text : "")
        return
      case "init":
        flush()
        if (typeof event.text === "string") events.push({ _tag: "Init", commandId: event.text })
        return
      case "execution_complete": {
        flush()
        done = true
        const durationMillis = typeof event.execution_time === "number" ? event.execution_time : undefined
        events.push(
          options.background
            ? { _tag: "Exit", background: true, durationMillis }
            : { _tag: "Exit", exitCode: 0, durationMillis }
        )
        return
      }
      case "error":
        flush()
        done = true
        events.push(failedExit(event))
        return
      case undefined:
      case null:
      case "": {
        const reported = errorDocument(event)
        if (reported !== undefined) failure = { _tag: "Reported", document: reported }
        return
      }
      default: {
        const other = options.other?.(event)
        if (other === undefined) return
        flush()
        events.push(other)
      }
    }
  }

  /** False where the line is neither a frame nor anything that an event stream may hold besides. */
  const line = (lines: string, from: number, to: number): boolean => {
    let start = from
    const first = lines.charCodeAt(start)
    if (first !== 0x7b) {
      if (lines.startsWith("data:", start)) {
        start += 5
        while (lines.charCodeAt(start) === 0x20) start++
        if (start >= to) return true
      } else {
        return first === 0x3a || /^\s*$|^(event|id|retry)\s*(:|$)/.test(lines.slice(start, Math.min(to, start + 64)))
      }
    }
    let value: unknown
    try {
      value = JSON.parse(lines.slice(start, to))
    } catch {
      return false
    }
    handle(value)
    return true
  }

  const garbage = (bytes: Uint8Array, lines: string, from: number) => {
    if (frames > 0) {
      flush()
      failure = { _tag: "Garbage", description: snippet(lines.slice(from, from + 4000)) }
      return
    }
    document = [bytes.slice()]
    documentSize = bytes.length
  }

  const settleDocument = () => {
    if (document === undefined) return
    const body = decodeUtf8(concat(document, Math.min(documentSize, maxDocument)))
    document = undefined
    try {
      const reported = errorDocument(JSON.parse(body))
      if (reported !== undefined) {
        failure = { _tag: "Reported", document: reported }
        return
      }
    } catch {
      // no JSON either
    }
    failure = { _tag: "Garbage", description: snippet(body) }
  }

  /** All lines of `lines`; `bytes` are the same before decoding. */
  const read = (bytes: Uint8Array) => {
    const lines = decoder.decode(bytes)
    const length = lines.length
    let backslash = lines.indexOf("\\")
    if (backslash < 0) backslash = length
    let start = 0
    while (start < length && !done && failure === undefined) {
      let end = lines.indexOf("\n", start)
      if (end < 0) end = length
      const next = end + 1
      if (lines.charCodeAt(end - 1) === 0x0d) end--
      if (end <= start) {
        start = next
        continue
      }
      // the form that execd writes, with a text that needs no unescaping: `{"type":"stdout","text":"…","timestamp":1700000000000}`
      let from = start
      if (lines.charCodeAt(from) === 0x64 && lines.startsWith("data: ", from)) from += 6
      const isStdout = lines.startsWith(stdoutPrefix, from)
      if (isStdout || lines.startsWith(stderrPrefix, from)) {
        const open = from + stdoutPrefix.length
        const quote = lines.indexOf('"', open)
        if (backslash < open) {
          backslash = lines.indexOf("\\", open)
          if (backslash < 0) backslash = length
        }
        if (quote > 0 && quote < end && quote < backslash && lines.startsWith(afterText, quote + 1)) {
          let at = quote + 1 + afterText.length
          const firstDigit = at
          let code = lines.charCodeAt(at)
          while (code >= 0x30 && code <= 0x39) code = lines.charCodeAt(++at)
          if (code === 0x7d && at > firstDigit && at + 1 === end) {
            frames++
            output(isStdout ? "stdout" : "stderr", lines.slice(open, quote))
            start = next
            continue
          }
        }
      }
      if (!line(lines, start, end)) {
        garbage(bytes, lines, start)
        return
      }
      start = next
    }
  }

  const keep = (bytes: Uint8Array) => {
    const needed = carried + bytes.length
    if (needed > maxFrame) {
      failure = { _tag: "Garbage", description: `a frame is longer than ${maxFrame} bytes` }
      return
    }
    if (needed > carry.length) {
      const grown = new Uint8Array(Math.max(needed, carry.length * 2, 1024))
      grown.set(carry.subarray(0, carried))
      carry = grown
    }
    carry.set(bytes, carried)
    carried = needed
  }

  const take = (): Array<ExecdEvent | Other> => {
    flush()
    const out = events
    events = []
    return out
  }

  const addToDocument = (bytes: Uint8Array) => {
    document?.push(bytes.slice())
    documentSize += bytes.length
    if (documentSize >= maxDocument) settleDocument()
  }

  return {
    push: (bytes) => {
      if (bytes.length > 0) received = true
      if (done || failure !== undefined) return []
      if (document !== undefined) {
        addToDocument(bytes)
        return []
      }
      const last = bytes.lastIndexOf(newline)
      if (last < 0) {
        keep(bytes)
        return []
      }
      const complete = bytes.subarray(0, last + 1)
      if (carried === 0) {
        read(complete)
      } else {
        keep(complete)
        const size = carried
        carried = 0
        if (failure === undefined) read(carry.subarray(0, size))
        if (carry.length > 1024 * 1024) carry = new Uint8Array(0)
      }
      const rest = bytes.subarray(last + 1)
      // assigned by `read`, which the narrowing above does not see
      if ((document as Array<Uint8Array> | undefined) !== undefined) addToDocument(rest)
      else if (rest.length > 0) keep(rest)
      return take()
    },
    end: () => {
      if (done || failure !== undefined) return []
      if (document === undefined && carried > 0) {
        const size = carried
        carried = 0
        const before = frames
        read(carry.subarray(0, size))
        // half a frame at the end of a good stream is a cut, not garbage
        if (before > 0 && (failure as FrameFailure | undefined)?._tag === "Garbage") failure = undefined
      }
      settleDocument()
      return take()
    },
    isDone: () => done,
    failure: () => failure,
    isEmpty: () => !received
  }
}
