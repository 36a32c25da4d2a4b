// TypeDoc plugin: a module carries the name it is imported by (@sandglass/core/Ledger), not its path, and the comment at the head of
// its file, which TypeDoc would only take with a @module tag.
import fs from "node:fs"
import path from "node:path"
import { Comment, Converter, ReflectionKind } from "typedoc"
import { workspacePackages } from "./lib/packages.mjs"

const headOf = (file) => {
  const head = /^(?:#!.*\n)?\s*\/\*\*(.*?)\*\/\s*(?=import\b|\/\*\*)/s.exec(fs.readFileSync(file, "utf8"))
  const lines = head?.[1].replaceAll(/^\s*\* ?/gm, "").split("\n") ?? []
  return lines
    .filter((line) => !/^@(?:since|category)\b/.test(line))
    .join("\n")
    .replaceAll("@example", "**Example**")
    .trim()
}

export const load = (app) => {
  const packages = workspacePackages()
  app.converter.on(Converter.EVENT_RESOLVE_BEGIN, ({ project }) => {
    for (const module of project.getReflectionsByKind(ReflectionKind.Module)) {
      const file = module.sources?.[0]?.fullFileName
      const pkg = file && packages.find(({ dir }) => file.startsWith(`${dir.replaceAll("\\", "/")}/`))
      if (!pkg) continue
      const name = path
        .relative(path.join(pkg.dir, "src"), file)
        .replaceAll("\\", "/")
        .replace(/(\/index)?\.ts$/, "")
      module.name = `${pkg.name}/${name}`
      const head = headOf(file)
      if (head !== "") module.comment ??= new Comment([{ kind: "text", text: head }])
    }
  })
}
