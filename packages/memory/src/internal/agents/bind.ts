/**
 * A memory of one resource.
 */
import type { AgentMemory } from "../../Agents.js"
import type { Service } from "../../Memory.js"
import type { ResourceRef } from "../../ResourceRef.js"

export const bind = (memory: Service, ref: ResourceRef): AgentMemory => {
  const { working } = memory
  return {
    hasSemanticMemory: memory.hasSemanticMemory,
    get: (key) => working.get(ref, key),
    set: (key, value) => working.set(ref, key, value),
    delete: (key) => working.delete(ref, key),
    list: working.list(ref),
    modify: (key, f) => working.modify(ref, key, f),
    remember: (fact) => memory.remember(ref, fact),
    recall: (query, options) => memory.recall(ref, query, options),
    listAll: memory.listAll(ref),
    forget: (ids) => memory.forget(ref, ids),
    compactSemanticMemory: (options) => memory.compactSemanticMemory(ref, options),
    buildContextSnippet: (options) => memory.buildContextSnippet(ref, options),
    episodicRecall: (options) => memory.episodicRecall(ref, options),
    episodicTree: (options) => memory.episodicTree(ref, options),
    sourceRef: memory.episodic.sourceRef
  }
}
