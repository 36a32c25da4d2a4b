/** @internal */
import * as Chunk from "effect/Chunk"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"

/** @internal */
export interface Part<E> {
  /** JSON. */
  readonly metadata: string
  readonly fileName: string
  readonly content: string | Uint8Array | Stream.Stream<Uint8Array, E>
}

const pieceSize = 256 * 1024

const noPiece = Option.none<readonly [Chunk.Chunk<Uint8Array>, number]>()

const piece = (bytes: Uint8Array, next: number) => Option.some([Chunk.of(bytes), next] as const)

/** In pieces, so that a large text or array is never held a second time. */
const contentStream = <E>(content: Part<E>["content"]): Stream.Stream<Uint8Array, E> => {
  if (typeof content !== "string" && !(content instanceof Uint8Array)) return content
  return Stream.suspend(() => {
    const encoder = new TextEncoder()
    return Stream.unfoldChunk(0, (offset) => {
      if (offset >= content.length) return noPiece
      let end = Math.min(offset + pieceSize, content.length)
      if (content instanceof Uint8Array) return piece(content.subarray(offset, end), end)
      const last = content.charCodeAt(end - 1)
      if (end < content.length && last >= 0xd800 && last <= 0xdbff) end--
      return piece(encoder.encode(content.slice(offset, end)), end)
    })
  })
}

/** The form of a file name that needs no quoting; the true path travels in the metadata. */
const safeFileName = (name: string): string => name.replace(/[^A-Za-z0-9._-]+/g, "_").slice(-100) || "file"

/**
 * A `multipart/form-data` body: per file a part `metadata` and a part `file`, in this order, which is how the server pairs them.
 *
 * @internal
 */
export const multipart = <E>(boundary: string, parts: ReadonlyArray<Part<E>>): Stream.Stream<Uint8Array, E> => {
  const encoder = new TextEncoder()
  const head = (part: Part<E>) =>
    encoder.encode(
      `--${boundary}\r\nContent-Disposition: form-data; name="metadata"; filename="metadata"\r\n` +
        `Content-Type: application/json\r\n\r\n${part.metadata}\r\n` +
        `--${boundary}\r\nContent-Disposition: form-data; name="file"; filename="${safeFileName(part.fileName)}"\r\n` +
        `Content-Type: application/octet-stream\r\n\r\n`
    )
  return Stream.fromIterable(parts).pipe(
    Stream.flatMap((part) =>
      Stream.make(head(part)).pipe(
        Stream.concat(contentStream(part.content)),
        Stream.concat(Stream.make(encoder.encode("\r\n")))
      )
    ),
    Stream.concat(Stream.make(encoder.encode(`--${boundary}--\r\n`)))
  )
}
