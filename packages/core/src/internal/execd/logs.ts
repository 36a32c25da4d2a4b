/** @internal */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { ExecdClient } from "../../Execd.js"
import { concat } from "../http/body.js"
import * as Http from "../http/client.js"
import type { Caller } from "./caller.js"

const cursorHeader = "execd-commands-tail-cursor"
const logsCap = 64 * 1024 * 1024

/** The start of a character whose rest is missing at the end of `bytes`. */
const cutCharacter = (bytes: Uint8Array): number => {
  for (let back = 1; back <= Math.min(3, bytes.length); back++) {
    const byte = bytes[bytes.length - back] ?? 0
    if (byte < 0x80) return 0
    if (byte >= 0xc0) {
      const size = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2
      return size > back ? back : 0
    }
  }
  return 0
}

/** A byte order mark is part of the text here. */
const decode = (bytes: Uint8Array): string => new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes)

const cursorPattern = /^(.*)!((?:[0-9a-f]{2}){1,3})$/

const fromHex = (hex: string): Uint8Array =>
  Uint8Array.from(hex.match(/../g) ?? [], (digits) => Number.parseInt(digits, 16))

const toHex = (bytes: Uint8Array): string => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")

/** @internal */
export const makeLogs =
  ({ get, span, where }: Caller): ExecdClient["logs"] =>
  (commandId, cursor) => {
    const at = where("logs")
    const [, position = cursor, held = ""] = cursorPattern.exec(cursor ?? "") ?? []
    return Http.segment(at, "command id", commandId).pipe(
      Effect.flatMap((id) =>
        get(at, `/command/${id}/logs`, position === undefined ? [] : [["cursor", position]], (response) =>
          Effect.map(Http.textBody(at, logsCap)(response), (bytes) => [bytes, response.headers[cursorHeader]] as const)
        )
      ),
      Effect.map(([fresh, next]) => {
        const start = fromHex(held)
        const bytes = start.length === 0 ? fresh : concat([start, fresh], start.length + fresh.length)
        if (next === undefined || next === "")
          return { text: decode(bytes), cursor: Option.none(), held: Option.none() }
        const cut = cutCharacter(bytes)
        if (cut === 0) return { text: decode(bytes), cursor: Option.some(next), held: Option.none() }
        const rest = bytes.subarray(bytes.length - cut)
        return {
          text: decode(bytes.subarray(0, bytes.length - cut)),
          cursor: Option.some(`${next}!${toHex(rest)}`),
          held: Option.some({ text: decode(rest), cursor: next })
        }
      }),
      span("logs", { "command.id": commandId })
    )
  }
