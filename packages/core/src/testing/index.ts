/**
 * Suites that prove a backend of one's own; they run with vitest and `@effect/vitest`.
 *
 * @since 0.1.0
 */
export * as LedgerContract from "./LedgerContract.js"
