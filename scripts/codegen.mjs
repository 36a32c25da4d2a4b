// Writes every package's barrel (src/index.ts): one namespace per public module, sorted. With --check it only compares.
import fs from "node:fs"
import path from "node:path"
import { root, workspacePackages } from "./lib/packages.mjs"

const check = process.argv.includes("--check")
const base = process.argv.find((_, index, all) => all[index - 1] === "--root") ?? root

for (const pkg of workspacePackages(base)) {
  const file = path.join(pkg.dir, "src", "index.ts")
  const wanted = pkg.modules.map((name) => `export * as ${name} from "./${name}.js"\n`).join("") || "export {}\n"
  const present = fs.existsSync(file) ? fs.readFileSync(file, "utf8") : undefined
  if (present === wanted) continue
  const shown = path.relative(base, file)
  if (check) {
    console.error(`${shown} is out of date: run npm run codegen`)
    process.exitCode = 1
  } else {
    fs.writeFileSync(file, wanted)
    console.log(`wrote ${shown}`)
  }
}
