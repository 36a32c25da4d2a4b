/**
 * What a database's failure means for the caller of a ledger.
 */
import { LedgerError } from "../../LedgerError.js"
import type { SqlFailure } from "../../SqlStore.js"

/** The ledger's error for a database's; the operation that failed is filled in where its span is opened. */
export const toLedgerError = ({ cause, description, reason }: SqlFailure): LedgerError =>
  new LedgerError({ method: "SqlLedger", reason, description, cause })

/** An explicit id that is taken already. */
export const isIdClash = ({ code }: SqlFailure): boolean =>
  code === "SQLITE_CONSTRAINT_PRIMARYKEY" || code === "SQLITE_CONSTRAINT_ROWID"
