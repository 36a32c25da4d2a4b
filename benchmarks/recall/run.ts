/**
 * How good recall is: recall@5 and MRR on a small labelled set, of the offline model, of exact substring search, and of the embedding
 * model that the environment names, if it does (`EMBEDDING_MODEL`, `EMBEDDING_DIMENSIONS`, `EMBEDDING_URL`, `EMBEDDING_API_KEY`).
 *
 *     npm run bench:recall [-- --out FILE]
 */
import * as fs from "node:fs"
import { parseArgs } from "node:util"
import { BunRuntime } from "@effect/platform-bun"
import { OpenAiEmbeddingModel } from "@sandglass/memory"
import * as Effect from "effect/Effect"
import type { Scores } from "./report.js"
import { labelledSet, report } from "./report.js"

const { values: flags } = parseArgs({ options: { out: { type: "string" } } })

const figure = (value: number) => value.toFixed(3).padStart(10)

const rows = (scores: ReadonlyArray<Scores>) =>
  scores.flatMap(({ all, byKind, name }) => [
    `  ${name.padEnd(24)}${figure(all.recallAt5)}${figure(all.mrr)}`,
    ...Object.entries(byKind).map(
      ([kind, { mrr, queries, recallAt5 }]) =>
        `    ${`${kind} (${queries})`.padEnd(22)}${figure(recallAt5)}${figure(mrr)}`
    )
  ])

const program = Effect.gen(function* () {
  const configured = process.env["EMBEDDING_MODEL"] !== undefined
  const scores = yield* report(configured ? OpenAiEmbeddingModel.layerConfig() : undefined)
  const { facts, queries } = labelledSet
  console.log(`${facts.length} facts, ${queries.length} queries`)
  console.log(`  ${"".padEnd(24)}${"recall@5".padStart(10)}${"MRR".padStart(10)}`)
  for (const row of rows(scores)) console.log(row)
  if (!configured) console.log("EMBEDDING_MODEL is not set: no real model was compared")
  if (flags.out !== undefined) fs.writeFileSync(flags.out, `${JSON.stringify(scores, undefined, 2)}\n`)
})

BunRuntime.runMain(program)
