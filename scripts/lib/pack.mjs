// Packs a compiled package. In the repository `exports` point at src/*.ts; what users install points at dist/, so the manifest is
// rewritten in a staging folder and npm packs that.
import { execFileSync } from "node:child_process"
import fs from "node:fs"
import path from "node:path"
import { root } from "./packages.mjs"

const js = (target) => target.replace(/^(\.\/)?src\//, "./dist/").replace(/\.ts$/, ".js")

const publishedExport = (target) => {
  if (typeof target === "string") {
    return /^\.\/src\/.*\.ts$/.test(target)
      ? { types: js(target).replace(/\.js$/, ".d.ts"), default: js(target) }
      : target
  }
  if (target === null) return null
  throw new Error("exports in the repository are paths or null; conditions are added when packing")
}

/** The manifest users get. */
export const publishedManifest = (pkg) => {
  const {
    scripts: _scripts,
    devDependencies: _devDependencies,
    private: _private,
    bin,
    exports,
    files: _files,
    ...rest
  } = pkg.manifest
  const manifest = {
    ...rest,
    ...(bin && {
      bin:
        typeof bin === "string"
          ? js(bin)
          : Object.fromEntries(Object.entries(bin).map(([name, target]) => [name, js(target)]))
    }),
    exports: {
      ...Object.fromEntries(
        Object.entries(exports)
          // Only what exists: a package without testing/ has no such entry.
          .filter(
            ([, target]) =>
              typeof target !== "string" || target.includes("*") || fs.existsSync(path.join(pkg.dir, target))
          )
          .map(([key, target]) => [key, publishedExport(target)])
      ),
      ...(pkg.sources.includes("src/bin.ts") && { "./bin": null })
    },
    files: ["dist", "src"]
  }
  for (const kind of ["dependencies", "peerDependencies", "optionalDependencies"]) {
    for (const [name, range] of Object.entries(manifest[kind] ?? {})) {
      if (/^[a-z]+:/.test(range))
        throw new Error(`${pkg.name}: "${name}": "${range}" means nothing outside this repository`)
    }
  }
  return manifest
}

/** Writes the tarball into `target` and returns its path. */
export const pack = (pkg, manifest, staging, target) => {
  const dir = path.join(staging, pkg.folder)
  fs.mkdirSync(dir, { recursive: true })
  fs.writeFileSync(path.join(dir, "package.json"), `${JSON.stringify(manifest, undefined, 2)}\n`)
  for (const folder of manifest.files)
    fs.cpSync(path.join(pkg.dir, folder), path.join(dir, folder), { recursive: true })
  for (const file of ["LICENSE", "README.md"]) {
    const own = path.join(pkg.dir, file)
    fs.copyFileSync(fs.existsSync(own) ? own : path.join(root, file), path.join(dir, file))
  }
  const output = execFileSync("npm", ["pack", "--json", "--ignore-scripts", "--pack-destination", target], {
    cwd: dir,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "inherit"],
    shell: process.platform === "win32"
  })
  const result = JSON.parse(output)
  const [{ filename }] = Array.isArray(result) ? result : Object.values(result)
  return path.join(target, filename)
}
