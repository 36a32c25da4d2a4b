/**
 * What a database's error means.
 */
import * as Predicate from "effect/Predicate"

/** The driver's code, wherever it is among the causes. */
export const codeOf = (cause: unknown, depth = 0): string | undefined =>
  Predicate.hasProperty(cause, "code") && typeof cause.code === "string"
    ? cause.code
    : depth < 4 && Predicate.hasProperty(cause, "cause")
      ? codeOf(cause.cause, depth + 1)
      : undefined

export const messageOf = (cause: unknown): string => {
  const inner = Predicate.hasProperty(cause, "cause") && cause.cause instanceof Error ? cause.cause : cause
  return inner instanceof Error ? inner.message : String(inner)
}

/** By the driver's code: SQLite's names, Postgres's five characters, or Node's names for a connection's failures. */
export const classify = (cause: unknown): "Connection" | "Contention" | "Constraint" | "Unknown" => {
  const code = codeOf(cause)
  if (code === undefined) {
    return /closed database|database is (?:not open|closed)|Connection terminated|timeout exceeded when trying/i.test(
      messageOf(cause)
    )
      ? "Connection"
      : "Unknown"
  }
  if (/^SQLITE_(?:BUSY|LOCKED|PROTOCOL)|^40(?:001|P01)$|^55P03$/.test(code)) {
    return "Contention"
  }
  if (/^SQLITE_(?:CONSTRAINT|MISMATCH|TOOBIG|RANGE)|^2[23]...$|^54000$/.test(code)) {
    return "Constraint"
  }
  if (
    /^SQLITE_(?:CANTOPEN|NOTADB|IOERR|READONLY|CORRUPT|FULL|PERM|AUTH|MISUSE)|^08...$|^57P0[1-5]$|^53...$|^28...$|^3D000$/.test(
      code
    ) ||
    /^E[A-Z]+$/.test(code)
  ) {
    return "Connection"
  }
  return "Unknown"
}

/** SQLite has no code of its own for it. */
export const isInsideTransaction = (error: unknown): boolean => /within a transaction/i.test(messageOf(error))
