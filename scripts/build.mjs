// Builds what users install: compiles every package to dist/, packs it to dist/*.tgz, then installs the tarballs in an empty project
// and uses them there. With --types-only it compiles without output.
import fs from "node:fs"
import os from "node:os"
import path from "node:path"
import { compile, typeCheck } from "./lib/compile.mjs"
import { pack, publishedManifest } from "./lib/pack.mjs"
import { root, workspacePackages } from "./lib/packages.mjs"
import { verify } from "./lib/verify.mjs"

const packages = workspacePackages()

const build = () => {
  for (const pkg of packages) fs.rmSync(path.join(pkg.dir, "dist"), { recursive: true, force: true })
  for (const pkg of packages) {
    if (!compile(pkg, packages)) throw new Error(`${pkg.name} does not compile`)
    console.log(`compiled ${pkg.name}`)
  }

  const out = path.join(root, "dist")
  fs.rmSync(out, { recursive: true, force: true })
  fs.mkdirSync(out)
  const scratch = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "sandglass-build-")))
  try {
    const packed = packages
      .filter((pkg) => pkg.manifest.private !== true)
      .map((pkg) => {
        const manifest = publishedManifest(pkg)
        return { pkg, manifest, tarball: pack(pkg, manifest, path.join(scratch, "staging"), out) }
      })
    for (const { tarball } of packed) {
      console.log(`packed ${path.relative(root, tarball)} (${Math.ceil(fs.statSync(tarball).size / 1024)} kB)`)
    }
    verify(packed, path.join(scratch, "project"))
  } finally {
    fs.rmSync(scratch, { recursive: true, force: true })
  }
}

if (process.argv.includes("--types-only")) process.exitCode = typeCheck(packages) ? 0 : 1
else {
  try {
    build()
  } catch (error) {
    console.error(`build failed: ${error.message}`)
    process.exitCode = 1
  }
}
