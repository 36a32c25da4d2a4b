/**
 * Suites that prove a backend of one's own; they run with vitest and `@effect/vitest`.
 *
 * @since 0.1.0
 */
export * as ConversationsContract from "./ConversationsContract.js"
export * as MemoryContract from "./MemoryContract.js"
export * as SemanticMemoryContract from "./SemanticMemoryContract.js"
export * as WorkingMemoryContract from "./WorkingMemoryContract.js"
