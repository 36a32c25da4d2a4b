/**
 * Parts of a prompt that a message has no field for, as JSON.
 */
import * as Prompt from "@effect/ai/Prompt"
import type { Json } from "@sandglass/core/LedgerEvent"
import * as Either from "effect/Either"
import * as Encoding from "effect/Encoding"
import * as Schema from "effect/Schema"
import type { Extra } from "./mark.js"
import { compact, extraOf, isObject, json, refuse } from "./mark.js"

type Kept = Prompt.FilePart | Prompt.ReasoningPart | Prompt.ToolResultPart

/** The three kinds of data are told apart, whatever the text is. */
const encodeData = (data: Prompt.FilePart["data"]): Json =>
  typeof data === "string"
    ? { text: data }
    : data instanceof URL
      ? { url: data.href }
      : { base64: Encoding.encodeBase64(data) }

const decodeData = (data: Json | undefined): Prompt.FilePart["data"] => {
  if (isObject(data)) {
    const { base64, text, url } = data
    if (typeof text === "string") {
      return text
    }
    if (typeof url === "string" && URL.canParse(url)) {
      return new URL(url)
    }
    if (typeof base64 === "string") {
      return Either.getOrElse(Encoding.decodeBase64(base64), () => refuse("a file is no base64"))
    }
  }
  return refuse("a file has no data")
}

export const encodePart = (part: Kept): Extra => {
  const options = extraOf(part.options, `the options of a ${part.type} part`)
  const fields = (): object => {
    switch (part.type) {
      case "reasoning":
        return { text: part.text }
      case "file":
        return { mediaType: part.mediaType, fileName: part.fileName, data: encodeData(part.data) }
      case "tool-result": {
        const { id, isFailure, name, providerExecuted, result } = part
        return { id, name, isFailure, providerExecuted, result }
      }
    }
  }
  const { value } = json({ type: part.type, ...compact({ ...fields(), options }) }, `a ${part.type} part`)
  return isObject(value) ? value : {}
}

const File = Schema.Struct({ mediaType: Schema.String, fileName: Schema.optional(Schema.String) })

const Reasoning = Schema.Struct({ text: Schema.String })

const ToolResult = Schema.Struct({
  id: Schema.String,
  name: Schema.String,
  isFailure: Schema.Boolean,
  providerExecuted: Schema.Boolean,
  result: Schema.optional(Schema.Unknown)
})

const decoder = <A extends object, I>(schema: Schema.Schema<A, I>) => {
  const decode = Schema.decodeUnknownEither(schema)
  return (part: Extra): A => Either.getOrElse(decode(part), () => refuse(`a ${String(part["type"])} part is none`))
}

const decodeFile = decoder(File)
const decodeReasoning = decoder(Reasoning)
const decodeResult = decoder(ToolResult)

/** Nothing for a part that a prompt does not have. */
export const decodePart = (part: Extra): Kept | undefined => {
  const options = isObject(part["options"]) ? (part["options"] as Prompt.ProviderOptions) : {}
  switch (part["type"]) {
    case "file": {
      const { fileName, mediaType } = decodeFile(part)
      const data = decodeData(part["data"])
      return Prompt.makePart("file", { mediaType, data, options, ...(fileName === undefined ? {} : { fileName }) })
    }
    case "reasoning":
      return Prompt.makePart("reasoning", { ...decodeReasoning(part), options })
    case "tool-result": {
      const { result, ...fields } = decodeResult(part)
      return Prompt.makePart("tool-result", { ...fields, result, options })
    }
    default:
      return undefined
  }
}
