// What the other scripts know about the workspace, read from the file system: a new folder under packages/ needs no change here.
import fs from "node:fs"
import path from "node:path"
import { fileURLToPath } from "node:url"

export const root = fileURLToPath(new URL("../..", import.meta.url)).replace(/[\\/]$/, "")

export const readJson = (file) => JSON.parse(fs.readFileSync(file, "utf8"))

/** As Biome sorts imports and exports: letter by letter, A before a before B. */
const byName = (a, b) => {
  for (let at = 0; at < Math.min(a.length, b.length); at++) {
    if (a[at] === b[at]) continue
    const [lowerA, lowerB] = [a[at].toLowerCase(), b[at].toLowerCase()]
    return lowerA === lowerB ? (a[at] < b[at] ? -1 : 1) : lowerA < lowerB ? -1 : 1
  }
  return a.length - b.length
}

/** Every file below `dir`, as paths relative to it with forward slashes, sorted. */
export const listFiles = (dir) =>
  fs.existsSync(dir)
    ? fs
        .readdirSync(dir, { recursive: true, withFileTypes: true })
        .filter((entry) => entry.isFile())
        .map((entry) => path.relative(dir, path.join(entry.parentPath ?? entry.path, entry.name)).replaceAll("\\", "/"))
        .sort(byName)
    : []

const binTargets = (manifest) => {
  const bin = manifest.bin ?? {}
  return (typeof bin === "string" ? [bin] : Object.values(bin)).map((target) => target.replace(/^\.\//, ""))
}

/** True for a package's executable modules (`"bin"` in its manifest, or `src/bin.ts`): run, never imported. */
export const isBin = (manifest, file) => /^src\/(bin\/.*|bin)\.ts$/.test(file) || binTargets(manifest).includes(file)

/** The folders under packages/, each before those that depend on it. */
export const workspacePackages = (from = root) => {
  const found = fs
    .readdirSync(path.join(from, "packages"))
    .sort()
    .map((folder) => path.join(from, "packages", folder))
    .filter((dir) => fs.existsSync(path.join(dir, "package.json")))
    .map((dir) => {
      const manifest = readJson(path.join(dir, "package.json"))
      const sources = listFiles(path.join(dir, "src")).map((file) => `src/${file}`)
      return {
        dir,
        folder: path.basename(dir),
        name: manifest.name,
        manifest,
        sources,
        /** What users import as `name/Module`, and what the barrel lists. */
        modules: sources
          .filter((file) => /^src\/[^/]+\.ts$/.test(file) && file !== "src/index.ts" && !isBin(manifest, file))
          .map((file) => path.basename(file, ".ts")),
        testing: sources.includes("src/testing/index.ts"),
        /** Folders with an entry point of their own, for what only some applications need: `name/ai`. */
        subpaths: sources
          .map((file) => /^src\/([^/]+)\/index\.ts$/.exec(file)?.[1])
          .filter((folder) => folder !== undefined && folder !== "testing" && folder !== "internal"),
        /** A package whose `engines` name Bun and not Node is compiled against Bun's types and never run under Node. */
        bunOnly: manifest.engines?.bun !== undefined && manifest.engines?.node === undefined
      }
    })
  const sorted = []
  const visit = (pkg, trail) => {
    if (sorted.includes(pkg)) return
    if (trail.includes(pkg)) throw new Error(`packages depend on each other: ${trail.map((p) => p.name).join(" -> ")}`)
    const names = Object.keys({ ...pkg.manifest.dependencies, ...pkg.manifest.peerDependencies })
    for (const other of found) if (names.includes(other.name)) visit(other, [...trail, pkg])
    sorted.push(pkg)
  }
  for (const pkg of found) visit(pkg, [])
  return sorted
}
