/**
 * Texts as counts of hashed words and parts of words.
 */

export const id = "sandglass/lexical-1"

/** FNV-1a over UTF-16 code units, then mixed so that every bit depends on every character. */
const hash = (feature: string): number => {
  let h = 0x811c9dc5
  for (let index = 0; index < feature.length; index++) {
    h = Math.imul(h ^ feature.charCodeAt(index), 0x01000193)
  }
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b)
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35)
  return (h ^ (h >>> 16)) >>> 0
}

const marks = /\p{M}+/gu
const words = /[\p{L}\p{N}]+/gu
const symbols = /[^\p{L}\p{N}\s]/gu

/** How much a word and its parts count. Words of few letters are mostly those that every text has. */
const weightOf = (length: number): number => (length <= 2 ? 0.3 : length === 3 ? 0.6 : 1)

const features = (text: string): Map<string, number> => {
  const counts = new Map<string, number>()
  const add = (feature: string, weight: number) => counts.set(feature, (counts.get(feature) ?? 0) + weight)
  const plain = text.normalize("NFKD").replace(marks, "").toLowerCase()
  for (const [word] of plain.matchAll(words)) {
    const letters = Array.from(word)
    const weight = weightOf(letters.length)
    add(`w${word}`, weight)
    const marked = ["<", ...letters, ">"]
    for (let size = 2; size <= 4; size++) {
      for (let from = 0; from + size <= marked.length; from++) {
        add(`c${marked.slice(from, from + size).join("")}`, (weight * 0.5) / Math.sqrt(marked.length))
      }
    }
  }
  for (const [symbol] of plain.matchAll(symbols)) {
    add(`s${symbol}`, 0.1)
  }
  return counts
}

/** A vector of length 1. */
export const embed = (text: string, dimensions: number): Float32Array => {
  const sums = new Float64Array(dimensions)
  for (const [feature, count] of features(text)) {
    const h = hash(feature)
    const sign = h & 1 ? 1 : -1
    const place = (h >>> 1) % dimensions
    // A word that is said ten times does not say ten times as much.
    sums[place] = (sums[place] ?? 0) + sign * Math.sqrt(count)
  }
  let square = 0
  for (const sum of sums) {
    square += sum * sum
  }
  if (square === 0) {
    // Nothing to count, or counts that cancel each other out: a place of its own.
    sums[hash(`t${text}`) % dimensions] = 1
    square = 1
  }
  const length = Math.sqrt(square)
  return Float32Array.from(sums, (sum) => sum / length)
}
