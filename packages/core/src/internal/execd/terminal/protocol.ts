/** @internal */
import * as Predicate from "effect/Predicate"

/**
 * What the server says on the socket of a terminal.
 *
 * @internal
 */
export type ServerMessage =
  | { readonly _tag: "Connected"; readonly mode: "pty" | "pipe" }
  | { readonly _tag: "Exit"; readonly exitCode: number | undefined }
  | { readonly _tag: "Pong" }
  | { readonly _tag: "Error"; readonly code: string | undefined; readonly message: string | undefined }
  | { readonly _tag: "Output"; readonly channel: "stdout" | "stderr"; readonly bytes: Uint8Array }
  | { readonly _tag: "Replay"; readonly offset: number; readonly bytes: Uint8Array }

/**
 * `undefined` for what is unknown.
 *
 * @internal
 */
export const parseText = (text: string): ServerMessage | undefined => {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    return undefined
  }
  if (!Predicate.isRecord(value)) return undefined
  switch (value.type) {
    case "connected":
      return { _tag: "Connected", mode: value.mode === "pipe" ? "pipe" : "pty" }
    case "exit": {
      const code = value.exit_code
      return { _tag: "Exit", exitCode: Number.isSafeInteger(code) && Number(code) >= 0 ? Number(code) : undefined }
    }
    case "pong":
      return { _tag: "Pong" }
    case "error":
      return {
        _tag: "Error",
        code: Predicate.isString(value.code) ? value.code : undefined,
        message: Predicate.isString(value.error) ? value.error : undefined
      }
  }
  return undefined
}

/**
 * The first byte is the channel; a replay has 8 bytes of offset behind it.
 *
 * @internal
 */
export const parseBinary = (frame: Uint8Array): ServerMessage | undefined => {
  switch (frame[0]) {
    case 1:
      return { _tag: "Output", channel: "stdout", bytes: frame.subarray(1) }
    case 2:
      return { _tag: "Output", channel: "stderr", bytes: frame.subarray(1) }
    case 3: {
      if (frame.length < 9) return undefined
      const offset = new DataView(frame.buffer, frame.byteOffset).getBigUint64(1)
      return { _tag: "Replay", offset: Number(offset), bytes: frame.subarray(9) }
    }
  }
  return undefined
}

/**
 * Stdin, from `from` to `to`.
 *
 * @internal
 */
export const stdinFrame = (bytes: Uint8Array, from: number, to: number): Uint8Array => {
  const frame = new Uint8Array(to - from + 1)
  frame.set(bytes.subarray(from, to), 1)
  return frame
}

/** @internal */
export const pingFrame = JSON.stringify({ type: "ping" })
/** @internal */
export const resizeFrame = (cols: number, rows: number): string => JSON.stringify({ type: "resize", cols, rows })
/** @internal */
export const signalFrame = (signal: string): string => JSON.stringify({ type: "signal", signal })
