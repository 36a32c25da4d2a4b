export * as SqliteConversations from "./SqliteConversations.js"
export * as SqliteLedger from "./SqliteLedger.js"
export * as SqliteMemory from "./SqliteMemory.js"
export * as SqliteVectorIndex from "./SqliteVectorIndex.js"
