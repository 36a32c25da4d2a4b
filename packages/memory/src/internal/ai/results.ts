/**
 * The results of tools.
 */
import type { Json } from "@sandglass/core/LedgerEvent"
import type { ConversationMessage } from "../../Conversation.js"
import type { Draft, Extra, Mark } from "./mark.js"
import { json, markOf, refuse } from "./mark.js"

type As = NonNullable<NonNullable<Mark["result"]>["as"]>

/** Text that is no object and no array is a text. */
const usual = (content: string): Json => {
  if (!/^\s*[{[]/.test(content)) {
    return content
  }
  try {
    return JSON.parse(content)
  } catch {
    return content
  }
}

const read = (content: string, as: As | undefined): unknown => {
  switch (as) {
    case undefined:
      return usual(content)
    case "text":
      return content
    case "nothing":
      return undefined
    case "json":
      try {
        return JSON.parse(content)
      } catch {
        return content
      }
  }
}

const write = (result: unknown, name: string): { readonly content: string; readonly as: As | undefined } => {
  if (result === undefined) {
    return { content: "", as: "nothing" }
  }
  const { text, value } = json(result, `the result of ${name}`)
  const content = typeof value === "string" ? value : text
  const isUsual = typeof value === "string" ? usual(content) === value : typeof value === "object" && value !== null
  return { content, as: isUsual ? undefined : typeof value === "string" ? "text" : "json" }
}

export interface Result {
  readonly id: string
  readonly name: string
  readonly isFailure: boolean
  readonly result: unknown
  readonly extra: Extra | undefined
}

export const toDraft = ({ extra, id, isFailure, name, result }: Result): readonly [draft: Draft, mark: Mark] => {
  const { as, content } = write(result, name)
  const mark = { as, isFailure: isFailure ? (true as const) : undefined, extra }
  return [
    { role: "tool", content, toolCallId: id, name },
    as === undefined && !isFailure && extra === undefined ? {} : { result: mark }
  ]
}

/** `nameOf` tells the name of the tool where the message does not. */
export const toResult = (message: ConversationMessage, nameOf: (toolCallId: string) => string | undefined): Result => {
  const { result: mark = {} } = markOf(message)
  const id = message.toolCallId ?? refuse(`the tool message ${JSON.stringify(message.id)} has no toolCallId`)
  return {
    id,
    name:
      message.name ??
      nameOf(id) ??
      refuse(`the tool message ${JSON.stringify(message.id)} has no name, and nobody called ${JSON.stringify(id)}`),
    isFailure: mark.isFailure ?? false,
    result: read(message.content, mark.as),
    extra: mark.extra
  }
}
