// Everything that can be said about the sources without running them. All checks run (two at a time) and each failure is shown, so
// that one pass tells everything. Arguments: the names of the checks to run instead of all.
import { spawn } from "node:child_process"
import path from "node:path"
import { root } from "./lib/packages.mjs"

const node = (...args) => [process.execPath, ...args]
const bin = (file, ...args) => node(path.join("node_modules", file), ...args)

const checks = {
  types: bin("typescript/bin/tsc"),
  packages: node("scripts/build.mjs", "--types-only"),
  effect: bin(
    "@effect/language-service/cli.js",
    "diagnostics",
    "--project",
    "tsconfig.json",
    "--strict",
    "--format",
    "text",
    "--severity",
    "error,warning"
  ),
  lint: bin("@biomejs/biome/bin/biome", "check", "--error-on-warnings", "--max-diagnostics=200", "."),
  examples: node("scripts/examples.mjs"),
  barrels: node("scripts/codegen.mjs", "--check"),
  addresses: node("scripts/addresses.mjs")
}

const run = (name) =>
  new Promise((resolve) => {
    const started = Date.now()
    const [command, ...args] = checks[name]
    const child = spawn(command, args, {
      cwd: root,
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...process.env, FORCE_COLOR: "0" }
    })
    let output = ""
    const add = (chunk) => {
      output += chunk
    }
    child.stdout.setEncoding("utf8").on("data", add)
    child.stderr.setEncoding("utf8").on("data", add)
    child.on("close", (code) => {
      console.log(`${code === 0 ? "ok  " : "FAIL"} ${name} (${((Date.now() - started) / 1000).toFixed(1)} s)`)
      if (code !== 0) console.log(output.trimEnd().replaceAll(/^/gm, "     "))
      resolve(code === 0)
    })
  })

const names = process.argv.length > 2 ? process.argv.slice(2) : Object.keys(checks)
for (const name of names) {
  if (checks[name] === undefined) {
    console.error(`no check named ${name}; there are ${Object.keys(checks).join(", ")}`)
    process.exit(2)
  }
}
const queue = [...names]
const results = []
const worker = async () => {
  for (let name = queue.shift(); name !== undefined; name = queue.shift()) results.push(await run(name))
}
await Promise.all([worker(), worker()])
process.exitCode = results.every(Boolean) ? 0 : 1
