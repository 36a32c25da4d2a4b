/** Ranks the facts of the labelled set for each of its queries, in several ways, and compares. */
import * as fs from "node:fs"
import { EmbeddingModel, SemanticMemory } from "@sandglass/memory"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import { mean, recallAt, reciprocalRank } from "./metrics.js"

const LabelledSet = Schema.Struct({
  facts: Schema.Array(Schema.Struct({ id: Schema.String, text: Schema.String })),
  queries: Schema.Array(
    Schema.Struct({
      /** `keyword`: a word of the fact. `question`: some of its words. `form`: its words in other forms, or misspelled. `meaning`: none of its words. */
      kind: Schema.Literal("keyword", "question", "form", "meaning"),
      query: Schema.String,
      relevant: Schema.NonEmptyArray(Schema.String)
    })
  )
})

export interface LabelledSet extends Schema.Schema.Type<typeof LabelledSet> {}

export const labelledSet: LabelledSet = Schema.decodeUnknownSync(Schema.parseJson(LabelledSet))(
  fs.readFileSync(new URL("set.json", import.meta.url), "utf8")
)

/** Ids of facts, best first. */
type Rank<E> = (query: string) => Effect.Effect<ReadonlyArray<string>, E>

/** The facts that contain the query, whatever its case, in the order in which they were remembered. */
export const bySubstring =
  ({ facts }: LabelledSet): Rank<never> =>
  (query) =>
    Effect.succeed(facts.filter(({ text }) => text.toLowerCase().includes(query.toLowerCase())).map(({ id }) => id))

/** What `recall` finds with the embedding model at hand. */
export const byRecall = ({ facts }: LabelledSet) =>
  Effect.gen(function* () {
    const semantic = yield* SemanticMemory.SemanticMemory
    const ref = { resourceId: "benchmark" }
    yield* semantic.rememberAll(
      ref,
      facts.map(({ id, text }) => ({ content: text, metadata: { id } }))
    )
    return (query: string) =>
      Effect.map(semantic.recall(ref, query, { topK: facts.length }), (found) =>
        found.map(({ metadata }) => String(metadata?.["id"]))
      )
  })

export interface Score {
  readonly queries: number
  readonly recallAt5: number
  readonly mrr: number
}

export interface Scores {
  readonly name: string
  readonly all: Score
  readonly byKind: { readonly [kind: string]: Score }
}

const kinds = ["keyword", "question", "form", "meaning"] as const

export const evaluate = <E>(name: string, set: LabelledSet, rank: Rank<E>): Effect.Effect<Scores, E> =>
  Effect.gen(function* () {
    const results = yield* Effect.forEach(set.queries, ({ kind, query, relevant }) =>
      Effect.map(rank(query), (ranking) => ({
        kind,
        recall: recallAt(5, ranking, relevant),
        reciprocal: reciprocalRank(ranking, relevant)
      }))
    )
    const score = (of: typeof results): Score => ({
      queries: of.length,
      recallAt5: mean(of.map(({ recall }) => recall)),
      mrr: mean(of.map(({ reciprocal }) => reciprocal))
    })
    return {
      name,
      all: score(results),
      byKind: Object.fromEntries(kinds.map((kind) => [kind, score(results.filter((result) => result.kind === kind))]))
    }
  })

const withModel = <E, R>(model: Layer.Layer<EmbeddingModel.EmbeddingModel, E, R>) =>
  Effect.gen(function* () {
    const { id } = yield* EmbeddingModel.EmbeddingModel
    return yield* evaluate(id, labelledSet, yield* byRecall(labelledSet))
  }).pipe(Effect.provide(Layer.provideMerge(SemanticMemory.layerMemory, model)))

/** The baseline, the offline model, and a model of the caller's. */
export const report = <E>(model?: Layer.Layer<EmbeddingModel.EmbeddingModel, E>) =>
  Effect.all([
    evaluate("exact substring", labelledSet, bySubstring(labelledSet)),
    withModel(EmbeddingModel.layerLexical()),
    ...(model === undefined ? [] : [withModel(model)])
  ])
