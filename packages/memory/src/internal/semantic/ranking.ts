/**
 * The best of many, without sorting or keeping them all.
 */

export interface Ranked<A> {
  readonly score: number
  /** Of equals the lower comes first. */
  readonly seq: number
  readonly item: A
}

const before = (a: Ranked<unknown>, b: Ranked<unknown>): number => b.score - a.score || a.seq - b.seq

/** Keeps the best `capacity`: a heap with the worst of them on top. */
export class Best<A> {
  private readonly heap: Array<Ranked<A>> = []

  constructor(private readonly capacity: number) {}

  /** Whether one with this score would have a place. Equals are decided by `offer`. */
  admits(score: number): boolean {
    const worst = this.heap[0]
    return this.heap.length < this.capacity || worst === undefined || score >= worst.score
  }

  offer(score: number, seq: number, item: A): void {
    const entry = { score, seq, item }
    const { heap } = this
    if (heap.length < this.capacity) {
      heap.push(entry)
      for (let child = heap.length - 1; child > 0; ) {
        const parent = (child - 1) >>> 1
        if (!this.swapIfWorse(child, parent)) break
        child = parent
      }
      return
    }
    const worst = heap[0]
    if (worst === undefined || before(entry, worst) >= 0) {
      return
    }
    heap[0] = entry
    for (let parent = 0; ; ) {
      const left = 2 * parent + 1
      const right = left + 1
      const worse = this.isWorse(right, left) ? right : left
      if (!this.swapIfWorse(worse, parent)) break
      parent = worse
    }
  }

  /** Best first. */
  get sorted(): ReadonlyArray<Ranked<A>> {
    return this.heap.toSorted(before)
  }

  private isWorse(a: number, b: number): boolean {
    const [one, other] = [this.heap[a], this.heap[b]]
    return one !== undefined && (other === undefined || before(one, other) > 0)
  }

  private swapIfWorse(child: number, parent: number): boolean {
    const [low, high] = [this.heap[child], this.heap[parent]]
    if (low === undefined || high === undefined || before(low, high) <= 0) {
      return false
    }
    this.heap[child] = high
    this.heap[parent] = low
    return true
  }
}
