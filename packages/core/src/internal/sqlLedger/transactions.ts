/**
 * How a ledger reads and writes.
 */
import type { LedgerError } from "../../LedgerError.js"
import type { SqlStore } from "../../SqlStore.js"

export type Transactions = SqlStore<LedgerError>

export type { Param } from "../../SqlStore.js"
export { execute } from "../../SqlStore.js"
