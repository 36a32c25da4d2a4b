/**
 * What callers give for facts and queries, checked.
 */
import * as StoredText from "@sandglass/core/StoredText"
import * as Effect from "effect/Effect"
import * as Either from "effect/Either"
import { InvalidInput } from "../../MemoryError.js"
import type { NewFact, RecallOptions } from "../../SemanticMemory.js"
import { hash } from "../hash.js"
import { isObject } from "../json.js"
import type { Draft } from "./store.js"

/** A fact that can be stored, but for its id and its vector. */
export type Checked = Omit<Draft, "id" | "vector">

const isText = (value: unknown): value is string => typeof value === "string"

const isBlank = (value: string): boolean => value.trim() === ""

const check = (fact: NewFact, name: string): Checked | string => {
  const { content, metadata, sourceRef, sourceDigest }: NewFact = Object(fact)
  if (!isText(content) || isBlank(content)) {
    return `the content of ${name} is ${isText(content) ? "blank" : "no text"}`
  }
  let encoded: string | undefined
  if (metadata !== undefined) {
    if (!isObject(metadata)) {
      return `the metadata of ${name} is no object`
    }
    const json = StoredText.encodeJson(metadata, { name: "metadata", restricted: false })
    if (Either.isLeft(json)) {
      return `${name}: ${json.left}`
    }
    encoded = json.right.text
  }
  if (sourceRef !== undefined) {
    const { sandboxId, entryIndex } = Object(sourceRef)
    if (!isText(sandboxId) || sandboxId === "" || !Number.isSafeInteger(entryIndex) || entryIndex < 0) {
      return `the sourceRef of ${name} names no entry of a sandbox`
    }
  }
  if (sourceDigest !== undefined && (sourceRef === undefined || !isText(sourceDigest))) {
    return `the sourceDigest of ${name} ${isText(sourceDigest) ? "has no sourceRef" : "is no text"}`
  }
  return {
    content,
    digest: hash(content),
    metadata: encoded,
    source:
      sourceRef === undefined
        ? undefined
        : { sandboxId: sourceRef.sandboxId, entryIndex: sourceRef.entryIndex, digest: sourceDigest }
  }
}

/** One draft for each content; of several with the same the later overrides what it gives. */
export const checkAll = (
  method: string,
  facts: ReadonlyArray<NewFact>
): Effect.Effect<{ readonly digests: ReadonlyArray<string>; readonly drafts: ReadonlyArray<Checked> }, InvalidInput> =>
  Effect.suspend(() => {
    const digests: Array<string> = []
    const drafts = new Map<string, Checked>()
    for (const [index, fact] of facts.entries()) {
      const checked = check(fact, facts.length === 1 ? "the fact" : `fact ${index + 1}`)
      if (typeof checked === "string") {
        return Effect.fail(new InvalidInput({ method, description: checked }))
      }
      const before = drafts.get(checked.digest)
      digests.push(checked.digest)
      drafts.set(checked.digest, {
        ...checked,
        metadata: checked.metadata ?? before?.metadata,
        source: checked.source ?? before?.source
      })
    }
    return Effect.succeed({ digests, drafts: Array.from(drafts.values()) })
  })

/** The defaults of a query, or why it makes no sense. */
export const checkQuery = (
  method: string,
  query: string,
  { topK = 10, minScore = Number.NEGATIVE_INFINITY }: RecallOptions
): Effect.Effect<{ readonly topK: number; readonly minScore: number }, InvalidInput> =>
  Effect.suspend(() => {
    const problem =
      !isText(query) || isBlank(query)
        ? "the query is blank"
        : !Number.isSafeInteger(topK) || topK < 1
          ? `topK must be a positive whole number, not ${String(topK)}`
          : typeof minScore !== "number" || Number.isNaN(minScore)
            ? `minScore must be a number, not ${String(minScore)}`
            : undefined
    return problem === undefined
      ? Effect.succeed({ topK, minScore })
      : Effect.fail(new InvalidInput({ method, description: problem }))
  })
