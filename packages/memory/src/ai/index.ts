export * as AiEmbeddingModel from "./AiEmbeddingModel.js"
export * as ConversationPrompt from "./ConversationPrompt.js"
export * as MemoryToolkit from "./MemoryToolkit.js"
