import { words } from "word-split"

/** How often each word occurs, the most frequent first, ties in alphabetical order. */
export const count = (text) => {
  const counts = new Map()
  for (const word of words(text)) counts.set(word, (counts.get(word) ?? 0) + 1)
  return [...counts].sort(([a, n], [b, m]) => m - n || (a < b ? -1 : 1))
}
