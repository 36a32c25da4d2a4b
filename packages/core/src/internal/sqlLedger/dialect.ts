/**
 * What differs between the databases.
 */
import type { LedgerStore } from "../../LedgerStore.js"
import type { Transactions } from "./transactions.js"

export interface Dialect {
  readonly restrictedJson: boolean
  readonly param: (position: number) => string
  /** A condition, beginning with a column, that rows are checked against, and that must not make the database choose an index. */
  readonly filter: (condition: string) => string
  /** At most so many rows of those that an index gives in order, whatever the database thinks of their number. */
  readonly limit: (param: string) => string
  /** `ts` in the order of the whole ledger, so that its index serves no query for one session or one name. */
  readonly ledgerTs: string
  /** The columns of an index in that order. */
  readonly ledgerIndex: string
  /** What to select of an event. */
  readonly columns: string
  readonly payloadText: string
  /** The `resourceId` of a payload, also of one that was stored as JSON inside a JSON string; perhaps only its beginning. */
  readonly resourceId: string
  /** What is compared with it. */
  readonly asResourceId: (param: string) => string
  /** Where a payload can be asked for it. */
  readonly hasResourceId: string
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
  readonly writes: (transactions: Transactions) => Pick<LedgerStore, "append" | "restore" | "remove" | "settledId">
}
