/**
 * What differs between the databases.
 */
import type { LedgerStore } from "../../LedgerStore.js"
import type { Transactions } from "./transactions.js"

export interface Dialect {
  readonly restrictedJson: boolean
  readonly param: (position: number) => string
  /** A column that must not make the database choose an index. */
  readonly unindexed: (column: string) => string
  /** What to select of an event. */
  readonly columns: string
  readonly payloadText: string
  /** True where `text` is part of `column`. */
  readonly contains: (column: string, text: string) => string
  /** `event` in a list that arrives as one parameter, so that its length is no part of the statement's text. */
  readonly eventIn: (list: string) => string
  /** Whether an index serves the comparison of a pair: `(ts, id) > (1, 2)`. */
  readonly comparesPairs: boolean
  /** Less and more than any `ts` can be, whatever another program wrote there. */
  readonly lowest: string
  readonly highest: string
  /** Whether what a row has for its `ts` is something else than what is made of it. */
  readonly isOddTs: string
  readonly tables: ReadonlyArray<string>
  /** Selects the `name`s of the tables and indexes that exist. */
  readonly presentNames: string
  /** Until the end of the transaction nobody else migrates, where a transaction that writes does not see to that. */
  readonly migrationLock: string | undefined
  readonly writes: (transactions: Transactions) => Pick<LedgerStore, "append" | "remove" | "settledId">
}
