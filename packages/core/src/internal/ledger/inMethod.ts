import { LedgerError } from "../../LedgerError.js"

/** The error under the name of the operation that failed. */
export const inMethod =
  (method: string) =>
  ({ cause, description, line, reason, rejected }: LedgerError): LedgerError =>
    new LedgerError({ method, reason, description, rejected, line, cause })
