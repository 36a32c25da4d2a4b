// Uses the packed packages the way a stranger would: in an empty project outside the repository, with npm, TypeScript, Node and Bun.
import { spawnSync } from "node:child_process"
import fs from "node:fs"
import path from "node:path"
import { listFiles, readJson, root } from "./packages.mjs"

const write = (file, text) => {
  fs.mkdirSync(path.dirname(file), { recursive: true })
  fs.writeFileSync(file, typeof text === "string" ? text : JSON.stringify(text, undefined, 2))
}

const run = (cwd, command, args) => {
  const result = spawnSync(command, args, {
    cwd,
    encoding: "utf8",
    timeout: 240_000,
    stdio: ["ignore", "pipe", "pipe"]
  })
  return {
    ok: result.status === 0,
    output: `${result.stdout ?? ""}${result.stderr ?? ""}${result.error?.message ?? ""}`
  }
}

const must = (what, { ok, output }) => {
  if (!ok) throw new Error(`${what}\n${output.trimEnd()}`)
  console.log(`verified: ${what}`)
}

const npm = (cwd, ...args) =>
  run(cwd, "npm", ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", ...args])
const tsc = path.join(root, "node_modules", "typescript", "bin", "tsc")
const vitest = path.join("node_modules", "vitest", "vitest.mjs")
const bun = path.join(root, "node_modules", ".bin", "bun")

/** The manifest of an application that installs these packages and their peers, in the versions this repository is tested with. */
const application = (packed) => {
  const rootManifest = readJson(path.join(root, "package.json"))
  const dependencies = {}
  for (const { manifest, tarball } of packed) {
    dependencies[manifest.name] = `file:${tarball}`
    for (const name of Object.keys(manifest.peerDependencies ?? {})) {
      if (packed.some((other) => other.manifest.name === name)) continue
      dependencies[name] = readJson(path.join(root, "node_modules", name, "package.json")).version
    }
  }
  // What an override refers to with "$name" must be the application's own dependency.
  const overrides = Object.fromEntries(
    Object.entries(rootManifest.overrides ?? {}).filter(([name]) => dependencies[name])
  )
  for (const reference of JSON.stringify(overrides).matchAll(/"\$([^"]+)"/g)) {
    dependencies[reference[1]] ??= rootManifest.devDependencies[reference[1]]
  }
  const devDependencies = { "@types/bun": rootManifest.devDependencies["@types/bun"] }
  return { name: "consumer", private: true, type: "module", dependencies, devDependencies, overrides }
}

const specifiers = ({ pkg }) => [pkg.name, ...[...pkg.modules, ...pkg.subpaths].map((name) => `${pkg.name}/${name}`)]

/** Compiles the project and fails on errors in its own files or in our declarations, not on those in other libraries'. */
const compileWith = (dir, moduleResolution, compilerOptions, files) => {
  const config = `tsconfig.${moduleResolution}.json`
  write(path.join(dir, config), {
    compilerOptions: {
      target: "ES2022",
      lib: ["ES2023", "DOM", "DOM.Iterable"],
      strict: true,
      exactOptionalPropertyTypes: true,
      skipLibCheck: false,
      types: ["bun"],
      rootDir: "src",
      moduleResolution,
      ...compilerOptions
    },
    files
  })
  const { output } = run(dir, process.execPath, [tsc, "-p", config, "--pretty", "false"])
  const problems = output.split("\n").filter((line) => /error TS\d+/.test(line))
  const ours = problems.filter(
    (line) => !/^(\.\.\/)*node_modules\//.test(line) || line.includes("node_modules/@sandglass/")
  )
  const foreign = problems.length - ours.length
  must(
    `declarations, moduleResolution ${moduleResolution}${foreign > 0 ? ` (${foreign} errors in other libraries)` : ""}`,
    {
      ok: ours.length === 0,
      output: ours.join("\n")
    }
  )
}

export const verify = (packed, dir) => {
  // Without npm overrides wherever no package needs them, so that an ordinary application can install these.
  const { overrides: _overrides, ...plain } = application(packed)
  const needed = Object.keys(_overrides)
  const simple = packed.filter(({ manifest }) =>
    needed.every((name) => !{ ...manifest.dependencies, ...manifest.peerDependencies }[name])
  )
  if (needed.length > 0 && simple.length > 0) {
    const { overrides: _none, ...manifest } = application(simple)
    write(path.join(dir, "plain", "package.json"), manifest)
    must(
      `npm resolves ${simple.map(({ pkg }) => pkg.name).join(", ")} without overrides`,
      npm(path.join(dir, "plain"), "--package-lock-only")
    )
  }

  const app = path.join(dir, "app")
  write(path.join(app, "package.json"), { ...plain, ...(needed.length > 0 && { overrides: _overrides }) })
  must(
    `npm installs ${packed.length} packages${needed.length > 0 ? ` with overrides for ${needed.join(", ")}` : ""}`,
    npm(app)
  )
  const copies = Object.keys(readJson(path.join(app, "package-lock.json")).packages).filter((key) =>
    /(^|\/)node_modules\/effect$/.test(key)
  )
  must("one copy of effect", { ok: copies.length === 1, output: copies.join("\n") })

  const testing = packed.filter(({ pkg }) => pkg.testing).map(({ pkg }) => `${pkg.name}/testing`)
  const imports = packed.flatMap(specifiers)
  write(
    path.join(app, "src", "imports.ts"),
    `${[...imports, ...testing].map((name, i) => `export * as m${i} from "${name}"`).join("\n")}\n`
  )

  // test/packed/<package>.ts: what a user would write first with that package.
  const programs = packed
    .map(({ pkg }) => ({ pkg, file: `${pkg.folder}.ts` }))
    .filter(({ file }) => fs.existsSync(path.join(root, "test", "packed", file)))
  for (const { file } of programs)
    write(path.join(app, "src", file), fs.readFileSync(path.join(root, "test", "packed", file), "utf8"))
  const files = listFiles(path.join(app, "src")).map((file) => `src/${file}`)
  compileWith(app, "nodenext", { module: "nodenext", outDir: "out" }, files)
  compileWith(app, "bundler", { module: "esnext", noEmit: true }, files)

  const closed = packed.flatMap(({ pkg }) =>
    pkg.sources
      .filter((file) => file.startsWith("src/internal/"))
      .slice(0, 1)
      .map((file) => `${pkg.name}/${file.slice(4, -3)}`)
  )
  for (const [runtime, command] of Object.entries({ bun, node: process.execPath })) {
    const usable = ({ pkg }) => runtime === "bun" || !pkg.bunOnly
    const names = packed.filter(usable).flatMap(specifiers)
    write(
      path.join(app, `${runtime}.mjs`),
      `for (const name of ${JSON.stringify(names)}) await import(name)
for (const name of ${JSON.stringify(closed)}) {
  let open = true
  try { await import(name) } catch { open = false }
  if (open) throw new Error(name + " can be imported")
}
process.exit(0)
`
    )
    must(`${runtime} imports ${names.length} entry points`, run(app, command, [`${runtime}.mjs`]))
    for (const { file } of programs.filter(usable)) {
      must(`${runtime} runs test/packed/${file}`, run(app, command, [path.join("out", file.replace(/\.ts$/, ".js"))]))
    }
  }
  for (const { pkg, manifest } of packed) {
    for (const [name, target] of Object.entries(
      typeof manifest.bin === "string" ? { [pkg.folder]: manifest.bin } : (manifest.bin ?? {})
    )) {
      const file = path.join(app, "node_modules", pkg.name, target)
      const first = fs.existsSync(file) ? fs.readFileSync(file, "utf8").split("\n")[0] : "missing"
      must(`${name} is executable`, { ok: first.startsWith("#!"), output: `${target}: ${first}` })
    }
  }
  if (testing.length > 0) {
    write(
      path.join(app, "testing.test.ts"),
      `import { it } from "vitest"\n${testing.map((name) => `it("${name}", async () => { await import("${name}") })\n`).join("")}`
    )
    must(`vitest imports ${testing.join(", ")}`, run(app, bun, ["--bun", vitest, "run"]))
  }
}
