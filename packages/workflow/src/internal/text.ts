/**
 * Text within a limit: its head and its tail, and how much there was between them. Immutable, and cheap to grow.
 */

export interface Text {
  readonly head: string
  /** What follows the head; as long as nothing is left out, nothing. */
  readonly tail: string
  readonly total: number
}

export const empty: Text = { head: "", tail: "", total: 0 }

const isLowSurrogate = (code: number): boolean => code >= 0xdc00 && code <= 0xdfff

/** The first so many characters, never ending inside a surrogate pair. */
const firstOf = (text: string, length: number): string =>
  text.length <= length
    ? text
    : text.slice(0, length > 0 && isLowSurrogate(text.charCodeAt(length)) ? length - 1 : length)

/** The last so many characters, never beginning inside a surrogate pair. */
export const lastOf = (text: string, length: number): string => {
  if (text.length <= length) return text
  const at = text.length - length
  return text.slice(isLowSurrogate(text.charCodeAt(at)) ? at + 1 : at)
}

const tailLimit = (limit: number): number => Math.floor(limit / 2)

export const append = (text: Text, more: string, limit: number): Text => {
  const total = text.total + more.length
  if (text.head.length === text.total && total <= limit) return { head: text.head + more, tail: "", total }
  if (text.head.length === text.total) {
    const all = text.head + more
    const head = firstOf(all, limit - tailLimit(limit))
    return { head, tail: lastOf(all.slice(head.length), tailLimit(limit)), total }
  }
  const tail = text.tail + more
  // Cut only now and then: cutting copies.
  return { head: text.head, tail: tail.length > 2 * limit ? lastOf(tail, tailLimit(limit)) : tail, total }
}

/** Both were made with this limit. */
export const concat = (a: Text, b: Text, limit: number): Text => {
  if (a.total === 0) return b
  const joined = append(append(a, b.head, limit), b.tail, limit)
  return { ...joined, total: a.total + b.total }
}

export const isTruncated = (text: Text): boolean => text.head.length < text.total

export const render = (text: Text, limit: number): string => {
  if (!isTruncated(text)) return text.head
  const tail = lastOf(text.tail, tailLimit(limit))
  return `${text.head}\n[${text.total - text.head.length - tail.length} characters left out]\n${tail}`
}
