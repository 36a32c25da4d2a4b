/**
 * The texts and tool calls of a message, and what stands between them.
 */
import type { Json } from "@sandglass/core/LedgerEvent"
import type { ConversationMessage } from "../../Conversation.js"
import type { Extra, Piece } from "./mark.js"
import { isObject, json, refuse } from "./mark.js"

export interface ToolCall {
  readonly id: string
  readonly name: string
  readonly params: Json
}

/** As most programs know it. */
export const encodeCall = (id: string, name: string, params: unknown): Json => ({
  id,
  type: "function",
  function: { name, arguments: json(params, `the parameters of the tool call ${id}`).text }
})

/** Arguments are JSON text, mostly. */
const parameters = (value: Json | undefined): Json => {
  if (typeof value !== "string") {
    return value ?? {}
  }
  try {
    return JSON.parse(value)
  } catch {
    return value
  }
}

/** As `encodeCall` writes it; or flat, with `arguments`, `params` or `input`. */
const decodeCall = (call: Json, at: number, messageId: string): ToolCall => {
  const fields = isObject(call) ? call : {}
  const inner = isObject(fields["function"]) ? fields["function"] : fields
  const name = inner["name"] ?? fields["toolName"]
  const id = fields["id"] ?? fields["toolCallId"]
  return typeof name === "string" && typeof id === "string"
    ? { id, name, params: parameters(inner["arguments"] ?? fields["params"] ?? fields["input"] ?? fields["args"]) }
    : refuse(`toolCalls[${at}] of the message ${JSON.stringify(messageId)} has no id or no name`)
}

export const callsOf = ({ id, toolCalls = [] }: ConversationMessage): ReadonlyArray<ToolCall> =>
  toolCalls.map((call, at) => decodeCall(call, at, id))

/** What a piece stands for. */
export type Part =
  | { readonly _tag: "text"; readonly text: string; readonly extra: Extra }
  | { readonly _tag: "call"; readonly call: ToolCall; readonly extra: Extra }
  | { readonly _tag: "result" }
  | { readonly _tag: "part"; readonly part: Extra }

const usual = ({ content, role, toolCalls = [] }: ConversationMessage): ReadonlyArray<Piece> => [
  ...(content === "" && role === "assistant" ? [] : [{ text: content.length }]),
  ...toolCalls.map(() => ({ call: true }) as const)
]

const sameLength = (pieces: ReadonlyArray<Piece>, content: string): boolean =>
  pieces.reduce((sum, piece) => sum + ("text" in piece ? piece.text : 0), 0) === content.length

/**
 * The parts of a message. Where its content or its tool calls were changed since, the whole content stands in the place of
 * the first text, and calls that no piece knows stand at the end.
 */
export const partsOf = (message: ConversationMessage, pieces = usual(message)): ReadonlyArray<Part> => {
  const { content } = message
  const calls = [...callsOf(message)]
  const exact = sameLength(pieces, content)
  const parts: Array<Part> = []
  let position = 0
  for (const piece of pieces) {
    if ("text" in piece) {
      const end = exact ? position + piece.text : content.length
      if (exact || position < end) {
        parts.push({ _tag: "text", text: content.slice(position, end), extra: piece.extra ?? {} })
      }
      position = end
    } else if ("call" in piece) {
      const call = calls.shift()
      if (call !== undefined) {
        parts.push({ _tag: "call", call, extra: piece.extra ?? {} })
      }
    } else if ("result" in piece) {
      parts.push({ _tag: "result" })
    } else {
      parts.push({ _tag: "part", part: piece.part })
    }
  }
  if (position < content.length) {
    parts.unshift({ _tag: "text", text: content.slice(position), extra: {} })
  }
  return [...parts, ...calls.map((call): Part => ({ _tag: "call", call, extra: {} }))]
}

/** Whether a message says by itself what its pieces would say. */
export const isUsual = (
  message: Pick<ConversationMessage, "content" | "role" | "toolCalls">,
  pieces: ReadonlyArray<Piece>
) => {
  const expected = usual({ ...message, id: "", conversationId: "", timestamp: 0 })
  return JSON.stringify(pieces) === JSON.stringify(expected)
}
