export * as SqliteLedger from "./SqliteLedger.js"
