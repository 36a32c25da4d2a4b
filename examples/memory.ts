/**
 * What a memory can do, without a sandbox or a model: everything is in one SQLite database.
 *
 *     bun examples/memory.ts
 */
import { BunRuntime } from "@effect/platform-bun"
import { Ledger } from "@sandglass/core"
import { EmbeddingModel, EpisodicMemory, Memory, MemoryTools, SchemaWorkingMemory } from "@sandglass/memory"
import { SqliteMemory } from "@sandglass/sql-sqlite"
import { Console, Effect, Layer, Option, Schema, Stream } from "effect"

const ada = { resourceId: "ada", teamId: "analytical-engines" }

const Profile = Schema.Struct({ name: Schema.String, languages: Schema.Array(Schema.String) })

const program = Effect.gen(function* () {
  const memory = yield* Memory.FullMemory

  yield* Console.log("== working memory: values by key")
  yield* memory.working.set(ada, "timezone", "Europe/London")
  const profile = yield* SchemaWorkingMemory.make(Profile, { key: "profile" })
  yield* profile.set(ada, { name: "Ada", languages: ["en"] })
  yield* profile.update(ada, { languages: ["en", "fr"] })
  yield* Console.log(JSON.stringify(Option.getOrNull(yield* profile.get(ada))))

  yield* Console.log("\n== episodic memory: what the ledger recorded")
  const ledger = yield* Ledger.Ledger
  const session = { sandboxId: "sbx-1", name: "notes" }
  yield* ledger.append({ ...session, event: "sandbox.created", payload: ada })
  const said = yield* ledger.append({ ...session, event: "user.said", payload: { text: "I never travel on Fridays." } })
  yield* memory
    .episodicRecall(ada)
    .pipe(Stream.runForEach(({ event, payload }) => Console.log(`${event} ${JSON.stringify(payload)}`)))

  yield* Console.log("\n== semantic memory: facts, and whether the ledger proves them")
  const episodic = yield* EpisodicMemory.EpisodicMemory
  yield* memory.remember(ada, { content: "Never travels on Fridays", sourceRef: yield* episodic.sourceRef(said) })
  yield* memory.rememberAll(ada, [
    { content: "Prefers the window seat on trains" },
    { content: "Is working on a table of Bernoulli numbers", metadata: { project: "note G" } }
  ])
  for (const { content, score, verified } of yield* memory.recall(ada, "when does she travel?", { topK: 2 })) {
    yield* Console.log(`${score.toFixed(2)} ${content}${verified ? " (verified)" : ""}`)
  }

  yield* Console.log("\n== context: text for a prompt")
  yield* Console.log(yield* memory.buildContextSnippet(ada, { query: "book a train", topK: 1 }))

  yield* Console.log("== tools: for a model to call")
  for (const { description, execute, name } of yield* MemoryTools.createMemoryTools(ada)) {
    yield* Console.log(`${name}: ${description.split(".")[0]}.`)
    if (name === "recall_facts") yield* Console.log(JSON.stringify(yield* execute({ query: "seat", limit: 1 })))
  }

  yield* Console.log("\n== fork: a copy that goes its own way")
  yield* Console.log(JSON.stringify(yield* memory.fork(ada, "ada-2")))

  yield* Console.log("\n== compaction: a summary takes the place of what is old")
  const compacted = yield* memory.compactSemanticMemory(ada, {
    maxFacts: 1,
    summarize: (facts) => Effect.succeed([{ content: facts.map(({ content }) => content).join("; ") }])
  })
  yield* Console.log(JSON.stringify(compacted))
  yield* memory.listAll(ada).pipe(Stream.runForEach(({ content }) => Console.log(`- ${content}`)))

  yield* Console.log("\n== without its session, a fact is not proved any more")
  yield* ledger.append({ ...session, event: "sandbox.closed" })
  yield* memory.remember(ada, { content: "Never travels on Fridays", sourceRef: yield* episodic.sourceRef(said) })
  const verdict = Effect.map(memory.recall(ada, "Fridays", { topK: 1 }), ([fact]) => fact?.verified)
  yield* Console.log(`before: ${yield* verdict}`)
  yield* ledger.deleteSandbox("sbx-1")
  yield* Console.log(`after: ${yield* verdict}`)
})

program.pipe(
  Effect.provide(SqliteMemory.layer({ filename: ":memory:" }).pipe(Layer.provide(EmbeddingModel.layerLexical()))),
  BunRuntime.runMain
)
