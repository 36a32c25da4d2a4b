/**
 * Between responses and messages: the assistant's message, and one for each result of a tool.
 */
import * as Response from "@effect/ai/Response"
import type { Json } from "@sandglass/core/LedgerEvent"
import * as Either from "effect/Either"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type { ConversationMessage, TokenUsage } from "../../Conversation.js"
import type { Draft, Extra, Piece } from "./mark.js"
import { compact, extraOf, isObject, json, markOf, refuse, withMark } from "./mark.js"
import type { ToolCall } from "./parts.js"
import { encodeCall, partsOf } from "./parts.js"
import * as Results from "./results.js"
import type { WholePart } from "./streamed.js"
import { whole } from "./streamed.js"

const KeptPart = Schema.Union(
  Response.ReasoningPart,
  Response.FilePart,
  Response.DocumentSourcePart,
  Response.UrlSourcePart,
  Response.ResponseMetadataPart,
  Response.FinishPart,
  Response.ErrorPart
)

const encodeKept = Schema.encodeEither(KeptPart)
const decodeKept = Schema.decodeUnknownEither(KeptPart)

type ToolResult = Extract<WholePart, { readonly type: "tool-result" }>

const extra = (fields: { readonly [key: string]: Json | undefined }): Extra | undefined =>
  extraOf(compact(fields), "metadata")

const metadataOf = (extra: Extra | undefined) => {
  const metadata = extra?.["metadata"]
  return isObject(metadata) ? (metadata as Response.ProviderMetadata) : {}
}

const object = (value: unknown, name: string): Extra => {
  const encoded = json(value, name).value
  return isObject(encoded) ? encoded : {}
}

/** An error may be anything. */
const jsonOf = (error: unknown): Json => {
  try {
    return json(error, "error").value
  } catch {
    return String(error)
  }
}

const finite = (count: number | undefined) => (Number.isFinite(count) ? count : undefined)

/** With nothing in it that JSON has no word for. */
const jsonPart = (part: Exclude<WholePart, { readonly type: "text" | "tool-call" | "tool-result" }>) => {
  if (part.type === "error") {
    return { ...part, error: jsonOf(part.error) }
  }
  if (part.type !== "finish") {
    return part
  }
  const { cachedInputTokens, inputTokens, outputTokens, reasoningTokens, totalTokens } = part.usage
  const usage = new Response.Usage({
    inputTokens: finite(inputTokens),
    outputTokens: finite(outputTokens),
    totalTokens: finite(totalTokens),
    ...compact({ cachedInputTokens: finite(cachedInputTokens), reasoningTokens: finite(reasoningTokens) })
  })
  return { ...part, usage }
}

const encodePart = (part: WholePart): Extra => {
  if (part.type === "tool-result") {
    const { encodedResult, id, isFailure, metadata, name, providerName } = part
    return object(
      compact({ type: part.type, id, name, isFailure, result: encodedResult, providerName, metadata }),
      `the result of ${part.name}`
    )
  }
  if (part.type === "text" || part.type === "tool-call") {
    return {}
  }
  const encoded = object(
    Either.getOrElse(encodeKept(jsonPart(part)), () => refuse(`a ${part.type} part is none`)),
    `a ${part.type} part`
  )
  return { ...encoded, ...compact({ metadata: extraOf(part.metadata, `the metadata of a ${part.type} part`) }) }
}

const tokens = (count: number | undefined): number | undefined =>
  count !== undefined && Number.isSafeInteger(count) && count >= 0 ? count : undefined

/** What was not reported is 0, or for the total the sum of what was. */
const usageOf = ({ usage }: Response.FinishPart): TokenUsage | undefined => {
  const prompt = tokens(usage.inputTokens)
  const completion = tokens(usage.outputTokens)
  const total = tokens(usage.totalTokens)
  if (prompt === undefined && completion === undefined && total === undefined) {
    return undefined
  }
  return {
    promptTokens: prompt ?? 0,
    completionTokens: completion ?? 0,
    totalTokens: total ?? (prompt ?? 0) + (completion ?? 0),
    ...compact({ cacheReadTokens: tokens(usage.cachedInputTokens) })
  }
}

/** A tool may be known to the model by another name: that is the one of the call. */
const toolExtra = (part: Extract<WholePart, { readonly type: "tool-call" | "tool-result" }>): Extra | undefined =>
  extra({
    metadata: extraOf(part.metadata, "the metadata of a tool"),
    tool: part.providerName === undefined ? undefined : String(part.name),
    providerExecuted: part.type === "tool-call" && part.providerExecuted ? true : undefined
  })

const nameOf = (part: { readonly name: unknown; readonly providerName?: string | undefined }): string =>
  part.providerName ?? String(part.name)

export const fromResponse = (
  given: ReadonlyArray<Response.AnyPart>,
  model?: string | undefined
): ReadonlyArray<Draft> => {
  const parts = whole(given)
  if (parts.length === 0) {
    return []
  }
  const pieces: Array<Piece> = []
  const calls: Array<Json> = []
  const results: Array<Draft> = []
  let content = ""
  let named: string | undefined
  let usage: TokenUsage | undefined
  for (const part of parts) {
    if (part.type === "text") {
      const metadata = extraOf(part.metadata, "the metadata of a text part")
      pieces.push({ text: part.text.length, ...compact({ extra: extra({ metadata }) }) })
      content += part.text
    } else if (part.type === "tool-call") {
      pieces.push({ call: true, ...compact({ extra: toolExtra(part) }) })
      calls.push(encodeCall(part.id, nameOf(part), part.params))
    } else if (part.type === "tool-result" && !part.providerExecuted) {
      pieces.push({ result: true })
      const { encodedResult: result, id, isFailure } = part
      const [draft, mark] = Results.toDraft({ id, name: nameOf(part), isFailure, result, extra: toolExtra(part) })
      results.push(withMark(draft, mark))
    } else {
      pieces.push({ part: encodePart(part) })
    }
    if (part.type === "response-metadata") {
      named = Option.getOrUndefined(part.modelId) ?? named
    } else if (part.type === "finish") {
      usage = usageOf(part) ?? usage
    }
  }
  const draft: Draft = {
    role: "assistant",
    content,
    ...compact({ model: model ?? named, usage, toolCalls: calls.length === 0 ? undefined : calls })
  }
  return [withMark(draft, { pieces, response: true }), ...results]
}

const makeResult = (
  fields: Pick<ToolResult, "id" | "isFailure" | "name" | "metadata" | "providerExecuted"> & {
    readonly result: unknown
    readonly providerName: string | undefined
  }
): Response.AnyPart => {
  const { providerName, ...others } = fields
  return Response.makePart("tool-result", {
    ...others,
    encodedResult: fields.result,
    ...(providerName === undefined ? {} : { providerName })
  })
}

const ProviderResult = Schema.Struct({
  type: Schema.Literal("tool-result"),
  id: Schema.String,
  name: Schema.String,
  isFailure: Schema.Boolean,
  result: Schema.optional(Schema.Unknown),
  providerName: Schema.optional(Schema.String)
})

const decodeResult = Schema.decodeUnknownEither(ProviderResult)

const decodePart = (part: Extra): Response.AnyPart => {
  if (part["type"] === "tool-result") {
    const {
      providerName,
      result,
      type: _,
      ...fields
    } = Either.getOrElse(decodeResult(part), () => refuse("a tool-result part is none"))
    return makeResult({ ...fields, result, providerName, providerExecuted: true, metadata: metadataOf(part) })
  }
  const kept = Either.getOrElse(decodeKept(part), () => refuse(`a ${String(part["type"])} part is none`))
  return { ...kept, metadata: metadataOf(part) }
}

/** A tool as it is known to the application, and as the model calls it. */
const toolNames = (name: string, extra: Extra | undefined) => {
  const tool = extra?.["tool"]
  return typeof tool === "string" ? { name: tool, providerName: name } : { name, providerName: undefined }
}

const resultPart = (message: ConversationMessage, name: string | undefined): Response.AnyPart => {
  const { extra, name: called, ...result } = Results.toResult(message, () => name)
  return makeResult({ ...result, ...toolNames(called, extra), providerExecuted: false, metadata: metadataOf(extra) })
}

/** What the fields of a message tell of the response that it was. */
const ending = ({ model, usage }: ConversationMessage): ReadonlyArray<Response.AnyPart> => [
  ...(model === undefined
    ? []
    : [
        Response.makePart("response-metadata", {
          id: Option.none(),
          modelId: Option.some(model),
          timestamp: Option.none()
        })
      ]),
  ...(usage === undefined
    ? []
    : [
        Response.makePart("finish", {
          reason: "unknown",
          usage: new Response.Usage({
            inputTokens: usage.promptTokens,
            outputTokens: usage.completionTokens,
            totalTokens: usage.totalTokens,
            ...(usage.cacheReadTokens === undefined ? {} : { cachedInputTokens: usage.cacheReadTokens })
          })
        })
      ])
]

/** A prompt's reasoning is a response's; its files are of another form. */
const fromPromptPart = ({ options: _, ...part }: Extra): ReadonlyArray<Response.AnyPart> => {
  if (part["type"] === "reasoning" || part["type"] === "tool-result") {
    return [decodePart(part)]
  }
  const data = part["data"]
  return isObject(data) && typeof data["base64"] === "string" ? [decodePart({ ...part, data: data["base64"] })] : []
}

const turn = (
  message: ConversationMessage,
  results: ReadonlyArray<ConversationMessage>
): ReadonlyArray<Response.AnyPart> => {
  const mark = markOf(message)
  const left = [...results]
  const names = new Map<string, string>()
  const ofCall = ({ id, name: called, params }: ToolCall, extra: Extra): Response.AnyPart => {
    const { name, providerName } = toolNames(called, extra)
    names.set(id, called)
    return Response.makePart("tool-call", {
      id,
      name,
      params,
      providerExecuted: extra["providerExecuted"] === true,
      metadata: metadataOf(extra),
      ...(providerName === undefined ? {} : { providerName })
    })
  }
  const ofResult = (result: ConversationMessage) => resultPart(result, names.get(result.toolCallId ?? ""))
  const made: Array<Response.AnyPart> = []
  for (const part of partsOf(message, mark.pieces)) {
    if (part._tag === "text") {
      made.push(Response.makePart("text", { text: part.text, metadata: metadataOf(part.extra) }))
    } else if (part._tag === "call") {
      made.push(ofCall(part.call, part.extra))
    } else if (part._tag === "part") {
      made.push(...(mark.response === true ? [decodePart(part.part)] : fromPromptPart(part.part)))
    } else {
      made.push(...left.splice(0, 1).map(ofResult))
    }
  }
  const others = left.filter((result) => markOf(result).empty !== true).map(ofResult)
  return [...made, ...others, ...(mark.response === true ? [] : ending(message))]
}

export const toResponse = (messages: ReadonlyArray<ConversationMessage>): ReadonlyArray<Response.AnyPart> => {
  const parts: Array<Response.AnyPart> = []
  for (const [index, message] of messages.entries()) {
    if (message.role !== "assistant") {
      continue
    }
    const results: Array<ConversationMessage> = []
    for (let next = index + 1; messages[next]?.role === "tool"; next++) {
      const result = messages[next]
      if (result !== undefined) {
        results.push(result)
      }
    }
    parts.push(...turn(message, results))
  }
  return parts
}
