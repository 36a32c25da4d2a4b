export * as PgConnection from "./PgConnection.js"
export * as PgConversations from "./PgConversations.js"
export * as PgLedger from "./PgLedger.js"
