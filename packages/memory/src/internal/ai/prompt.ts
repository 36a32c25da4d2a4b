/**
 * Between prompts and messages.
 */
import * as Prompt from "@effect/ai/Prompt"
import type { Json } from "@sandglass/core/LedgerEvent"
import type { ConversationMessage } from "../../Conversation.js"
import type { Draft, Extra, Mark, Piece } from "./mark.js"
import { compact, extraOf, isObject, markOf, refuse, withMark } from "./mark.js"
import type { Part } from "./parts.js"
import { callsOf, encodeCall, isUsual, partsOf } from "./parts.js"
import { decodePart, encodePart } from "./promptParts.js"
import * as Results from "./results.js"

const extra = (fields: { readonly [key: string]: Json | undefined }): Extra | undefined =>
  extraOf(compact(fields), "options")

const optionsOf = (extra: Extra | undefined) => {
  const options = extra?.["options"]
  return isObject(options) ? (options as Prompt.ProviderOptions) : {}
}

const ofParts = (message: Prompt.UserMessage | Prompt.AssistantMessage): Draft => {
  const pieces: Array<Piece> = []
  const calls: Array<Json> = []
  let content = ""
  for (const part of message.content) {
    switch (part.type) {
      case "text": {
        const options = extraOf(part.options, "the options of a text part")
        pieces.push({ text: part.text.length, ...compact({ extra: extra({ options }) }) })
        content += part.text
        break
      }
      case "tool-call": {
        const options = extraOf(part.options, "the options of a tool call")
        const providerExecuted = part.providerExecuted ? true : undefined
        pieces.push({ call: true, ...compact({ extra: extra({ options, providerExecuted }) }) })
        calls.push(encodeCall(part.id, part.name, part.params))
        break
      }
      default:
        pieces.push({ part: encodePart(part) })
    }
  }
  const draft: Draft = { role: message.role, content, ...(calls.length === 0 ? {} : { toolCalls: calls }) }
  return withMark(draft, {
    pieces: isUsual(draft, pieces) ? undefined : pieces,
    options: extraOf(message.options, "the options of a message")
  })
}

const ofTool = (message: Prompt.ToolMessage, separate: boolean): ReadonlyArray<Draft> => {
  const first: Mark = {
    separate: separate ? true : undefined,
    options: extraOf(message.options, "the options of a message")
  }
  if (message.content.length === 0) {
    return [withMark({ role: "tool", content: "" }, { ...first, empty: true })]
  }
  return message.content.map((part, index) => {
    const { id, isFailure, name, result } = part
    const options = extraOf(part.options, "the options of a tool result")
    const providerExecuted = part.providerExecuted ? true : undefined
    const [draft, mark] = Results.toDraft({
      id,
      name,
      isFailure,
      result,
      extra: extra({ options, providerExecuted })
    })
    return withMark(draft, { ...mark, ...(index === 0 ? first : {}) })
  })
}

const draftsOf = (message: Prompt.Message, before: Prompt.Message | undefined): ReadonlyArray<Draft> => {
  switch (message.role) {
    case "system": {
      const options = extraOf(message.options, "the options of a message")
      return [withMark({ role: "system", content: message.content }, { options })]
    }
    case "user":
    case "assistant":
      return [ofParts(message)]
    case "tool":
      return ofTool(message, before?.role === "tool")
  }
}

const promptOf = (input: Prompt.RawInput): Prompt.Prompt => {
  try {
    return Prompt.make(input)
  } catch (cause) {
    return refuse(`not a prompt: ${cause instanceof Error ? cause.message : String(cause)}`)
  }
}

export const fromPrompt = (input: Prompt.RawInput): ReadonlyArray<Draft> =>
  promptOf(input).content.flatMap((message, index, all) => draftsOf(message, all[index - 1]))

const userPart = (message: ConversationMessage, part: Part): ReadonlyArray<Prompt.UserMessagePart> => {
  if (part._tag === "text") {
    return [Prompt.makePart("text", { text: part.text, options: optionsOf(part.extra) })]
  }
  const kept = part._tag === "part" ? decodePart(part.part) : undefined
  return kept?.type === "file" ? [kept] : refuse(`the user message ${JSON.stringify(message.id)} has a ${part._tag}`)
}

/**
 * The part of a prompt that a response's is. What a provider says beside it is no option of a prompt, and a file that a
 * model made is not sent back to it.
 */
const ofResponsePart = ({ metadata: _, providerName, ...part }: Extra): Extra =>
  part["type"] === "file"
    ? {}
    : part["type"] === "tool-result"
      ? { ...part, name: providerName ?? part["name"] ?? "", providerExecuted: true }
      : part

const assistantPart = (part: Part, ofResponse: boolean): ReadonlyArray<Prompt.AssistantMessagePart> => {
  switch (part._tag) {
    case "text":
      return [Prompt.makePart("text", { text: part.text, options: ofResponse ? {} : optionsOf(part.extra) })]
    case "call": {
      const { id, name, params } = part.call
      const providerExecuted = part.extra["providerExecuted"] === true
      const options = ofResponse ? {} : optionsOf(part.extra)
      return [Prompt.makePart("tool-call", { id, name, params, providerExecuted, options })]
    }
    case "result":
      return []
    case "part": {
      const kept = decodePart(ofResponse ? ofResponsePart(part.part) : part.part)
      return kept === undefined ? [] : [kept]
    }
  }
}

export const toPrompt = (messages: ReadonlyArray<ConversationMessage>): Prompt.Prompt => {
  const made: Array<Prompt.Message> = []
  const names = new Map<string, string>()
  let results: Array<Prompt.ToolMessagePart> | undefined
  for (const message of messages) {
    const mark = markOf(message)
    const options = (mark.options ?? {}) as Prompt.ProviderOptions
    if (message.role !== "tool") {
      results = undefined
    }
    switch (message.role) {
      case "system":
        made.push(Prompt.makeMessage("system", { content: message.content, options }))
        break
      case "user": {
        const content = partsOf(message, mark.pieces).flatMap((part) => userPart(message, part))
        made.push(Prompt.makeMessage("user", { content, options }))
        break
      }
      case "assistant": {
        for (const { id, name } of callsOf(message)) {
          names.set(id, name)
        }
        const ofResponse = mark.response === true
        const content = partsOf(message, mark.pieces).flatMap((part) => assistantPart(part, ofResponse))
        if (content.length > 0 || !ofResponse) {
          made.push(Prompt.makeMessage("assistant", { content, options }))
        }
        break
      }
      case "tool": {
        if (results === undefined || mark.separate === true) {
          results = []
          made.push(Prompt.makeMessage("tool", { content: results, options }))
        }
        if (mark.empty !== true) {
          const { extra, ...result } = Results.toResult(message, (id) => names.get(id))
          const providerExecuted = extra?.["providerExecuted"] === true
          results.push(Prompt.makePart("tool-result", { ...result, providerExecuted, options: optionsOf(extra) }))
        }
      }
    }
  }
  return Prompt.fromMessages(made)
}
