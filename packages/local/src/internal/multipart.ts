/**
 * A parser for multipart/form-data that hands on content as it comes and understands no more of a part's headers than its name: what file names
 * clients write there, and how they quote them, differs.
 *
 * @internal
 */

export type MultipartEvent =
  | { readonly _tag: "Part"; readonly name: string }
  | { readonly _tag: "Data"; readonly bytes: Uint8Array }
  | { readonly _tag: "End" }

const MAX_HEADERS = 64 * 1024
const BREAK = "\r\n"

export const boundaryOf = (contentType: string): string | undefined => {
  if (!/^multipart\/form-data\s*;/i.test(contentType)) return undefined
  const match = /;\s*boundary=(?:"([^"]+)"|([^;\s]+))/i.exec(contentType)
  return match?.[1] ?? match?.[2]
}

const nameOf = (headers: string): string => {
  const disposition = /^content-disposition:(.*)$/im.exec(headers)?.[1] ?? ""
  const match = /;\s*name=(?:"((?:[^"\\]|\\.)*)"|([^;\s]+))/i.exec(disposition)
  return match?.[1] ?? match?.[2] ?? ""
}

/** Thrown messages are for the client. */
export class MultipartParser {
  private readonly delimiter: Buffer
  // So that the first boundary is found like all others, which a line break comes before.
  private rest: Buffer = Buffer.from(BREAK)
  private state: "preamble" | "delimiter" | "headers" | "body" | "done" = "preamble"

  constructor(boundary: string) {
    this.delimiter = Buffer.from(`${BREAK}--${boundary}`)
  }

  push(chunk: Uint8Array): Array<MultipartEvent> {
    const events: Array<MultipartEvent> = []
    this.rest = this.rest.length === 0 ? Buffer.from(chunk) : Buffer.concat([this.rest, chunk])
    while (this.step(events));
    return events
  }

  end(): void {
    if (this.state !== "done") throw new Error("the multipart body ends before its last boundary")
  }

  /** Whether there may be more to do with the bytes at hand. */
  private step(events: Array<MultipartEvent>): boolean {
    switch (this.state) {
      case "preamble":
      case "body": {
        const found = this.rest.indexOf(this.delimiter)
        const inBody = this.state === "body"
        // The end of what is there may be the beginning of a delimiter.
        const length = found >= 0 ? found : Math.max(0, this.rest.length - this.delimiter.length + 1)
        if (inBody && length > 0) events.push({ _tag: "Data", bytes: this.rest.subarray(0, length) })
        if (found < 0) {
          this.rest = this.rest.subarray(length)
          return false
        }
        if (inBody) events.push({ _tag: "End" })
        this.rest = this.rest.subarray(found + this.delimiter.length)
        this.state = "delimiter"
        return true
      }
      case "delimiter": {
        if (this.rest.length < 2) return false
        if (this.rest.toString("latin1", 0, 2) === "--") {
          this.state = "done"
          return true
        }
        const end = this.rest.indexOf(BREAK)
        if (end < 0) {
          if (this.rest.length > MAX_HEADERS) throw new Error("the multipart body has a boundary without an end")
          return false
        }
        // The line break stays, so that a part without headers ends them at once.
        this.rest = this.rest.subarray(end)
        this.state = "headers"
        return true
      }
      case "headers": {
        const end = this.rest.indexOf(`${BREAK}${BREAK}`)
        if (end < 0) {
          if (this.rest.length > MAX_HEADERS) throw new Error("the headers of a part are too long")
          return false
        }
        events.push({ _tag: "Part", name: nameOf(this.rest.toString("utf8", 0, end)) })
        this.rest = this.rest.subarray(end + 4)
        // An empty part's delimiter may follow at once.
        this.state = "body"
        return true
      }
      case "done":
        this.rest = Buffer.alloc(0)
        return false
    }
  }
}
