// Compiles a package with the TypeScript API: the options follow from the package's folder, so no package carries build settings.
import path from "node:path"
import ts from "typescript"
import { readJson, root } from "./packages.mjs"

const base = () =>
  ts.convertCompilerOptionsFromJson(readJson(path.join(root, "tsconfig.base.json")).compilerOptions, root).options

/** Libraries see Node's types at most; only packages that say they need Bun see Bun's. Test globals are never in sight. */
const typesOf = (pkg) => (pkg.bunOnly ? ["node", "bun"] : ["node"])

const rootNames = (pkg) =>
  pkg.sources.filter((file) => /(?<!\.d)\.ts$/.test(file)).map((file) => path.join(pkg.dir, file))

const report = (diagnostics) => {
  const shown = ts.formatDiagnostics(ts.sortAndDeduplicateDiagnostics(diagnostics), {
    getCanonicalFileName: (name) => name,
    getCurrentDirectory: () => root,
    getNewLine: () => "\n"
  })
  if (shown !== "") process.stderr.write(shown)
  return diagnostics.every(({ category }) => category !== ts.DiagnosticCategory.Error)
}

const programOf = (names, options) => {
  const host = ts.createCompilerHost(options)
  host.getCurrentDirectory = () => root
  return ts.createProgram(names, options, host)
}

/** Type-checks the packages' sources, without what only tests and scripts may use. */
export const typeCheck = (packages) =>
  [packages.filter((pkg) => !pkg.bunOnly), packages.filter((pkg) => pkg.bunOnly)]
    .filter((group) => group.length > 0)
    .map((group) => {
      const options = { ...base(), types: typesOf(group[0]), noEmit: true }
      return report(ts.getPreEmitDiagnostics(programOf(group.flatMap(rootNames), options)))
    })
    .every(Boolean)

/** Writes ESM, declarations and source maps to dist/. Packages it needs must be compiled already: it sees their declarations only. */
export const compile = (pkg, packages) => {
  const paths = {}
  for (const other of packages) {
    if (other === pkg) continue
    const dist = path.join(other.dir, "dist").replaceAll("\\", "/")
    paths[other.name] = [`${dist}/index.d.ts`]
    for (const folder of [...other.subpaths, ...(other.testing ? ["testing"] : [])])
      paths[`${other.name}/${folder}`] = [`${dist}/${folder}/index.d.ts`]
    paths[`${other.name}/*`] = [`${dist}/*.d.ts`]
  }
  const options = {
    ...base(),
    types: typesOf(pkg),
    paths,
    rootDir: path.join(pkg.dir, "src"),
    outDir: path.join(pkg.dir, "dist"),
    declarationMap: true,
    stripInternal: true,
    noEmitOnError: true
  }
  const program = programOf(rootNames(pkg), options)
  const problems = ts.getPreEmitDiagnostics(program)
  if (!report(problems)) return false
  return report(program.emit().diagnostics)
}
