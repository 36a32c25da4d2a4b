/**
 * What waits for a commit. There is a bound to it: appends beyond stand in line, first come, first served, and are not
 * encoded before it is their turn, so that a slow database costs no more memory than the callers have taken already.
 */
import * as Exit from "effect/Exit"
import type { EventInput } from "../../Ledger.js"
import type { LedgerError } from "../../LedgerError.js"
import type { Cursor } from "../../LedgerEvent.js"
import type { PreparedAll } from "./prepare.js"

/** By position: where the row stands, or why it was not stored. */
export type Stored = ReadonlyArray<Cursor | LedgerError>

/** Some events that are to be stored together. */
export interface Append {
  readonly events: ReadonlyArray<EventInput>
  /** There when it is no longer in line. */
  prepared: PreparedAll | undefined
  /** There when it is over. */
  exit: Exit.Exit<Stored, LedgerError> | undefined
  /** Whoever waits for that. */
  resume: ((exit: Exit.Exit<Stored, LedgerError>) => void) | undefined
}

export interface Limits {
  readonly rows: number
  readonly characters: number
}

/** Something that is larger than the limits by itself gets its turn when nothing else waits for a commit. */
export class Queue {
  private readonly line = new Set<Append>()
  private readonly waiting = new Set<Append>()
  /** Of all that was admitted and is not over. */
  private rows = 0
  private characters = 0

  constructor(
    private readonly prepare: (events: ReadonlyArray<EventInput>) => PreparedAll,
    /** For all that waits, what is being committed included. */
    private readonly limits: Limits,
    /** For a commit that several appends share. */
    private readonly group: Limits
  ) {}

  add(events: ReadonlyArray<EventInput>): Append {
    // A copy: the caller may go on with its array.
    const append: Append = { events: events.slice(), prepared: undefined, exit: undefined, resume: undefined }
    if (this.line.size === 0 && this.fits(append)) {
      this.admit(append)
    } else {
      this.line.add(append)
    }
    return append
  }

  /** Takes what may share the next commit. */
  take(): ReadonlyArray<Append> {
    const group: Array<Append> = []
    let rows = 0
    let characters = 0
    for (const append of this.waiting) {
      rows += append.prepared?.drafts.length ?? 0
      characters += append.prepared?.characters ?? 0
      if (group.length > 0 && (rows > this.group.rows || characters > this.group.characters)) {
        break
      }
      this.waiting.delete(append)
      group.push(append)
    }
    return group
  }

  /** It is over. */
  settle(append: Append, exit: Exit.Exit<Stored, LedgerError>): void {
    append.exit = exit
    this.leave(append)
    append.resume?.(exit)
  }

  /** Nobody wants it any more: it is forgotten, unless it is being committed. */
  withdraw(append: Append): void {
    if (this.line.delete(append)) {
      this.advance()
    } else if (this.waiting.delete(append)) {
      this.leave(append)
    }
  }

  private fits(append: Append): boolean {
    return (
      this.rows === 0 ||
      (this.rows + append.events.length <= this.limits.rows && this.characters < this.limits.characters)
    )
  }

  private admit(append: Append): void {
    try {
      append.prepared = this.prepare(append.events)
    } catch (defect) {
      append.exit = Exit.die(defect)
    }
    if (append.prepared === undefined || append.prepared.drafts.length === 0) {
      append.exit ??= Exit.succeed([])
      append.resume?.(append.exit)
      return
    }
    this.rows += append.prepared.drafts.length
    this.characters += append.prepared.characters
    this.waiting.add(append)
  }

  private leave(append: Append): void {
    this.rows -= append.prepared?.drafts.length ?? 0
    this.characters -= append.prepared?.characters ?? 0
    this.advance()
  }

  private advance(): void {
    for (const append of this.line) {
      if (!this.fits(append)) {
        return
      }
      this.line.delete(append)
      this.admit(append)
    }
  }
}
