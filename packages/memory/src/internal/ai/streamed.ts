/**
 * The parts of a streamed response put together: each text and each reasoning is one.
 */
import * as Response from "@effect/ai/Response"

interface Open {
  readonly type: "text" | "reasoning"
  text: string
  metadata: Response.ProviderMetadata
}

/** The parts that a response has in the end. */
export type WholePart = Exclude<
  Response.AnyPart,
  {
    readonly type:
      | "text-start"
      | "text-delta"
      | "text-end"
      | "reasoning-start"
      | "reasoning-delta"
      | "reasoning-end"
      | "tool-params-start"
      | "tool-params-delta"
      | "tool-params-end"
  }
>

const close = ({ metadata, text, type }: Open): WholePart => Response.makePart(type, { text, metadata })

/** A text stands where it ended; of one that did not end, there is what came of it. */
export const whole = (parts: ReadonlyArray<Response.AnyPart>): ReadonlyArray<WholePart> => {
  const open = new Map<string, Open>()
  const done: Array<WholePart> = []
  for (const part of parts) {
    switch (part.type) {
      case "text-start":
      case "reasoning-start": {
        const type = part.type === "text-start" ? "text" : "reasoning"
        open.set(`${type} ${part.id}`, { type, text: "", metadata: part.metadata })
        break
      }
      case "text-delta":
      case "text-end":
      case "reasoning-delta":
      case "reasoning-end": {
        const type = part.type.startsWith("text") ? "text" : "reasoning"
        const key = `${type} ${part.id}`
        const of = open.get(key)
        if (of === undefined) {
          break
        }
        of.metadata = { ...of.metadata, ...part.metadata }
        if ("delta" in part) {
          of.text += part.delta
        } else {
          done.push(close(of))
          open.delete(key)
        }
        break
      }
      // The call that follows has them whole.
      case "tool-params-start":
      case "tool-params-delta":
      case "tool-params-end":
        break
      default:
        done.push(part)
    }
  }
  return [...done, ...Array.from(open.values(), close)]
}
