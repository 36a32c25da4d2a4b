// Type-checks the examples users copy: every ```ts block in the doc comments of packages/*/src and in the Markdown files, each as a
// module of its own that sees the packages by name. The examples live in memory only, at their original line, so that an error names
// the file and line to edit. A block opened with ```ts no-check is left alone. Arguments: the files to check instead of all.
import { execFileSync } from "node:child_process"
import fs from "node:fs"
import path from "node:path"
import ts from "typescript"
import { root } from "./lib/packages.mjs"

const allFiles = () =>
  execFileSync("git", ["ls-files", "-z", "--cached", "--others", "--exclude-standard"], { cwd: root, encoding: "utf8" })
    .split("\0")
    .filter((file) => /^packages\/[^/]+\/src\/.*\.ts$/.test(file) || file.endsWith(".md"))

/** The ts blocks of a text; each keeps its place by standing behind as many empty lines as it had lines before it. */
const blocksOf = (text, isSource) => {
  const blocks = []
  let block
  let inComment = !isSource
  for (const [index, line] of text.split(/\r?\n/).entries()) {
    if (isSource && /^\s*\/\*\*/.test(line)) inComment = true
    const content = isSource ? line.replace(/^\s*\* ?/, "") : line
    const fence = /^\s*(`{3,})(.*)$/.exec(content)
    if (!inComment) continue
    if (block === undefined && fence !== null) {
      const words = fence[2].trim().split(/\s+/)
      block = {
        fence: fence[1],
        first: index + 1,
        lines: [],
        wanted: /^(ts|typescript)$/.test(words[0]) && !words.includes("no-check")
      }
    } else if (
      block !== undefined &&
      fence !== null &&
      fence[1].length >= block.fence.length &&
      fence[2].trim() === ""
    ) {
      if (block.wanted)
        blocks.push({ line: block.first, code: `${"\n".repeat(block.first)}${block.lines.join("\n")}\n` })
      block = undefined
    } else if (block !== undefined) {
      // A comment cannot hold the two characters that end it; examples write them apart.
      block.lines.push(isSource ? content.replaceAll("*\\/", "*/") : content)
    }
    if (isSource && line.includes("*/")) {
      inComment = false
      block = undefined
    }
  }
  return blocks
}

const given = process.argv.slice(2)
const examples = new Map()
for (const file of given.length > 0 ? given : allFiles()) {
  const at = path.resolve(root, file)
  if (!fs.existsSync(at)) continue
  for (const { line, code } of blocksOf(fs.readFileSync(at, "utf8"), file.endsWith(".ts"))) {
    const name = `${file.replace(/^.*node_modules/, "").replaceAll(/[^\w.-]/g, "_")}.${line}.ts`
    examples.set(path.join(root, name).replaceAll("\\", "/"), { file, code })
  }
}

const config = ts.getParsedCommandLineOfConfigFile(
  path.join(root, "tsconfig.json"),
  {},
  { ...ts.sys, onUnRecoverableConfigFileDiagnostic: () => {} }
)
const options = {
  ...config.options,
  noEmit: true,
  incremental: false,
  tsBuildInfoFile: undefined,
  noUnusedLocals: false,
  noUnusedParameters: false,
  declaration: false
}
const host = ts.createCompilerHost(options)
const { fileExists, readFile, getSourceFile } = host
host.fileExists = (name) => examples.has(name) || fileExists(name)
host.readFile = (name) => examples.get(name)?.code ?? readFile(name)
host.getSourceFile = (name, version, ...rest) =>
  examples.has(name)
    ? ts.createSourceFile(name, examples.get(name).code, version, true)
    : getSourceFile(name, version, ...rest)

const program = ts.createProgram([...examples.keys()], options, host)
let failures = 0
for (const [name, { file }] of examples) {
  const source = program.getSourceFile(name)
  for (const diagnostic of [...program.getSyntacticDiagnostics(source), ...program.getSemanticDiagnostics(source)]) {
    const { line } = source.getLineAndCharacterOfPosition(diagnostic.start ?? 0)
    console.error(`${file}:${line + 1}: ${ts.flattenDiagnosticMessageText(diagnostic.messageText, "\n")}`)
    failures++
  }
}
console.log(`${examples.size} examples, ${failures} errors`)
process.exitCode = failures > 0 ? 1 : 0
