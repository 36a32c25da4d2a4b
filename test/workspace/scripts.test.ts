import { execFile } from "node:child_process"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import { afterAll, assert, beforeAll, describe, it } from "vitest"

const root = fileURLToPath(new URL("../..", import.meta.url))

/** Runs a script in a process of its own. */
const script = (name: string, ...args: ReadonlyArray<string>) =>
  new Promise<{ readonly code: number; readonly output: string }>((resolve) => {
    execFile(process.execPath, [path.join(root, "scripts", name), ...args], { cwd: root }, (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : Number(error.code ?? 1), output: stdout + stderr })
    })
  })

let dir = ""
beforeAll(() => {
  dir = fs.mkdtempSync(path.join(os.tmpdir(), "sandglass-scripts-"))
})
afterAll(() => {
  fs.rmSync(dir, { recursive: true })
})

const file = (name: string, text: string) => {
  const at = path.join(dir, name)
  fs.mkdirSync(path.dirname(at), { recursive: true })
  fs.writeFileSync(at, text)
  return at
}

describe("examples.mjs", () => {
  it("names the file and line of a broken example, in Markdown and in doc comments", { timeout: 120_000 }, async () => {
    const guide = file(
      "guide.md",
      [
        "# Guide",
        "```ts",
        'import * as Ledger from "@sandglass/core/Ledger"',
        "export const tag = Ledger.Ledger",
        "```",
        "```ts",
        'export const wrong: number = "text"',
        "```",
        "```ts no-check",
        "this is not a program",
        "```",
        "```sh",
        "npm test",
        "```"
      ].join("\n")
    )
    const source = file(
      "Source.ts",
      [
        "/**",
        " * A module.",
        " *",
        " * @example",
        " * ```ts",
        ' * import * as Effect from "effect/Effect"',
        " *",
        " * export const program = Effect.nothingOfThatName",
        " * ```",
        " */",
        "export const value = 1"
      ].join("\n")
    )
    const { code, output } = await script("examples.mjs", guide, source)
    assert.strictEqual(code, 1)
    assert.include(output, `${guide}:7: Type 'string' is not assignable to type 'number'`)
    assert.include(output, `${source}:8: Property 'nothingOfThatName' does not exist`)
    assert.include(output, "3 examples, 2 errors")
  })
})

describe("codegen.mjs", () => {
  it("finds every barrel of this repository up to date", async () => {
    assert.deepStrictEqual(await script("codegen.mjs", "--check"), { code: 0, output: "" })
  })

  it("lists public modules, sorted, without testing, internal and bin", async () => {
    const at = (name: string) => path.join("repository", "packages", "thing", name)
    file(at("package.json"), JSON.stringify({ name: "@sandglass/thing" }))
    for (const name of ["B", "A", "bin", "internal/c", "testing/index"]) file(at(`src/${name}.ts`), "export {}\n")
    const repository = path.join(dir, "repository")
    const before = await script("codegen.mjs", "--check", "--root", repository)
    assert.strictEqual(before.code, 1)
    assert.include(before.output, "packages/thing/src/index.ts is out of date")
    await script("codegen.mjs", "--root", repository)
    assert.strictEqual(
      fs.readFileSync(path.join(dir, at("src/index.ts")), "utf8"),
      'export * as A from "./A.js"\nexport * as B from "./B.js"\n'
    )
    assert.strictEqual((await script("codegen.mjs", "--check", "--root", repository)).code, 0)
  })
})

describe("addresses.mjs", () => {
  it("finds no download address in this repository", async () => {
    assert.deepStrictEqual(await script("addresses.mjs"), { code: 0, output: "" })
  })

  it("finds one in a lock file", async () => {
    const address = ["https:/", "packages.example.com/effect/effect-3.0.0.tgz"].join("/")
    const lock = file("package-lock.json", `{\n  "packages": {\n    "x": { "resolved": "${address}" }\n  }\n}\n`)
    const { code, output } = await script("addresses.mjs", lock)
    assert.strictEqual(code, 1)
    assert.include(output, `${lock}:3: holds a download address`)
  })
})

describe("result-line.mjs", () => {
  const test = (status: string) => ({ status })
  const run = (results: unknown) => script("result-line.mjs", file("results.json", JSON.stringify(results)))

  it("counts passed tests", async () => {
    const testResults = [{ status: "passed", assertionResults: [test("passed"), test("passed")] }]
    assert.deepStrictEqual(await run({ success: true, testResults }), { code: 0, output: "2 passed, 0 failed\n" })
  })

  it("counts failed tests and skipped ones", async () => {
    const testResults = [
      { status: "failed", assertionResults: [test("passed"), test("failed"), test("skipped"), test("todo")] }
    ]
    assert.deepStrictEqual(await run({ success: false, testResults }), {
      code: 1,
      output: "1 passed, 1 failed, 2 skipped\n"
    })
  })

  it("counts a file that does not load as a failure", async () => {
    const testResults = [
      { status: "passed", assertionResults: [test("passed")] },
      { status: "failed", assertionResults: [] }
    ]
    assert.deepStrictEqual(await run({ success: false, testResults }), { code: 1, output: "1 passed, 1 failed\n" })
  })

  it("counts an error outside of the tests, a run of nothing and missing results as failures", async () => {
    const testResults = [{ status: "passed", assertionResults: [test("passed")] }]
    assert.deepStrictEqual(await run({ success: false, testResults }), { code: 1, output: "1 passed, 1 failed\n" })
    assert.deepStrictEqual(await run({ success: true, testResults: [] }), { code: 1, output: "0 passed, 1 failed\n" })
    assert.deepStrictEqual(await script("result-line.mjs", path.join(dir, "missing.json")), {
      code: 1,
      output: "0 passed, 1 failed\n"
    })
  })
})

describe("setup.mjs", () => {
  it("finds the installed dependencies to be those of the lock file", async () => {
    assert.deepStrictEqual(await script("setup.mjs", "--check"), { code: 0, output: "" })
  })
})
