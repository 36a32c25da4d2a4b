import { execFile } from "node:child_process"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import { assert, describe, it } from "@effect/vitest"
import { EmbeddingModel } from "@sandglass/memory"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { recallAt, reciprocalRank } from "../../benchmarks/recall/metrics.js"
import { bySubstring, evaluate, labelledSet, report } from "../../benchmarks/recall/report.js"

const root = fileURLToPath(new URL("../..", import.meta.url))
const words = (text: string): ReadonlyArray<string> => text.toLowerCase().match(/[\p{L}\p{N}_]{4,}/gu) ?? []

describe("the retrieval quality report", () => {
  it("its figures are what they are called", () => {
    assert.strictEqual(recallAt(5, ["a", "b", "c", "d", "e", "f"], ["f", "a"]), 0.5)
    assert.strictEqual(recallAt(1, ["a", "b"], ["b", "a"]), 1)
    assert.strictEqual(recallAt(5, [], ["a"]), 0)
    assert.strictEqual(reciprocalRank(["a", "b", "c"], ["c", "b"]), 0.5)
    assert.strictEqual(reciprocalRank(["a"], ["b"]), 0)
  })

  it("its set is labelled as it says", () => {
    const { facts, queries } = labelledSet
    const texts = new Map(facts.map(({ id, text }) => [id, text]))
    assert.strictEqual(texts.size, facts.length)
    assert.strictEqual(new Set(texts.values()).size, facts.length)
    for (const { kind, query, relevant } of queries) {
      const wanted = relevant.map((id) => texts.get(id) ?? "")
      assert.notInclude(wanted, "", query)
      const shared = words(query).filter((word) => wanted.some((text) => words(text).includes(word)))
      if (kind === "keyword")
        assert.isTrue(
          wanted.some((text) => text.toLowerCase().includes(query.toLowerCase())),
          query
        )
      if (kind === "question") assert.isNotEmpty(shared, query)
      if (kind === "meaning") assert.isEmpty(shared, query)
      if (kind === "form")
        assert.isFalse(
          wanted.some((text) => text.toLowerCase().includes(query.toLowerCase())),
          query
        )
    }
  })

  it.effect("a perfect ranking is perfect, and substring search finds what contains the query", () =>
    Effect.gen(function* () {
      const perfect = yield* evaluate("perfect", labelledSet, (asked) =>
        Effect.succeed(labelledSet.queries.find(({ query }) => query === asked)?.relevant ?? [])
      )
      assert.deepStrictEqual(perfect.all, { queries: labelledSet.queries.length, recallAt5: 1, mrr: 1 })
      const set = {
        facts: [
          { id: "a", text: "One Two" },
          { id: "b", text: "two three" }
        ],
        queries: []
      }
      assert.deepStrictEqual(yield* bySubstring(set)("TWO"), ["a", "b"])
      assert.deepStrictEqual(yield* bySubstring(set)("three two"), [])
    })
  )

  it.effect("compares the baseline, the offline model and any other", () =>
    Effect.gen(function* () {
      const lexical = EmbeddingModel.makeLexical({ dimensions: 16 })
      const scores = yield* report(Layer.succeed(EmbeddingModel.EmbeddingModel, { ...lexical, id: "other" }))
      assert.deepStrictEqual(
        scores.map(({ name }) => name),
        ["exact substring", lexical.id, "other"]
      )
      const [baseline, offline, other] = scores
      assert.isAbove(offline?.all.mrr ?? 0, baseline?.all.mrr ?? 1)
      assert.isAbove(offline?.all.recallAt5 ?? 0, other?.all.recallAt5 ?? 1)
      // It compares letters: inflected and misspelled words are found, other words for the same thing are not.
      assert.isAbove(offline?.byKind["form"]?.recallAt5 ?? 0, 0.9)
      assert.isBelow(offline?.byKind["meaning"]?.recallAt5 ?? 1, 0.2)
    })
  )

  it("npm run bench:recall prints it", { timeout: 60_000 }, async () => {
    const directory = fs.mkdtempSync(path.join(os.tmpdir(), "sandglass-recall-"))
    try {
      const out = path.join(directory, "scores.json")
      const env = { ...process.env }
      delete env["EMBEDDING_MODEL"]
      const output = await new Promise<string>((resolve, reject) => {
        const bun = path.join(root, "node_modules", ".bin", "bun")
        execFile(bun, ["benchmarks/recall/run.ts", "--out", out], { cwd: root, env }, (error, stdout, stderr) =>
          error === null ? resolve(stdout) : reject(new Error(`${error.message}\n${stdout}\n${stderr}`))
        )
      })
      assert.match(output, /exact substring +\d\.\d{3} +\d\.\d{3}\n/)
      assert.include(output, "no real model was compared")
      assert.strictEqual(JSON.parse(fs.readFileSync(out, "utf8")).length, 2)
    } finally {
      fs.rmSync(directory, { recursive: true })
    }
  })
})
