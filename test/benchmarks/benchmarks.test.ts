import { execFile } from "node:child_process"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import { assert, it } from "vitest"

const root = fileURLToPath(new URL("../..", import.meta.url))
const bun = path.join(root, "node_modules", ".bin", "bun")

it("the benchmarks run, and their results name every subject", { timeout: 300_000 }, async () => {
  const directory = fs.mkdtempSync(path.join(os.tmpdir(), "sandglass-benchmarks-"))
  try {
    const out = path.join(directory, "results.json")
    const output = await new Promise<string>((resolve, reject) => {
      execFile(bun, ["benchmarks/run.ts", "--quick", "--out", out], { cwd: root }, (error, stdout, stderr) =>
        error === null ? resolve(stdout) : reject(new Error(`${error.message}\n${stdout}\n${stderr}`))
      )
    })
    const { subjects } = JSON.parse(fs.readFileSync(out, "utf8"))
    assert.deepStrictEqual(
      subjects.map(({ name }: { readonly name: string }) => name),
      [
        "exec",
        "exec-postgres",
        "ledger",
        "concurrent",
        "resume",
        "listing",
        "tail",
        "size",
        "heap",
        "first-byte",
        "local",
        "conversations",
        "memory",
        "memory-postgres",
        "workflow"
      ]
    )
    for (const { figures, name } of subjects) {
      assert.isNotEmpty(figures, name)
      for (const { value, what } of figures) assert.isTrue(Number.isFinite(value), `${name}: ${what} is ${value}`)
    }
    assert.include(output, "aims met")
  } finally {
    fs.rmSync(directory, { recursive: true })
  }
})
