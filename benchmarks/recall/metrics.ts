/** How good a ranking is, compared with what somebody says is relevant. */

/** Of what is relevant, how much is among the first `k`. */
export const recallAt = (k: number, ranking: ReadonlyArray<string>, relevant: ReadonlyArray<string>): number => {
  const first = new Set(ranking.slice(0, k))
  return relevant.filter((id) => first.has(id)).length / Math.min(k, relevant.length)
}

/** 1 where the first is relevant, a half where the second is the first that is, and so on; 0 where none is. */
export const reciprocalRank = (ranking: ReadonlyArray<string>, relevant: ReadonlyArray<string>): number => {
  const place = ranking.findIndex((id) => relevant.includes(id))
  return place < 0 ? 0 : 1 / (place + 1)
}

export const mean = (values: ReadonlyArray<number>): number =>
  values.reduce((sum, value) => sum + value, 0) / values.length
