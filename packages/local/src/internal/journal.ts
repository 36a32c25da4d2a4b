/** @internal */

export type Scope = "lifecycle" | "process" | "runtime"

export interface Entry {
  readonly at: number
  readonly scope: Scope
  readonly text: string
}

const KEPT = 2000
const LINE = 300

/** What the server has to tell about a sandbox to somebody who looks for the reason of something. */
export class Journal {
  private readonly all: Array<Entry> = []
  /** How many there were that are not kept any more. */
  forgotten = 0

  constructor(private readonly now: () => number) {}

  get entries(): ReadonlyArray<Entry> {
    return this.all
  }

  note(scope: Scope, text: string): void {
    const line = text.replace(/\s+/g, " ")
    this.all.push({ at: this.now(), scope, text: line.length > LINE ? `${line.slice(0, LINE)}…` : line })
    if (this.all.length <= KEPT) return
    this.all.shift()
    this.forgotten++
  }
}
