/**
 * What connects memory and conversations with `@effect/ai`.
 *
 * @since 0.1.0
 */
export * as AiEmbeddingModel from "./AiEmbeddingModel.js"
export * as ConversationPrompt from "./ConversationPrompt.js"
export * as MemoryToolkit from "./MemoryToolkit.js"
