export * as PgConnection from "./PgConnection.js"
export * as PgLedger from "./PgLedger.js"
