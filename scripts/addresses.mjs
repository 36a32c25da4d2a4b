// Nothing in the repository may say where packages are downloaded from: that is each user's own npm configuration. Looks at every
// tracked file, or at the files given as arguments.
import { execFileSync } from "node:child_process"
import fs from "node:fs"
import path from "node:path"
import { root } from "./lib/packages.mjs"

const run = (command, ...args) =>
  execFileSync(command, args, { cwd: root, encoding: "utf8", shell: process.platform === "win32" })

const given = process.argv.slice(2)
const files = given.length > 0 ? given : run("git", "ls-files", "-z").split("\0").filter(Boolean)

const patterns = [
  ["a download address", /https?:\/\/[^\s"'`)]+\.(?:tgz|tar\.gz)/],
  ["a package registry", /\bregistry\.(?!example\b)[a-z0-9-]+\.(?:com|org|net|dev|io)\b/],
  ["a registry setting", /^\s*(?:@[\w-]+:)?registry\s*=/m],
  ["a lock entry with an address", /"resolved": "(?:https?|git)[^"]*"/]
]
// Whatever registry this machine happens to use must not have leaked either.
const configured = new URL(run("npm", "config", "get", "registry").trim() || "http://localhost").hostname
if (!/^(?:localhost|127\.0\.0\.1)$/.test(configured)) {
  patterns.push(["this machine's registry", new RegExp(`\\b${configured.replaceAll(".", "\\.")}\\b`)])
}

for (const file of files) {
  const at = path.resolve(root, file)
  if (!fs.existsSync(at) || fs.statSync(at).isDirectory()) continue
  const text = fs.readFileSync(at, "utf8")
  for (const [what, pattern] of patterns) {
    const found = pattern.exec(text)
    if (found === null) continue
    console.error(`${file}:${text.slice(0, found.index).split("\n").length}: holds ${what}`)
    process.exitCode = 1
  }
}
