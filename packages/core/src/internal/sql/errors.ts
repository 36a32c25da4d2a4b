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

const contention = [
  /^SQLITE_(?:BUSY|LOCKED|PROTOCOL)/,
  // Serialisation failures, deadlocks, locks that were not to be had.
  /^40(?:001|P01)$|^55P03$/,
  // Cancelled, be it by a timeout or by the driver, which may hit the next statement with what was meant for the one before.
  /^57014$/
]

const constraint = [/^SQLITE_(?:CONSTRAINT|MISMATCH|TOOBIG|RANGE)/, /^2[23]...$|^5400[01]$/]

const connection = [
  /^SQLITE_(?:CANTOPEN|NOTADB|IOERR|READONLY|CORRUPT|FULL|PERM|AUTH|MISUSE)/,
  // Lost connections, servers that stop or start, no more room, wrong users and databases.
  /^08...$|^57P0[1-5]$|^53...$|^28...$|^3D000$/,
  // Sessions that were ended for being idle or too long, and a server that takes no writes since it is no primary any more.
  /^25P0[34]$|^25006$|^40003$/,
  // The system's names, those of the runtime's streams, and those of TLS.
  /^E[A-Z]+$|^ERR_(?:STREAM|SOCKET|TLS|SSL)_|^CERT_|^(?:DEPTH_ZERO_)?SELF_SIGNED_CERT|^UNABLE_TO_(?:GET|VERIFY)_/
]

/** Of what has no code. */
const lostConnection =
  /closed database|database is (?:not open|closed)|Connection terminated|timeout exceeded when trying|not queryable|Cannot use a pool|does not support SSL/i

/** By the driver's code: SQLite's names, Postgres's five characters, or Node's names for a connection's failures. */
export const classify = (cause: unknown): "Connection" | "Contention" | "Constraint" | "Unknown" => {
  const code = codeOf(cause)
  const isOneOf = (patterns: ReadonlyArray<RegExp>) =>
    patterns.some((pattern) => code !== undefined && pattern.test(code))
  return isOneOf(contention)
    ? "Contention"
    : isOneOf(constraint)
      ? "Constraint"
      : isOneOf(connection) || (code === undefined && lostConnection.test(messageOf(cause)))
        ? "Connection"
        : "Unknown"
}

/** SQLite has no code of its own for it. */
export const isInsideTransaction = (error: unknown): boolean => /within a transaction/i.test(messageOf(error))
